package provider

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Ref names what one provider says about one query.
type Ref struct {
	Provider string
	Query
}

// Found is an endpoint in force.
type Found struct {
	Endpoint
	// Addr is Address if that has an IP address, otherwise invalid.
	Addr netip.AddrPort
	// Since is when the provider reported the address first, by the clock of the
	// node that asked.
	Since time.Time
}

// NewFound returns an endpoint in force.
func NewFound(e Endpoint, since time.Time) Found {
	addr, _ := netip.ParseAddrPort(e.Address)
	return Found{Endpoint: e, Addr: addr, Since: since}
}

// Update is what changes in a Directory about one Ref.
type Update struct {
	Ref
	Put  []Found  // new or changed
	Gone []string // addresses
}

// Directory holds the endpoints in force on a node, from all providers. The zero
// value is empty. It is safe for concurrent use.
type Directory struct {
	mu    sync.RWMutex
	found map[Ref][]Found // sorted by address; lists are replaced, never changed
}

// Lookup returns the endpoints of a reference, sorted by address. The slice must
// not be changed.
func (d *Directory) Lookup(ref Ref) []Found {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.found[ref]
}

// All returns all endpoints. The map is the caller's, its slices are not.
func (d *Directory) All() map[Ref][]Found {
	d.mu.RLock()
	defer d.mu.RUnlock()
	all := make(map[Ref][]Found, len(d.found))
	for ref, list := range d.found {
		all[ref] = list
	}
	return all
}

// Apply puts updates in force. Each Ref occurs once in them.
func (d *Directory) Apply(updates []Update) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found == nil {
		d.found = map[Ref][]Found{}
	}
	for i := range updates {
		u := &updates[i]
		if next := merge(d.found[u.Ref], u); len(next) > 0 {
			d.found[u.Ref] = next
		} else {
			delete(d.found, u.Ref)
		}
	}
}

// merge returns list with an update applied.
func merge(list []Found, u *Update) []Found {
	put := slices.Clone(u.Put)
	slices.SortFunc(put, func(a, b Found) int { return strings.Compare(a.Address, b.Address) })
	gone := slices.Sorted(slices.Values(u.Gone))
	next := make([]Found, 0, len(list)+len(put))
	for _, f := range list {
		for len(put) > 0 && put[0].Address < f.Address {
			next, put = append(next, put[0]), put[1:]
		}
		for len(gone) > 0 && gone[0] < f.Address {
			gone = gone[1:]
		}
		switch {
		case len(put) > 0 && put[0].Address == f.Address:
			next, put = append(next, put[0]), put[1:]
		case len(gone) > 0 && gone[0] == f.Address:
		default:
			next = append(next, f)
		}
	}
	return append(next, put...)
}
