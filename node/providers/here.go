package providers

import (
	"strings"
	"time"

	"penstock/routing/provider"
)

func compareNames(a, b string) int { return strings.Compare(a, b) }

// knownHere returns what a provider of scope node has found on this node.
func (p *Providers) knownHere(name string) map[provider.Query][]provider.Endpoint {
	known := map[provider.Query][]provider.Endpoint{}
	for ref, list := range p.Directory.All() {
		if ref.Provider != name {
			continue
		}
		for i := range list {
			known[ref.Query] = append(known[ref.Query], list[i].Endpoint)
		}
	}
	return known
}

// applyHere puts what a provider of scope node found in force.
func (p *Providers) applyHere(name string, changes []provider.Change) error {
	now := time.Now()
	updates := make([]provider.Update, len(changes))
	for i, c := range changes {
		u := &updates[i]
		u.Ref = provider.Ref{Provider: name, Query: c.Query}
		u.Gone = c.Gone
		since := map[string]time.Time{}
		for _, f := range p.Directory.Lookup(u.Ref) {
			since[f.Address] = f.Since
		}
		for _, e := range c.Put {
			at, known := since[e.Address]
			if !known {
				at = now
			}
			u.Put = append(u.Put, provider.NewFound(e, at))
		}
	}
	p.update(updates)
	return nil
}

// forget removes what a provider of scope node found.
func (p *Providers) forget(name string) {
	var updates []provider.Update
	for ref, list := range p.Directory.All() {
		if ref.Provider != name {
			continue
		}
		u := provider.Update{Ref: ref}
		for i := range list {
			u.Gone = append(u.Gone, list[i].Address)
		}
		updates = append(updates, u)
	}
	p.update(updates)
}

// update puts updates in force and tells of them.
func (p *Providers) update(updates []provider.Update) {
	if len(updates) == 0 {
		return
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	p.Directory.Apply(updates)
	refs := make([]provider.Ref, len(updates))
	for i := range updates {
		refs[i] = updates[i].Ref
	}
	p.cfg.Changed(refs)
}
