package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"penstock/node/api"
)

// raw is an encoded response.
type raw []byte

// forwardedResult carries the response of another node through a handler's
// error.
type forwardedResult struct{ result raw }

func (*forwardedResult) Error() string { return "forwarded" }

// Pass forwards the request of a handler to another node, and that node's
// response to the caller, without decoding either. The handler returns Pass's
// error as its own, even on success:
//
//	if c := n.leader(); c != nil {
//		return nil, rpc.Pass(ctx, c)
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
		return errors.New("admin: Pass called outside of a handler")
	}
	e, err := forwardEnvelope(ctx, r.method, r.params)
	if err != nil {
		return err
	}
	var sent bool
	var f frame
	if r.stream {
		sent, err = c.stream(ctx, e, func(f frame) error { return r.send(raw(f.body)) })
		f.body = emptyResult
	} else {
		f, sent, err = c.roundTrip(ctx, e)
	}
	var refusal *api.Error
	switch {
	case err == nil:
		return &forwardedResult{result: f.body}
	case errors.As(err, &refusal):
		return err
	case r.changes && sent:
		return api.Errorf(api.UnknownOutcome, "the responsible node did not respond: "+
			"the change may have been made; it is safe to repeat the request")
	}
	return err
}

// emptyResult is the result of a stream: msgpack nil.
var emptyResult = []byte{0xc0}

// Forward forwards encoded parameters for the caller of the request in ctx, and
// returns the encoded response. It reserves a part of the caller's time for
// this node to report the outcome.
func (c *Client) Forward(ctx context.Context, method string, params []byte) ([]byte, error) {
	e, err := forwardEnvelope(ctx, method, params)
	if err != nil {
		return nil, err
	}
	f, _, err := c.roundTrip(ctx, e)
	return f.body, err
}

// ForwardStream is Forward for a stream; it calls each for every item.
func (c *Client) ForwardStream(ctx context.Context, method string, params []byte, each func(item []byte) error) error {
	e, err := forwardEnvelope(ctx, method, params)
	if err != nil {
		return err
	}
	_, err = c.stream(ctx, e, func(f frame) error { return each(f.body) })
	return err
}

// forwardEnvelope returns the envelope of a forwarded request.
func forwardEnvelope(ctx context.Context, method string, params []byte) (*envelope, error) {
	var p *api.Principal
	if r := requestOf(ctx); r != nil {
		if r.caller.Via != "" {
			return nil, api.Errorf(api.NotLeader, "%s was forwarded to a node that cannot handle it", method)
		}
		p = new(r.caller)
		p.From = r.peer
	}
	return &envelope{Method: method, Params: msgpack.RawMessage(params), OnBehalf: p, Timeout: timeoutMillis(ctx)}, nil
}

// maxMargin bounds the time that a caller reserves for the response.
const maxMargin = 250 * time.Millisecond

// timeoutMillis returns the timeout, in milliseconds, that a caller sends with
// a request; 0: none. It is the time until the caller's deadline less an
// eighth, at most maxMargin, for the way of the response: if the node runs out
// of time, its reason reaches the caller before the caller's own deadline does.
func timeoutMillis(ctx context.Context) int64 {
	t, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	all := time.Until(t).Milliseconds()
	return max(1, all-min(all/8, maxMargin.Milliseconds()))
}
