package catalog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

const (
	// maxChecks is how often a change is checked, while others overtake it, before
	// it fails.
	maxChecks = 8
	// maxPending and maxPendingBytes bound the pending changes, in number and
	// in bytes of values. A single change may be larger.
	maxPending      = 100
	maxPendingBytes = 64 << 20
)

// errOvertaken: the content that a change was checked against is outdated.
var errOvertaken = errors.New("overtaken by another change")

// ahead is the content once all pending changes are in force. It belongs to one
// uninterrupted sequence of this node's proposals, and is discarded when
// anything other than these happens. Guarded by Catalog.mu.
type ahead struct {
	set      *validate.Set
	sequence uint64         // of the store after the pending changes
	next     uint64         // the Batch.Sequence of the next change
	tail     *pendingChange // the last one; nil: none
}

// pendingChange is a proposed change. If it comes back unmodified, the objects
// and the set from its check are put in force, without decoding anything again.
type pendingChange struct {
	id       store.ID
	epoch    *ahead
	sequence uint64 // of the store after the change
	from, to *validate.Set
	steps    map[store.Key]pendingStep
	size     int // bytes of values

	pending store.Pending
	decided chan struct{} // closed when result and err are set
	result  store.Result
	err     error
	// settled is closed after decided, when the change is in force here or never
	// will be.
	settled chan struct{}
}

// pendingStep is what a pending change does to one key.
type pendingStep struct {
	change resource.Change
	value  []byte // as stored; nil: a delete
}

// baseline is the input to the check of a change.
type baseline struct {
	epoch   *ahead // its origin; only compared
	set     *validate.Set
	view    store.Snapshot   // in force
	pending []*pendingChange // in the set but not in the view
	tail    *pendingChange
	unread  map[store.Key]unreadEntry
}

// hasPending reports whether a pending change concerns a key, so that its
// version is unknown.
func (n *baseline) hasPending(k resource.Key) bool {
	for _, pc := range n.pending {
		if _, ok := pc.steps[store.Key(k)]; ok {
			return true
		}
	}
	return false
}

// get returns an object. known is false if the object could not be decrypted,
// so that o is an older version or empty.
func (n *baseline) get(k resource.Key) (o resource.Object, exists, known bool) {
	o, exists = n.set.Get(k)
	if _, hidden := n.unread[store.Key(k)]; hidden && !n.hasPending(k) {
		return o, true, false
	}
	return o, exists, true
}

// checkFunc turns a change into a plan for a baseline, or refuses it. It may be
// called again with another baseline.
type checkFunc func(*baseline) (*plan, error)

// plan is the result of a successful check. Without operations there is nothing
// to do.
type plan struct {
	changes []resource.Change
	ops     []store.Op
	next    *validate.Set
	note    string // for the note, if the check determines it
}

// add adds an operation to propose.
func (p *plan) add(change resource.Change, op store.Op) {
	p.changes = append(p.changes, change)
	p.ops = append(p.ops, op)
}

// maxNamed is how many resources a summary names of each action.
const maxNamed = 8

// summary names the resources that the plan puts and deletes, or the first of them.
func (p *plan) summary() string {
	var put, deleted []string
	for _, c := range p.changes {
		if c.Delete {
			deleted = append(deleted, c.String())
		} else {
			put = append(put, c.String())
		}
	}
	var parts []string
	for action, keys := range map[string][]string{"": put, "deleted ": deleted} {
		if rest := len(keys) - maxNamed; rest > 0 {
			keys = append(keys[:maxNamed:maxNamed], fmt.Sprintf("%d more", rest))
		}
		if len(keys) > 0 {
			parts = append(parts, action+strings.Join(keys, ", "))
		}
	}
	slices.Sort(parts) // resources begin with a capital letter
	return strings.Join(parts, "; ")
}

// outcome is the result of a change.
type outcome struct {
	index uint64 // in force here
	// repeated: the change was made earlier, under the same ID. changed: it was made
	// now.
	repeated, changed bool
}

// makeChange makes one change. check turns it into a plan or refuses it, and
// may be called again with another baseline.
func (c *Catalog) makeChange(ctx context.Context, id store.ID, note store.Note, check checkFunc) (outcome, error) {
	for range maxChecks {
		out, err := c.tryChange(ctx, id, note, check)
		if !errors.Is(err, errOvertaken) {
			if c.cfg.Audit != nil && err == nil && (out.changed || out.repeated) {
				c.cfg.Audit.Done(ctx)
			}
			return out, err
		}
	}
	return outcome{}, api.Errorf(api.Busy, "conflicted with other changes %d times, nothing was changed: try again", maxChecks)
}

func (c *Catalog) tryChange(ctx context.Context, id store.ID, note store.Note, check checkFunc) (outcome, error) {
	select {
	case c.admitting <- struct{}{}:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	pc, base, err := c.admit(ctx, id, note, check)
	<-c.admitting
	switch {
	case pc != nil:
		out, err := c.awaitSettled(ctx, pc)
		out.repeated = out.repeated || base != nil
		return out, err
	case base == nil:
		return outcome{}, err
	}
	if index, ok := base.view.Find(id); ok {
		return outcome{index: index, repeated: true}, nil
	}
	if err := c.confirm(ctx, base); err != nil {
		return outcome{}, err
	}
	_, view := c.InForce()
	return outcome{index: view.Index()}, err
}

// admit checks a change and proposes it. It returns one of:
//
//   - a pending change: the proposed one;
//   - a pending change and a baseline: that of an earlier request with the same ID;
//   - a baseline: the basis of the error, or of the finding that there is nothing to do;
//   - neither: the error is not about the change.
func (c *Catalog) admit(
	ctx context.Context, id store.ID, note store.Note, check checkFunc,
) (*pendingChange, *baseline, error) {
	base, err := c.awaitBaseline(ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := base.view.Find(id); ok {
		return nil, base, nil
	}
	for _, pc := range base.pending {
		if id != (store.ID{}) && pc.id == id {
			return pc, base, nil
		}
	}
	p, err := check(base)
	if err != nil || len(p.ops) == 0 {
		return nil, base, err
	}
	if p.note != "" {
		note.What = p.note
	}
	ops := p.ops
	if c.cfg.Audit != nil {
		ops = slices.Concat(ops, c.cfg.Audit.Ops(ctx, p.summary))
	}
	pc, err := c.propose(ctx, base, p, &store.Batch{ID: id, Ops: ops, Note: note})
	return pc, nil, err
}

// awaitBaseline waits until another change may be pending, and returns what to
// check it against. The caller holds c.admitting.
func (c *Catalog) awaitBaseline(ctx context.Context) (*baseline, error) {
	hasRoom := func() bool {
		size := 0
		for _, pc := range c.pending {
			size += pc.size
		}
		return len(c.pending) < maxPending && size < maxPendingBytes
	}
	if err := c.until(ctx, hasRoom); err != nil {
		return nil, err
	}
	c.mu.Lock()
	started := c.ahead != nil
	c.mu.Unlock()
	if !started {
		if err := c.awaitCurrent(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead == nil {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		c.ahead = &ahead{set: c.set, sequence: c.view.Sequence(), next: binary.LittleEndian.Uint64(random[:])>>1 + 1}
		c.pending = nil
	}
	a := c.ahead
	return &baseline{epoch: a, set: a.set, view: c.view, pending: c.pending, tail: a.tail, unread: c.unread}, nil
}

// awaitCurrent waits until everything committed before the call is in force
// here.
func (c *Catalog) awaitCurrent(ctx context.Context) error {
	if c.cfg.Barrier != nil {
		if err := c.cfg.Barrier(ctx); err != nil {
			return err
		}
	}
	return c.Await(ctx, c.cfg.Store.Snapshot().Index())
}

// propose proposes a plan. The caller holds c.admitting.
func (c *Catalog) propose(ctx context.Context, base *baseline, p *plan, b *store.Batch) (*pendingChange, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	pc := &pendingChange{
		id:      b.ID,
		to:      p.next,
		steps:   make(map[store.Key]pendingStep, len(p.ops)),
		decided: make(chan struct{}),
		settled: make(chan struct{}),
	}
	for i, op := range p.ops {
		pc.steps[op.Key] = pendingStep{p.changes[i], op.Value}
		pc.size += len(op.Value)
	}
	c.mu.Lock()
	a := c.ahead
	if a == nil || a != base.epoch {
		c.mu.Unlock()
		return nil, errOvertaken
	}
	sequence := a.sequence
	b.IfSequence, b.Sequence = &sequence, a.next
	pc.epoch, pc.from, pc.sequence = a, a.set, a.next
	a.set, a.sequence, a.next, a.tail = pc.to, pc.sequence, a.next+1, pc
	c.pending = append(c.pending, pc) // before it can come back
	c.mu.Unlock()
	var err error
	if pc.pending, err = c.cfg.Store.Propose(ctx, b); err != nil {
		c.decide(pc, store.Result{}, err)
		return nil, proposeError(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.undecided = append(c.undecided, pc); len(c.undecided) == 1 {
		go c.decideAll() // its writer may stop waiting, but later changes depend on it
	}
	return pc, nil
}

// decideAll waits for the results of the pending changes, in order, until there
// are none.
func (c *Catalog) decideAll() {
	for {
		c.mu.Lock()
		pc := c.undecided[0]
		c.mu.Unlock()
		result, err := pc.pending.Wait(context.Background())
		c.decide(pc, result, err)
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
func (c *Catalog) decide(pc *pendingChange, result store.Result, err error) {
	pc.result, pc.err = result, err
	close(pc.decided)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && result.Index > c.view.Index() {
		c.unsettled = append(c.unsettled, pc)
	} else {
		close(pc.settled)
	}
	if err == nil && !result.Repeated {
		return
	}
	if c.ahead != nil && c.ahead == pc.epoch {
		c.ahead, c.pending = nil, nil
		c.notify()
	}
}

// settleInForce wakes the writers of changes that are now in force. The caller
// holds c.mu.
func (c *Catalog) settleInForce() {
	c.unsettled = slices.DeleteFunc(c.unsettled, func(pc *pendingChange) bool {
		acts := pc.result.Index <= c.view.Index()
		if acts {
			close(pc.settled)
		}
		return acts
	})
}

// awaitSettled waits until a pending change is in force here.
func (c *Catalog) awaitSettled(ctx context.Context, pc *pendingChange) (outcome, error) {
	select {
	case <-pc.settled:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	if pc.err != nil {
		return outcome{}, proposeError(pc.err)
	}
	return outcome{index: pc.result.Index, repeated: pc.result.Repeated, changed: !pc.result.Repeated}, nil
}

// proposeError converts the store's error into the writer's.
func proposeError(err error) error {
	switch {
	case errors.Is(err, store.ErrStale), errors.Is(err, store.ErrVersion):
		return fmt.Errorf("%w: %w", errOvertaken, err)
	case errors.Is(err, store.ErrTooLarge):
		return api.Errorf(api.TooLarge, "%v", err)
	case errors.Is(err, replica.ErrBusy):
		return api.Errorf(api.Busy, "%v: try again", err)
	}
	return err
}

// confirm verifies the basis of a finding: that all of the content is in force,
// and was the latest.
func (c *Catalog) confirm(ctx context.Context, base *baseline) error {
	if t := base.tail; t != nil {
		select {
		case <-t.decided:
		case <-ctx.Done():
			return ctx.Err()
		}
		if t.err != nil || t.result.Repeated {
			return errOvertaken
		}
		if err := c.Await(ctx, t.result.Index); err != nil {
			return err
		}
	}
	if err := c.awaitCurrent(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead != base.epoch {
		return errOvertaken
	}
	return nil
}

// completeNote fills in the missing fields of a note.
func completeNote(n store.Note, what string) store.Note {
	if n.What == "" {
		n.What = what
	}
	if n.At.IsZero() {
		n.At = time.Now()
	}
	n.At = n.At.UTC()
	return n
}
