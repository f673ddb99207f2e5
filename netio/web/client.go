package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"
)

// writer keeps the header of an answer without a body together with its end.
// gRPC tells errors in such answers, and to its clients a header that goes ahead
// is one whose trailers are missing.
type writer struct {
	http.ResponseWriter
	request *request
}

// FlushError is what http.ResponseController calls.
func (w writer) FlushError() error {
	if w.request.empty {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack is what http.ResponseController calls for a switch of protocols. What
// the client has sent behind its request already is the new protocol's.
func (w writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		early, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
		w.request.conn.first = slices.Clone(early)
	}
	return c, buffered, err
}

// clientBody is the request's body as it comes from the client.
type clientBody struct {
	io.ReadCloser
	request  *request
	from, to http.Header // trailers, which are there after the body; to: announced
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.request.in.Add(int64(n))
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.trail()
	case !errors.Is(err, http.ErrBodyReadAfterClose):
		b.request.bodyFail.CompareAndSwap(nil, &err)
	}
	return n, err
}

// promise announces what follows the body, as far as it may: of HTTP/1 only
// chunks have it. b may be nil.
func (b *clientBody) promise(in, out *http.Request) {
	for name := range out.Trailer {
		if !httpguts.ValidTrailerHeader(name) {
			delete(out.Trailer, name)
		}
	}
	if b != nil && out.Body != nil && len(out.Trailer) > 0 {
		b.from, b.to = in.Trailer, out.Trailer
		out.ContentLength = -1
	}
}

// trail passes on what followed the body. Whoever reads that looks at it next.
func (b *clientBody) trail() {
	for name := range b.to {
		b.to[name] = b.from[name]
	}
}
