package providers

import (
	"maps"

	"penstock/routing/provider"
	"penstock/routing/resource"
)

// refusal is what this node leaves out of an answer.
type refusal struct {
	count int
	fault string // of the first one
}

// Lookup implements routing.Discovered: what the Directory has, without the
// endpoints that this node must not connect to. Each node leaves out its own, so
// that the Directory, and what is replicated, are the same on all.
func (p *Providers) Lookup(ref provider.Ref) []provider.Found {
	list, refused := p.usable(ref, p.Directory.Lookup(ref))
	p.refusing.Lock()
	defer p.refusing.Unlock()
	if before := p.refused[ref]; before == refused {
		return list
	}
	if refused == (refusal{}) {
		delete(p.refused, ref)
		return list
	}
	if p.refused[ref].fault != refused.fault {
		p.cfg.Log.Warn("endpoints of a provider are not used", "provider", ref.Provider, "service", ref.Service,
			"endpoints", refused.count, "reason", refused.fault)
	}
	p.refused[ref] = refused
	return list
}

// usable returns the endpoints of a list that are not refused.
func (p *Providers) usable(ref provider.Ref, list []provider.Found) ([]provider.Found, refusal) {
	var refused refusal
	if p.cfg.Refuse == nil {
		return list, refused
	}
	var kept []provider.Found // once one is refused
	for i := range list {
		var err error
		if list[i].Addr.IsValid() {
			err = p.cfg.Refuse(ref, list[i].Addr)
		}
		switch {
		case err == nil && refused.count > 0:
			kept = append(kept, list[i])
		case err != nil:
			if refused.count == 0 {
				kept = append(make([]provider.Found, 0, len(list)), list[:i]...)
				refused.fault = err.Error()
			}
			refused.count++
		}
	}
	if refused.count == 0 {
		return list, refused
	}
	return kept, refused
}

// affectsListeners reports whether a change may change where listeners are or
// lead to.
func affectsListeners(ch resource.Change) bool {
	return ch.Kind != "Service" && ch.Kind != "Certificate" && ch.Kind != resource.KindProvider && ch.Kind != resource.KindRollout
}

// recheck puts in force which endpoints this node refuses now.
func (p *Providers) recheck() {
	if p.cfg.Refuse == nil {
		return
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	var changed []provider.Ref
	all := p.Directory.All()
	p.refusing.Lock()
	maps.DeleteFunc(p.refused, func(ref provider.Ref, _ refusal) bool { return all[ref] == nil })
	p.refusing.Unlock()
	for ref, list := range all {
		_, now := p.usable(ref, list)
		p.refusing.Lock()
		before := p.refused[ref]
		p.refusing.Unlock()
		if now != before {
			changed = append(changed, ref)
		}
	}
	if len(changed) > 0 {
		p.cfg.Changed(changed) // which makes the router look these up
	}
}

// withRefused adds what this node refuses to the state of a provider.
func (p *Providers) withRefused(s provider.Status) provider.Status {
	p.refusing.Lock()
	all := maps.Clone(p.refused)
	p.refusing.Unlock()
	for i := range s.Queries {
		q := &s.Queries[i]
		refused, ok := all[provider.Ref{Provider: s.Name, Query: q.Query}]
		if !ok {
			continue
		}
		if q.Unused == 0 {
			q.Fault = refused.fault
		}
		q.Unused += refused.count
		q.Endpoints -= min(refused.count, q.Endpoints)
	}
	return s
}
