package web_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/netio"
	"penstock/netio/pipe"
	"penstock/netio/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an engine whose clients are served HTTP, by plans of the test's.
type rig struct {
	t       testing.TB
	addr    string
	server  *web.Server
	engine  *netio.Engine
	profile *web.Profile
	plans   atomic.Pointer[func(*http.Request) web.Disposition]
	ends    chan netio.Reason
	rules   atomic.Pointer[web.Rules]
	refused chan refusal
	client  *http.Client
	alpn    atomic.Pointer[string] // of TLS that clients are said to come by; nil: none
}

func (r *rig) Route(_ any, q *http.Request) web.Disposition { return (*r.plans.Load())(q) }

func (r *rig) Rules(any) web.Rules {
	if rules := r.rules.Load(); rules != nil {
		return *rules
	}
	return web.Rules{}
}

func (r *rig) Refused(_ any, status int, err error) {
	select {
	case r.refused <- refusal{status, err}:
	default:
	}
}

// refusal is what Refused was told.
type refusal struct {
	status int
	err    error
}

// plan sets what becomes of requests.
func (r *rig) plan(f func(*http.Request) web.Disposition) { r.plans.Store(&f) }

// connPlan joins a connection to the server.
type connPlan struct {
	*rig
	meter *netio.Meter
}

func (p connPlan) Next(*netio.Conn, error) (netio.Target, netio.Reason) {
	return netio.Target{
		Profile: &netio.Profile{Meter: p.meter},
		Serve: func(c *pipe.Conn) {
			alpn := p.alpn.Load()
			if alpn == nil {
				alpn = new(string)
			}
			p.server.Serve(c, "known", *alpn != "", *alpn)
		},
	}, netio.OK
}
func (p connPlan) Connected(*netio.Conn, time.Duration) {}

type connHandler struct {
	*rig
	meter *netio.Meter
}

func (h *connHandler) Route(*netio.Conn) (netio.Plan, netio.Reason) {
	return connPlan{h.rig, h.meter}, netio.OK
}
func (h *connHandler) Closed(_ *netio.Conn, why netio.Reason) {
	select {
	case h.ends <- why:
	default:
	}
}

// newRig sends requests to the first of the addresses that answers.
func newRig(t testing.TB, profile *web.Profile, addresses ...string) *rig {
	t.Helper()
	return newRigOf(t, web.Config{}, profile, addresses...)
}

func newRigOf(t testing.TB, cfg web.Config, profile *web.Profile, addresses ...string) *rig {
	t.Helper()
	r := &rig{t: t, profile: profile, ends: make(chan netio.Reason, 100), refused: make(chan refusal, 100)}
	r.plan(func(*http.Request) web.Disposition {
		return (&way{profile: profile, addresses: addresses}).plan()
	})
	log := slog.New(slog.DiscardHandler)
	if cfg.Log == nil {
		cfg.Log = log
	}
	if cfg.HeaderTimeout == 0 {
		cfg.HeaderTimeout = testkit.Patience // a busy machine's clients are no silent ones
	}
	cfg.Handler, cfg.MaxHeader = r, 8<<10
	r.server = web.New(cfg)
	h := &connHandler{rig: r}
	engine, err := netio.New(netio.Config{Handler: h, Log: log, Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	h.meter = netio.NewMeter("l", "s", engine.Loops())
	engine.SetListeners([]netio.Listener{{Name: "l", Network: "tcp", Address: "127.0.0.1:0"}})
	r.addr, r.engine = engine.Listeners()[0].Address, engine
	r.client = newClient(false)
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		engine.Close()
		r.server.Close()
		profile.Close()
	})
	return r
}

func newClient(http2 bool) *http.Client {
	p := &http.Protocols{}
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	return &http.Client{
		Transport:     &http.Transport{Protocols: p, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       testkit.Patience,
	}
}

// way leads to addresses in their order.
type way struct {
	profile   *web.Profile
	addresses []string
	next      int
	errs      []error
	answered  int
	reached   int
	preface   []byte
	done      func(status int, err error)
}

func (w *way) plan() web.Disposition {
	p := web.Disposition{Upstreams: w, Attempts: len(w.addresses), Upgrades: []string{"websocket", "Echo", "foo"}}
	if w.done != nil {
		p.Done = func(o web.Outcome) { w.done(o.Status, o.Err) }
	}
	return p
}

func (w *way) Next(_ context.Context, err error) (web.Target, bool) {
	if err != nil {
		w.errs = append(w.errs, err)
	}
	if w.next == len(w.addresses) {
		return web.Target{}, false
	}
	w.next++
	return web.Target{Address: w.addresses[w.next-1], Profile: w.profile, Preface: w.preface}, true
}

func (w *way) Answered() { w.answered++ }

func (w *way) Reached() { w.reached++ }

func (w *way) Refusal(err error) string { return "refused: " + err.Error() }

// reply is a response whose body has been read.
type reply struct {
	status          int
	header, trailer http.Header
}

func (r *rig) do(method, path, body string) (reply, string) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body == "" {
		req.Body = nil
	}
	req.Host = "shop.example.com"
	req.Header.Set("X-Forwarded-For", "6.6.6.6") // a lie
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, resp.Trailer}, string(all)
}

func describe(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("Trailer", "Grpc-Status")
	fmt.Fprintf(w, "%s %s host %s for %s proto %s body %d", q.Method, q.URL, q.Host,
		q.Header.Get("X-Forwarded-For"), q.Header.Get("X-Forwarded-Proto"), len(body))
	w.Header().Set("Grpc-Status", "0")
}

// HTTP/1 and HTTP/2 on either side, bodies and trailers.
func TestRequestsGoOn(t *testing.T) {
	for _, clientHTTP2 := range []bool{false, true} {
		for _, upstreamHTTP2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("client http2 %v, endpoint http2 %v", clientHTTP2, upstreamHTTP2), func(t *testing.T) {
				r := newRig(t, &web.Profile{HTTP2: upstreamHTTP2}, testkit.ServeHTTP(t, describe))
				r.client = newClient(clientHTTP2)
				for i := range 5 {
					resp, got := r.do("POST", "/a/b?c=d", strings.Repeat("x", i<<18))
					want := fmt.Sprintf("POST /a/b?c=d host shop.example.com for 127.0.0.1 proto http body %d", i<<18)
					if resp.status != http.StatusOK || got != want {
						t.Errorf("%d %q, want %q", resp.status, got, want)
					}
					if resp.trailer.Get("Grpc-Status") != "0" {
						t.Errorf("trailer %v", resp.trailer)
					}
				}
			})
		}
	}
}

func TestPlansChangeRequestsAndResponses(t *testing.T) {
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, describe))
	forward := *r.plans.Load()
	r.plan(func(q *http.Request) web.Disposition {
		p := forward(q)
		p.Request = func(out *http.Request) {
			out.Host = "inner.example.com"
			out.URL.Path = "/rewritten"
		}
		p.Response = func(h http.Header) { h.Set("X-By", "penstock") }
		return p
	})
	resp, got := r.do("GET", "/a", "")
	if want := "GET /rewritten host inner.example.com for 127.0.0.1 proto http body 0"; got != want || resp.header.Get("X-By") != "penstock" {
		t.Errorf("%q %v, want %q", got, resp.header, want)
	}
}

func TestAnswersFromHere(t *testing.T) {
	r := newRig(t, &web.Profile{})
	r.plan(func(*http.Request) web.Disposition {
		return web.Disposition{Answer: &web.Answer{Status: 302, Header: http.Header{"Location": {"https://else.example.com/"}}}}
	})
	if resp, _ := r.do("GET", "/", ""); resp.status != http.StatusFound || resp.header.Get("Location") != "https://else.example.com/" {
		t.Errorf("%d %v", resp.status, resp.header)
	}
}

// An endpoint that cannot be reached is passed over for any request; one that
// may have acted only where that does no harm.
func TestOtherEndpointsAreTried(t *testing.T) {
	var hits atomic.Int32
	slams := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		panic(http.ErrAbortHandler)
	})
	works := testkit.ServeHTTP(t, describe)
	for _, c := range []struct {
		method, body          string
		first                 string
		status, hits, reached int
	}{
		{"POST", "body", testkit.FreeAddress(t), 200, 0, 1},
		{"GET", "", slams, 200, 1, 2},
		{"DELETE", "", slams, 200, 1, 2},
		{"POST", "", slams, 502, 1, 1},
		{"PUT", "body", slams, 502, 1, 1},
	} {
		hits.Store(0)
		r := newRig(t, &web.Profile{}, c.first, works)
		ended := make(chan *way, 1)
		r.plan(func(*http.Request) web.Disposition {
			w := &way{profile: r.profile, addresses: []string{c.first, works}}
			w.done = func(int, error) { ended <- w }
			return w.plan()
		})
		resp, _ := r.do(c.method, "/", c.body)
		if w := <-ended; resp.status != c.status || int(hits.Load()) != c.hits || w.reached != c.reached {
			t.Errorf("%s: %d with %d hits, want %d with %d; %d were reached, want %d; %v",
				c.method, resp.status, hits.Load(), c.status, c.hits, w.reached, c.reached, w.errs)
		}
	}
}

func TestRequestsThatFail(t *testing.T) {
	stuck := make(chan struct{})
	hangs := testkit.ServeHTTP(t, func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-stuck:
		case <-q.Context().Done():
		}
	})
	t.Cleanup(func() { close(stuck) })
	for name, c := range map[string]struct {
		addresses []string
		status    int
		err       error
	}{
		"nowhere": {nil, 503, web.ErrNowhere},
		"refused": {[]string{testkit.FreeAddress(t)}, 502, nil},
		"timeout": {[]string{hangs}, 504, web.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, &web.Profile{})
			type outcome struct {
				status int
				err    error
			}
			done := make(chan outcome, 1)
			r.plan(func(*http.Request) web.Disposition {
				p := (&way{profile: r.profile, addresses: c.addresses, done: func(s int, err error) { done <- outcome{s, err} }}).plan()
				if c.err == web.ErrTimeout { // else a busy machine may take that long
					p.Timeout = 100 * time.Millisecond
				}
				return p
			})
			resp, _ := r.do("GET", "/", "")
			got := <-done
			if resp.status != c.status || got.status != c.status || got.err == nil || c.err != nil && !errors.Is(got.err, c.err) {
				t.Errorf("%d, told %d %v; want %d %v", resp.status, got.status, got.err, c.status, c.err)
			}
		})
	}
}

// An answer that ends before its time must not look whole, though it has no
// length.
func TestAnAnswerThatIsCutOff(t *testing.T) {
	half := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "the first half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	r := newRig(t, &web.Profile{}, half)
	done := make(chan error, 1)
	r.plan(func(*http.Request) web.Disposition {
		return (&way{profile: r.profile, addresses: []string{half}, done: func(_ int, err error) { done <- err }}).plan()
	})
	c := r.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	got, err := io.ReadAll(c)
	if err == nil {
		t.Errorf("a clean end after %q", got)
	}
	if err := <-done; !errors.Is(err, web.ErrCutOff) {
		t.Errorf("told %v", err)
	}
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	return c
}

func TestAClientThatGoesAwayEndsItsRequest(t *testing.T) {
	reached := make(chan struct{})
	over := make(chan struct{})
	to := testkit.ServeHTTP(t, func(_ http.ResponseWriter, q *http.Request) {
		close(reached)
		<-q.Context().Done()
		close(over)
	})
	r := newRig(t, &web.Profile{})
	done := make(chan int, 1)
	r.plan(func(*http.Request) web.Disposition {
		return (&way{profile: r.profile, addresses: []string{to}, done: func(s int, _ error) { done <- s }}).plan()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.addr, nil)
	resp, err := r.client.Do(req)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	<-over
	if status := <-done; status != 0 {
		t.Errorf("told %d", status)
	}
}

// Upgrades, such as to WebSocket, are bytes both ways until both ends are done.
func TestUpgrade(t *testing.T) {
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Upgrade") != "echo" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, rw)
	})
	r := newRig(t, &web.Profile{}, to)
	c := r.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	want := bytes.Repeat([]byte("message "), 40_000)
	var sending sync.WaitGroup
	sending.Go(func() { _, _ = c.Write(want) })
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, want) {
		t.Error(err)
	}
	sending.Wait()
}

func TestClientsThatMisbehave(t *testing.T) {
	end := testkit.ServeHTTP(t, describe)
	patient := newRig(t, &web.Profile{}, end)
	hasty := newRigOf(t, web.Config{HeaderTimeout: 300 * time.Millisecond}, &web.Profile{}, end) // for those that stop
	stops := map[string]bool{
		"a header in no time": true, "nothing": true, "next to nothing": true, "half a preface": true, "a whole preface alone": true,
	}
	for name, c := range map[string]struct{ send, want string }{
		"not HTTP":              {"\x16\x03\x01 hello\r\n\r\n", "HTTP/1.1 400 "},
		"a header too large":    {"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 20<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
		"no host":               {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		"two lengths":           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 400 "},
		"a coding nobody knows": {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xyz\r\n\r\n", "HTTP/1.1 400 "},
		"a header in no time":   {"GET / HT", "HTTP/1.1 400 "},
		"nothing":               {"", ""},
		"next to nothing":       {"P", ""},
		"half a preface":        {"PRI * HTTP/2.0\r\n", ""},
		"a whole preface alone": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			r := patient
			if stops[name] {
				r = hasty
			}
			conn := r.dial()
			_, _ = io.WriteString(conn, c.send)
			got, err := io.ReadAll(conn) // to its end, in whatever way
			if !strings.HasPrefix(string(got), c.want) || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%.80q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestAnEndpointAtAUnixSocket(t *testing.T) {
	path := t.TempDir() + "/s"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(describe), ReadHeaderTimeout: testkit.Patience}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	r := newRig(t, &web.Profile{}, "unix:"+path)
	if resp, got := r.do("GET", "/u", ""); resp.status != http.StatusOK || !strings.HasPrefix(got, "GET /u host shop.example.com") {
		t.Errorf("%d %q", resp.status, got)
	}
}
