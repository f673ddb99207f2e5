package mysqltest

import (
	"maps"
	"sync"
)

// Store is the data of a cluster: the table counter, whose rows have a name and a
// value. Transactions add to values, so that a write that is lost or doubled shows
// in the sum, and a transaction is applied whole or not at all.
type Store struct {
	mu       sync.Mutex
	counters map[string]int64
	nextID   uint64 // of an insert
	commits  int
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{counters: map[string]int64{}} }

// Counter returns the committed value of a name; 0 if there is none.
func (s *Store) Counter(name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters[name]
}

// Counters returns all committed values.
func (s *Store) Counters() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counters)
}

// Commits returns how many transactions that wrote have been committed, single
// statements included.
func (s *Store) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

// commit adds to the values.
func (s *Store) commit(add map[string]int64) {
	if len(add) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commits++
	for name, n := range add {
		s.counters[name] += n
	}
}

// insertID returns the ID of an insert.
func (s *Store) insertID() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	return s.nextID
}
