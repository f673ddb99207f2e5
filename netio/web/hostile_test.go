package web_test

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"penstock/netio/web"
)

// Whoever announces a large frame of HTTP/2 does not get its memory for that.
func TestAFrameThatIsAnnouncedCostsNothing(t *testing.T) {
	r := newRig(t, &web.Profile{}, upstream(t, describe))
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
func (r *rig) planned(change func(*web.Plan), addresses ...string) chan ended {
	done := make(chan ended, 10)
	r.plan(func(*http.Request) web.Plan {
		p := (&way{profile: r.profile, addresses: addresses, done: func(s int, err error) { done <- ended{s, err} }}).plan()
		if change != nil {
			change(&p)
		}
		return p
	})
	return done
}

func (r *rig) await(done chan ended) ended {
	r.t.Helper()
	select {
	case e := <-done:
		return e
	case <-time.After(patience):
		r.t.Fatal("the request does not end")
		return ended{}
	}
}

// A plan's timeout holds whatever the client does: one that sends its body
// slowly is answered, one that reads slowly is cut off.
func TestSlowClientsAreNotWaitedForBeyondTheTimeout(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err != nil || q.Method == http.MethodPost {
			return
		}
		for b := make([]byte, 1<<20); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	})
	timeout := func(p *web.Plan) { p.Timeout = 200 * time.Millisecond }
	for name, send := range map[string]string{
		"an upload with a length": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
		"an upload in chunks":     "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"a download":              "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
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
	r := newRig(t, &web.Profile{}, upstream(t, func(_ http.ResponseWriter, q *http.Request) { got <- q.Header }))
	for _, c := range []struct{ upgrade, version, want string }{
		{"websocket", "1.1", "websocket"},
		{"foo/2", "1.1", "foo/2"},
		{"websocket", "1.0", ""},
		{"h2c", "1.1", ""},
		{"H2C", "1.1", ""},
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
