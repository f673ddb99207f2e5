package kafka

import (
	"fmt"
	"iter"
	"strings"
	"sync"

	"penstock/kafka/model"
)

// unplaced is what was last logged about brokers without a virtual address.
type unplaced struct {
	mu   sync.Mutex
	said map[*model.Life]string
}

// noteUnplaced checks the virtual clusters that a change has compiled.
func (r *Proxy) noteUnplaced(done model.Applied) {
	r.unplaced.mu.Lock()
	for _, life := range done.Removed {
		delete(r.unplaced.said, life)
	}
	r.unplaced.mu.Unlock()
	r.logUnplaced(func(yield func(*model.Virtual) bool) {
		for _, name := range done.Virtual {
			v, ok := done.Table.Virtual(name)
			if !ok {
				continue
			}
			v.Life().OnUnplaced(r.signalMoved)
			if !yield(v) {
				return
			}
		}
	})
}

// logUnplaced logs which brokers have no virtual address, once for each change
// of them.
func (r *Proxy) logUnplaced(clusters iter.Seq[*model.Virtual]) {
	r.unplaced.mu.Lock()
	defer r.unplaced.mu.Unlock()
	for v := range clusters {
		if v.Life().Current() != v {
			continue // a newer one is told of by itself
		}
		var all []string
		for _, u := range v.Unplaced() {
			all = append(all, fmt.Sprintf("%s, at %s", u.Why(v), u.Address))
		}
		text, was := strings.Join(all, "; "), r.unplaced.said[v.Life()]
		if text == was {
			continue
		}
		if text == "" {
			delete(r.unplaced.said, v.Life())
			r.cfg.Log.Info("every broker has a virtual address again", "virtualCluster", v.Name())
			continue
		}
		if r.unplaced.said == nil {
			r.unplaced.said = map[*model.Life]string{}
		}
		r.unplaced.said[v.Life()] = text
		r.cfg.Log.Warn("brokers without a virtual address", "virtualCluster", v.Name(), "brokers", text)
	}
}

// Unplaced returns, by virtual cluster, the number of brokers that clients do
// not see.
func (r *Proxy) Unplaced() map[string]int {
	all := map[string]int{}
	for v := range r.Table().Virtuals() {
		all[v.Name()] = len(v.Unplaced())
	}
	return all
}
