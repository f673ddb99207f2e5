package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// world is a session without I/O: two streams whose other ends are looked at,
// a clock, a budget.
type world struct {
	*Session
	sides  [2]*fakeStream
	now    time.Duration
	budget int64
	used   int64
	others int64  // what others hold of the budget
	moves  [2]int // what may move unseen
	due    time.Duration
	why    netio.Reason
	err    error
	clean  bool
	over   int
	told   []Exchange
	chain  *filter.Chain
	refs   int
	faults []string // of the session, against its contracts
}

type fakeStream struct {
	w       *world
	name    string
	out     []byte // what the peer got
	pending []byte // what it does not take
	stalled bool
	reading bool
	dead    bool
}

func (f *fakeStream) Send(p []byte) int {
	f.w.check(!f.dead, "%s: send after the end", f.name)
	if f.stalled {
		f.pending = append(f.pending, p...)
	} else {
		f.out = append(f.out, p...)
	}
	return len(f.pending)
}
func (f *fakeStream) SetReading(on bool)        { f.reading = on }
func (f *fakeStream) PipeTo(stream.Stream) bool { panic("a session pipes by MayMove") }
func (f *fakeStream) CloseWrite()               { panic("a session does not close a direction") }
func (f *fakeStream) Close()                    { panic("a session ends by its Conn") }
func (f *fakeStream) Abort()                    { panic("a session ends by its Conn") }

func (w *world) check(ok bool, format string, args ...any) {
	if !ok {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// worldConn is the world as the session's Conn.
type worldConn world

func (c *worldConn) Fail(why netio.Reason, err error, clean bool) {
	if c.over == 0 {
		c.err = err
	}
	c.End(why, clean)
}

func (c *worldConn) End(why netio.Reason, clean bool) {
	w := (*world)(c)
	if c.over++; c.over > 1 {
		return
	}
	c.why, c.clean = why, clean
	for _, s := range c.sides {
		if s.dead = true; clean {
			s.out = append(s.out, s.pending...)
		}
		s.pending = nil
	}
	w.Closed(why)
}

func (c *worldConn) MayMove(from relay.Side, n int) bool { c.moves[from] = n; return true }
func (c *worldConn) Reserve(_ netio.Class, n int64) bool {
	(*world)(c).check(n > 0, "%d bytes reserved", n)
	if c.used+c.others+n > c.budget {
		return false
	}
	c.used += n
	return true
}
func (c *worldConn) Release(n int64) {
	c.used -= n
	(*world)(c).check(n > 0 && c.used >= 0, "%d bytes released, %d left", n, c.used)
}
func (c *worldConn) Budget() int64                         { return c.budget }
func (c *worldConn) Arm(_ *reactor.Timer, d time.Duration) { c.due = c.now + d }
func (c *worldConn) Disarm(*reactor.Timer)                 { c.due = 0 }
func (c *worldConn) Post(fn func())                        { fn() }
func (c *worldConn) Guard(fn func())                       { fn() }

// worldHome is the world as the session's Host.
type worldHome world

func (h *worldHome) Next(*netio.Conn, error) (netio.Target, netio.Reason) { panic("not asked") }
func (h *worldHome) Connected(*netio.Conn, time.Duration)                 {}
func (h *worldHome) Chain(have *filter.Chain) *filter.Chain {
	if h.chain != have {
		h.refs++
	}
	return h.chain
}
func (h *worldHome) Release(*filter.Chain) { h.refs-- }
func (h *worldHome) Exchanged(e Exchange)  { h.told = append(h.told, e) }

func newWorld(l Limits, filters ...filter.Filter) *world {
	chain, err := filter.NewChain(filters)
	if err != nil {
		panic(err)
	}
	w := &world{now: time.Hour, budget: 64 << 20, chain: chain}
	for i, name := range []string{"client", "broker"} {
		w.sides[i] = &fakeStream{w: w, name: name}
	}
	set := NewSettings(l)
	set.clock = func() time.Duration { w.now += time.Microsecond; return w.now }
	w.Session = New(Options{Host: (*worldHome)(w), Settings: set})
	w.start((*worldConn)(w), w.sides[0], w.sides[1])
	return w
}

// receive brings bytes of a side, as the contract of streams allows: those that
// may move unseen do.
func (w *world) receive(from relay.Side, p []byte, move bool) {
	for len(p) > 0 && w.over == 0 {
		if n := min(w.moves[from], len(p)); n > 0 {
			w.moves[from] -= n
			if move && !w.sides[from.Other()].stalled {
				w.sides[from.Other()].out = append(w.sides[from.Other()].out, p[:n]...)
				w.Moved(from, n)
				p = p[n:]
				continue
			}
		}
		q := append([]byte(nil), p...)
		w.Received(from, q)
		for i := range q { // it must not be kept
			q[i] = 0xEE
		}
		return
	}
}

// take lets a side take what is pending.
func (w *world) take(side relay.Side) {
	s := w.sides[side]
	s.stalled = false
	if len(s.pending) > 0 {
		s.out = append(s.out, s.pending...)
		s.pending = nil
		w.Sent(side)
	}
}

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	for end := w.now + d; ; {
		if w.due == 0 || w.due > end || w.over > 0 {
			w.now = max(w.now, end)
			return
		}
		w.now, w.due = max(w.now, w.due), 0
		w.Expired(nil)
	}
}

// finish ends what has not ended, and looks at the books.
func (w *world) finish() []string {
	if w.over == 0 {
		(*worldConn)(w).End(netio.Shutdown, false)
	}
	w.check(w.used == 0, "%d bytes still charged", w.used)
	w.check(w.refs == 0, "the chain is held %d times", w.refs)
	w.check(w.due == 0, "the timer is still armed")
	return w.faults
}

// sent is one message of a test.
type sent struct {
	key, version int16
	id           int32
	body         []byte
}

func (m sent) request() []byte {
	b := wire.AppendRequestHeader(nil, m.key, m.version, m.id, "client", len(m.body))
	return append(b, m.body...)
}

func (m sent) response() []byte {
	b := wire.AppendResponseHeader(nil, m.key, m.version, m.id, len(m.body))
	return append(b, m.body...)
}

// cut takes the first frame off, or tells that it is not whole.
func cut(p []byte) (frame, rest []byte) {
	if len(p) < 4 {
		return nil, p
	}
	n := 4 + int(int32(binary.BigEndian.Uint32(p)))
	if n < 4 || len(p) < n {
		return nil, p
	}
	return p[:n], p[n:]
}

// keyOf finds a key by the name of its API.
func keyOf(name string) int16 {
	for key := range int16(kmsg.MaxKey + 1) {
		if wire.Name(key) == name {
			return key
		}
	}
	panic("no API is called " + name)
}

// doing is a filter of tests: it does one thing with one API.
type doing struct {
	what string
	key  int16
}

var errScripted = errors.New("as the test has it")

// filters makes them of a list such as "answer ListGroups, ask Metadata".
func filters(list string) (all []filter.Filter) {
	for f := range strings.SplitSeq(list, ",") {
		if what, name, ok := strings.Cut(strings.TrimSpace(f), " "); ok {
			all = append(all, doing{what, keyOf(name)})
		}
	}
	return all
}

func (f doing) Versions(key int16, have filter.Range) filter.Range {
	if key == f.key && f.what == "hide" {
		return filter.Hidden
	}
	if key == f.key && f.what == "clamp" {
		return filter.Range{Min: have.Min, Max: have.Min + 1}
	}
	return have
}

func (f doing) Wants(d filter.Direction, key, _ int16) filter.Interest {
	late := f.what == "askback" || f.what == "see"
	switch {
	case key != f.key, f.what == "hide", f.what == "clamp":
		return filter.Nothing
	case late == (d == filter.Response):
		return filter.Whole
	}
	return filter.Nothing
}

func (f doing) Open(filter.Info) filter.Conn                           { return f }
func (f doing) Close()                                                 {}
func (f doing) Edits(filter.Direction, *filter.Exchange) *filter.Edits { return nil }
func (f doing) Response(x *filter.Exchange, m *filter.Message) error   { return f.Request(x, m) }

func (f doing) Request(x *filter.Exchange, m *filter.Message) error {
	switch f.what {
	case "fail":
		return errScripted
	case "deny":
		return filter.ErrDenied
	case "drop":
		x.Drop()
	case "answer":
		resp := kmsg.ResponseForKey(x.Key)
		resp.SetVersion(x.Version)
		x.Answer(resp)
	case "shout":
		m.SetBody([]byte(strings.ToUpper(string(m.Body()))))
	case "ask", "askback":
		req := kmsg.NewPtrListGroupsRequest()
		x.Ask(req, func(_ kmsg.Response, err error) error {
			if err == nil {
				m.SetBody(append([]byte("asked "), m.Body()...))
			}
			return err
		})
	}
	return nil
}
