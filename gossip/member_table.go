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
	record record // its newest record
}

// updateFacts updates the exported Facts from the record.
func (e *tableEntry) updateFacts() {
	e.Facts = nil
	if e.State == Alive && e.record.Instance == e.Instance && !e.record.Left {
		e.Facts = e.record.Facts
	}
}

func newMemberTable(self Member, own record) *memberTable {
	t := &memberTable{self: self.ID, entries: map[string]*tableEntry{}, strays: map[string]record{}, changed: make(chan struct{})}
	t.entries[self.ID] = &tableEntry{Member: self, record: own}
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
	t.expireDead(time.Now())
	members := make([]Member, 0, len(t.entries))
	for _, e := range t.entries {
		members = append(members, e.Member)
	}
	slices.SortFunc(members, func(x, y Member) int { return cmp.Compare(x.ID, y.ID) })
	return members
}

// hasRoom reports whether there is room for a node.
func (t *memberTable) hasRoom(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[id] != nil || len(t.entries) < maxMembers
}

// setAlive records that a node is alive.
func (t *memberTable) setAlive(id, addr string, meta Meta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil {
		e = &tableEntry{Member: Member{ID: id}, record: t.strays[id]}
		t.entries[id] = e
		delete(t.strays, id)
	}
	if e.State != Alive {
		e.State, e.Since = Alive, time.Now()
		t.alive.Add(1)
	}
	e.Addr, e.Meta = addr, meta
	e.updateFacts()
	t.notify()
}

// setDead records that a node is no longer alive.
func (t *memberTable) setDead(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[id]
	if e == nil || e.State != Alive {
		return
	}
	e.State, e.Since = Dead, time.Now()
	t.alive.Add(-1)
	if e.record.Left && e.record.Instance == e.Instance {
		e.State = Left
	}
	e.updateFacts()
	t.expireDead(e.Since)
	t.notify()
}

// expireDead drops dead members beyond the limits. The caller holds the lock.
func (t *memberTable) expireDead(now time.Time) {
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
	// At most one is over the limit, since expireDead runs whenever a node dies.
	for ; len(dead) > maxDead; dead = dead[1:] {
		for i, e := range dead {
			if e.Since.Before(dead[0].Since) {
				dead[0], dead[i] = e, dead[0]
			}
		}
		delete(t.entries, dead[0].ID)
	}
}

// mergeRecord merges a record, and returns the one to pass on if it is new. A
// newer record of this node itself is from an earlier process; this node then
// supersedes it.
func (t *memberTable) mergeRecord(r record) (newest record, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[r.ID]
	if e == nil {
		t.keepStray(r)
		return record{}, false
	}
	if r.Version <= e.record.Version {
		return record{}, false
	}
	if r.ID == t.self {
		e.record.Version = r.Version + 1
		return e.record, true
	}
	r.Facts = bytes.Clone(r.Facts)
	e.record = r
	if e.State == Dead && r.Left && r.Instance == e.Instance {
		e.State = Left
	}
	e.updateFacts()
	t.notify()
	return r, true
}

// keepStray keeps the record of an unknown node. The caller holds the lock.
func (t *memberTable) keepStray(r record) {
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

// setOwnRecord changes this node's own record; it returns false if nothing
// changed.
func (t *memberTable) setOwnRecord(facts []byte, left bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[t.self]
	if bytes.Equal(e.record.Facts, facts) && e.record.Left == left {
		return false
	}
	e.record.Facts, e.record.Left = bytes.Clone(facts), left
	e.record.Version++
	e.updateFacts()
	t.notify()
	return true
}

// ownEntry returns this node's entry and record.
func (t *memberTable) ownEntry() (Member, record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[t.self]
	return e.Member, e.record
}

// records returns the records of this node first, then of members that are
// alive or left, up to about limit bytes. Random map order selects them, so
// that over time all get through.
func (t *memberTable) records(limit int) []record {
	t.mu.Lock()
	defer t.mu.Unlock()
	records := []record{t.entries[t.self].record}
	size := 0
	for id := range maps.Keys(t.entries) {
		e := t.entries[id]
		if id == t.self || e.record.Version == 0 || e.State != Alive && !e.record.Left {
			continue
		}
		size += len(e.record.Facts) + len(id) + len(e.record.Instance) + 16
		if size > limit {
			break
		}
		records = append(records, e.record)
	}
	return records
}
