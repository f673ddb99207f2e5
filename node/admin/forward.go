package admin

import (
	"context"
	"errors"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// raw is an answer that is encoded already.
type raw []byte

// passedOn carries the answer of another node through a handler's error.
type passedOn struct{ result raw }

func (*passedOn) Error() string { return "passed on" }

// Pass passes the request that a handler works on to another node, and what
// that answers to the caller, neither of them decoded. The handler returns
// Pass's error as its own, also where that is no failure:
//
//	if c := n.leader(); c != nil {
//		return nil, admin.Pass(ctx, c)
//	}
//
// A request is passed on once: a node that got it so, and cannot act on it,
// says NotLeader, which comes back from Pass; the handler may pass it to
// another then. Where the other node was lost before it answered, the error
// says whether it may have acted: UnknownOutcome, or Unavailable.
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
		return Errorf(UnknownOutcome, "the node that was to decide did not answer: the change may have been made; the same request may be sent again")
	}
	return err
}

// nothing is the result of a stream.
var nothing = []byte{0xc0}

// Forward makes a request of encoded parameters for the caller whose request
// ctx belongs to, and returns the encoded answer. It leaves the node between
// a moment of the caller's time to tell what came of it.
func (c *Client) Forward(ctx context.Context, method string, params []byte) ([]byte, error) {
	e, err := onward(ctx, method, params)
	if err != nil {
		return nil, err
	}
	f, _, err := c.once(ctx, e)
	return f.body, err
}

// ForwardStream is Forward for a stream; each is called for every item.
func (c *Client) ForwardStream(ctx context.Context, method string, params []byte, each func(item []byte) error) error {
	e, err := onward(ctx, method, params)
	if err != nil {
		return err
	}
	_, err = c.many(ctx, e, func(f frame) error { return each(f.body) })
	return err
}

// onward makes the envelope of a request that is passed on.
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

// maxMargin is how much of its time a caller keeps at most.
const maxMargin = 250 * time.Millisecond

// left is the time that a caller has left and gives to the node that it asks,
// in milliseconds; 0: no end. It keeps an eighth, at most maxMargin, for the
// answer's way: a node that could not do what was asked in time says why, and
// that is worth more than that the time was over.
func left(ctx context.Context) int64 {
	t, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	all := time.Until(t).Milliseconds()
	return max(1, all-min(all/8, maxMargin.Milliseconds()))
}
