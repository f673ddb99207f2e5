package catalog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/routing/resource"
)

const (
	// maxChecks is how often a change is checked, while others overtake it, before
	// it fails.
	maxChecks = 8
	// maxFlights and maxFlying bound the pending changes, in number and in bytes
	// of values. A single change may be larger.
	maxFlights = 100
	maxFlying  = 64 << 20
)

// errAgain: the content that a change was checked against is outdated.
var errAgain = errors.New("overtaken by another change")

// ahead is the content once all pending changes are in force. It belongs to one
// uninterrupted sequence of this node's proposals, and is discarded when
// anything other than these happens. Guarded by Catalog.mu.
type ahead struct {
	set      *resource.Set
	sequence uint64         // of the store after the pending changes
	next     uint64         // the Batch.Sequence of the next change
	tail     *pendingChange // the last one; nil: none
}

// pendingChange is a proposed change. If it comes back unmodified, the objects
// and the set from its check are put in force, without decoding anything again.
type pendingChange struct {
	id       consensus.ID
	epoch    *ahead
	sequence uint64 // of the store after the change
	from, to *resource.Set
	steps    map[consensus.Key]flightStep
	size     int // bytes of values

	pending consensus.Pending
	decided chan struct{} // closed when result and err are set
	result  consensus.Result
	err     error
	// settled is closed after decided, when the change is in force here or never
	// will be.
	settled chan struct{}
}

// flightStep is what a pending change does to one key.
type flightStep struct {
	change resource.Change
	value  []byte // as stored; nil: a delete
}

// content is the input to the check of a change.
type content struct {
	epoch   *ahead // its origin; only compared
	set     *resource.Set
	view    consensus.Snapshot // in force
	pending []*pendingChange   // in the set but not in the view
	tail    *pendingChange
	unread  map[consensus.Key]unread
}

// touched reports whether a pending change concerns a key, so that its version
// is unknown.
func (n *content) touched(k resource.Key) bool {
	for _, f := range n.pending {
		if _, ok := f.steps[consensus.Key(k)]; ok {
			return true
		}
	}
	return false
}

// get returns an object. known is false if the object could not be decrypted,
// so that o is an older version or empty.
func (n *content) get(k resource.Key) (o resource.Object, exists, known bool) {
	o, exists = n.set.Get(k)
	if _, hidden := n.unread[consensus.Key(k)]; hidden && !n.touched(k) {
		return o, true, false
	}
	return o, exists, true
}

// plan is the result of a successful check. Without operations there is nothing
// to do.
type plan struct {
	changes []resource.Change
	ops     []consensus.Op
	next    *resource.Set
	what    string // for the note, if the check determines it
}

// do adds an operation to propose.
func (p *plan) do(change resource.Change, op consensus.Op) {
	p.changes = append(p.changes, change)
	p.ops = append(p.ops, op)
}

// outcome is the result of a change.
type outcome struct {
	index uint64 // in force here
	// repeated: the change was made earlier, under the same ID.
	repeated bool
}

// change makes one change. check turns it into a plan or refuses it, and may be
// called again with other content.
func (c *Catalog) change(ctx context.Context, id consensus.ID, note consensus.Note, check func(*content) (*plan, error)) (outcome, error) {
	for range maxChecks {
		out, err := c.attempt(ctx, id, note, check)
		if !errors.Is(err, errAgain) {
			return out, err
		}
	}
	return outcome{}, admin.Errorf(admin.Busy, "other changes came first %d times, nothing was changed: try again", maxChecks)
}

func (c *Catalog) attempt(ctx context.Context, id consensus.ID, note consensus.Note, check func(*content) (*plan, error)) (outcome, error) {
	select {
	case c.admitting <- struct{}{}:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	f, now, err := c.admit(ctx, id, note, check)
	<-c.admitting
	switch {
	case f != nil:
		out, err := c.settle(ctx, f)
		out.repeated = out.repeated || now != nil
		return out, err
	case now == nil:
		return outcome{}, err
	}
	if index, ok := now.view.Find(id); ok {
		return outcome{index, true}, nil
	}
	if err := c.confirm(ctx, now); err != nil {
		return outcome{}, err
	}
	_, view := c.InForce()
	return outcome{index: view.Index()}, err
}

// admit checks a change and proposes it. It returns one of:
//
//   - a flight: the proposed change;
//   - a flight and content: the flight of an earlier request with the same ID;
//   - content: what the error, or the finding that there is nothing to do, is based on;
//   - neither: the error is not about the change.
func (c *Catalog) admit(
	ctx context.Context, id consensus.ID, note consensus.Note, check func(*content) (*plan, error),
) (*pendingChange, *content, error) {
	now, err := c.content(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := now.view.Find(id); ok {
		return nil, now, nil
	}
	for _, f := range now.pending {
		if id != (consensus.ID{}) && f.id == id {
			return f, now, nil
		}
	}
	p, err := check(now)
	if err != nil || len(p.ops) == 0 {
		return nil, now, err
	}
	if p.what != "" {
		note.What = p.what
	}
	f, err := c.propose(ctx, now, p, &consensus.Batch{ID: id, Ops: p.ops, Note: note})
	return f, nil, err
}

// content waits until another change may be pending, and returns what to check
// it against. The caller holds c.admitting.
func (c *Catalog) content(ctx context.Context) (*content, error) {
	room := func() bool {
		size := 0
		for _, f := range c.flights {
			size += f.size
		}
		return len(c.flights) < maxFlights && size < maxFlying
	}
	if err := c.until(ctx, room); err != nil {
		return nil, err
	}
	c.mu.Lock()
	started := c.ahead != nil
	c.mu.Unlock()
	if !started {
		if err := c.current(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead == nil {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		c.ahead = &ahead{set: c.set, sequence: c.view.Sequence(), next: binary.LittleEndian.Uint64(random[:])>>1 + 1}
		c.flights = nil
	}
	a := c.ahead
	return &content{epoch: a, set: a.set, view: c.view, pending: c.flights, tail: a.tail, unread: c.unread}, nil
}

// current waits until everything committed before the call is in force here.
func (c *Catalog) current(ctx context.Context) error {
	if c.cfg.Barrier != nil {
		if err := c.cfg.Barrier(ctx); err != nil {
			return err
		}
	}
	return c.Await(ctx, c.cfg.Store.Snapshot().Index())
}

// propose proposes a plan. The caller holds c.admitting.
func (c *Catalog) propose(ctx context.Context, now *content, p *plan, b *consensus.Batch) (*pendingChange, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := &pendingChange{
		id:      b.ID,
		to:      p.next,
		steps:   make(map[consensus.Key]flightStep, len(p.ops)),
		decided: make(chan struct{}),
		settled: make(chan struct{}),
	}
	for i, op := range p.ops {
		f.steps[op.Key] = flightStep{p.changes[i], op.Value}
		f.size += len(op.Value)
	}
	c.mu.Lock()
	a := c.ahead
	if a == nil || a != now.epoch {
		c.mu.Unlock()
		return nil, errAgain
	}
	sequence := a.sequence
	b.IfSequence, b.Sequence = &sequence, a.next
	f.epoch, f.from, f.sequence = a, a.set, a.next
	a.set, a.sequence, a.next, a.tail = f.to, f.sequence, a.next+1, f
	c.flights = append(c.flights, f) // before it can come back
	c.mu.Unlock()
	var err error
	if f.pending, err = c.cfg.Store.Propose(ctx, b); err != nil {
		c.decide(f, consensus.Result{}, err)
		return nil, refusal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.undecided = append(c.undecided, f); len(c.undecided) == 1 {
		go c.decideAll() // its writer may stop waiting, but later changes depend on it
	}
	return f, nil
}

// decideAll waits for the results of the pending changes, in order, until there
// are none.
func (c *Catalog) decideAll() {
	for {
		c.mu.Lock()
		f := c.undecided[0]
		c.mu.Unlock()
		result, err := f.pending.Wait(context.Background())
		c.decide(f, result, err)
		c.mu.Lock()
		c.undecided[0] = nil
		c.undecided = c.undecided[1:]
		if len(c.undecided) == 0 {
			c.undecided = nil
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// decide records the result of a pending change. If it did not apply as
// proposed, no change that was checked after it can.
func (c *Catalog) decide(f *pendingChange, result consensus.Result, err error) {
	f.result, f.err = result, err
	close(f.decided)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && result.Index > c.view.Index() {
		c.unsettled = append(c.unsettled, f)
	} else {
		close(f.settled)
	}
	if err == nil && !result.Repeated {
		return
	}
	if c.ahead != nil && c.ahead == f.epoch {
		c.ahead, c.flights = nil, nil
		c.notify()
	}
}

// settleAll wakes the writers of changes that are now in force. The caller
// holds c.mu.
func (c *Catalog) settleAll() {
	c.unsettled = slices.DeleteFunc(c.unsettled, func(f *pendingChange) bool {
		acts := f.result.Index <= c.view.Index()
		if acts {
			close(f.settled)
		}
		return acts
	})
}

// settle waits until a pending change is in force here.
func (c *Catalog) settle(ctx context.Context, f *pendingChange) (outcome, error) {
	select {
	case <-f.settled:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	if f.err != nil {
		return outcome{}, refusal(f.err)
	}
	return outcome{f.result.Index, f.result.Repeated}, nil
}

// refusal converts the store's error into the writer's.
func refusal(err error) error {
	switch {
	case errors.Is(err, consensus.ErrStale), errors.Is(err, consensus.ErrVersion):
		return fmt.Errorf("%w: %w", errAgain, err)
	case errors.Is(err, consensus.ErrTooLarge):
		return admin.Errorf(admin.TooLarge, "%v", err)
	case errors.Is(err, consensus.ErrBusy):
		return admin.Errorf(admin.Busy, "%v: try again", err)
	}
	return err
}

// confirm verifies the basis of a finding: that all of the content is in force,
// and was the latest.
func (c *Catalog) confirm(ctx context.Context, now *content) error {
	if t := now.tail; t != nil {
		select {
		case <-t.decided:
		case <-ctx.Done():
			return ctx.Err()
		}
		if t.err != nil || t.result.Repeated {
			return errAgain
		}
		if err := c.Await(ctx, t.result.Index); err != nil {
			return err
		}
	}
	if err := c.current(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead != now.epoch {
		return errAgain
	}
	return nil
}

// noted fills in the missing fields of a note.
func noted(n consensus.Note, what string) consensus.Note {
	if n.What == "" {
		n.What = what
	}
	if n.At.IsZero() {
		n.At = time.Now()
	}
	n.At = n.At.UTC()
	return n
}
