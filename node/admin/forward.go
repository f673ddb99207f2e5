package admin

import (
	"context"
	"errors"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// raw is an encoded response.
type raw []byte

// passedOn carries the response of another node through a handler's error.
type passedOn struct{ result raw }

func (*passedOn) Error() string { return "passed on" }

// Pass forwards the request of a handler to another node, and that node's
// response to the caller, without decoding either. The handler returns Pass's
// error as its own, even on success:
//
//	if c := n.leader(); c != nil {
//		return nil, admin.Pass(ctx, c)
//	}
//
// A request is forwarded only once. A node that receives a forwarded request
// and cannot act on it responds with NotLeader, which Pass returns; the handler
// may then forward the request to another node. If the connection is lost
// before the response, the error says whether the request may have had an
// effect: UnknownOutcome, or Unavailable.
func Pass(ctx context.Context, c *Client) error {
	r := requestOf(ctx)
	if r == nil {
		return errors.New("admin: nothing to pass on outside of a handler")
	}
	e, err := onward(ctx, r.method, r.params)
	if err != nil {
		return err
	}
	var sent bool
	var f frame
	if r.stream {
		sent, err = c.many(ctx, e, func(f frame) error { return r.send(raw(f.body)) })
		f.body = nothing
	} else {
		f, sent, err = c.once(ctx, e)
	}
	var refusal *Error
	switch {
	case err == nil:
		return &passedOn{result: f.body}
	case errors.As(err, &refusal):
		return err
	case r.changes && sent:
		return Errorf(UnknownOutcome, "the node that was to decide did not answer: "+
			"the change may have been made; the same request may be sent again")
	}
	return err
}

// nothing is the result of a stream: msgpack nil.
var nothing = []byte{0xc0}

// Forward forwards encoded parameters for the caller of the request in ctx, and
// returns the encoded response. It reserves a part of the caller's time for
// this node to report the outcome.
func (c *Client) Forward(ctx context.Context, method string, params []byte) ([]byte, error) {
	e, err := onward(ctx, method, params)
	if err != nil {
		return nil, err
	}
	f, _, err := c.once(ctx, e)
	return f.body, err
}

// ForwardStream is Forward for a stream; it calls each for every item.
func (c *Client) ForwardStream(ctx context.Context, method string, params []byte, each func(item []byte) error) error {
	e, err := onward(ctx, method, params)
	if err != nil {
		return err
	}
	_, err = c.many(ctx, e, func(f frame) error { return each(f.body) })
	return err
}

// onward returns the envelope of a forwarded request.
func onward(ctx context.Context, method string, params []byte) (*envelope, error) {
	var p *Principal
	if r := requestOf(ctx); r != nil {
		if r.caller.Via != "" {
			return nil, Errorf(NotLeader, "%s was passed on to a node that cannot act on it", method)
		}
		p = new(r.caller)
		p.From = r.peer
	}
	return &envelope{Method: method, Params: msgpack.RawMessage(params), OnBehalf: p, Timeout: left(ctx)}, nil
}

// maxMargin bounds the time that a caller reserves for the response.
const maxMargin = 250 * time.Millisecond

// left returns the timeout, in milliseconds, that a caller sends with a
// request; 0: none. It is the time until the caller's deadline less an eighth,
// at most maxMargin, for the way of the response: if the node runs out of time,
// its reason reaches the caller before the caller's own deadline does.
func left(ctx context.Context) int64 {
	t, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	all := time.Until(t).Milliseconds()
	return max(1, all-min(all/8, maxMargin.Milliseconds()))
}
