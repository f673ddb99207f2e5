package web_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"penstock/internal/testkit"
	"penstock/netio/web"
)

// Whoever announces a large frame of HTTP/2 does not get its memory for that.
func TestAFrameThatIsAnnouncedCostsNothing(t *testing.T) {
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, describe))
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	before := held()
	const conns = 64
	var last *rawHTTP2
	for range conns {
		last = newRawHTTP2(t, r.addr)
		if err := last.pong(); err != nil {
			t.Fatal(err)
		}
		// The header of the largest frame that is allowed, of a type that nobody
		// knows.
		n := last.frame
		_, _ = last.Write([]byte{byte(n >> 16), byte(n >> 8), byte(n), 0xfa, 0, 0, 0, 0, 0})
	}
	_ = last.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // it waits, and says nothing
	if status, err := last.answer(1); err == nil {
		t.Errorf("a frame that is allowed is answered by %q", status)
	}
	if each := (held() - before) / conns; each > 256<<10 {
		t.Errorf("%d KiB for each connection that has sent 42 bytes", each>>10)
	}
}

// ended is what a plan is told.
type ended struct {
	status int
	err    error
}

// planned sets a plan that leads to addresses, and gives what is told of ends.
func (r *rig) planned(change func(*web.Disposition), addresses ...string) chan ended {
	done := make(chan ended, 10)
	r.plan(func(*http.Request) web.Disposition {
		p := (&way{profile: r.profile, addresses: addresses, done: func(s int, err error) {
			select {
			case done <- ended{s, err}:
			default: // nobody wants to know
			}
		}}).plan()
		if change != nil {
			change(&p)
		}
		return p
	})
	return done
}

func (r *rig) await(done chan ended) ended {
	r.t.Helper()
	return testkit.Receive(r.t, "the request to end", done)
}

// A plan's timeout holds whatever the client does: one that sends its body
// slowly is answered, one that reads slowly is cut off.
func TestSlowClientsAreNotWaitedForBeyondTheTimeout(t *testing.T) {
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err != nil || q.Method == http.MethodPost {
			return
		}
		for b := make([]byte, 1<<20); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
	t.Parallel()
	timeout := func(p *web.Disposition) { p.Timeout = 2 * time.Second } // by then a busy machine's download has begun
	for name, send := range map[string]string{
		"an upload with a length": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
		"an upload in chunks":     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"a download":              "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &web.Profile{}, to)
			done := r.planned(timeout, to)
			c := r.dial()
			_, _ = io.WriteString(c, send)
			e := r.await(done)
			if !errors.Is(e.err, web.ErrTimeout) {
				t.Errorf("told %v", e.err)
			}
			got, _ := io.ReadAll(c) // to its end, in whatever way
			if upload := strings.HasPrefix(send, "POST"); upload && !strings.HasPrefix(string(got), "HTTP/1.1 504 ") {
				t.Errorf("the client got %.100q", got)
			} else if !upload && !errors.Is(e.err, web.ErrCutOff) {
				t.Errorf("told %v", e.err)
			}
		})
	}
	for name, method := range map[string]string{"an upload of HTTP/2": "POST", "a download of HTTP/2": "GET"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &web.Profile{}, to)
			done := r.planned(timeout, to)
			h := newRawHTTP2(t, r.addr)
			h.ask(1, method == "GET", ":method", method, ":scheme", "http", ":authority", "x", ":path", "/")
			if e := r.await(done); !errors.Is(e.err, web.ErrTimeout) {
				t.Errorf("told %v", e.err)
			}
			// The window is not given back, so all that comes is one of 64 KiB.
			got, err := h.answer(1)
			if want := map[string]string{"POST": "504", "GET": "200RST INTERNAL_ERROR"}[method]; err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("the client got %q, %v; want %q", got, err, want)
			}
		})
	}
}

// A client cannot switch to what would lead its requests past routing, nor to
// what can be read in several ways: the endpoint gets a request like any other.
func TestSwitchesThatLeadPastRouting(t *testing.T) {
	got := make(chan http.Header, 1)
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(_ http.ResponseWriter, q *http.Request) { got <- q.Header }))
	for _, c := range []struct{ upgrade, version, want string }{
		{"websocket", "1.1", "websocket"},
		{"foo/2", "1.1", "foo/2"},
		{"websocket", "1.0", ""},
		{"h2c", "1.1", ""},
		{"H2C", "1.1", ""},
		{"h2c-14", "1.1", ""},
		{"SPDY/3.1", "1.1", ""},
		{"bar", "1.1", ""},
		{"HTTP/2.0", "1.1", ""},
		{"TLS/1.2", "1.1", ""},
		{"websocket, h2c", "1.1", ""},
		{"websocket\r\nUpgrade: h2c", "1.1", ""},
		{"web socket", "1.1", ""},
	} {
		conn := r.dial()
		_, _ = io.WriteString(conn, "GET / HTTP/"+c.version+"\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: "+c.upgrade+
			"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		h := <-got
		_ = conn.Close()
		if _, asked := h["Connection"]; h.Get("Upgrade") != c.want || h.Get("HTTP2-Settings") != "" || asked != (c.want != "") {
			t.Errorf("%q in HTTP/%s: the endpoint got %v, want %q", c.upgrade, c.version, h, c.want)
		}
	}
}

// What a client gets wrong is answered, and no endpoint is asked or blamed: not
// for what HTTP/2 lets through and HTTP/1 cannot say, nor for what net/http
// would not write.
func TestClientsFaultsAreNotTheEndpoints(t *testing.T) {
	asked := make(chan string, 100)
	to := testkit.ServeHTTP(t, func(_ http.ResponseWriter, q *http.Request) { asked <- q.RequestURI + " of " + q.Host })
	chunks := "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: a b\r\n\r\n0\r\n\r\n"
	http2 := func(method, authority, path string, more ...string) []string {
		return append([]string{":method", method, ":scheme", "http", ":authority", authority, ":path", path}, more...)
	}
	for name, c := range map[string]struct {
		raw string
		h2  []string
	}{
		"a trailer's name":               {raw: chunks},
		"a trailer's name in HTTP/2":     {h2: http2("GET", "x", "/", "trailer", "a b")},
		"a host of any bytes":            {raw: "GET http://a\"b/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		"a host that is no ASCII":        {raw: "GET http://%ff/ HTTP/1.1\r\nHost: x\r\n\r\n"},
		"an upgrade of any bytes":        {raw: "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: \x80\r\n\r\n"},
		"a method with a blank":          {h2: http2("G T", "x", "/")},
		"an authority with a blank":      {h2: http2("GET", "a b", "/")},
		"an authority that is no ASCII":  {h2: http2("GET", "\xff", "/")},
		"a query with a version behind":  {h2: http2("GET", "x", "/a?x HTTP/1.0")},
		"a query with a request behind":  {h2: http2("GET", "x", "/a?x HTTP/1.1\r\nHost: y\r\n\r\nGET /b")},
		"a path with a control behind %": {h2: http2("GET", "x", "/a?\x00")},
	} {
		for _, to2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, endpoint http2 %v", name, to2), func(t *testing.T) {
				r := newRig(t, &web.Profile{HTTP2: to2})
				nexts := atomic.Int32{}
				done := r.planned(func(p *web.Disposition) { p.Upstreams = counting{p.Upstreams, &nexts} }, to, to, to)
				var status string
				if c.raw != "" {
					conn := r.dial()
					_, _ = io.WriteString(conn, c.raw)
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						t.Fatal(err)
					}
					_ = resp.Body.Close()
					status = strconv.Itoa(resp.StatusCode)
				} else {
					h := newRawHTTP2(t, r.addr)
					h.ask(1, true, c.h2...)
					status, _ = h.answer(1)
				}
				if strings.HasPrefix(status, "RST PROTOCOL_ERROR") { // net/http has seen it itself
					return
				}
				if e := r.await(done); status != "400" || e.status != 400 || !errors.Is(e.err, web.ErrRequest) || nexts.Load() > 0 || len(asked) > 0 {
					t.Errorf("the client got %s; told %d %v; %d endpoints asked for, %d asked", status, e.status, e.err, nexts.Load(), len(asked))
				}
			})
		}
	}
}

// counting counts the endpoints that a way is asked for.
type counting struct {
	web.UpstreamSelector
	nexts *atomic.Int32
}

func (c counting) Next(ctx context.Context, err error) (web.Target, bool) {
	c.nexts.Add(1)
	return c.UpstreamSelector.Next(ctx, err)
}

// An endpoint of HTTP/2 has no switches of protocol: it is asked without.
func TestAnUpgradeDoesNotReachHTTP2(t *testing.T) {
	r := newRig(t, &web.Profile{HTTP2: true}, testkit.ServeHTTP(t, describe))
	c := r.dial()
	_, _ = io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "GET /ws ") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

// A header that is beyond what an endpoint of HTTP/2 takes is the client's.
func TestAHeaderLargerThanTheEndpointTakes(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(describe))
	s.Config.MaxHeaderBytes = 1 << 10
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	to := s.Listener.Addr().String()
	r := newRig(t, &web.Profile{HTTP2: true})
	nexts := atomic.Int32{}
	done := r.planned(func(p *web.Disposition) { p.Upstreams = counting{p.Upstreams, &nexts} }, to, to, to)
	if resp, _ := r.do("GET", "/", ""); resp.status != http.StatusOK {
		t.Fatal(resp.status)
	}
	r.await(done)
	nexts.Store(0)
	resp, _ := r.do("GET", "/?"+strings.Repeat("x", 6<<10), "")
	if e := r.await(done); resp.status != http.StatusBadRequest || !errors.Is(e.err, web.ErrRequest) || nexts.Load() != 1 {
		t.Errorf("%d, told %v after %d endpoints", resp.status, e.err, nexts.Load())
	}
}

// An answer that switches to what was not asked for is none, and leaves no
// connection behind.
func TestASwitchThatWasNotAskedFor(t *testing.T) {
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, rw)
	})
	for _, asks := range []string{"", "Connection: Upgrade\r\nUpgrade: foo\r\n", "Connection: Upgrade\r\nUpgrade: websocket, foo\r\n"} {
		p := &web.Profile{}
		r := newRig(t, p)
		done := r.planned(nil, to)
		c := r.dial()
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+asks+"\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if e := r.await(done); resp.StatusCode != http.StatusBadGateway || !errors.Is(e.err, web.ErrNoAnswer) {
			t.Errorf("%q: %d, told %v", asks, resp.StatusCode, e.err)
		}
		testkit.WaitFor(t, "the connection to the endpoint to end", func() bool { return p.Conns() == 0 })
	}
}

// A connection of HTTP/2 to an endpoint that has died without a word is left
// behind, also where it never ends.
func TestADeadConnectionIsLeft(t *testing.T) {
	for _, timeout := range []string{"response", "request"} {
		t.Run(timeout, func(t *testing.T) {
			to := newLossy(t, testkit.ServeHTTP(t, describe))
			p := &web.Profile{HTTP2: true}
			if timeout == "response" {
				p.HeaderTimeout = 500 * time.Millisecond
			}
			r := newRig(t, p)
			r.planned(func(p *web.Disposition) {
				if timeout == "request" {
					p.Timeout = 500 * time.Millisecond
				}
			}, to.addr)
			testkit.WaitFor(t, "an answer", func() bool {
				resp, _ := r.do("GET", "/", "")
				return resp.status == http.StatusOK
			})
			to.lose()
			if resp, _ := r.do("GET", "/", ""); resp.status != http.StatusGatewayTimeout {
				t.Errorf("the first request got %d", resp.status)
			}
			testkit.WaitFor(t, "an answer by another connection", func() bool {
				resp, _ := r.do("GET", "/", "")
				return resp.status == http.StatusOK
			})
		})
	}
}

// lossy is in front of a server, and from some moment on all connections that
// there are lose what they carry.
type lossy struct {
	addr  string
	mu    sync.Mutex
	conns map[net.Conn]bool // whether it loses
}

func newLossy(t *testing.T, to string) *lossy {
	t.Helper()
	l := testkit.Listen(t)
	s := &lossy{addr: l.Addr().String(), conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		running.Wait()
	})
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			end, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			s.mu.Lock()
			s.conns[c], s.conns[end] = false, false
			s.mu.Unlock()
			running.Go(func() { s.carry(end, c) })
			running.Go(func() { s.carry(c, end) })
		}
	})
	return s
}

func (s *lossy) carry(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		lost := s.conns[from]
		s.mu.Unlock()
		if !lost {
			_, _ = to.Write(buf[:n])
		}
	}
}

func (s *lossy) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		s.conns[c] = true
	}
}

// A header of HTTP/2 that is begun and left ends its connection.
func TestALeftHeaderOfHTTP2Ends(t *testing.T) {
	r := newRigOf(t, web.Config{HeaderTimeout: 300 * time.Millisecond}, &web.Profile{}, testkit.ServeHTTP(t, describe))
	h := newRawHTTP2(t, r.addr)
	_ = h.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	for {
		if _, err := h.frames.ReadFrame(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays")
			}
			return
		}
	}
}

// An answer whose header can be read in two ways is none.
func TestAnswersThatCanBeReadInTwoWays(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"length and chunks": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"LF":                "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
		"a fold":            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
		"behind another":    "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &web.Profile{}, rawUpstream(t, func(c net.Conn, in *bufio.Reader) {
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, text)
					_, _ = io.Copy(io.Discard, c)
				}
			}))
			if got, body := r.do("GET", "/", ""); got.status != http.StatusBadGateway {
				t.Errorf("%d %q", got.status, body)
			}
		})
	}
}

// rawUpstream serves each connection by itself.
func rawUpstream(t *testing.T, serve func(c net.Conn, in *bufio.Reader)) string {
	t.Helper()
	return testkit.Serve(t, func(c net.Conn) {
		_ = c.SetDeadline(time.Now().Add(testkit.Patience))
		serve(c, bufio.NewReader(c))
	})
}

// A request that its client gives up resets the endpoint's connection, which
// would else hold a local port in TIME_WAIT. One that has ended does not.
func TestACancelledRequestResetsTheEndpoint(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	t.Cleanup(secure.Close)
	config := secure.Client().Transport.(*http.Transport).TLSClientConfig
	config.ServerName = "example.com"
	t.Run("plain", func(t *testing.T) { cancelRequests(t, nil, nil) })
	t.Run("TLS", func(t *testing.T) { cancelRequests(t, secure.TLS, config) })
}

// cancelRequests gives up requests at every point of their way, to endpoints
// with TLS if these are given.
func cancelRequests(t *testing.T, server, client *tls.Config) {
	t.Helper()
	ends, begun := make(chan error, 1), make(chan struct{}, 1)
	begin := func(text string) func(c net.Conn, in *bufio.Reader) {
		return func(c net.Conn, in *bufio.Reader) {
			over := c
			if server != nil {
				over = tls.Server(c, server)
				in = bufio.NewReader(over)
			}
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(over, text)
			begun <- struct{}{}
			_, err := in.ReadByte()
			// A close_notify may come before a reset; a reset is told once.
			if server != nil && !errors.Is(err, syscall.ECONNRESET) {
				_, err = c.Read(make([]byte, 1))
			}
			ends <- err
		}
	}
	for name, c := range map[string]struct {
		answer string
		want   error
	}{
		"before the answer": {"", syscall.ECONNRESET},
		"in its middle":     {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", syscall.ECONNRESET},
		"after it":          {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfull", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			profile := &web.Profile{TLS: client}
			r := newRig(t, profile, rawUpstream(t, begin(c.answer)))
			conn := r.dial()
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			<-begun
			if errors.Is(c.want, io.EOF) {
				readAnswer(t, conn)
				profile.Close()
			}
			_ = conn.Close()
			if err := testkit.Receive(t, "the end of the endpoint's connection", ends); !errors.Is(err, c.want) {
				t.Errorf("the endpoint's connection ends with %v, want %v", err, c.want)
			}
		})
	}
}
