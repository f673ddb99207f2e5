package dataplane

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

// A client of a removed listener is served as before for one more request, whose
// answer ends the connection.
func TestClientsOfARemovedListenerAreServed(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebService("cart", "", nodetest.NamedServer(t, "cart"))+
		nodetest.WebRoute(nodetest.Rule("/cart", nodetest.To("cart"))))
	c, err := net.Dial("tcp", n.at(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	ask := func() (status int, last bool, by string) {
		_, _ = io.WriteString(c, "GET /cart HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Close, resp.Header.Get("X-Served-By")
	}
	if _, last, _ := ask(); last {
		t.Error("told to close before Leave")
	}
	n.mustDelete(t, "listener", "web")
	n.Sweep(time.Now().Add(time.Minute)) // the listener is forgotten
	if status, last, by := ask(); status != http.StatusOK || !last || by != "cart" {
		t.Errorf("%d, last %v, by %s", status, last, by)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after the last answer: %v", err)
	}
	c.Close()
	testkit.WaitFor(t, "the client to be forgotten", func() bool {
		n.requests.mu.Lock()
		defer n.requests.mu.Unlock()
		return len(n.requests.clients) == 0
	})
}

// flaky starts an endpoint that reads all requests, counts them in hits, and fails
// one of so many.
func flaky(t *testing.T, every int64, hits *atomic.Int64) string {
	return testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if hits.Add(1)%every == 0 {
			panic(http.ErrAbortHandler)
		}
	})
}

// Idempotent requests without a body are retried on another endpoint when an
// endpoint fails, others never.
func TestOnlySafeRequestsAreRetried(t *testing.T) {
	var one, two atomic.Int64
	n := start(t, nodetest.WebListener+
		nodetest.WebService("shop", ", connect: {retryBudget: 100}", flaky(t, 100, &one), flaky(t, 100, &two))+
		nodetest.WebRoute(nodetest.Rule("/", "")))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	for i := range 1000 {
		if got := c.Do("GET", "/", ""); got.StatusCode != http.StatusOK {
			t.Fatalf("request %d: %d %s", i, got.StatusCode, got.Text)
		}
	}
	if hits := one.Load() + two.Load(); hits < 1010 {
		t.Errorf("%d tries for 1000 requests, of which at least 10 fail", hits)
	}
	for _, method := range []string{"POST", "PUT"} {
		one.Store(0)
		two.Store(0)
		failed := 0
		for range 400 {
			if got := c.Do(method, "/", "body"); got.StatusCode == http.StatusBadGateway && got.Text == "penstock: no_answer\n" {
				failed++
			}
		}
		if hits := one.Load() + two.Load(); hits != 400 || failed < 3 {
			t.Errorf("%s: %d tries for 400 requests, %d failed", method, hits, failed)
		}
	}
}

// Endpoints that fail are ejected, whether the request can be retried or not, and
// the counts of active requests return to zero.
func TestEndpointsThatFailRequestsAreEjected(t *testing.T) {
	for method, lost := range map[string]int{"GET": 0, "POST": 3} {
		var bad atomic.Int64
		broken := flaky(t, 1, &bad)
		n := start(t, nodetest.WebListener+
			nodetest.WebService("shop", ", ejection: {failures: 3, duration: 1m}", broken, nodetest.NamedServer(t, "shop"))+
			nodetest.WebRoute(nodetest.Rule("/", "")))
		c := nodetest.NewWebClient(t, n.at(t, "web"), true)
		for range 100 {
			if got := c.Do(method, "/", ""); got.StatusCode != http.StatusOK {
				lost--
			}
		}
		if hits := bad.Load(); hits != 3 || lost != 0 {
			t.Errorf("%s: %d requests at an endpoint that fails all, want 3; %d more were to fail", method, hits, lost)
		}
		s, _ := n.Router.Table().Service("shop")
		for _, m := range s.Members() {
			testkit.WaitFor(t, "no request to be left at "+m.Address, func() bool { return m.Active() == 0 })
		}
		testkit.WaitFor(t, "no request to be under way", func() bool {
			return n.metric(t, `penstock_http_requests{listener="web",service="shop"}`) == "0"
		})
	}
}

// An endpoint that refuses connections fails no request if there is another.
func TestRequestsSkipRefusingEndpoints(t *testing.T) {
	n := start(t, nodetest.WebListener+
		nodetest.WebService("shop", "", testkit.FreeAddress(t), nodetest.NamedServer(t, "shop"))+
		nodetest.WebRoute(nodetest.Rule("/", "")))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	for i := range 10 {
		if got := c.Do("POST", "/", "body"); got.StatusCode != http.StatusOK {
			t.Errorf("request %d: %d %s", i, got.StatusCode, got.Text)
		}
	}
}

// An upgraded connection (WebSocket) outlives a change of routes and the service's
// timeout.
func TestUpgradedConnectionOutlivesItsRoute(t *testing.T) {
	t.Parallel()
	echo := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
	})
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebService("talk", ", http: {timeout: 3s}", echo)+
		nodetest.WebRoute(nodetest.Rule("/talk", nodetest.To("talk"))))
	c, err := net.Dial("tcp", n.at(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "GET /talk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	begun := time.Now()
	say := func(text string) {
		t.Helper()
		_, _ = io.WriteString(c, text+"\n")
		if got, err := in.ReadString('\n'); err != nil || got != text+"\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	say("before")
	n.mustApply(t, nodetest.WebRoute(nodetest.Rule("/talk", nodetest.To("shop 0")))[5:])
	say("after the change")
	n.mustDelete(t, "meshhttproute", "shop")
	n.mustDelete(t, "service", "talk")
	testkit.WaitFor(t, "the timeout to be over", func() bool { return time.Since(begun) > 3200*time.Millisecond })
	say("at last")
	c.Close()
	testkit.WaitFor(t, "its end", func() bool { return n.requests.places.Used() == 0 })
	if v := n.metric(t, `penstock_http_requests_total{code="1xx",listener="web",service=""}`); v != "" {
		t.Errorf("counted without a service: %s", v)
	}
}

// A large upload streams: the node buffers a bounded part of it, however slowly the
// endpoint reads.
func TestUploadsAreNotBuffered(t *testing.T) {
	const size = 50 << 20
	begin := make(chan struct{})
	sum := make(chan [32]byte, 1)
	end := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		<-begin
		h := sha256.New()
		if _, err := io.Copy(h, r.Body); err != nil {
			t.Error(err)
		}
		sum <- [32]byte(h.Sum(nil))
	})
	for _, http2 := range []bool{false, true} {
		n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end)+nodetest.WebRoute(nodetest.Rule("/", "")))
		c := nodetest.NewWebClient(t, n.at(t, "web"), http2)
		c.HTTP.Timeout = 0 // 50 MiB may take a busy machine long
		var sent atomic.Int64
		want := sha256.New()
		pr, pw := io.Pipe()
		var uploading sync.WaitGroup
		uploading.Go(func() {
			chunk := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
			for sent.Load() < size {
				_, _ = want.Write(chunk)
				if _, err := pw.Write(chunk); err != nil {
					t.Error(err)
					return
				}
				sent.Add(int64(len(chunk)))
			}
			pw.Close()
		})
		uploading.Go(func() {
			req, _ := http.NewRequest(http.MethodPost, c.Base+"/", pr) // no length: chunks
			resp, err := c.HTTP.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
		// The endpoint reads nothing, so the client must block.
		testkit.WaitFor(t, "the upload to stand still", func() bool {
			at := sent.Load()
			deadline := time.Now().Add(300 * time.Millisecond)
			testkit.WaitFor(t, "a while", func() bool { return time.Now().After(deadline) })
			return at > 0 && sent.Load() == at
		})
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		if at := sent.Load(); at > 24<<20 || m.HeapInuse > 64<<20 {
			t.Errorf("http2 %v: %d MiB sent to an endpoint that reads nothing, %d MiB of memory in use", http2, at>>20, m.HeapInuse>>20)
		}
		begin <- struct{}{}
		uploading.Wait()
		if got := <-sum; got != [32]byte(want.Sum(nil)) {
			t.Error("the bytes received differ from the bytes sent")
		}
	}
}

// Requests above MaxRequests are refused, and those in flight go on.
func TestRequestsAreBounded(t *testing.T) {
	end, reached := make(chan struct{}), make(chan struct{}, 2)
	slow := testkit.ServeHTTP(t, func(http.ResponseWriter, *http.Request) { reached <- struct{}{}; <-end })
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", slow)+nodetest.WebRoute(nodetest.Rule("/", "")),
		func(c *Config) { c.MaxRequests = 2 })
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	var waiting sync.WaitGroup
	for range 2 {
		waiting.Go(func() {
			if got, err := c.Try("GET", "/", ""); err != nil || got.StatusCode != http.StatusOK {
				t.Errorf("%v", err)
			}
		})
		<-reached
	}
	if got := c.Do("GET", "/", ""); got.StatusCode != http.StatusServiceUnavailable || got.Text != "penstock: limit_requests\n" {
		t.Errorf("%d %q", got.StatusCode, got.Text)
	}
	close(end)
	waiting.Wait()
}

// A service with proxyProtocol gets a PROXY header with the client of each request.
func TestRequestsWithAPROXYHeader(t *testing.T) {
	l := testkit.Listen(t)
	seen := make(chan string, 10)
	s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: testkit.Patience}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(proxyLines{l, seen}) }()
	t.Cleanup(func() { s.Close(); <-ended })
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", ", proxyProtocol: {send: v1}", l.Addr().String())+
		nodetest.WebRoute(nodetest.Rule("/", "")))
	for range 2 {
		var mine string
		c := nodetest.NewWebClient(t, n.at(t, "web"), false)
		c.HTTP.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				mine = conn.LocalAddr().String()
			}
			return conn, err
		}
		for range 2 {
			if got := c.Do("GET", "/", ""); got.StatusCode != http.StatusOK {
				t.Fatalf("%d %s", got.StatusCode, got.Text)
			}
			host, port, _ := net.SplitHostPort(mine)
			if line := <-seen; !strings.HasPrefix(line, "PROXY TCP4 "+host+" 127.0.0.1 "+port+" ") {
				t.Errorf("the endpoint read %q, the client is %s", line, mine)
			}
		}
	}
}

// proxyLines is a listener that consumes a PROXY v1 header on each connection.
type proxyLines struct {
	net.Listener
	seen chan string
}

func (p proxyLines) Accept() (net.Conn, error) {
	c, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := c.Read(b); err != nil {
			return nil, err
		}
		if b[0] == '\n' {
			break
		}
	}
	p.seen <- string(line)
	return c, nil
}

// Connections to endpoints end when their service changes or is deleted.
func TestConnectionsToEndpointsEndWithTheirService(t *testing.T) {
	var open atomic.Int64
	end := nodetest.NamedServer(t, "shop")
	front := testkit.Serve(t, func(c net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		to, err := net.Dial("tcp", end)
		if err != nil {
			return
		}
		defer to.Close()
		go func() { _, _ = io.Copy(c, to) }()
		_, _ = io.Copy(to, c)
	})
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", front)+nodetest.WebRoute(nodetest.Rule("/", "")))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	for i := range 3 {
		c.Do("GET", "/", "")
		if open.Load() == 0 {
			t.Error("no connection is kept")
		}
		n.mustApply(t, nodetest.WebService("shop", fmt.Sprintf(", resolve: %ds", i+20), front)[5:])
		testkit.WaitFor(t, "the connections of the version before to end", func() bool { return open.Load() == 0 })
	}
	c.Do("GET", "/", "")
	n.mustDelete(t, "meshhttproute", "shop")
	n.mustDelete(t, "listener", "web")
	n.mustDelete(t, "service", "shop")
	testkit.WaitFor(t, "the connections of the service to end", func() bool { return open.Load() == 0 })
	c.HTTP.CloseIdleConnections()
	testkit.WaitFor(t, "its series to go", func() bool {
		n.Sweep(time.Now().Add(time.Minute))
		for series := range n.series(t) {
			if strings.Contains(series, `service="shop"`) {
				return false
			}
		}
		return true
	})
}

// The access log has a line for each request and one for its connection.
func TestAccessLogOfRequests(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebRoute(nodetest.Rule("/cart", "")))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	c.Do("POST", "/cart/7?secret=1", "body")
	c.Do("GET", "/", "")
	if _, err := c.Try("GET", "/a/../b", ""); err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	c.HTTP.CloseIdleConnections()
	testkit.WaitFor(t, "the lines", func() bool { return strings.Contains(n.lines.String(), "connection closed") })
	got := n.lines.String()
	for _, want := range []string{
		"method=POST host=" + strings.TrimPrefix(c.Base, "http://") +
			" path=/cart/7 status=200 route=shop rule=0 service=shop endpoint=127.0.0.1:",
		" in=4 out=", "attempts=1", "path=/ status=200 route=shop rule=-1 service=shop",
		"path=/a/../b status=400 reason=bad_path", "requests=3",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the log has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "secret") {
		t.Error("the query is in the log")
	}
}
