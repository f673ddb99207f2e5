package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// writer keeps the header of an answer without a body together with its end.
// gRPC tells errors in such answers, and to its clients a header that goes ahead
// is one whose trailers are missing.
type writer struct {
	http.ResponseWriter
	request *request
}

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	q := w.request
	before := q.conn.Written()
	n, err := w.ResponseWriter.Write(p)
	q.wrote(len(p), n, err, q.conn.Written()-before)
	return n, err
}

// wrote counts what the client has got of size bytes of the answer: n, says
// net/http. When a client of HTTP/2 leaves, that may be none though the last of
// them has just gone out, and a client may leave as soon as it has that. Then sent
// tells, the bytes of the connection meanwhile, with what frames them.
func (q *request) wrote(size, n int, err error, sent uint64) {
	if err != nil {
		q.left = true
		if q.conn.frames != nil && sent > uint64(size) {
			n = size
		}
	}
	q.written += int64(n)
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
		early, _ := buffered.Peek(buffered.Reader.Buffered())
		w.request.conn.first = slices.Clone(early)
	}
	return c, buffered, err
}

// clientBody is the request's body as it comes from the client.
type clientBody struct {
	io.ReadCloser
	request  *request
	from, to http.Header // trailers, which are there after the body; to: announced

	// waits is since when the client is waited for, in ns since the request
	// began; 0: it is not.
	waits atomic.Int64

	reading sync.Mutex    // held while it is read, and over:
	stopped chan struct{} // nobody reads it any more; closed when the answer is over
	gone    bool          // it is

	mu    sync.Mutex    // over the rest
	ended bool          // there is no more of it
	end   chan struct{} // closed then; nil: nobody waits for it
}

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.read(p)
	if errors.Is(err, errStopped) { // an error would have the endpoint's connection closed
		<-b.stopped
	}
	return n, err
}

// errStopped is for those who go on to read a body that has been stopped.
var errStopped = errors.New("the answer came before the body's end")

func (b *clientBody) read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.stopped != nil {
		return 0, errStopped
	}
	b.waits.Store(int64(time.Since(b.request.begun)) | 1)
	n, err := b.ReadCloser.Read(p)
	b.waits.Store(0)
	b.request.in.Add(int64(n))
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		b.trail()
	case errors.Is(err, io.ErrNoProgress) && b.request.conn.interrupted.Load():
		return n, nil // stop is about to take the lock
	case !errors.Is(err, http.ErrBodyReadAfterClose):
		b.request.bodyFail.CompareAndSwap(nil, &err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended && b.end != nil {
		close(b.end)
	}
	b.ended = true
	return n, err
}

// whole sees to it that the answer of an endpoint that does not wait for the
// body gets to the client. net/http's HTTP/1 sends it only when nobody reads
// the body, and the connection cannot be kept if that is not read to its end.
// It returns an error if the request has ended meanwhile. b may be nil.
func (b *clientBody) whole(ctx context.Context, expects bool) error {
	if b == nil {
		return nil
	}
	end := b.awaited()
	if end == nil {
		return nil
	}
	if !expects || b.request.in.Load() > 0 { // else it may never come
		timer := time.NewTimer(b.request.server.cfg.BodyWait)
		defer timer.Stop()
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	b.stop()
	return nil
}

// awaited gives what is closed at the body's end; nil: that has been.
func (b *clientBody) awaited() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.end = make(chan struct{})
	}
	return b.end
}

// stop ends the reading of the body, and with it the client's connection.
func (b *clientBody) stop() {
	c := b.request.conn
	b.request.plan.Last = true
	c.parting.Store(true)
	c.interrupted.Store(true)
	_ = c.SetReadDeadline(time.Now())
	b.reading.Lock()
	defer b.reading.Unlock()
	b.stopped = make(chan struct{})
	c.interrupted.Store(false)
}

// letGo is for the end of the answer. b may be nil. It is called by the one who
// called stop.
func (b *clientBody) letGo() {
	if b != nil && b.stopped != nil && !b.gone {
		b.gone = true
		close(b.stopped)
	}
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
