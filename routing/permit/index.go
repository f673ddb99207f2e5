package permit

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"penstock/routing/hamt"
	"penstock/routing/resource"
)

// group holds what permissions say about one service or cluster, by listener.
type group struct {
	anywhere  *destination // on every listener; nil: nothing
	listeners hamt.Map[*destination]
}

func (g *group) empty() bool { return g.anywhere == nil && g.listeners.Len() == 0 }

// destination holds what permissions say about one service or cluster on one
// listener. It is immutable. Every list is sorted by the permission's name.
type destination struct {
	clauses  int     // entries in all the lists below
	requests int     // those that depend on the request
	allows   []*rule // the permissions with allow, by which the destination is closed to others

	everyone   []*entry // clauses for all clients
	identities hamt.Map[[]*entry]
	services   hamt.Map[[]*entry]
	patterns   []keyed[shape]  // of identities
	networks   []keyed[length] // by their length
	tags       []keyed[string] // by the name of the first tag
	// undecided are the clauses by identities, services or tags that do not allow: they
	// apply to a client of whom several of these may be true. Those found by a network
	// are not among them.
	undecided []*entry
}

// keyed is a hash table of clauses under keys that are made in one way.
type keyed[How comparable] struct {
	how   How
	n     int
	table hamt.Map[[]*entry]
}

// length is the length of a network of IPv4 or IPv6.
type length struct {
	bits int
	v4   bool
}

// entry is a clause under a key.
type entry struct {
	clause
	pattern string // the identity pattern of the key
}

// field is a field of a source that a key decides.
type field uint8

const (
	byNothing field = iota
	byIdentity
	byPattern
	byService
	byNetwork
	byTag
)

// search considers the clauses whose keys the client has.
func (s *search) search(d *destination) {
	s.each(d.everyone, byNothing)
	if id := s.q.Identity; id != "" && !s.q.Undecided {
		s.each(lookup(&d.identities, id), byIdentity)
		for i := range d.patterns {
			if key, ok := d.patterns[i].how.key(id); ok {
				s.each(lookup(&d.patterns[i].table, string(key[:])), byPattern)
			}
		}
	}
	if s.q.Undecided {
		s.each(d.undecided, byNothing)
	}
	if s.q.ClientService != "" && !s.q.Undecided {
		s.each(lookup(&d.services, s.q.ClientService), byService)
	}
	for i := range d.networks {
		if how := d.networks[i].how; s.client.Is4() == how.v4 && s.client.IsValid() {
			if p, err := s.client.Prefix(how.bits); err == nil {
				key := p.Addr().As16()
				s.each(lookup(&d.networks[i].table, string(key[:])), byNetwork)
			}
		}
	}
	for i := range d.tags {
		if s.q.Undecided {
			break
		}
		if v, ok := s.tag(d.tags[i].how); ok {
			s.each(lookup(&d.tags[i].table, v), byTag)
		}
	}
}

func (s *search) each(list []*entry, skip field) {
	for _, e := range list {
		s.consider(e, skip)
	}
}

func lookup(m *hamt.Map[[]*entry], key string) []*entry {
	list, _ := m.Get(key)
	return list
}

// shape is what identity patterns have in common that are found by one key: how
// many segments they have, and which of these are plain text.
type shape struct {
	segments int // of the ID, with its trust domain as the first
	open     bool
	literal  uint64 // by segment
}

// maxSegments bounds the segments that a shape tells apart. Further ones count as
// patterns, and Decide compares the whole ID anyway.
const maxSegments = 64

func shapeOf(pattern string) shape {
	var sh shape
	for segment := range strings.SplitSeq(strings.TrimPrefix(pattern, scheme), "/") {
		if segment == "**" {
			sh.open = true
			break
		}
		if sh.segments < maxSegments && !strings.Contains(segment, "*") {
			sh.literal |= 1 << sh.segments
		}
		sh.segments++
	}
	return sh
}

const scheme = "spiffe://"

var seed = maphash.MakeSeed()

// key hashes the plain segments of an ID, or of a pattern of the shape. It reports
// false if no pattern of the shape matches the ID. Two IDs with one key are told
// apart by MatchSPIFFE.
func (sh shape) key(id string) ([8]byte, bool) {
	rest, more := strings.TrimPrefix(id, scheme), true
	var segment string
	sum := uint64(0)
	last := bits.Len64(sh.literal)
	for i := range sh.segments {
		if !more {
			return [8]byte{}, false
		}
		segment, rest, more = strings.Cut(rest, "/")
		if i < last && sh.literal&(1<<i) != 0 {
			sum = bits.RotateLeft64(sum, 7)*0x9E3779B97F4A7C15 ^ maphash.String(seed, segment)
		}
	}
	var key [8]byte
	binary.LittleEndian.PutUint64(key[:], sum)
	return key, more == sh.open
}

// What a permission without to or from has. A removal finds clauses by these
// addresses.
var (
	anyDestination = []resource.PermissionDestination{{}}
	anySource      = []resource.TrafficSource{{}}
)

// place adds a rule's clauses to the index, or removes them.
func (x *Index) place(r *rule, add bool) {
	everything, everyone := anyDestination, anySource
	if len(r.spec.To) > 0 {
		everything = r.spec.To
	}
	if len(r.spec.From) > 0 {
		everyone = r.spec.From
	}
	services, clusters := x.services.Edit(), x.clusters.Edit()
	for i := range everything {
		to := &everything[i]
		if len(to.Kafka) > 0 {
			continue // decided for each request, by kafka/filter/authorize
		}
		edit := func(g *group) *group {
			return g.with(to.Listeners, func(d *destination) *destination {
				d = d.clone()
				for j := range everyone {
					d.put(clause{r, &everyone[j], to.HTTP}, add)
				}
				return d.named(r, add)
			})
		}
		for _, name := range to.Services {
			place(services, name, edit)
		}
		for _, name := range to.VirtualClusters {
			place(clusters, name, edit)
		}
		if len(to.Services)+len(to.VirtualClusters) == 0 {
			if x.all = edit(x.all); x.all.empty() {
				x.all = nil
			}
		}
	}
	x.services, x.clusters = services.Map(), clusters.Map()
}

func place(m *hamt.Edit[*group], name string, edit func(*group) *group) {
	g, _ := m.Get(name)
	if g = edit(g); g.empty() {
		m.Delete(name)
	} else {
		m.Set(name, g)
	}
}

// with returns the group with the destination changed on each listener, or on all
// if none is named.
func (g *group) with(listeners []string, edit func(*destination) *destination) *group {
	next := &group{}
	if g != nil {
		*next = *g
	}
	if len(listeners) == 0 {
		next.anywhere = edit(next.anywhere)
		return next
	}
	m := next.listeners.Edit()
	for _, name := range listeners {
		d, _ := m.Get(name)
		if d = edit(d); d == nil {
			m.Delete(name)
		} else {
			m.Set(name, d)
		}
	}
	next.listeners = m.Map()
	return next
}

func (d *destination) clone() *destination {
	next := &destination{}
	if d != nil {
		*next = *d
	}
	return next
}

// named records that a rule names the destination, or no longer does. It returns
// nil if nothing is left.
func (d *destination) named(r *rule, add bool) *destination {
	if r.action == resource.ActionAllow {
		i, found := slices.BinarySearchFunc(d.allows, r.name, func(x *rule, name string) int { return strings.Compare(x.name, name) })
		switch {
		case add && !found:
			d.allows = slices.Insert(slices.Clone(d.allows), i, r)
		case !add && found:
			d.allows = slices.Delete(slices.Clone(d.allows), i, i+1)
		}
	}
	if d.clauses == 0 {
		return nil
	}
	return d
}

// put adds a clause under its keys, or removes it: under those of the first field
// of its source that has any.
func (d *destination) put(c clause, add bool) {
	e := &entry{clause: c}
	from := c.from
	switch {
	case len(from.Identities) > 0:
		for _, id := range from.Identities {
			if !strings.Contains(id, "*") {
				d.count(e, add)
				d.identities = with(d.identities, id, e, add)
				continue
			}
			p := &entry{clause: c, pattern: id}
			sh := shapeOf(id)
			key, _ := sh.key(id)
			d.count(p, add)
			d.patterns = withKey(d.patterns, sh, string(key[:]), p, add)
		}
		d.putUndecided(e, add)
	case len(from.Services) > 0:
		for _, name := range from.Services {
			d.count(e, add)
			d.services = with(d.services, name, e, add)
		}
		d.putUndecided(e, add)
	case len(from.Networks) > 0:
		for _, p := range from.Networks {
			p = Network(p)
			key := p.Addr().As16()
			d.count(e, add)
			d.networks = withKey(d.networks, length{p.Bits(), p.Addr().Is4()}, string(key[:]), e, add)
		}
	case len(from.Tags) > 0:
		name := slices.Min(slices.Collect(maps.Keys(from.Tags)))
		d.count(e, add)
		d.tags = withKey(d.tags, name, from.Tags[name], e, add)
		d.putUndecided(e, add)
	default:
		d.count(e, add)
		d.everyone = withEntry(d.everyone, e, add)
	}
}

func (d *destination) putUndecided(e *entry, add bool) {
	if e.rule.action != resource.ActionAllow {
		d.undecided = withEntry(d.undecided, e, add)
	}
}

func (d *destination) count(e *entry, add bool) {
	n := 1
	if !add {
		n = -1
	}
	d.clauses += n
	if e.http != nil {
		d.requests += n
	}
}

// withKey returns the tables with an entry added to the one for keys made in that
// way, or removed from it.
func withKey[How comparable](list []keyed[How], how How, key string, e *entry, add bool) []keyed[How] {
	list = slices.Clone(list)
	i := slices.IndexFunc(list, func(k keyed[How]) bool { return k.how == how })
	if i < 0 {
		i = len(list)
		list = append(list, keyed[How]{how: how})
	}
	k := &list[i]
	k.table = with(k.table, key, e, add)
	if add {
		k.n++
	} else if k.n--; k.n == 0 {
		list = slices.Delete(list, i, i+1)
	}
	return list
}

func with(m hamt.Map[[]*entry], key string, e *entry, add bool) hamt.Map[[]*entry] {
	edit := m.Edit()
	before, _ := edit.Get(key)
	if after := withEntry(before, e, add); len(after) == 0 {
		edit.Delete(key)
	} else {
		edit.Set(key, after)
	}
	return edit.Map()
}

// withEntry returns the list with an entry added, or with one of the same clause
// and pattern removed.
func withEntry(list []*entry, e *entry, add bool) []*entry {
	i, _ := slices.BinarySearchFunc(list, e, func(x, y *entry) int { return strings.Compare(x.rule.name, y.rule.name) })
	if add {
		return slices.Insert(slices.Clone(list), i, e)
	}
	for ; i < len(list) && list[i].rule.name == e.rule.name; i++ {
		if list[i].rule == e.rule && list[i].from == e.from && list[i].pattern == e.pattern && sameRequests(list[i].http, e.http) {
			return slices.Delete(slices.Clone(list), i, i+1)
		}
	}
	return list
}

// sameRequests reports whether two lists are one, or both are nil.
func sameRequests(a, b []resource.TrafficRequest) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
