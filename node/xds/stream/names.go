package stream

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"weak"
)

// names is an immutable set of names: those that a client has subscribed to.
type names struct {
	sorted []string
	sum    digest // of the names
}

var noNames = &names{}

func (n *names) has(name string) bool {
	_, found := slices.BinarySearch(n.sorted, name)
	return found
}

// Names keeps the names that the clients of a server have subscribed to, each
// set of them once and for as long as a client has it: the proxies of a service
// subscribe to the same names. Create it with NewNames.
type Names struct {
	mu   sync.Mutex
	sets map[digest]weak.Pointer[names]
}

// NewNames returns Names without any.
func NewNames() *Names { return &Names{sets: map[digest]weak.Pointer[names]{}} }

// set returns the set of these names. sorted must be sorted, without duplicates;
// sum is the digest of its names.
func (k *Names) set(sorted []string, sum digest) *names {
	if len(sorted) == 0 {
		return noNames
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.sets[sum].Value(); known != nil && slices.Equal(known.sorted, sorted) {
		return known
	}
	// The strings of a request may share memory with all of it.
	n := &names{sorted: make([]string, len(sorted)), sum: sum}
	for i, name := range sorted {
		n.sorted[i] = strings.Clone(name)
	}
	k.sets[sum] = weak.Make(n)
	runtime.AddCleanup(n, k.forget, sum)
	return n
}

// forget removes the set with this digest if nobody has it.
func (k *Names) forget(sum digest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sets[sum].Value() == nil {
		delete(k.sets, sum)
	}
}

// edit returns a set with names added and removed; both lists must be sorted,
// without duplicates. changed are the names that the result has and n has not, or
// the other way round.
func (k *Names) edit(n *names, add, remove []string) (result *names, changed []string) {
	add, remove = without(add, n.sorted), within(remove, n.sorted)
	changed = slices.Concat(add, remove)
	if len(changed) == 0 {
		return n, nil
	}
	sum := n.sum
	for _, name := range add {
		sum.add(digestOf(name, ""))
	}
	for _, name := range remove {
		sum.subtract(digestOf(name, ""))
	}
	return k.set(merge(without(n.sorted, remove), add), sum), changed
}

// without returns the elements of a sorted list that another does not have.
func without(list, other []string) []string { return split(list, other, false) }

// within returns the elements of a sorted list that another has.
func within(list, other []string) []string { return split(list, other, true) }

func split(list, other []string, common bool) (result []string) {
	for _, name := range list {
		for len(other) > 0 && other[0] < name {
			other = other[1:]
		}
		if (len(other) > 0 && other[0] == name) == common {
			result = append(result, name)
		}
	}
	return result
}

// merge returns the elements of two sorted lists, sorted; they have none in
// common.
func merge(a, b []string) []string {
	result := make([]string, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] < b[0] {
			result, a = append(result, a[0]), a[1:]
		} else {
			result, b = append(result, b[0]), b[1:]
		}
	}
	return append(append(result, a...), b...)
}

// sortedSet returns the elements of a list sorted and once each, and whether "*"
// was one of them, which the result has not.
func sortedSet(list []string) (sorted []string, all bool) {
	sorted = make([]string, 0, len(list))
	for _, name := range list {
		if name == wildcard {
			all = true
		} else {
			sorted = append(sorted, name)
		}
	}
	slices.Sort(sorted)
	return slices.Compact(sorted), all
}
