package netio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"penstock/internal/testkit"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// framed is a session over frames of a length (4 bytes), a mark (1 byte) and a
// body. It flips the mark's lowest bit, does not read bodies that may be
// spliced, and pauses one side while the other has pending bytes. A mark of 'E'
// ends the connection gracefully, 'R' with a reset, 'F' with a fault, 'P'
// panics.
type framed struct {
	plan
	conn    *Conn
	streams [2]stream.Stream
	dirs    [2]framedSide
	quiet   atomic.Bool
	seen    [2]atomic.Int64 // bytes of bodies seen by Received
	moved   [2]atomic.Int64
	closed  atomic.Int64
	fed     func()
	failed  func(relay.Side)
	started chan struct{}
	tame    bool // marks have no effect
}

type framedSide struct {
	head []byte
	left int // of the body
}

func newFramed(to Target) *framed {
	f := &framed{plan: plan{targets: []Target{to}}, started: make(chan struct{})}
	f.quiet.Store(true)
	return f
}

func (f *framed) Start(c *Conn, client, upstream stream.Stream) {
	f.conn, f.streams = c, [2]stream.Stream{client, upstream}
	client.SetReading(true)
	upstream.SetReading(true)
	close(f.started)
}

func (f *framed) Received(from relay.Side, p []byte) {
	d := &f.dirs[from]
	for len(p) > 0 {
		if d.left > 0 {
			n := min(d.left, len(p))
			d.left -= n
			f.seen[from].Add(int64(n))
			f.send(from, p[:n])
			p = p[n:]
			continue
		}
		n := min(5-len(d.head), len(p))
		d.head, p = append(d.head, p[:n]...), p[n:]
		if len(d.head) < 5 {
			return
		}
		switch {
		case f.tame:
		case d.head[4] == 'E':
			f.conn.End("told", true)
			return
		case d.head[4] == 'F':
			f.conn.Fail("told", errors.New("a fault"), true)
			return
		case d.head[4] == 'R':
			f.conn.End("told", false)
			return
		case d.head[4] == 'P':
			panic("told")
		}
		d.left = int(binary.BigEndian.Uint32(d.head))
		d.head[4] ^= 1
		f.send(from, d.head)
		d.head = d.head[:0]
	}
	f.conn.MayMove(from, d.left)
}

func (f *framed) send(from relay.Side, p []byte) {
	if f.streams[from.Other()].Send(p) > 0 {
		f.streams[from].SetReading(false)
	}
}

func (f *framed) Moved(from relay.Side, n int) {
	f.moved[from].Add(int64(n))
	if f.dirs[from].left -= n; f.dirs[from].left < 0 {
		panic("moved more than it might")
	}
}
func (f *framed) Sent(to relay.Side) { f.streams[to.Other()].SetReading(true) }
func (f *framed) Ended(from relay.Side) {
	f.conn.End(map[relay.Side]Reason{relay.Client: ClientFIN, relay.Upstream: UpstreamFIN}[from], true)
}

func (f *framed) Failed(from relay.Side, _ error) {
	if f.failed != nil {
		f.failed(from)
	}
}

func (f *framed) MemoryAvailable() {
	if f.fed != nil {
		f.fed()
	}
}
func (f *framed) Idle() bool    { return f.quiet.Load() }
func (f *framed) Closed(Reason) { f.closed.Add(1) }

// sessions makes the rig's connections framed ones, and returns a channel of
// them.
func sessions(r *rig, to string, change func(*framed)) <-chan *framed {
	all := make(chan *framed, 64)
	r.route = func(*Conn) (Plan, Reason) {
		f := newFramed(Target{Addr: mustAddr(to), Profile: &Profile{Meter: r.meter}})
		if change != nil {
			change(f)
		}
		all <- f
		return f, OK
	}
	return all
}

// startedSession waits for the next session to start.
func startedSession(t testing.TB, all <-chan *framed) *framed {
	t.Helper()
	f := testkit.Receive(t, "a session", all)
	testkit.Receive(t, "the start of the session", f.started)
	return f
}

func frame(mark byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	return append(append(b, mark), body...)
}

// TestASessionMovesBodiesUnseen sends frames of all sizes in both directions at
// once, in random pieces; the session changes headers, and large bodies bypass
// it.
func TestASessionMovesBodiesUnseen(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for name, n := range map[string]struct{ frames, largest int }{"large": {6, 6 << 20}, "mixed": {60, 300 << 10}, "small": {2000, 40}} {
		t.Run(name, func(t *testing.T) {
			servers := make(chan *net.TCPConn, 1)
			done := make(chan struct{})
			to := testkit.Serve(t, func(c *net.TCPConn) { servers <- c; <-done })
			t.Cleanup(func() { close(done) })
			r := newRig(t, Config{}, "", Profile{})
			all := sessions(r, to, nil)
			client := dial(t, r.serve(t, Listener{}))
			f := startedSession(t, all)
			server := <-servers
			var wg sync.WaitGroup
			for i, ends := range [2][2]net.Conn{{client, server}, {server, client}} {
				chance := rand.New(rand.NewPCG(seed, uint64(i)))
				var in, want []byte
				for range n.frames {
					body := make([]byte, chance.IntN(n.largest))
					for j := 0; j < len(body); j += 97 {
						body[j] = byte(chance.Uint32())
					}
					in, want = append(in, frame('a', body)...), append(want, frame('a'^1, body)...)
				}
				wg.Go(func() {
					for len(in) > 0 {
						k := min(1+chance.IntN(2<<20), len(in))
						if _, err := ends[0].Write(in[:k]); err != nil {
							t.Error(err)
							return
						}
						in = in[k:]
					}
				})
				wg.Go(func() {
					got := make([]byte, len(want))
					if k, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, want) {
						t.Errorf("direction %d: %d bytes of %d, %v, equal %v", i, k, len(want), err, bytes.Equal(got, want))
					}
				})
			}
			wg.Wait()
			if moved, seen := f.moved[0].Load()+f.moved[1].Load(), f.seen[0].Load()+f.seen[1].Load(); name == "large" && moved < 3*seen {
				t.Errorf("%d bytes moved unseen, %d seen", moved, seen)
			}
			client.CloseWrite()
			e := r.wantEnd(t, ClientFIN)
			if f.closed.Load() != 1 {
				t.Errorf("closed %d times", f.closed.Load())
			}
			if e.in == 0 || e.out == 0 {
				t.Errorf("counted %d bytes in, %d out", e.in, e.out)
			}
		})
	}
}

// A session ends its connection gracefully, after what was sent, or with a
// reset.
func TestASessionEndsItsConnection(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := sessions(r, testkit.Serve(t, func(c *net.TCPConn) {
		head := make([]byte, 5)
		_, _ = io.ReadFull(c, head)
		_, _ = c.Write(append(frame('b', []byte("last")), frame(head[4], nil)...))
		_, _ = io.Copy(io.Discard, c)
	}), nil)
	addr := r.serve(t, Listener{})

	c := dial(t, addr)
	mustWrite(t, c, string(frame('E', nil)))
	startedSession(t, all)
	mustEnd(t, c, "")

	c = dial(t, addr)
	mustWrite(t, c, string(frame('D', nil))) // the endpoint gets an E and returns it after a last frame
	startedSession(t, all)
	mustEnd(t, c, string(frame('c', []byte("last"))))

	c = dial(t, addr)
	mustWrite(t, c, string(frame('R', nil)))
	startedSession(t, all)
	mustBeReset(t, c)
	for _, e := range r.waitEndings(t, 3) {
		if e.why != "told" {
			t.Errorf("ended with %q", e.why)
		}
	}
}

func TestAPanicOfASessionEndsItsConnectionAlone(t *testing.T) {
	r := newRig(t, Config{Log: quiet}, "", Profile{})
	all := sessions(r, testkit.Serve(t, echo), nil)
	addr := r.serve(t, Listener{})
	other := dial(t, addr)
	startedSession(t, all)
	c := dial(t, addr)
	mustWrite(t, c, string(frame('P', nil)))
	f := startedSession(t, all)
	mustBeReset(t, c)
	r.wantEnd(t, Internal)
	mustWrite(t, other, string(frame('x', []byte("hi"))))
	mustRead(t, other, string(frame('x', []byte("hi"))))

	// The same for posted functions; none is called after the end.
	f.conn.Post(func() { t.Error("called after the end") })
	c = dial(t, addr)
	f = startedSession(t, all)
	f.conn.Post(func() { panic("told") })
	mustBeReset(t, c)
	for _, e := range r.waitEndings(t, 2) {
		if e.why != Internal {
			t.Errorf("ended with %q", e.why)
		}
	}
	other.Close()
	r.waitEndings(t, 3)
}

// If one side failed, the session chooses how the other side ends.
func TestASessionChoosesHowTheOtherSideEnds(t *testing.T) {
	for _, orderly := range []bool{false, true} {
		r := newRig(t, Config{}, "", Profile{})
		all := sessions(r, testkit.Serve(t, func(c *net.TCPConn) {
			_, _ = io.ReadFull(c, make([]byte, 5))
			_ = c.SetLinger(0)
		}), func(f *framed) {
			f.failed = func(side relay.Side) {
				if orderly && side == relay.Upstream {
					f.conn.End(UpstreamReset, true)
				}
			}
		})
		c := dial(t, r.serve(t, Listener{}))
		startedSession(t, all)
		mustWrite(t, c, string(frame('x', nil)))
		if orderly {
			mustEnd(t, c, "")
		} else {
			mustBeReset(t, c)
		}
		r.wantEnd(t, UpstreamReset)
	}
}

// Bytes that arrive with the PROXY header reach the session.
func TestASessionHearsBytesThatCameEarly(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	sessions(r, testkit.Serve(t, echo), nil)
	c := dial(t, r.serve(t, Listener{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	mustWrite(t, c, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"+string(frame('x', []byte("early"))))
	mustRead(t, c, string(frame('x', []byte("early"))))
	c.CloseWrite()
	if e := r.wantEnd(t, ClientFIN); e.in != 10 || e.out != 10 {
		t.Errorf("%d bytes in, %d out", e.in, e.out)
	}
}

// Reserve fails without memory, and the session is notified when there is some
// again.
func TestReserveWaitsForMemory(t *testing.T) {
	r := newRig(t, Config{MemoryBudget: 1 << 20, Loops: 2}, "", Profile{})
	fed := make(chan *framed, 16)
	all := sessions(r, testkit.Serve(t, echo), func(f *framed) { f.fed = func() { fed <- f } })
	addr := r.serve(t, Listener{})
	var list []*framed
	for range 4 { // on both loops
		dial(t, addr)
		list = append(list, startedSession(t, all))
	}
	reserve := func(f *framed, n int64) (ok bool) {
		done := make(chan struct{})
		f.conn.Post(func() { ok = f.conn.Reserve(Bulk, n); close(done) })
		<-done
		return ok
	}
	most := r.Stats().BudgetBulk
	if !reserve(list[0], most-10) || reserve(list[1], 11) || reserve(list[2], 11) || !reserve(list[3], 10) {
		t.Fatal("the budget was not kept to")
	}
	if reserve(list[1], most+1) {
		t.Error("more than there is was given")
	}
	if used := r.Stats().BudgetUsed; used != most {
		t.Errorf("%d bytes charged", used)
	}
	list[0].conn.Post(func() { list[0].conn.Release(most - 10) })
	woken := map[*framed]bool{<-fed: true, <-fed: true}
	if !woken[list[1]] || !woken[list[2]] {
		t.Error("others were told of memory")
	}
	if !reserve(list[1], 1000) {
		t.Error("still refused")
	}
	list[1].conn.Post(func() { list[1].conn.Release(1000) })
	list[3].conn.Post(func() { list[3].conn.Release(10) })
	testkit.WaitFor(t, "all memory to be back", func() bool { return r.Stats().BudgetUsed == 0 })
}

// A drain closes a session at its quiet moment, however short: neither before
// nor after.
func TestADrainTakesASessionsQuietMoment(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, "", Profile{})
	all := sessions(r, testkit.Serve(t, echo), nil)
	addr := r.serve(t, Listener{})
	c := dial(t, addr)
	f := startedSession(t, all)
	f.quiet.Store(false)
	for range 40 { // closed one by one; the first is the most idle one
		dial(t, addr)
		startedSession(t, all)
	}
	over := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	go func() { over <- r.Drain(ctx, 4*time.Second) }()
	testkit.WaitFor(t, "the drain to have come by", func() bool {
		asked := false
		r.onConns(func(c *Conn) { asked = asked || c.flags&leaving != 0 })
		return asked
	})
	mustWrite(t, c, string(frame('x', []byte("still"))))
	mustRead(t, c, string(frame('x', []byte("still"))))
	f.conn.Post(func() { f.quiet.Store(true) })
	mustEnd(t, c, "")
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	for _, e := range r.waitEndings(t, 41) {
		if e.why != Drained {
			t.Errorf("ended with %q", e.why)
		}
	}
}

// patient delays the refusal of clients.
type patient struct {
	plan
	d time.Duration
}

func (p *patient) RetryDelay(Reason) time.Duration { return p.d }

// Clients that reconnect at once, such as Kafka's, are refused with a delay.
func TestAPatientPlanDelaysTheRefusal(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	r.route = func(*Conn) (Plan, Reason) {
		targets := []Target{{Addr: mustAddr(testkit.FreeAddress(t)), Profile: &Profile{Meter: r.meter}}}
		return &patient{plan: plan{targets: targets}, d: 150 * time.Millisecond}, OK
	}
	addr := r.serve(t, Listener{})
	begin := time.Now()
	c := dial(t, addr)
	mustBeReset(t, c)
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("refused after %v", took)
	}
	if e := r.wantEnd(t, ConnectRefused); e.failure == nil {
		t.Error("the reason's error is lost")
	}
	// A client that leaves meanwhile ends with the same reason.
	reset(t, dial(t, addr))
	if e := r.waitEndings(t, 2)[1]; e.why != ConnectRefused && e.why != ClientGone {
		t.Errorf("ended with %q", e.why)
	}
}

// An idle connection costs one Conn; 512 is a size class of Go's allocator.
func TestTheSizeOfAConnection(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n > 512 {
		t.Errorf("a connection is %d bytes, at most 512", n)
	}
	if n := unsafe.Sizeof(reactor.Socket{}); n > 96 {
		t.Errorf("a socket is %d bytes, at most 96", n)
	}
}

// A refund does not make all waiting sessions retry: there may be many, of a
// client that has its share.
func TestARefundFeedsAFewOfEachParty(t *testing.T) {
	const waiting, refunds = 100, 100
	r := newRig(t, Config{MemoryBudget: 1 << 20, Loops: 1}, "", Profile{})
	fed, told := new(atomic.Int64), make(chan *framed, waiting)
	all := sessions(r, testkit.Serve(t, echo), func(f *framed) {
		f.fed = func() {
			fed.Add(1)
			if f.conn.Reserve(Bulk, 100<<10) {
				told <- f
			}
		}
	})
	addr := r.serve(t, Listener{})
	do := func(f *framed, what func(*Conn)) {
		done := make(chan struct{})
		f.conn.Post(func() { what(f.conn); close(done) })
		<-done
	}
	dial(t, addr)
	holder := startedSession(t, all)
	do(holder, func(c *Conn) { c.Reserve(Bulk, c.Budget()) })
	for range waiting {
		dial(t, addr)
		do(startedSession(t, all), func(c *Conn) { c.Reserve(Bulk, 100<<10) })
	}
	dialFrom(t, "127.0.0.10", addr)
	small, begun := startedSession(t, all), time.Now()
	for range refunds {
		do(small, func(c *Conn) {
			c.Reserve(Early, 10)
			c.Release(10)
		})
	}
	do(small, func(*Conn) {})
	ticks := int64(time.Since(begun)/retryEvery) + 2 // ticks at which all may retry
	if n := fed.Load(); n > askParty*(refunds+1)+ticks*waiting {
		t.Errorf("%d sessions asked again for %d refunds", n, refunds)
	}
	do(holder, func(c *Conn) { c.Release(c.Budget()) })
	for range r.Stats().BudgetBulk / (100 << 10) {
		<-told
	}
}
