package filter

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// Errors of running a chain.
var (
	// ErrMisuse means that a filter did what its interface forbids.
	ErrMisuse = errors.New("filter broke the rules of the chain")
	// ErrEnded is the error of Ask if the connection ends before the answer.
	ErrEnded = errors.New("connection ended")
)

// maxAsks is how often one message may be made to wait.
const maxAsks = 1000

// A Call is one request on its way through a chain, and its response on the way
// back. Request and Respond take a whole message; Edits returns the changes to
// one that streams.
type Call struct {
	conns        *Conns
	key, version int16
	clientID     string
	noResponse   bool
	interests    *interests
	parts        []part // the filters concerned, in the order of requests
	turn         int    // whose turn it is
	msg          Message

	// What the current filter has done.
	answer  kmsg.Response
	dropped bool
	question
	running bool // inside the filter
	asks    int
	fault   error // of what it did

	parent *Call // whose filter asks by this one; nil: the client's
	inline [2]part
}

type part struct {
	filter   int
	buffered bool // it buffers: it wants the request whole that it would walk
	x        Exchange
}

// question is what a filter asks.
type question struct {
	request kmsg.Request
	then    func(kmsg.Response, error) error
}

// Key is that of the request.
func (c *Call) Key() int16 { return c.key }

// Version is that of the request.
func (c *Call) Version() int16 { return c.version }

// Interest returns the highest interest of the filters in the request or the
// response.
func (c *Call) Interest(d Direction) Interest {
	if d == Response {
		for i := range c.parts {
			if c.parts[i].x.response {
				return Whole
			}
		}
	}
	return c.interests.interest(d)
}

// Own reports whether this is a filter's own request, unknown to the client.
func (c *Call) Own() bool { return c.parent != nil }

// MayBuffer reports whether a filter wants to see the request whole if
// possible, though Interest says that walking is enough.
func (c *Call) MayBuffer() (some bool) {
	for i := range c.parts {
		p := &c.parts[i]
		if c.interests.walk[Request]>>p.filter&1 == 0 {
			continue
		}
		h, ok := c.conns.conns[p.filter].(BufferingConn)
		p.buffered = ok && h.MayBuffer(&p.x)
		some = some || p.buffered
	}
	return some
}

// Waiting reports whether a filter has asked, so that the message waits.
func (c *Call) Waiting() bool { return c.then != nil }

// Message returns what has left the chain: at ToBroker the request, at ToClient
// the response.
func (c *Call) Message() *Message { return &c.msg }

// NoResponse reports whether the client expects no response.
func (c *Call) NoResponse() bool { return c.noResponse }

// ClientID is that of the request.
func (c *Call) ClientID() string { return c.clientID }

// Done ends the call.
func (c *Call) Done() {
	if c.conns != nil {
		s := c.conns
		c.conns = nil
		s.calls--
		s.closeIdle()
	}
}

// Abandon ends a call whose response will not come, and tells the filters that
// wait for one.
func (c *Call) Abandon() {
	if p := c.parent; p != nil && p.then != nil {
		then := p.then
		p.question = question{}
		_ = then(nil, ErrEnded) // there is nothing more to end
		p.Done()
	}
	c.Done()
}

// Request runs the filters over a whole request. The Sink gets the result, or
// the call is Waiting. Request keeps body.
func (c *Call) Request(body []byte) error {
	c.msg = NewMessage(Request, c.key, c.version, body)
	c.turn = 0
	c.MayBuffer()
	return c.forward()
}

// Respond runs the filters over a whole response in the same way.
func (c *Call) Respond(body []byte) error {
	c.msg = NewMessage(Response, c.key, c.version, body)
	c.turn = len(c.parts) - 1
	return c.backward()
}

// Edits merges the changes of all filters to a message that streams; nil: there
// are none. It is called once for each message.
func (c *Call) Edits(d Direction) *Edits {
	var all []*Edits
	for i := range c.parts {
		p := &c.parts[i]
		if d == Response {
			p = &c.parts[len(c.parts)-1-i]
		}
		if c.interests.walk[d]>>p.filter&1 == 0 {
			continue
		}
		if e := c.conns.conns[p.filter].Edits(d, &p.x); e != nil {
			all = append(all, e)
		}
	}
	return mergeEdits(all)
}

// forward goes on with the filter whose turn it is.
func (c *Call) forward() error {
	for c.turn < len(c.parts) {
		if on, err := c.applyActions(c.runFilter()); err != nil || !on {
			return err
		}
		c.turn++
	}
	return c.conns.sink.ToBroker(c)
}

// backward does the same for a response.
func (c *Call) backward() error {
	for c.turn >= 0 {
		if on, err := c.applyActions(c.runFilter()); err != nil || !on {
			return err
		}
		c.turn--
	}
	if c.parent != nil {
		return c.resumeParent()
	}
	if c.key == int16(kmsg.ApiVersions) {
		if err := c.narrowVersions(); err != nil {
			return err
		}
	}
	return c.conns.sink.ToClient(c)
}

// runFilter passes the message to the current filter, if it wants to see it.
func (c *Call) runFilter() (err error) {
	p := &c.parts[c.turn]
	d, bit := c.msg.Direction, uint64(1)<<p.filter
	conn := c.conns.conns[p.filter]
	c.running = true
	switch {
	case d == Request && (c.interests.whole[d]&bit != 0 || p.buffered):
		err = conn.Request(&p.x, &c.msg)
	case d == Response && (c.interests.whole[d]&bit != 0 || p.x.response):
		err = conn.Response(&p.x, &c.msg)
	case c.interests.walk[d]&bit != 0:
		if e := conn.Edits(d, &p.x); e != nil {
			err = c.rewrite(e)
		}
	}
	c.running = false
	return err
}

// rewrite edits a message that another filter wants whole.
func (c *Call) rewrite(e *Edits) error {
	old := c.msg.Body()
	body, err := wire.Rewrite(nil, wire.Direction(c.msg.Direction), c.key, c.version, old, e)
	if err != nil {
		return fmt.Errorf("%s v%d: %w", wire.Name(c.key), c.version, err)
	}
	if len(body) != len(old) || len(body) > 0 && &body[0] != &old[0] {
		c.msg.SetBody(body)
	}
	return nil
}

// applyActions carries out the actions of a filter. on reports whether the message
// goes to the next one.
func (c *Call) applyActions(err error) (on bool, _ error) {
	if err == nil {
		err = c.fault
	}
	if err != nil {
		return false, fmt.Errorf("filter %d, %s v%d: %w", c.parts[c.turn].filter+1, wire.Name(c.key), c.version, err)
	}
	switch {
	case c.then != nil:
		return false, c.ask()
	case c.dropped:
		return false, c.conns.sink.Dropped(c)
	case c.answer != nil:
		return c.applyAnswer()
	}
	return true, nil
}

// applyAnswer answers a request, or replaces a response.
func (c *Call) applyAnswer() (on bool, _ error) {
	back := c.msg.Direction == Response
	c.msg, c.answer = NewAnswer(c.key, c.version, c.answer), nil
	if c.msg.answer.GetVersion() != c.version || c.msg.answer.Key() != c.key {
		return false, fmt.Errorf("%w: filter %d answered %s v%d with %s v%d", ErrMisuse, c.parts[c.turn].filter+1,
			wire.Name(c.key), c.version, wire.Name(c.msg.answer.Key()), c.msg.answer.GetVersion())
	}
	if back {
		return true, nil
	}
	if c.noResponse {
		return false, c.conns.sink.Dropped(c)
	}
	c.turn--
	return false, c.backward()
}

// ask sends the question on its way. The answer may be there when it returns.
func (c *Call) ask() error {
	if c.asks++; c.asks > maxAsks {
		return fmt.Errorf("%w: more than %d requests of its own for one message", ErrMisuse, maxAsks)
	}
	p := &c.parts[c.turn]
	req := c.request
	q := c.conns.begin(req.Key(), req.GetVersion(), p.x.ClientID, false, p.filter+1)
	q.parent = c
	return q.Request(req.AppendTo(nil))
}

// resumeParent gives the answer to the filter that asked, and goes on with its
// message.
func (c *Call) resumeParent() error {
	p := c.parent
	resp, err := c.msg.DecodeResponse()
	if err != nil {
		return err
	}
	c.parent = nil
	c.Done()
	then := p.then
	p.question = question{}
	p.running = true
	err = then(resp, nil)
	p.running = false
	on, err := p.applyActions(err)
	if err != nil || !on {
		return err
	}
	if p.msg.Direction == Request {
		p.turn++
		return p.forward()
	}
	p.turn--
	return p.backward()
}

// narrowVersions leaves of an ApiVersions response what the chain offers.
func (c *Call) narrowVersions() error {
	old := c.msg.Body()
	body, err := c.conns.chain.NarrowVersions(make([]byte, 0, len(old)), c.version, old)
	if err == nil {
		c.msg.SetBody(body)
	}
	return err
}

// NarrowVersions leaves of the body of an ApiVersions response what is offered. The
// result is body, or dst with what it became.
func (c *Chain) NarrowVersions(dst []byte, version int16, body []byte) ([]byte, error) {
	return wire.NarrowApiVersions(dst, version, body, func(key int16) (int16, int16) {
		r := c.Offered(key)
		return r.Min, r.Max
	})
}

// checkTurn checks that x belongs to the running filter.
func (c *Call) checkTurn(x *Exchange) bool {
	if c.running && c.turn >= 0 && c.turn < len(c.parts) && x == &c.parts[c.turn].x && c.fault == nil {
		return true
	}
	c.fault = fmt.Errorf("%w: called when it was not its turn", ErrMisuse)
	return false
}

// Answer implements Actions.
func (c *Call) Answer(x *Exchange, resp kmsg.Response) {
	if c.checkTurn(x) {
		c.answer = resp
		if resp == nil {
			c.fault = fmt.Errorf("%w: answered with nil", ErrMisuse)
		}
	}
}

// Drop implements Actions.
func (c *Call) Drop(x *Exchange) {
	if !c.checkTurn(x) {
		return
	}
	c.dropped = true
	if !x.NoResponse || c.msg.Direction == Response {
		c.fault = fmt.Errorf("%w: dropped a message that the client needs an answer to", ErrMisuse)
	}
}

// Ask implements Actions.
func (c *Call) Ask(x *Exchange, req kmsg.Request, then func(kmsg.Response, error) error) {
	switch {
	case !c.checkTurn(x):
	case c.then != nil || req == nil || then == nil:
		c.fault = fmt.Errorf("%w: asked two questions at once, or none", ErrMisuse)
	default:
		c.question = question{req, then}
	}
}
