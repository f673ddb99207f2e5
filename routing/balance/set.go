package balance

// setSize is the number of members that a Set distinguishes.
const setSize = 192

// Set is a set of members of a Pool. The zero value is empty. In a pool of more
// than 192 members, indices that differ by a multiple of 192 share one bit, so
// an untried member may appear as tried.
type Set [setSize / 64]uint64

// Add adds member i.
func (s *Set) Add(i int) { s[i%setSize/64] |= 1 << (i % 64) }

// Has reports whether member i is in the set; a nil Set is empty.
func (s *Set) Has(i int) bool { return s != nil && s[i%setSize/64]&(1<<(i%64)) != 0 }

// nonEmpty reports whether the set is not empty.
func (s *Set) nonEmpty() bool { return s != nil && *s != Set{} }
