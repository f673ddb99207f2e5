package kafka

import (
	"fmt"
	"iter"
	"strings"
	"sync"

	"penstock/kafka/model"
)

// unplaced is what the log was last told of brokers without a virtual address.
type unplaced struct {
	mu   sync.Mutex
	said map[*model.Life]string
}

// noteUnplaced looks at the virtual clusters that a change has made anew.
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
			v.Life().OnUnplaced(r.note)
			if !yield(v) {
				return
			}
		}
	})
}

// logUnplaced logs, once for each change, which brokers of virtual clusters
// have no virtual address.
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

// Unplaced gives the number of brokers that the clients of each virtual
// cluster are not shown, by name.
func (r *Proxy) Unplaced() map[string]int {
	all := map[string]int{}
	for v := range r.Table().Virtuals() {
		all[v.Name()] = len(v.Unplaced())
	}
	return all
}
