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
	t := &memberTable{self: self.ID, entries: map[string]*tableEntry{}, strays: map[string]record{}, changed: make(chan struct{})}
	t.entries[self.ID] = &tableEntry{Member: self, said: said}
	t.alive.Store(1)
	return t
}

// notify wakes up the waiters. The caller holds the lock.
func (t *memberTable) notify() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *memberTable) watch() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

func (t *memberTable) list() []Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(time.Now())
	members := make([]Member, 0, len(t.entries))
	for _, e := range t.entries {
		members = append(members, e.Member)
	}
	slices.SortFunc(members, func(x, y Member) int { return cmp.Compare(x.ID, y.ID) })
	return members
}

// welcome reports whether there is room for a node.
func (t *memberTable) welcome(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[id] != nil || len(t.entries) < maxMembers
}

// seen records that a node is alive.
func (t *memberTable) seen(id, addr string, meta Meta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil {
		e = &tableEntry{Member: Member{ID: id}, said: t.strays[id]}
		t.entries[id] = e
		delete(t.strays, id)
	}
	if e.State != Alive {
		e.State, e.Since = Alive, time.Now()
		t.alive.Add(1)
	}
	e.Addr, e.Meta = addr, meta
	e.show()
	t.notify()
}

// lost records that a node is no longer alive.
func (t *memberTable) lost(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil || e.State != Alive {
		return
	}
	e.State, e.Since = Dead, time.Now()
	t.alive.Add(-1)
	if e.said.Left && e.said.Instance == e.Instance {
		e.State = Left
	}
	e.show()
	t.forget(e.Since)
	t.notify()
}

// forget drops dead members beyond the limits. The caller holds the lock.
func (t *memberTable) forget(now time.Time) {
	var dead []*tableEntry
	for _, e := range t.entries {
		switch {
		case e.State == Alive || e.ID == t.self:
		case now.Sub(e.Since) > rememberDead:
			delete(t.entries, e.ID)
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
		delete(t.entries, dead[0].ID)
	}
}

// hear merges a record, and returns the one to pass on if it is new. A newer
// record of this node itself is from an earlier process; this node then
// supersedes it.
func (t *memberTable) hear(r record) (newest record, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[r.ID]
	if e == nil {
		t.stray(r)
		return record{}, false
	}
	if r.Version <= e.said.Version {
		return record{}, false
	}
	if r.ID == t.self {
		e.said.Version = r.Version + 1
		return e.said, true
	}
	r.Facts = bytes.Clone(r.Facts)
	e.said = r
	if e.State == Dead && r.Left && r.Instance == e.Instance {
		e.State = Left
	}
	e.show()
	t.notify()
	return r, true
}

// stray keeps the record of an unknown node. The caller holds the lock.
func (t *memberTable) stray(r record) {
	if r.Version <= t.strays[r.ID].Version {
		return
	}
	for id := range t.strays { // any one: most nodes become known within moments
		if len(t.strays) < maxStrays {
			break
		}
		delete(t.strays, id)
	}
	r.Facts = bytes.Clone(r.Facts)
	t.strays[r.ID] = r
}

// say changes this node's own record; it returns false if nothing changed.
func (t *memberTable) say(facts []byte, left bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[t.self]
	if bytes.Equal(e.said.Facts, facts) && e.said.Left == left {
		return false
	}
	e.said.Facts, e.said.Left = bytes.Clone(facts), left
	e.said.Version++
	e.show()
	t.notify()
	return true
}

// own returns this node's entry and record.
func (t *memberTable) own() (Member, record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[t.self]
	return e.Member, e.said
}

// said returns the records of this node first, then of members that are alive
// or left, up to about limit bytes. Random map order selects them, so that over
// time all get through.
func (t *memberTable) said(limit int) []record {
	t.mu.Lock()
	defer t.mu.Unlock()
	records := []record{t.entries[t.self].said}
	size := 0
	for id := range maps.Keys(t.entries) {
		e := t.entries[id]
		if id == t.self || e.said.Version == 0 || e.State != Alive && !e.said.Left {
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
