package reactor

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Config is the configuration of a loop. Zero values mean the defaults.
type Config struct {
	// ReadBuffer is the size of the one buffer that all sockets of the loop
	// read into; default 64 KiB.
	ReadBuffer int
	// Budget is the number of bytes that one direction may move before the
	// others of the loop get their turn; default 2 MiB.
	Budget int
	// PipeSize is the capacity that the loop requests for its splice(2) pipes;
	// default 1 MiB. MaxPipes is the maximum number of pipes; default 256,
	// negative means none.
	PipeSize, MaxPipes int
	// CloseTimeout bounds how long Close takes to send pending bytes and to
	// see the peer's end; default 10 s.
	CloseTimeout time.Duration
	// MaxClosing is the number of sockets that may wait for their peer's end
	// after Close. Beyond it the oldest is closed at once. Default 1024.
	MaxClosing int
	// OnPanic is called after a panic in a callback, with the stack. The
	// socket whose owner panicked is reset, its owner's Failed gets ErrPanic,
	// and the loop continues. If OnPanic is nil, a panic ends the process.
	OnPanic func(v any, stack []byte)
}

func (c Config) withDefaults() Config {
	if c.ReadBuffer <= 0 {
		c.ReadBuffer = 64 << 10
	}
	if c.Budget <= 0 {
		c.Budget = 2 << 20
	}
	if c.PipeSize <= 0 {
		c.PipeSize = 1 << 20
	}
	if c.MaxPipes == 0 {
		c.MaxPipes = 256
	}
	if c.CloseTimeout <= 0 {
		c.CloseTimeout = 10 * time.Second
	}
	if c.MaxClosing <= 0 {
		c.MaxClosing = 1024
	}
	return c
}

// A Loop is one poller with its sockets and timers. Post, Close and the
// methods that say so may be called from any goroutine; all others only on the
// loop's goroutine, which is the one in Run, or before Run.
type Loop struct {
	cfg  Config
	poll poller

	now       time.Duration // since epoch, read once per turn
	sockets   []*Socket     // by token; nil: free
	free      []int32       // the free tokens
	listeners []*Listener   // by token; few, so free ones are looked for
	gen       uint32        // the last generation given to a socket or listener
	current   *Socket       // whose callbacks run, for the recovery from a panic
	buf       []byte        // what is read, during a callback

	// ready are sockets with something to do in the coming turn, tasks the
	// same for those outside this package.
	ready list
	tasks taskList

	closing closingList
	wheel   wheel
	chunks  chunkPool
	pipes   pipePool
	pending atomic.Int64

	closed    atomic.Bool
	asleep    atomic.Bool // the poller waits, or is about to
	hasPosted atomic.Bool // posted is not empty
	mu        sync.Mutex
	posted    []func() // guarded by mu
	spare     []func() // the other buffer of posted
	done      bool     // guarded by mu: nothing more is taken
}

// epoch is the origin of every loop's clock, so that their times compare.
var epoch = time.Now()

// Since returns the time of the loops' clocks at t, which must come from time.Now.
func Since(t time.Time) time.Duration { return t.Sub(epoch) }

// NewLoop returns a loop for Run, which closes the loop's descriptors when it
// returns. To discard a loop, call Close and then Run.
func NewLoop(c Config) (*Loop, error) {
	c = c.withDefaults()
	l := &Loop{cfg: c, buf: make([]byte, c.ReadBuffer), now: time.Since(epoch)}
	l.wheel.now = int64(l.now) >> tickShift
	l.pipes.init(c.MaxPipes, c.PipeSize)
	if err := l.poll.open(); err != nil {
		return nil, fmt.Errorf("reactor: %w", err)
	}
	return l, nil
}

// Now returns the monotonic time of this turn, since an origin that all loops
// of the process share.
func (l *Loop) Now() time.Duration { return l.now }

// Pending returns the number of bytes that the loop's sockets keep because the
// kernel has not taken them yet. It may be called from any goroutine.
func (l *Loop) Pending() int64 { return l.pending.Load() }

// Post calls fn on the loop, after everything posted before. It may be called
// from any goroutine. It returns false, and never calls fn, if the loop has
// ended.
func (l *Loop) Post(fn func()) bool {
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		return false
	}
	l.posted = append(l.posted, fn)
	l.hasPosted.Store(true)
	l.mu.Unlock()
	l.wake()
	return true
}

// wake makes the poller return if it waits. Concurrent calls write one
// wake-up; calls to a busy loop write none.
func (l *Loop) wake() {
	if l.asleep.Load() && l.asleep.CompareAndSwap(true, false) {
		l.poll.wake()
	}
}

// Close ends the loop: after this turn, Run closes all sockets without calling
// their owners, and returns. Close may be called from any goroutine. Whatever
// needs an orderly end must be ended before.
func (l *Loop) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed.Swap(true) && !l.done { // or the eventfd may be someone else's already
		l.wake()
	}
}

// release closes the loop's sockets and descriptors.
func (l *Loop) release() {
	l.closed.Store(true)
	l.mu.Lock()
	l.done = true
	l.posted, l.spare = nil, nil
	l.mu.Unlock()
	for _, s := range l.sockets {
		if s != nil {
			s.reset()
		}
	}
	l.pipes.close()
	l.poll.close()
}

// serveQueue serves what is queued for this turn; what is queued meanwhile
// waits for the next one.
func (l *Loop) serveQueue() {
	for s := l.ready.take(); s != nil; {
		next := s.next
		s.next, s.queued = nil, false
		l.visit(s)
		s = next
	}
	for t := l.tasks.take(); t != nil; {
		next := t.next
		t.next, t.queued = nil, false
		l.perform(t)
		t = next
	}
}

func (l *Loop) visit(s *Socket) {
	defer l.recovered()
	l.current = s
	s.visit()
	l.current = nil
}

func (l *Loop) perform(t *Task) {
	defer l.recovered()
	t.runner.RunTask(t)
}

// runPosted calls what other goroutines posted.
func (l *Loop) runPosted() {
	l.mu.Lock()
	fns := l.posted
	l.posted, l.spare = l.spare[:0], nil
	l.hasPosted.Store(false)
	l.mu.Unlock()
	for i, fn := range fns {
		fns[i] = nil
		l.call(fn)
	}
	l.spare = fns[:0]
}

func (l *Loop) call(fn func()) {
	defer l.recovered()
	fn()
}

func (l *Loop) fire(t *Timer) {
	defer l.recovered()
	t.expirer.Expired(t)
}

// recovered is deferred around every callback.
func (l *Loop) recovered() {
	if l.cfg.OnPanic == nil {
		return
	}
	v := recover()
	if v == nil {
		return
	}
	s := l.current
	l.current = nil
	l.cfg.OnPanic(v, debug.Stack())
	if s != nil {
		l.failPanicked(s)
	}
}

// failPanicked resets the socket and tells its owner. Should that panic too,
// the socket is closed by then, and this was the last call to its owner.
func (l *Loop) failPanicked(s *Socket) {
	defer l.recovered()
	if s.isOpen() {
		s.fail(ErrPanic)
	}
}

// A Task runs on the loop after the current callback and before the loop waits
// again. Embed it by value: Defer allocates nothing.
type Task struct {
	runner Runner
	next   *Task
	queued bool
}

// A Runner does a Task.
type Runner interface {
	RunTask(t *Task)
}

// Init sets the Runner that runs the task.
func (t *Task) Init(r Runner) { t.runner = r }

// Defer queues the task. If it is queued already, it keeps its place.
func (l *Loop) Defer(t *Task) {
	if t.queued {
		return
	}
	t.queued = true
	l.tasks.push(t)
}

// enqueue has s visited in the coming turn.
func (l *Loop) enqueue(s *Socket) {
	if s.queued {
		return
	}
	s.queued = true
	l.ready.push(s)
}

// list is a queue of sockets, linked through them.
type list struct{ head, tail *Socket }

func (q *list) push(s *Socket) {
	if q.tail == nil {
		q.head = s
	} else {
		q.tail.next = s
	}
	q.tail = s
}

func (q *list) take() *Socket {
	s := q.head
	q.head, q.tail = nil, nil
	return s
}

// taskList is a queue of tasks, linked through them.
type taskList struct{ head, tail *Task }

func (q *taskList) push(t *Task) {
	if q.tail == nil {
		q.head = t
	} else {
		q.tail.next = t
	}
	q.tail = t
}

func (q *taskList) take() *Task {
	t := q.head
	q.head, q.tail = nil, nil
	return t
}
