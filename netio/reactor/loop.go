package reactor

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Config is how a loop is made. Zero values mean the defaults.
type Config struct {
	// ReadBuffer is the size of the buffer that all sockets of the loop read
	// into; default 64 KiB.
	ReadBuffer int
	// Budget is how many bytes one direction moves before the others of the
	// loop have their turn; default 2 MiB.
	Budget int
	// PipeSize is the capacity that a pipe for splice(2) is given where the
	// system allows it; default 1 MiB. MaxPipes is how many pipes the
	// loop holds at most; default 256, negative: none.
	PipeSize, MaxPipes int
	// CloseTimeout bounds what Close takes to send what is pending and to
	// see the peer's end; default 10 s.
	CloseTimeout time.Duration
	// MaxClosing is how many sockets of the loop may wait for their peer's
	// end after Close; the oldest ones wait no longer. Default 1024.
	MaxClosing int
	// OnPanic is told of a panic in a callback, with its stack. The socket
	// whose owner panicked is reset and its owner told of ErrPanic; the
	// loop goes on. Without it the process dies of the panic.
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

// A Loop is one poller and the sockets and timers that live on it. All its
// methods but Post, Close and those that say so are for its own goroutine
// (the one that is in Run), or for before Run.
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

// NewLoop makes a loop; Run runs it, and gives its descriptors back in the end.
// So one that is not needed after all is closed and run, too.
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

// Now is the monotonic time of this turn, since an origin that all loops of
// the process share.
func (l *Loop) Now() time.Duration { return l.now }

// Pending is how many bytes the loop's sockets keep that the kernel has not
// taken yet. It may be called from any goroutine.
func (l *Loop) Pending() int64 { return l.pending.Load() }

// Post has fn called on the loop, after what was posted before. It may be
// called from any goroutine. It returns false when the loop has ended; then
// fn is not called.
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

// wake makes the poller return if it waits. However many ask for it, one
// wake-up is written; none while the loop is busy.
func (l *Loop) wake() {
	if l.asleep.Load() && l.asleep.CompareAndSwap(true, false) {
		l.poll.wake()
	}
}

// Close ends the loop: Run returns after this turn, having closed all its
// sockets without telling their owners. It may be called from any goroutine.
// Whatever must end in order is to be ended before.
func (l *Loop) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed.Swap(true) && !l.done { // or the eventfd may be someone else's already
		l.wake()
	}
}

// end releases everything.
func (l *Loop) end() {
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

// serveQueue does what is queued for this turn; what is queued meanwhile is
// for the next one.
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

// A Task is something to do on the loop after what is being done now, before
// it waits again. It is a value to embed: Defer allocates nothing.
type Task struct {
	runner Runner
	next   *Task
	queued bool
}

// A Runner does a Task.
type Runner interface {
	RunTask(t *Task)
}

// Init sets who does the task.
func (t *Task) Init(r Runner) { t.runner = r }

// Defer queues the task. One that is queued already stays where it is.
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
