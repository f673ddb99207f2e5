package kafka

import (
	"fmt"
	"iter"
	"strings"
	"sync"

	"penstock/kafka/model"
)

// unmappedLog is what was last logged about brokers without a virtual address.
type unmappedLog struct {
	mu     sync.Mutex
	logged map[*model.VirtualState]string
}

// trackUnmapped checks the virtual clusters that a change has compiled.
func (r *Proxy) trackUnmapped(done model.Applied) {
	r.unmapped.mu.Lock()
	for _, state := range done.Removed {
		delete(r.unmapped.logged, state)
	}
	r.unmapped.mu.Unlock()
	r.logUnmapped(func(yield func(*model.Virtual) bool) {
		for _, name := range done.Virtual {
			v, ok := done.Table.Virtual(name)
			if !ok {
				continue
			}
			v.State().OnUnmapped(r.signalBrokersChanged)
			if !yield(v) {
				return
			}
		}
	})
}

// logUnmapped logs which brokers have no virtual address, once for each change
// of them.
func (r *Proxy) logUnmapped(clusters iter.Seq[*model.Virtual]) {
	r.unmapped.mu.Lock()
	defer r.unmapped.mu.Unlock()
	for v := range clusters {
		if v.State().Current() != v {
			continue // the newer version is logged by its own change
		}
		var all []string
		for _, u := range v.Unmapped() {
			all = append(all, fmt.Sprintf("%s, at %s", u.Explain(v), u.Address))
		}
		text, was := strings.Join(all, "; "), r.unmapped.logged[v.State()]
		if text == was {
			continue
		}
		if text == "" {
			delete(r.unmapped.logged, v.State())
			r.cfg.Log.Info("every broker has a virtual address again", "virtualCluster", v.Name())
			continue
		}
		if r.unmapped.logged == nil {
			r.unmapped.logged = map[*model.VirtualState]string{}
		}
		r.unmapped.logged[v.State()] = text
		r.cfg.Log.Warn("brokers without a virtual address", "virtualCluster", v.Name(), "brokers", text)
	}
}

// Unmapped returns, by virtual cluster, the number of brokers that clients do
// not see.
func (r *Proxy) Unmapped() map[string]int {
	all := map[string]int{}
	for v := range r.Table().Virtuals() {
		all[v.Name()] = len(v.Unmapped())
	}
	return all
}
