// Package session carries one client's connection to one broker: frames in,
// frames out, in order. It peeks at headers; what no filter wants to see
// streams through and is never collected.
//
//	client ──> direction ──> header ──> pass | walk | whole ──> broker
//	       <── direction <── header <── pass | walk | whole <──
//	                      │
//	              queue of requests in flight
//
// A Session is a netio.Session: it is told of completed work on two streams, on
// one loop. It has no I/O of its own but the methods of Conn, so scenario files
// (testdata) cover all of it. DESIGN.md has the reasons and the invariants.
//
//	client.go       requests: caps, versions, acks, what happens to them
//	broker.go       responses: which request they answer, and in which order
//	direction.go    the bytes of one direction: pieces, memory, back-pressure
//	in_flight.go    the requests that will be answered
//	sink.go         what leaves the chain of filters, and the reorder buffer
//	auth.go         what is learned from ApiVersions and SASL
//	leave.go        quiet moments, and ends
//	rebootstrap.go  Metadata sends clients away from a session that is to end
//	times.go        deadlines
//	limits.go       clients that exceed a rate are told to keep still, and not read
//	outcome.go      errors and throttling, for statistics
//
// It refuses what it cannot follow: a frame or a message that is not what it
// says, an API or version that was not offered, a response out of order. Then
// the connection ends with a reason, and nothing of that frame goes on.
package session

import (
	"time"

	"penstock/kafka/filter"
	"penstock/netio"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// Limits bound what clients and brokers can make a session hold.
type Limits struct {
	// MaxFrame is the largest frame, in bytes without its own length, of a
	// client, and of a broker where it must be collected. Default 100 MiB.
	MaxFrame int
	// MaxFrameAuth is the largest frame of ApiVersions and of SASL at any
	// time, and of all APIs from SaslHandshake until SaslAuthenticate
	// succeeded. Default 64 KiB, which is what a ticket of Kerberos may need.
	// ApiVersions and SaslHandshake have 8 KiB at most in any case.
	MaxFrameAuth int
	// MaxFrameEarly is the largest frame that has to be collected before
	// the broker has answered anything but ApiVersions. A producer may
	// begin with megabytes, so it is not MaxFrameAuth; and what streams
	// through costs no memory, so it is not bounded by this. Default 16 MiB;
	// of other APIs than Produce 1 MiB at most in any case.
	MaxFrameEarly int
	// MaxInFlight is how many requests may wait for their responses before
	// the client is not read. Default 1000.
	MaxInFlight int
	// FrameTimeout bounds the time from the first byte of a frame until it
	// is whole, where it must be collected. Default 30s.
	FrameTimeout time.Duration
	// FrameTimeoutEarly is the same for a client's frames before the broker has
	// answered anything but ApiVersions. A first Produce, which may be large,
	// has FrameTimeout. Default 5s, never more than FrameTimeout.
	FrameTimeoutEarly time.Duration
	// AskTimeout bounds the time in which the broker answers what a filter
	// asks of its own, from when nothing else is to be answered before it.
	// Default 30s, which is how long clients wait if they are not told
	// (request.timeout.ms).
	AskTimeout time.Duration
	// ConnectDelay is how long a client is kept when its broker could not
	// be reached: some connect again at once. Default 100ms; negative: none.
	ConnectDelay time.Duration
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.MaxFrame, 100<<20)
	set(&l.MaxFrameAuth, 64<<10)
	set(&l.MaxFrameEarly, 16<<20)
	set(&l.MaxInFlight, 1000)
	if l.FrameTimeout <= 0 {
		l.FrameTimeout = 30 * time.Second
	}
	if l.FrameTimeoutEarly <= 0 {
		l.FrameTimeoutEarly = 5 * time.Second
	}
	l.FrameTimeoutEarly = min(l.FrameTimeoutEarly, l.FrameTimeout)
	if l.AskTimeout <= 0 {
		l.AskTimeout = 30 * time.Second
	}
	if l.ConnectDelay == 0 {
		l.ConnectDelay = 100 * time.Millisecond
	}
	return l
}

// Settings are immutable, and shared by the sessions of a virtual cluster.
type Settings struct {
	Limits Limits

	clock func() time.Duration // of tests; nil: the real one
}

// NewSettings returns settings with defaults filled in.
func NewSettings(l Limits) *Settings { return &Settings{Limits: l.withDefaults()} }

// Host serves one session. Its methods are called on the loop of the connection
// and must not block.
type Host interface {
	// Plan finds the broker: Next and Connected.
	netio.Plan
	// Chain returns the chain for the next request. have is the chain in use;
	// to keep it, Chain returns it. At first have is nil, and the result must
	// not be. Any other chain belongs to the session until Release.
	Chain(have *filter.Chain) *filter.Chain
	// Release is called once for each chain that Chain returned, when the last
	// of its calls is done.
	Release(c *filter.Chain)
	// Exchanged is called for each request that was answered, or that needs no
	// answer.
	Exchanged(e Exchange)
}

// Exchange describes a request and its response, for statistics.
type Exchange struct {
	Key, Version int16
	Correlation  int32 // the client's
	// Own: a filter's own request. Answered: answered by a filter or the session.
	Own, Answered bool
	// Error is the error code of the response, as the broker gave it: the one
	// for all of it, or of Produce the first of a partition. 0: none, or not
	// looked for.
	Error int16
	// Throttled: the response has a throttle time, as far as it was parsed.
	Throttled bool
	// Request and Response are bytes, as the broker's side has them;
	// Response is 0 where there is none (acks=0).
	Request, Response int
	// Total is from the request's header to its last byte on the way to the
	// client; Broker from its last byte to the broker until its response
	// begins. The rest is what the proxy, and streaming, took.
	Total, Broker time.Duration
	// Sent is from the request's header to its last byte to the broker; 0: it was not
	// sent.
	Sent time.Duration
}

// Options configures New.
type Options struct {
	Host     Host
	Settings *Settings
	Info     filter.Info // for the filters
	Limiter  Limiter     // nil: none
}

// Conn is what a session needs of a netio.Conn.
type Conn interface {
	Fail(why netio.Reason, err error, clean bool)
	End(why netio.Reason, clean bool)
	MayMove(from relay.Side, n int) bool
	Reserve(class netio.Class, n int64) bool
	Release(n int64)
	Budget() int64
	Arm(t *reactor.Timer, d time.Duration)
	Disarm(t *reactor.Timer)
	Post(fn func())
	Guard(fn func())
}

// Session carries one connection. Only the loop of that connection may call its
// methods.
type Session struct {
	host        Host
	settings    *Settings
	info        filter.Info
	limiter     Limiter // nil: none
	conn        Conn
	streams     [2]stream.Stream
	conns       *filter.Conns // the open chain for new requests
	client      direction
	upstream    direction
	inFlight    inFlightQueue
	request     request // the client's that is whole, or waits in the chain
	reply       reply   // the response that is whole, or waits
	queuedOwn   []*filter.Call
	reorder     *reorderBuffer
	peer        peer
	timer       reactor.Timer
	timerDue    time.Duration // when the timer is due; 0: not armed
	leave       leave
	dueAnswer   dueAnswer
	pending     [2]bool // a side has not taken all that was sent to it
	charged     bool    // the limiter was asked for a request
	inEvent     bool    // inside an event: finishEvent follows
	closed      bool
	ownID       int32
	requests    uint64
	answerBytes int // bytes of answers that wait for their turn
}

var (
	_ netio.Session        = (*Session)(nil)
	_ netio.HoldingSession = (*Session)(nil)
	_ netio.RetryDelayer   = (*Session)(nil)
	_ netio.Tenanted       = (*Session)(nil)
	_ Conn                 = (*netio.Conn)(nil)
	_ filter.Sink          = (*Session)(nil)
)

// New returns a session, which is the plan of its connection.
func New(o Options) *Session {
	s := &Session{host: o.Host, settings: o.Settings, info: o.Info, limiter: o.Limiter}
	if s.settings == nil {
		s.settings = NewSettings(Limits{})
	}
	s.peer.client = o.Info.Client
	s.client.from, s.upstream.from = relay.Client, relay.Upstream
	s.timer.Init(s)
	return s
}

// Next implements netio.Plan.
func (s *Session) Next(c *netio.Conn, err error) (netio.Target, netio.Reason) {
	return s.host.Next(c, err)
}

// Connected implements netio.Plan.
func (s *Session) Connected(c *netio.Conn, took time.Duration) { s.host.Connected(c, took) }

// RetryDelay implements netio.RetryDelayer: some clients connect again at once.
func (s *Session) RetryDelay(netio.Reason) time.Duration {
	return max(s.settings.Limits.ConnectDelay, 0)
}

// Description implements netio.Described where the host does.
func (s *Session) Description() string {
	if l, ok := s.host.(netio.Described); ok {
		return l.Description()
	}
	return ""
}

// Tenant implements netio.Tenanted where the host does.
func (s *Session) Tenant() string {
	if t, ok := s.host.(netio.Tenanted); ok {
		return t.Tenant()
	}
	return ""
}

// Host returns the host that the session was made with.
func (s *Session) Host() Host { return s.host }

// Start implements netio.Session.
func (s *Session) Start(c *netio.Conn, client, upstream stream.Stream) {
	s.start(c, client, upstream)
}

func (s *Session) start(c Conn, client, upstream stream.Stream) {
	s.conn, s.streams = c, [2]stream.Stream{client, upstream}
	s.conns = s.host.Chain(nil).Open(s.info, s)
	client.SetReading(true)
	upstream.SetReading(true)
	s.client.reading, s.upstream.reading = true, true
	if s.leave.wanted {
		s.startLeaving()
	}
}

// direction returns the direction that begins at a side.
func (s *Session) direction(from relay.Side) *direction {
	if from == relay.Client {
		return &s.client
	}
	return &s.upstream
}

// Received implements netio.Session.
func (s *Session) Received(from relay.Side, p []byte) {
	s.inEvent = true
	s.feed(s.direction(from), p)
	s.finishEvent()
}

// Moved implements netio.Session.
func (s *Session) Moved(from relay.Side, n int) {
	s.inEvent = true
	l := s.direction(from)
	if l.state == walking {
		l.passLeft -= n
	} else {
		l.left -= n
	}
	s.endIfStreamed(l)
	s.finishEvent()
}

// Sent implements netio.Session.
func (s *Session) Sent(to relay.Side) {
	s.inEvent = true
	s.pending[to] = false
	s.finishEvent()
}

// MemoryAvailable implements netio.Session: the node may have memory again.
func (s *Session) MemoryAvailable() {
	s.inEvent = true
	s.client.block &^= blockedByMemory
	s.upstream.block &^= blockedByMemory
	if s.reorder != nil {
		s.chargeReordering()
	}
	s.finishEvent()
}

// finishEvent ends every event. It resumes what need not wait any more, and starts
// or stops reading from each side.
func (s *Session) finishEvent() {
	for !s.closed && (s.resumeHeld(&s.upstream) || s.resumeHeld(&s.client)) { //nolint:revive // the conditions do the work
	}
	s.inEvent = false
	if s.closed {
		return
	}
	s.endAfterClientFIN()
	if s.closed {
		return
	}
	s.holdBack()
	s.setPaused(&s.upstream, s.upstream.blocked() || len(s.upstream.held) > 0 || s.pending[relay.Client])
	s.setPaused(&s.client, s.client.blocked() || len(s.client.held) > 0 || s.pending[relay.Upstream] || s.pending[relay.Client])
	s.armDeadlines()
	s.leaveIfIdle()
}

// resumeHeld feeds the held bytes if the direction is not blocked any more.
func (s *Session) resumeHeld(l *direction) bool {
	if l == &s.client && s.inFlight.len() < s.settings.Limits.MaxInFlight && s.answerBytes < maxAnswers {
		l.block &^= blockedByInFlight
	}
	if l.block&blockedByLimit != 0 {
		s.holdBack()
	}
	if l.blocked() || len(l.held) == 0 {
		return false
	}
	p := l.held
	l.held = nil
	s.feed(l, p)
	return s.closed || len(l.held) < len(p)
}

// setPaused stops or starts reading from a side.
func (s *Session) setPaused(l *direction, still bool) {
	if l.reading == still {
		l.reading = !still
		s.streams[l.from].SetReading(!still)
	}
}

// fail ends the connection for a reason of the session. A client in the middle
// of a response is reset: a response that is cut off must not look complete.
func (s *Session) fail(why netio.Reason, err error) {
	if s.closed {
		return
	}
	s.flushAll()
	s.conn.Fail(why, err, !s.upstream.inFrame())
}

// Closed implements netio.Session.
func (s *Session) Closed(netio.Reason) {
	s.closed = true
	s.conn.Disarm(&s.timer)
	for s.inFlight.len() > 0 {
		if f := s.inFlight.pop(); f.call != nil {
			f.call.Abandon()
		}
	}
	for _, c := range s.queuedOwn {
		c.Abandon()
	}
	s.queuedOwn = nil
	for _, c := range [...]*filter.Call{s.request.call, s.reply.call} {
		if c != nil {
			c.Done()
		}
	}
	s.request, s.reply = request{}, reply{}
	s.dropReordering()
	s.client.release(s.conn)
	s.upstream.release(s.conn)
	s.releaseChain()
	if s.limiter != nil {
		s.limiter.Close()
	}
}

// releaseChain releases the open chain.
func (s *Session) releaseChain() {
	if s.conns != nil {
		c := s.conns.Chain()
		s.conns.Retire(func() { s.host.Release(c) })
		s.conns = nil
	}
}

// updateChain switches to the chain in force, between two requests.
func (s *Session) updateChain() {
	have := s.conns.Chain()
	if c := s.host.Chain(have); c != nil && c != have {
		s.releaseChain()
		s.conns = c.Open(s.info, s)
	}
}
