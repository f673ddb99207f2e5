package admin

import "context"

// handler is one method, its types taken away.
type handler struct {
	least   Role // that it needs
	stream  bool
	changes bool // something, so that it is audited
	call    func(ctx context.Context, params []byte, send func(item any) error) (result any, err error)
}

// Option is a property of a method.
type Option func(*handler)

// Changing marks a method that changes something: each call is audited, and
// one whose answer is lost has an unknown outcome.
func Changing() Option { return func(h *handler) { h.changes = true } }

// Handle adds a method with one answer, for callers of the role least or a
// higher one. It must come before Serve.
func Handle[Req, Resp any](s *Server, method string, least Role, fn func(context.Context, *Req) (*Resp, error), opts ...Option) {
	s.add(method, handler{least: least, call: func(ctx context.Context, params []byte, _ func(any) error) (any, error) {
		var req Req
		if err := decodeParams(ctx, method, params, &req); err != nil {
			return nil, err
		}
		return fn(ctx, &req)
	}}, opts)
}

// HandleStream adds a method with any number of answers; its context ends
// when the caller has gone or the server stops. It must come before Serve.
func HandleStream[Req, Item any](s *Server, method string, least Role, fn func(ctx context.Context, req *Req, send func(*Item) error) error, opts ...Option) {
	s.add(method, handler{least: least, stream: true, call: func(ctx context.Context, params []byte, send func(any) error) (any, error) {
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

// summarizer is a request that can say what it asks for.
type summarizer interface{ Summary() string }

func decodeParams(ctx context.Context, method string, params []byte, req any) error {
	if err := decode(params, req); err != nil {
		return Errorf(Invalid, "%s: %v", method, err)
	}
	if r := requestOf(ctx); r != nil && r.changes {
		if s, ok := req.(summarizer); ok {
			r.summary = s.Summary()
		}
		if u, ok := req.(*UploadRequest); ok {
			r.partial = !u.Last
		}
	}
	return nil
}
