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
	// maxChecks is how often a change is checked before it is given up as
	// always overtaken.
	maxChecks = 8
	// maxFlights and maxFlying bound what is on its way, in changes and in
	// bytes of values; one change alone may be larger.
	maxFlights = 100
	maxFlying  = 64 << 20
)

// errAgain: what a change was checked against is not what there is or will be.
var errAgain = errors.New("overtaken by another change")

// ahead is the content that will be in force when all that was proposed has
// come to act. It is one writer's view of one stretch of time, and thrown away
// when anything else happens than what it proposed. Guarded by Catalog.mu.
type ahead struct {
	set      *resource.Set
	sequence uint64         // of the store then
	next     uint64         // the Batch.Sequence of the next change
	tail     *pendingChange // the last one; nil: none
}

// pendingChange is a change on its way. When it comes back as it went, the objects
// and the set that were checked act, and nothing is read or made again.
type pendingChange struct {
	id       consensus.ID
	epoch    *ahead
	sequence uint64 // of the store when it has acted
	from, to *resource.Set
	steps    map[consensus.Key]flightStep
	size     int // bytes of values

	pending consensus.Pending
	decided chan struct{} // closed when the rest is known
	result  consensus.Result
	err     error
	// settled is closed after decided, when it acts here or never will.
	settled chan struct{}
}

// flightStep is what a flight does to one key.
type flightStep struct {
	change resource.Change
	value  []byte // as stored; nil: a delete
}

// content is what a change is checked against.
type content struct {
	epoch   *ahead // where it is from; only compared
	set     *resource.Set
	view    consensus.Snapshot // in force
	pending []*pendingChange   // that the view does not have, and the set has
	tail    *pendingChange
	unread  map[consensus.Key]unread
}

// touched tells whether a change on its way concerns a key, so that its
// version is not known.
func (n *content) touched(k resource.Key) bool {
	for _, f := range n.pending {
		if _, ok := f.steps[consensus.Key(k)]; ok {
			return true
		}
	}
	return false
}

// get finds an object. known is false where it is there but only in an older
// state, or not at all, since it could not be opened.
func (n *content) get(k resource.Key) (o resource.Object, exists, known bool) {
	o, exists = n.set.Get(k)
	if _, hidden := n.unread[consensus.Key(k)]; hidden && !n.touched(k) {
		return o, true, false
	}
	return o, exists, true
}

// plan is what a change came to. Without operations there is nothing to do.
type plan struct {
	changes []resource.Change
	ops     []consensus.Op
	next    *resource.Set
	what    string // for the note, where the check finds it out
}

// do adds a step that is to be proposed.
func (p *plan) do(change resource.Change, op consensus.Op) {
	p.changes = append(p.changes, change)
	p.ops = append(p.ops, op)
}

// outcome is what became of a change.
type outcome struct {
	index uint64 // acts here
	// repeated: the change had come before, under the same ID.
	repeated bool
}

// change brings a change through: check makes a plan of it, or refuses it, and
// may be called again with other content.
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

// admit checks a change and proposes it. The flight that it returns with a
// content is that of an earlier request of the same ID. Without a flight, the
// content is what the error, or that there is nothing to do, was found
// against; without either the error is none of the change.
func (c *Catalog) admit(ctx context.Context, id consensus.ID, note consensus.Note, check func(*content) (*plan, error)) (*pendingChange, *content, error) {
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

// content waits until there is room for another flight, and gives what a
// change is checked against. Its caller has the token of c.admitting.
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

// current waits until all that was agreed before is in force here.
func (c *Catalog) current(ctx context.Context) error {
	if c.cfg.Barrier != nil {
		if err := c.cfg.Barrier(ctx); err != nil {
			return err
		}
	}
	return c.Await(ctx, c.cfg.Store.Snapshot().Index())
}

// propose sends a plan on its way. Its caller has the token of c.admitting.
func (c *Catalog) propose(ctx context.Context, now *content, p *plan, b *consensus.Batch) (*pendingChange, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := &pendingChange{id: b.ID, to: p.next, steps: make(map[consensus.Key]flightStep, len(p.ops)), decided: make(chan struct{}), settled: make(chan struct{})}
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
		go c.decideAll() // whoever waits for it may lose patience, and others rest on it
	}
	return f, nil
}

// decideAll waits for what becomes of the flights, in their order, until there
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

// decide notes what became of a flight. When it did not act as it was
// proposed, nothing that was checked after it can.
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

// settleAll tells the writers of what acts now. Its caller holds c.mu.
func (c *Catalog) settleAll() {
	c.unsettled = slices.DeleteFunc(c.unsettled, func(f *pendingChange) bool {
		acts := f.result.Index <= c.view.Index()
		if acts {
			close(f.settled)
		}
		return acts
	})
}

// settle waits until a flight acts here.
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

// refusal is the error of a writer whose batch did not act.
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

// confirm makes sure that what a change was found to be against some content
// is true: that all of the content is in force, and was the latest.
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

// noted is a note with what was left out of it.
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
