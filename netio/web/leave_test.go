package web_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio"
	"penstock/netio/web"
)

// exchange makes a request of HTTP/1.1 on a connection.
func exchange(t *testing.T, c net.Conn, in *bufio.Reader) (status int, last bool) {
	t.Helper()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Close
}

// A client of HTTP/1 is told to go by the next answer, and none of its requests
// fails; after Resume connections are kept again.
func TestClientsAreToldToGo(t *testing.T) {
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, describe))
	c := r.dial()
	in := bufio.NewReader(c)
	if _, last := exchange(t, c, in); last {
		t.Error("told to close before Leave")
	}
	r.server.Quiesce()
	if status, last := exchange(t, c, in); !last || status != http.StatusOK {
		t.Errorf("%d, last %v", status, last)
	}
	if n, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after the last answer came %d, %v", n, err)
	}
	r.server.Resume()
	c = r.dial()
	in = bufio.NewReader(c)
	for range 2 {
		if _, last := exchange(t, c, in); last {
			t.Error("told to close after Resume")
		}
	}
}

// A client of HTTP/2 is told at once, though it asks nothing; a request that is
// under way goes on.
func TestHTTP2ClientsAreToldAtOnce(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/long" {
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-end
		}
		_, _ = io.WriteString(w, "all of it")
	}))
	r.client = newClient(true)
	got := make(chan string)
	go func() {
		_, body := r.do("GET", "/long", "")
		got <- body
	}()
	<-begun
	idle := r.client
	r.client = newClient(true)
	_, _ = r.do("GET", "/", "")
	r.server.Quiesce()
	select {
	case why := <-r.ends:
		if why != netio.UpstreamFIN && why != netio.ClientFIN {
			t.Errorf("ended with %q", why)
		}
	case <-time.After(testkit.Patience):
		t.Error("an idle connection stays")
	}
	close(end)
	if body := <-got; body != "all of it" {
		t.Errorf("the request that was under way got %q", body)
	}
	idle.CloseIdleConnections()
	for range 3 {
		if resp, _ := r.do("GET", "/", ""); resp.status != http.StatusOK {
			t.Errorf("%d", resp.status)
		}
	}
	r.client.CloseIdleConnections()
}

// A drain does not take a connection for quiet on which a request waits for its
// answer, though no byte moves.
func TestARequestThatWaitsIsUnderWay(t *testing.T) {
	const clients = 10
	end := make(chan struct{})
	begun := make(chan struct{}, clients)
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-end
		_, _ = io.WriteString(w, "late")
	}))
	var waiting sync.WaitGroup
	for range clients {
		waiting.Go(func() {
			resp, err := r.client.Get("http://" + r.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "late" {
				t.Errorf("%q, %v", body, err)
			}
		})
		<-begun
	}
	drained := make(chan error)
	go func() { drained <- r.engine.Drain(t.Context(), 6*time.Second) }()
	time.AfterFunc(3*time.Second, func() { close(end) }) // half of them are due by then
	waiting.Wait()
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// The last answer of a plan ends its connection.
func TestAPlanEndsItsConnection(t *testing.T) {
	to := testkit.ServeHTTP(t, describe)
	r := newRig(t, &web.Profile{}, to)
	r.plan(func(*http.Request) web.Disposition {
		p := (&way{profile: r.profile, addresses: []string{to}}).plan()
		p.Last = true
		return p
	})
	c := r.dial()
	if _, last := exchange(t, c, bufio.NewReader(c)); !last {
		t.Error("the connection is kept")
	}
}

// Where a header goes before the request, each request has a connection of its
// own, which ends with it.
func TestAPrefaceIsSentOnAConnectionOfItsOwn(t *testing.T) {
	seen := make(chan string, 10)
	to := testkit.Serve(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		line, _ := in.ReadString('\n')
		if _, err := http.ReadRequest(in); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		_, _ = io.Copy(io.Discard, in) // until the other end closes
		_ = c.Close()
		seen <- strings.TrimSpace(line)
	})
	r := newRig(t, &web.Profile{}, "")
	r.plan(func(*http.Request) web.Disposition {
		return (&way{profile: r.profile, addresses: []string{to}, preface: []byte("PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n")}).plan()
	})
	for range 3 {
		if resp, body := r.do("GET", "/", ""); resp.status != http.StatusOK || body != "ok" {
			t.Errorf("%d %q", resp.status, body)
		}
		if line := <-seen; line != "PROXY TCP4 1.2.3.4 5.6.7.8 9 10" {
			t.Errorf("the endpoint read %q first", line)
		}
	}
}

// A profile that is closed leaves no connection behind, those of requests that
// were under way included.
func TestAClosedProfileKeepsNothing(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		begun, end := make(chan struct{}, 1), make(chan struct{})
		to := testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/long" {
				begun <- struct{}{}
				<-end
			}
			_, _ = io.WriteString(w, "ok")
		})
		p := &web.Profile{HTTP2: http2}
		r := newRig(t, p, to)
		_, _ = r.do("GET", "/", "")
		got := make(chan string)
		go func() {
			_, body := r.do("GET", "/long", "")
			got <- body
		}()
		<-begun
		if p.Conns() == 0 {
			t.Fatal("no connection is counted")
		}
		p.Close()
		close(end)
		if body := <-got; body != "ok" {
			t.Errorf("the request that was under way got %q", body)
		}
		testkit.WaitFor(t, "its connections to end", func() bool { return p.Conns() == 0 })
		// A request that has just taken the profile goes on all the same.
		if _, body := r.do("GET", "/", ""); body != "ok" {
			t.Errorf("afterwards: %q", body)
		}
	}
}
