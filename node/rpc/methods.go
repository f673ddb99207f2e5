package rpc

import (
	"context"

	"penstock/node/api"
)

// handler is one method, with its types erased.
type handler struct {
	role    api.Role // required role
	stream  bool
	changes bool // set by Changing
	audited bool // set by Changing and Audited
	call    func(ctx context.Context, params []byte, send func(item any) error) (result any, err error)
}

// Option configures a method.
type Option func(*handler)

// Changing marks a method that changes something. Its calls are audited, and
// the outcome of a call whose response is lost is unknown.
func Changing() Option { return func(h *handler) { h.changes, h.audited = true, true } }

// Audited marks a method that changes nothing and whose calls are audited all the
// same, such as an export of secrets.
func Audited() Option { return func(h *handler) { h.audited = true } }

// Handle registers a method with one response, for callers of role least or
// higher. It must be called before Serve.
func Handle[Req, Resp any](
	s *Server, method string, least api.Role,
	fn func(context.Context, *Req) (*Resp, error),
	opts ...Option,
) {
	s.add(method, handler{role: least, call: func(ctx context.Context, params []byte, _ func(any) error) (any, error) {
		var req Req
		if err := decodeParams(ctx, method, params, &req); err != nil {
			return nil, err
		}
		return fn(ctx, &req)
	}}, opts)
}

// HandleStream registers a method with a stream of responses. Its context ends
// when the caller cancels or disconnects, or the server stops. It must be
// called before Serve.
func HandleStream[Req, Item any](
	s *Server, method string, least api.Role,
	fn func(ctx context.Context, req *Req, send func(*Item) error) error,
	opts ...Option,
) {
	s.add(method, handler{role: least, stream: true, call: func(ctx context.Context, params []byte, send func(any) error) (any, error) {
		var req Req
		if err := decodeParams(ctx, method, params, &req); err != nil {
			return nil, err
		}
		return nil, fn(ctx, &req, func(item *Item) error { return send(item) })
	}}, opts)
}

func (s *Server) add(method string, h handler, opts []Option) {
	for _, o := range opts {
		o(&h)
	}
	s.methods[method] = h
}

// summarizer is a request that describes itself for the audit log.
type summarizer interface{ Summary() string }

func decodeParams(ctx context.Context, method string, params []byte, req any) error {
	if err := decode(params, req); err != nil {
		return api.Errorf(api.Invalid, "%s: %v", method, err)
	}
	if r := requestOf(ctx); r != nil && r.audited {
		if s, ok := req.(summarizer); ok {
			r.summary = s.Summary()
		}
		if u, ok := req.(*api.UploadRequest); ok {
			r.partial = !u.Last
		}
	}
	return nil
}
