package balance

// setSize is the number of members that a Set tells apart.
const setSize = 256

// Set is a set of members of a Pool. The zero value is empty. In a pool of more
// than 256 members, members whose numbers differ by a multiple of 256 are in it
// together, so some may be taken for tried that were not.
type Set [setSize / 64]uint64

// Add puts member i in.
func (s *Set) Add(i int) { s[i%setSize/64] |= 1 << (i % 64) }

// Has tells whether member i is in; a nil Set is empty.
func (s *Set) Has(i int) bool { return s != nil && s[i%setSize/64]&(1<<(i%64)) != 0 }

// any tells whether the set has a member.
func (s *Set) any() bool { return s != nil && *s != Set{} }
