package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"penstock/netio/pipe"
	"penstock/netio/web/strict"
)

// protocolServer is a server of net/http for one version of HTTP. There are two, because
// only those who speak HTTP/2 can be told to go while nothing is asked: to do
// that net/http has to end the server, and HTTP/1's would then close
// connections under requests that are just being sent.
type protocolServer struct {
	accept pipe.Listener
	http   http.Server
	ended  chan struct{} // Serve has returned
}

// finishing lets a server of net/http that shuts down take those that wait.
type finishing struct{ *pipe.Listener }

func (f finishing) Close() error { f.Finish(); return nil }

// maxFrame bounds a frame of a client's HTTP/2, in bytes: the least that must be
// taken. net/http makes room for a frame as soon as its header is there.
const maxFrame = 16 << 10

func (s *Server) newProtocolServer(http2 bool) *protocolServer {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2) // TLS has ended before the pipe
	f := &protocolServer{ended: make(chan struct{}), http: http.Server{
		Handler: http.HandlerFunc(s.serve),
		// OPTIONS * is a request as any other: its Disposition says what becomes of it.
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            s.cfg.HeaderTimeout,
		MaxHeaderBytes:               s.cfg.MaxHeader,
		ErrorLog:                     s.errorLog(),
		Protocols:                    protocols,
		ConnState:                    s.count,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: s.cfg.MaxStreams, MaxReadFrameSize: maxFrame},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}}
	go func() {
		defer close(f.ended)
		_ = f.http.Serve(finishing{&f.accept}) // until it is shut down
	}()
	return f
}

// count counts the goroutines of connections.
func (s *Server) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.mu.Lock()
		s.active++
		s.mu.Unlock()
	case http.StateClosed, http.StateHijacked:
		s.removeActive()
	}
}

// shutdown has clients told to go, and returns when nobody is taken any more.
func (f *protocolServer) shutdown() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits for the connections
	_ = f.http.Shutdown(now)
	<-f.ended
}

// serverConn is a client's connection with what is known of it.
type serverConn struct {
	*pipe.Conn
	server *Server
	known  any
	secure bool
	only2  bool // HTTP/2 is what TLS has negotiated

	first  []byte // to be read next: it has been before, or ends what may not be read
	scan   strict.Scanner
	plain  bool    // it is of HTTP/1: scan looks at all that is read
	fault  error   // what scan has found: only first is read any more
	frames *frames // of HTTP/2: what is read goes through it
	once   sync.Once
	// parting is set when the last answer goes though the client has not sent
	// all of its request, and nothing of that is of interest any more;
	// interrupted while those who read that are to stop.
	parting, interrupted atomic.Bool
}

type connKey struct{}

// Serve serves a connection until its end. known is handed to the Handler with
// each of its requests; secure says that the client came by TLS, alpn what that
// has negotiated, or "". Who has negotiated h2 must speak it. It does not block.
func (s *Server) Serve(conn *pipe.Conn, known any, secure bool, alpn string) {
	c := &serverConn{Conn: conn, server: s, known: known, secure: secure, only2: alpn == "h2"}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Abort()
		return
	}
	s.conns[c] = struct{}{}
	s.active++
	go s.meet(c)
}

// preface is how connections of HTTP/2 begin; no request of HTTP/1 does.
const preface = "PRI"

// meet finds out which HTTP a client speaks.
func (s *Server) meet(c *serverConn) {
	_ = c.SetReadDeadline(time.Now().Add(s.cfg.HeaderTimeout))
	buf := make([]byte, len(preface))
	n := 0
	for n < len(buf) && string(buf[:n]) == preface[:n] {
		k, err := c.Conn.Read(buf[n:])
		if n += k; err != nil {
			_ = c.Close() // it said next to nothing
			return
		}
	}
	_ = c.SetReadDeadline(time.Time{})
	c.first = buf[:n]
	if c.only2 && string(c.first) != preface { // RFC 9113, section 3.4
		_ = c.Close()
		return
	}
	if !s.pass(c) {
		c.Abort()
	}
}

// pass hands a connection to the server of its version; false: all is over.
func (s *Server) pass(c *serverConn) bool {
	to := s.one
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(c.first) == preface {
		to = s.two
		c.frames = newFrames(rawReader{c}, s.cfg.HeaderTimeout, c.Abort)
		c.frames.max = uint32(s.cfg.MaxHeader)
		c.frames.bad = c.foreign
	} else {
		c.plain = true
	}
	if !s.closed { // so to is open
		to.accept.Hand(c)
	}
	return !s.closed
}

// Read implements net.Conn. An interruption is no error: net/http would give up
// the answer too.
func (c *serverConn) Read(p []byte) (int, error) {
	if c.frames != nil {
		return c.frames.Read(p)
	}
	n, err := c.read(p)
	if !c.plain || n == 0 || c.fault != nil {
		return n, err
	}
	if good, fault := c.scan.Scan(p[:n]); fault != nil {
		c.fault, c.first = fault, []byte(poison)
		c.parting.Store(true)
		return c.readPoison(p, good)
	}
	return n, err
}

// poison is what takes the place of bytes that could be read in two ways:
// nothing that net/http reads has a NUL in it, so it answers 400 when the turn of
// that request has come, or the body that it is in fails. It does not look at the
// extension of a chunk, except for a CR that is not at its end.
const poison = "\r\x00\r\n\r\n"

// readPoison puts it behind the bytes of p that are in order.
func (c *serverConn) readPoison(p []byte, good int) (int, error) {
	n := copy(p[good:], c.first)
	c.first = c.first[n:]
	return good + n, nil
}

// read reads what there is, whatever it is. Behind poison that is nothing.
func (c *serverConn) read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	for c.fault != nil && err == nil && len(p) > 0 {
		n, err = c.Conn.Read(p)
	}
	if c.fault != nil {
		n = 0
	}
	if err != nil && c.interrupted.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// rawReader reads a connection below its frames.
type rawReader struct{ *serverConn }

func (r rawReader) Read(p []byte) (int, error) { return r.read(p) }

// foreign tells of a request of HTTP/2 whose stream is reset for a field that
// belongs to a connection.
func (c *serverConn) foreign(name string) {
	c.server.cfg.Handler.Refused(c.known, 0, fmt.Errorf("%w: %s", ErrForeign, name))
}

// Write implements net.Conn. What net/http answers by itself is told.
func (c *serverConn) Write(p []byte) (int, error) {
	if status := refusal(p); status != 0 {
		if errors.Is(c.fault, strict.ErrVersion) { // it speaks something else
			c.server.cfg.Handler.Refused(c.known, 0, c.fault)
			return len(p), nil
		}
		c.server.cfg.Handler.Refused(c.known, status, c.fault)
	}
	return c.Conn.Write(p)
}

// refusal tells the status of an answer of net/http's own to a request that it
// could not read; 0: it is none. Those of Handlers have a Date.
func refusal(p []byte) (status int) {
	const head, rest = "HTTP/1.1 ", "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	p = p[:min(len(p), 256)]
	if !bytes.HasPrefix(p, []byte(head+"4")) && !bytes.HasPrefix(p, []byte(head+"5")) {
		return 0
	}
	if end := bytes.IndexByte(p, '\r'); end < len(head)+3 || !bytes.HasPrefix(p[end:], []byte(rest)) {
		return 0
	}
	status, _ = strconv.Atoi(string(p[len(head) : len(head)+3]))
	return status
}

// Close implements net.Conn. What a client is still sending is read and thrown
// away, if it is parting: a reset would take the answer from it.
func (c *serverConn) Close() error {
	if c.parting.CompareAndSwap(true, false) {
		_ = c.CloseWrite() // net/http may have done so
		c.linger()
	}
	err := c.Conn.Close()
	c.unregister()
	return err
}

// Bounds of a lingering close: a client that sends nothing for lingerIdle, or is
// still sending after lingerTime, is reset.
const (
	lingerIdle = time.Second
	lingerTime = 30 * time.Second
)

// linger reads until the client has ended its direction.
func (c *serverConn) linger() {
	buf := make([]byte, 4<<10)
	for until := time.Now().Add(lingerTime); time.Now().Before(until); {
		_ = c.SetReadDeadline(time.Now().Add(lingerIdle))
		if _, err := c.Conn.Read(buf); err != nil {
			return
		}
	}
}

// Abort ends the connection by a reset.
func (c *serverConn) Abort() {
	c.Conn.Abort()
	c.unregister()
}

// unregister removes the connection from the server, once.
func (c *serverConn) unregister() {
	c.once.Do(func() {
		s := c.server
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.removeActive()
	})
}

var (
	_ io.ReadWriteCloser = (*serverConn)(nil)
	_ pipe.Accepted      = (*serverConn)(nil)
)

// Quiesce asks clients to leave: an HTTP/1 connection ends after its next
// answer, and HTTP/2 gets a GOAWAY at once. No request fails or is refused
// because of it.
func (s *Server) Quiesce() {
	s.quiescing.Store(true)
	fresh := s.newProtocolServer(true)
	s.mu.Lock()
	old := s.two
	if s.closed {
		old = fresh
	} else {
		s.two = fresh
	}
	s.mu.Unlock()
	old.shutdown()
}

// Resume undoes Quiesce for later connections and requests.
func (s *Server) Resume() { s.quiescing.Store(false) }

// Close ends all connections at once and waits for the goroutines that serve
// them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	var all []*serverConn
	for c := range s.conns {
		all = append(all, c)
	}
	two := s.two
	s.mu.Unlock()
	for _, c := range all {
		c.Abort()
	}
	s.one.shutdown()
	two.shutdown()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.active > 0 {
		s.idle.Wait()
	}
}

// addActive counts a request as active. It returns false if the server is
// closed.
func (s *Server) addActive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.active++
	}
	return !s.closed
}

func (s *Server) removeActive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active--; s.active == 0 {
		s.idle.Broadcast()
	}
}
