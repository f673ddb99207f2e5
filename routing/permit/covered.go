package permit

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"penstock/routing/resource"
)

// Entry is one entry of a permission's from together with one of its to.
type Entry struct {
	Permission string
	Rule       int // of rules, which From is in; -1: the permission has none
	From, To   int // -1: there is no from, or no to
}

// Covered says that an entry never decides who may connect, because another one
// always does.
type Covered struct {
	Entry Entry
	By    Entry
	// Denied: By denies what the entry allows. Otherwise both do the same.
	Denied bool
	// Action is that of By.
	Action string
}

const (
	// coverSteps bounds the comparisons of values in one search, which take tens of
	// milliseconds.
	coverSteps = 2_000_000
	// coverEntries bounds the entries of one search; further ones are left out.
	coverEntries = 100_000
	// coverScan is how many pairs of entries are compared without an index.
	coverScan = 100_000
)

// FindCovered finds the entries that never decide who may connect: either another entry
// denies what they allow, or another entry with the same action covers all their clients
// and destinations. It compares the entries of the permissions for which changed is true
// with all entries. Specs must be valid and need no defaults.
//
// Every result is right, but not all are found: an entry that only several others cover
// together is not, and the search ends after coverSteps and coverEntries. Of several
// entries that cover one, the first is named. Results are in order of the permissions and their
// entries.
func FindCovered(all iter.Seq2[string, *resource.TrafficPermission], changed func(name string) bool) []Covered {
	s := &coverSearch{steps: coverSteps}
	for name, p := range all {
		for i, one := range p.Split() {
			if len(p.Rules) == 0 {
				i = -1
			}
			s.add(name, one, changed(name), i)
		}
	}
	slices.SortStableFunc(s.entries, func(a, b coverEntry) int { return strings.Compare(a.name, b.name) })
	s.by = make([]int, len(s.entries))
	for i := range s.by {
		s.by[i] = -1
	}
	if s.changed*len(s.entries) <= coverScan {
		s.scan()
	} else {
		s.lookup()
	}
	var found []Covered
	for b, a := range s.by {
		if a >= 0 {
			x, y := &s.entries[b], &s.entries[a]
			found = append(found, Covered{x.id(), y.id(), x.spec.Action != y.spec.Action, y.spec.Action})
		}
	}
	return found
}

// coverSearch is the state of one FindCovered.
type coverSearch struct {
	entries []coverEntry
	changed int   // entries
	by      []int // by entry: the first one that covers it; -1: none
	steps   int   // left
}

// coverEntry is an entry of a permission. Its fields are never nil.
type coverEntry struct {
	name    string
	spec    *resource.TrafficPermission
	from    *resource.TrafficSource
	to      *resource.PermissionDestination
	changed bool
	rule    int // of rules; -1: none
	i, j    int // of from and to
}

func (e *coverEntry) id() Entry {
	id := Entry{e.name, e.rule, e.i, e.j}
	if len(e.spec.From) == 0 {
		id.From = -1
	}
	if len(e.spec.To) == 0 {
		id.To = -1
	}
	return id
}

func (s *coverSearch) add(name string, p *resource.TrafficPermission, changed bool, rule int) {
	from, to := p.From, p.To
	if len(from) == 0 {
		from = anySource
	}
	if len(to) == 0 {
		to = anyDestination
	}
	for i := range from {
		for j := range to {
			if len(s.entries) == coverEntries {
				return
			}
			s.entries = append(s.entries, coverEntry{name, p, &from[i], &to[j], changed, rule, i, j})
			if changed {
				s.changed++
			}
		}
	}
}

// scan compares each changed entry with all.
func (s *coverSearch) scan() {
	for i := range s.entries {
		if !s.entries[i].changed {
			continue
		}
		for j := range s.entries {
			s.try(i, j)
			s.try(j, i)
		}
	}
}

// lookup compares each entry with those under keys that all have that cover it.
func (s *coverSearch) lookup() {
	x := coverIndex{entries: map[coverKey][]int{}}
	for i := range s.entries {
		x.add(i, &s.entries[i], s)
	}
	for i := range s.entries {
		x.each(&s.entries[i], func(list []int) {
			for _, j := range list {
				s.try(j, i)
			}
		})
	}
}

// try records that a covers b if it does and either has changed.
func (s *coverSearch) try(a, b int) {
	x, y := &s.entries[a], &s.entries[b]
	if a == b || !x.changed && !y.changed || s.by[b] >= 0 && s.by[b] <= a || !s.covers(x, y) {
		return
	}
	if a > b && x.spec.Action == y.spec.Action && s.covers(y, x) {
		return // they cover each other, and the first one counts
	}
	if s.steps > 0 { // otherwise a comparison may have been cut short
		s.by[b] = a
	}
}

// spend takes steps from what is left, and reports whether there were enough.
func (s *coverSearch) spend(n int) bool {
	s.steps -= n
	return s.steps > 0
}

// covers reports whether b never decides because of a.
func (s *coverSearch) covers(a, b *coverEntry) bool {
	x, y := a.spec, b.spec
	kafka := len(a.to.Kafka) > 0
	if !s.spend(1) || kafka != (len(b.to.Kafka) > 0) {
		return false
	}
	switch {
	case x.Action == resource.ActionDeny && y.Action == resource.ActionAllow:
	case x.Action != y.Action:
		return false
	case a.name > b.name && (y.Action == resource.ActionShadowDeny || !kafka && !sameChange(x, y)):
		return false // b, the first by name, counts what it would deny, or says what becomes of established connections
	}
	if !s.destination(a.to, b.to) || !s.source(a.from, b.from) {
		return false
	}
	if kafka {
		return s.kafka(a, b)
	}
	return s.http(a.to.HTTP, b.to.HTTP)
}

// sameChange reports whether two permissions do the same to established connections.
func sameChange(a, b *resource.TrafficPermission) bool {
	action := cmp.Or(a.OnChange, resource.OnChangeDrain)
	return action == cmp.Or(b.OnChange, resource.OnChangeDrain) &&
		(action != resource.OnChangeDrain || cmp.Or(a.Window.D(), defaultWindow) == cmp.Or(b.Window.D(), defaultWindow))
}

func (s *coverSearch) destination(a, b *resource.PermissionDestination) bool {
	if len(a.Listeners) > 0 && !coversList(s, a.Listeners, b.Listeners, equal) {
		return false
	}
	switch {
	case len(a.Services) > 0:
		return coversList(s, a.Services, b.Services, equal)
	case len(a.VirtualClusters) > 0:
		return coversList(s, a.VirtualClusters, b.VirtualClusters, equal)
	}
	return true
}

func (s *coverSearch) source(a, b *resource.TrafficSource) bool {
	for name, value := range a.Tags {
		if have, ok := b.Tags[name]; !ok || have != value {
			return false
		}
	}
	return (len(a.Identities) == 0 || coversList(s, a.Identities, b.Identities, coversIdentity)) &&
		(len(a.Services) == 0 || coversList(s, a.Services, b.Services, equal)) &&
		(len(a.Networks) == 0 || coversList(s, a.Networks, b.Networks, coversNetwork)) &&
		(len(a.Principals) == 0 || coversList(s, a.Principals, b.Principals, coversPrefix)) &&
		(len(a.ClientIDs) == 0 || coversList(s, a.ClientIDs, b.ClientIDs, coversPrefix))
}

// http compares the requests of two entries. Without any, an entry is also for
// connections whose requests are unknown.
func (s *coverSearch) http(a, b []resource.TrafficRequest) bool {
	return a == nil || coversList(s, a, b, func(a, b resource.TrafficRequest) bool {
		return (len(a.Methods) == 0 || coversList(s, a.Methods, b.Methods, equal)) &&
			(len(a.Paths) == 0 || coversList(s, a.Paths, b.Paths, coversPrefix))
	})
}

// kafka compares the Kafka requests of two entries.
func (s *coverSearch) kafka(a, b *coverEntry) bool {
	return coversList(s, a.to.Kafka, b.to.Kafka, func(x, y resource.KafkaRequests) bool {
		if len(x.Operations) > 0 {
			have, need := x.Operations, y.Operations
			if a.spec.Action == resource.ActionAllow {
				have = withImplied(have)
			}
			if b.spec.Action == resource.ActionAllow {
				need = withImplied(need)
			}
			if !coversList(s, have, need, equal) {
				return false
			}
		}
		if !limitsResources(&x) {
			return true
		}
		return limitsResources(&y) && (x.Cluster || !y.Cluster) &&
			coversAll(s, x.Topics, y.Topics, coversPrefix) &&
			coversAll(s, x.Groups, y.Groups, coversPrefix) &&
			coversAll(s, x.TransactionalIDs, y.TransactionalIDs, coversPrefix)
	})
}

// limitsResources reports whether an entry is about some resources of a cluster only.
func limitsResources(k *resource.KafkaRequests) bool {
	return k.Cluster || len(k.Topics)+len(k.Groups)+len(k.TransactionalIDs) > 0
}

// withImplied returns operations and those that it takes to allow them.
func withImplied(operations []string) []string {
	all := slices.Clone(operations)
	for _, o := range operations {
		switch o {
		case "consume", "produce", "delete", "alter":
			all = append(all, "describe")
		case "alterConfigs":
			all = append(all, "describeConfigs")
		}
	}
	return all
}

// coversList reports whether each value of b, of which there is at least one, is
// covered by one of a.
func coversList[T any](s *coverSearch, a, b []T, covers func(a, b T) bool) bool {
	return len(b) > 0 && coversAll(s, a, b, covers)
}

func coversAll[T any](s *coverSearch, a, b []T, covers func(a, b T) bool) bool {
	for _, y := range b {
		if !s.spend(len(a)) || !slices.ContainsFunc(a, func(x T) bool { return covers(x, y) }) {
			return false
		}
	}
	return true
}

func equal(a, b string) bool { return a == b }

// coversPrefix compares names, or prefixes before "*".
func coversPrefix(a, b string) bool {
	if prefix, ok := strings.CutSuffix(a, "*"); ok {
		return strings.HasPrefix(strings.TrimSuffix(b, "*"), prefix)
	}
	return a == b
}

func coversNetwork(a, b netip.Prefix) bool {
	a, b = Network(a), Network(b)
	return a.Bits() <= b.Bits() && a.Contains(b.Addr())
}

// coversIdentity compares patterns of SPIFFE IDs. As text, a pattern matches another
// one only if each star of that is within one of its own.
func coversIdentity(a, b string) bool {
	if a == b {
		return true
	}
	if strings.HasSuffix(b, "/**") && !strings.HasSuffix(a, "/**") {
		return false // b matches longer IDs
	}
	return resource.MatchSPIFFE(a, b)
}

// coverIndex finds the entries that may cover another one, by what they share with it.
type coverIndex struct {
	entries map[coverKey][]int
	// The parts of identity patterns, networks and prefixes of names that are in keys.
	shapes            []shape
	lengths, prefixes []int
}

// coverKey is a destination and a client.
type coverKey struct {
	service, cluster string       // "": any
	field            coverField   // of the source
	name, value      string       // of the client; name is "*" for a prefix
	shape            int          // of the identity pattern
	hash             [8]byte      // of the identity pattern's plain segments
	network          netip.Prefix // of the client
}

type coverField uint8

const (
	coverEveryone coverField = iota
	coverIdentity
	coverPattern
	coverService
	coverNetwork
	coverTag
	coverPrincipal
	coverClientID
)

// add adds an entry under the keys of each of its destinations and of each value of
// the first field of its source.
func (x *coverIndex) add(i int, e *coverEntry, s *coverSearch) {
	for _, k := range x.sources(e.from) {
		put := func(k coverKey) {
			if s.spend(1) {
				x.entries[k] = append(x.entries[k], i)
			}
		}
		for _, k.service = range e.to.Services {
			put(k)
		}
		k.service = ""
		for _, k.cluster = range e.to.VirtualClusters {
			put(k)
		}
		if len(e.to.Services)+len(e.to.VirtualClusters) == 0 {
			put(k)
		}
	}
}

// sources returns the keys of a source, without a destination.
func (x *coverIndex) sources(from *resource.TrafficSource) (keys []coverKey) {
	switch {
	case len(from.Identities) > 0:
		for _, id := range from.Identities {
			if !strings.Contains(id, "*") {
				keys = append(keys, coverKey{field: coverIdentity, value: id})
				continue
			}
			sh := shapeOf(id)
			hash, _ := sh.key(id)
			keys = append(keys, coverKey{field: coverPattern, shape: indexOf(&x.shapes, sh), hash: hash})
		}
	case len(from.Services) > 0:
		for _, name := range from.Services {
			keys = append(keys, coverKey{field: coverService, value: name})
		}
	case len(from.Networks) > 0:
		for _, p := range from.Networks {
			p = Network(p)
			indexOf(&x.lengths, p.Bits())
			keys = append(keys, coverKey{field: coverNetwork, network: p})
		}
	case len(from.Tags) > 0:
		name := ""
		for n := range from.Tags {
			if name == "" || n < name {
				name = n
			}
		}
		keys = append(keys, coverKey{field: coverTag, name: name, value: from.Tags[name]})
	case len(from.Principals) > 0:
		keys = x.names(coverPrincipal, from.Principals)
	case len(from.ClientIDs) > 0:
		keys = x.names(coverClientID, from.ClientIDs)
	default:
		keys = append(keys, coverKey{})
	}
	return keys
}

// names returns the keys of names and prefixes.
func (x *coverIndex) names(field coverField, list []string) (keys []coverKey) {
	for _, name := range list {
		k := coverKey{field: field, value: name}
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			indexOf(&x.prefixes, len(prefix))
			k.name, k.value = "*", prefix
		}
		keys = append(keys, k)
	}
	return keys
}

func (x *coverIndex) eachName(field coverField, list []string, f func(coverKey)) {
	if len(list) == 0 {
		return
	}
	name := strings.TrimSuffix(list[0], "*")
	f(coverKey{field: field, value: list[0]})
	for _, n := range x.prefixes {
		if n <= len(name) {
			f(coverKey{field: field, name: "*", value: name[:n]})
		}
	}
}

// indexOf returns where a value is in a list, to which it is added if it is not.
func indexOf[T comparable](list *[]T, v T) int {
	i := slices.Index(*list, v)
	if i < 0 {
		i = len(*list)
		*list = append(*list, v)
	}
	return i
}

// each calls f with the lists in which every entry is that covers e: such an entry
// covers the first value of each field of e.
func (x *coverIndex) each(e *coverEntry, f func([]int)) {
	var to coverKey
	if len(e.to.Services) > 0 {
		to.service = e.to.Services[0]
	}
	if len(e.to.VirtualClusters) > 0 {
		to.cluster = e.to.VirtualClusters[0]
	}
	x.eachSource(e.from, func(k coverKey) {
		if list := x.entries[k]; len(list) > 0 {
			f(list)
		}
		if k.service, k.cluster = to.service, to.cluster; k.service != "" || k.cluster != "" {
			if list := x.entries[k]; len(list) > 0 {
				f(list)
			}
		}
	})
}

func (x *coverIndex) eachSource(from *resource.TrafficSource, f func(coverKey)) {
	f(coverKey{})
	x.eachName(coverPrincipal, from.Principals, f)
	x.eachName(coverClientID, from.ClientIDs, f)
	if len(from.Identities) > 0 {
		id := from.Identities[0]
		f(coverKey{field: coverIdentity, value: id})
		for i, sh := range x.shapes {
			if hash, ok := sh.key(id); ok {
				f(coverKey{field: coverPattern, shape: i, hash: hash})
			}
		}
	}
	if len(from.Services) > 0 {
		f(coverKey{field: coverService, value: from.Services[0]})
	}
	if len(from.Networks) > 0 {
		n := Network(from.Networks[0])
		for _, bits := range x.lengths {
			if p, err := n.Addr().Prefix(bits); err == nil && bits <= n.Bits() {
				f(coverKey{field: coverNetwork, network: p})
			}
		}
	}
	for name, value := range from.Tags {
		f(coverKey{field: coverTag, name: name, value: value})
	}
}
