package gossip

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxMembers bounds the known nodes, dead or alive.
	maxMembers = 4096
	// maxDead bounds the dead members kept, rememberDead how long they are kept.
	maxDead      = 1024
	rememberDead = 72 * time.Hour
	// maxStrays bounds the records kept for unknown nodes.
	maxStrays = 64
)

// memberTable holds the known members. Its lock is taken inside memberlist's
// callbacks, which hold memberlist's locks, so no memberlist function may be
// called while it is held.
type memberTable struct {
	self string

	mu      sync.Mutex
	entries map[string]*tableEntry
	strays  map[string]record // of nodes not in entries: their records overtook memberlist's join
	changed chan struct{}     // closed by the next change, then replaced
	alive   atomic.Int64      // living members, including this node
}

// tableEntry is one member.
type tableEntry struct {
	Member
	said record // its newest record
}

// show updates the exported Facts from the record.
func (e *tableEntry) show() {
	e.Facts = nil
	if e.State == Alive && e.said.Instance == e.Instance && !e.said.Left {
		e.Facts = e.said.Facts
	}
}

func newMemberTable(self Member, said record) *memberTable {
	b := &memberTable{self: self.ID, entries: map[string]*tableEntry{}, strays: map[string]record{}, changed: make(chan struct{})}
	b.entries[self.ID] = &tableEntry{Member: self, said: said}
	b.alive.Store(1)
	return b
}

// notify wakes up the waiters. The caller holds the lock.
func (b *memberTable) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *memberTable) watch() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

func (b *memberTable) list() []Member {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(time.Now())
	members := make([]Member, 0, len(b.entries))
	for _, e := range b.entries {
		members = append(members, e.Member)
	}
	slices.SortFunc(members, func(x, y Member) int { return cmp.Compare(x.ID, y.ID) })
	return members
}

// welcome reports whether there is room for a node.
func (b *memberTable) welcome(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[id] != nil || len(b.entries) < maxMembers
}

// seen records that a node is alive.
func (b *memberTable) seen(id, addr string, meta Meta) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	if e == nil {
		e = &tableEntry{Member: Member{ID: id}, said: b.strays[id]}
		b.entries[id] = e
		delete(b.strays, id)
	}
	if e.State != Alive {
		e.State, e.Since = Alive, time.Now()
		b.alive.Add(1)
	}
	e.Addr, e.Meta = addr, meta
	e.show()
	b.notify()
}

// lost records that a node is no longer alive.
func (b *memberTable) lost(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[id]
	if e == nil || e.State != Alive {
		return
	}
	e.State, e.Since = Dead, time.Now()
	b.alive.Add(-1)
	if e.said.Left && e.said.Instance == e.Instance {
		e.State = Left
	}
	e.show()
	b.forget(e.Since)
	b.notify()
}

// forget drops dead members beyond the limits. The caller holds the lock.
func (b *memberTable) forget(now time.Time) {
	var dead []*tableEntry
	for _, e := range b.entries {
		switch {
		case e.State == Alive || e.ID == b.self:
		case now.Sub(e.Since) > rememberDead:
			delete(b.entries, e.ID)
		default:
			dead = append(dead, e)
		}
	}
	// At most one is over the limit, since forget runs whenever a node dies.
	for ; len(dead) > maxDead; dead = dead[1:] {
		for i, e := range dead {
			if e.Since.Before(dead[0].Since) {
				dead[0], dead[i] = e, dead[0]
			}
		}
		delete(b.entries, dead[0].ID)
	}
}

// hear merges a record, and returns the one to pass on if it is new. A newer
// record of this node itself is from an earlier process; this node then
// supersedes it.
func (b *memberTable) hear(r record) (on record, news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[r.ID]
	if e == nil {
		b.stray(r)
		return record{}, false
	}
	if r.Version <= e.said.Version {
		return record{}, false
	}
	if r.ID == b.self {
		e.said.Version = r.Version + 1
		return e.said, true
	}
	r.Facts = bytes.Clone(r.Facts)
	e.said = r
	if e.State == Dead && r.Left && r.Instance == e.Instance {
		e.State = Left
	}
	e.show()
	b.notify()
	return r, true
}

// stray keeps the record of an unknown node. The caller holds the lock.
func (b *memberTable) stray(r record) {
	if r.Version <= b.strays[r.ID].Version {
		return
	}
	for id := range b.strays { // any one: most nodes become known within moments
		if len(b.strays) < maxStrays {
			break
		}
		delete(b.strays, id)
	}
	r.Facts = bytes.Clone(r.Facts)
	b.strays[r.ID] = r
}

// say changes this node's own record; it returns false if nothing changed.
func (b *memberTable) say(facts []byte, left bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[b.self]
	if bytes.Equal(e.said.Facts, facts) && e.said.Left == left {
		return false
	}
	e.said.Facts, e.said.Left = bytes.Clone(facts), left
	e.said.Version++
	e.show()
	b.notify()
	return true
}

// own returns this node's entry and record.
func (b *memberTable) own() (Member, record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[b.self]
	return e.Member, e.said
}

// said returns the records of this node first, then of members that are alive
// or left, up to about limit bytes. Random map order selects them, so that over
// time all get through.
func (b *memberTable) said(limit int) []record {
	b.mu.Lock()
	defer b.mu.Unlock()
	records := []record{b.entries[b.self].said}
	size := 0
	for id := range maps.Keys(b.entries) {
		e := b.entries[id]
		if id == b.self || e.said.Version == 0 || e.State != Alive && !e.said.Left {
			continue
		}
		size += len(e.said.Facts) + len(id) + len(e.said.Instance) + 16
		if size > limit {
			break
		}
		records = append(records, e.said)
	}
	return records
}
