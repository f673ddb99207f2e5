package providers

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"penstock/consensus/store"
	"penstock/routing/provider"
)

const (
	// maxBatchOps bounds the endpoints of one batch, which is about a megabyte.
	maxBatchOps = 5000
	// commitTimeout bounds the wait for a batch.
	commitTimeout = 10 * time.Second
)

// knownInStore returns what a provider of scope cluster has found.
func (p *Providers) knownInStore(name string) map[provider.Query][]provider.Endpoint {
	known := map[provider.Query][]provider.Endpoint{}
	for e := range p.cfg.Store.Snapshot().Kind(kind) {
		ref, address, ok := parseKey(e.Key)
		if !ok || ref.Provider != name {
			continue
		}
		if f, err := decode(address, e.Value); err == nil {
			known[ref.Query] = append(known[ref.Query], f.Endpoint)
		}
	}
	return known
}

// applyInStore stores what a provider of scope cluster found. Part of it may be
// stored after an error; the provider repeats what it does not know to be.
func (p *Providers) applyInStore(ctx context.Context, name string, changes []provider.Change) error {
	view, now := p.cfg.Store.Snapshot(), time.Now()
	var ops []store.Op
	for i := range changes {
		c := &changes[i]
		ref := provider.Ref{Provider: name, Query: c.Query}
		for j := range c.Put {
			op, err := putOp(view, ref, &c.Put[j], now)
			if err != nil {
				p.cfg.Log.Warn("an endpoint of a provider cannot be stored and is not used", "provider", name, "error", err)
				continue
			}
			ops = append(ops, op)
		}
		for _, address := range c.Gone {
			if key, err := keyOf(ref, address); err == nil { // otherwise it was never stored
				ops = append(ops, store.Op{Key: key})
			}
		}
	}
	return p.commit(ctx, name, ops)
}

// putOp returns the operation that stores an endpoint. One that is known keeps
// the time since when it is.
func putOp(view store.Snapshot, ref provider.Ref, e *provider.Endpoint, now time.Time) (store.Op, error) {
	key, err := keyOf(ref, e.Address)
	if err != nil {
		return store.Op{}, err
	}
	if old, ok := view.Get(key); ok {
		if f, err := decode(e.Address, old.Value); err == nil {
			now = f.Since
		}
	}
	value, err := encode(e, now)
	return store.Op{Key: key, Value: value}, err
}

// commit stores operations in batches.
func (p *Providers) commit(ctx context.Context, name string, ops []store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	for part := range slices.Chunk(ops, maxBatchOps) {
		b := &store.Batch{Ops: part, Note: store.Note{Who: "provider " + name, What: "endpoints", At: time.Now().UTC()}}
		_, _ = rand.Read(b.ID[:]) // never fails
		pending, err := p.cfg.Store.Propose(ctx, b)
		if err != nil {
			return err
		}
		if _, err := pending.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// removeOrphans deletes the stored endpoints of providers that no longer exist
// or are no longer of scope cluster: once when this node begins to lead, and
// once when a provider changes.
func (p *Providers) removeOrphans(ctx context.Context, leads bool) {
	p.mu.Lock()
	due := leads && !p.tidy
	p.tidy = leads
	ours := map[string]bool{}
	for name, spec := range p.specs {
		ours[name] = spec.Scope == "cluster"
	}
	p.mu.Unlock()
	if !due {
		return
	}
	var ops []store.Op
	for e := range p.cfg.Store.Snapshot().Kind(kind) {
		if name, _, _ := strings.Cut(e.Name, sep); !ours[name] {
			ops = append(ops, store.Op{Key: e.Key})
		}
	}
	if err := p.commit(ctx, "", ops); err != nil && ctx.Err() == nil {
		p.cfg.Log.Warn("cannot remove the endpoints of providers that are gone; retrying", "error", err)
		p.mu.Lock()
		p.tidy = false
		p.mu.Unlock()
	}
}

// follow puts what the store has in force, until ctx ends.
func (p *Providers) follow(ctx context.Context) {
	old := p.loaded
	p.loaded = store.Snapshot{} // it retains old content
	for {
		view, err := p.cfg.Store.Wait(ctx, old.Index())
		if err != nil {
			return // ctx ended, or the store was closed
		}
		if p.cfg.Await(ctx, view.Index()) != nil {
			return
		}
		p.update(p.updates(old, view))
		old = view
	}
}

// updates returns what differs between two snapshots.
func (p *Providers) updates(old, view store.Snapshot) []provider.Update {
	byRef := map[provider.Ref]*provider.Update{}
	for _, key := range changedKeys(old, view) {
		ref, address, ok := parseKey(key)
		if !ok || p.runsOnEachNode(ref.Provider) {
			continue // what each node found stays, not what a leader stored before
		}
		u := byRef[ref]
		if u == nil {
			u = &provider.Update{Ref: ref}
			byRef[ref] = u
		}
		e, exists := view.Get(key)
		if !exists {
			u.Gone = append(u.Gone, address)
			continue
		}
		f, err := decode(address, e.Value)
		if err != nil {
			p.cfg.Log.Error("cannot decode a stored endpoint; it is not used", "provider", ref.Provider, "address", address, "error", err)
			continue
		}
		u.Put = append(u.Put, f)
	}
	all := make([]provider.Update, 0, len(byRef))
	for _, u := range byRef {
		all = append(all, *u)
	}
	return all
}

// runsOnEachNode reports whether a provider is of scope node.
func (p *Providers) runsOnEachNode(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	spec := p.specs[name]
	return spec != nil && spec.Scope == "node"
}

// changedKeys lists the keys of endpoints that differ between two snapshots,
// and possibly others.
func changedKeys(old, view store.Snapshot) []store.Key {
	keys, known := view.Changed(old.Index())
	if known && old.Index() > 0 {
		return slices.DeleteFunc(keys, func(k store.Key) bool { return k.Kind != kind })
	}
	keys = nil
	for e := range view.Kind(kind) {
		if was, ok := old.Get(e.Key); !ok || was.Version != e.Version {
			keys = append(keys, e.Key)
		}
	}
	for e := range old.Kind(kind) {
		if _, ok := view.Get(e.Key); !ok {
			keys = append(keys, e.Key)
		}
	}
	return keys
}
