package web_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"penstock/internal/testkit"
	"penstock/netio/web"
)

// Every request is decided about, whatever it is for, and has a path where it
// may be left out.
func TestRequestsAreDecidedAbout(t *testing.T) {
	r := newRig(t, &web.Profile{})
	r.plan(func(q *http.Request) web.Disposition {
		return web.Disposition{Answer: &web.Answer{Status: http.StatusTeapot, Body: q.Host + " " + q.URL.EscapedPath() + " " + q.URL.RawQuery}}
	})
	for line, want := range map[string]string{
		"OPTIONS *":              "x * ",
		"OPTIONS http://y":       "y  ",
		"GET http://y":           "y / ",
		"GET http://y?a=b":       "y / a=b",
		"GET http://y/%2F?a=b#c": "y /%2F a=b#c",
	} {
		c := r.dial()
		_, _ = io.WriteString(c, line+" HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusTeapot || string(got) != want {
			t.Errorf("%s: %d %q, want %q", line, resp.StatusCode, got, want)
		}
	}
}

// A panic costs its request alone, and is in the log as what it is.
func TestAPanicIsLogged(t *testing.T) {
	for name, plan := range map[string]func(*web.Disposition){
		"where to":   nil,
		"of the way": func(p *web.Disposition) { p.Upstreams = nil },
		"of an edit": func(p *web.Disposition) { p.Response = func(http.Header) { panic("of an edit") } },
	} {
		for _, http2 := range []bool{false, true} {
			out := &testkit.Log{}
			to := testkit.ServeHTTP(t, describe)
			r := newRigOf(t, web.Config{Log: slog.New(slog.NewTextHandler(out, nil))}, &web.Profile{}, to)
			r.client = newClient(http2)
			works := *r.plans.Load()
			var done chan ended
			if plan != nil {
				done = r.planned(plan, to)
			} else {
				r.plan(func(*http.Request) web.Disposition { panic("where to") })
			}
			if resp, err := r.client.Get("http://" + r.addr); err == nil {
				_ = resp.Body.Close()
				t.Errorf("%s: answered %d", name, resp.StatusCode)
			}
			if done != nil {
				if e := r.await(done); !errors.Is(e.err, web.ErrFault) || e.status != 0 {
					t.Errorf("%s: told %d %v", name, e.status, e.err)
				}
			}
			r.plan(works)
			if resp, _ := r.do("GET", "/", ""); resp.status != http.StatusOK {
				t.Errorf("%s: the next request got %d", name, resp.status)
			}
			if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "goroutine") {
				t.Errorf("%s: logged %s", name, got)
			}
		}
	}
}

// A key by which a client may send a request twice is no leave for others to.
func TestAKeyDoesNotRepeatRequests(t *testing.T) {
	var posts atomic.Int32
	r := newRig(t, &web.Profile{}, testkit.Serve(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			q, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if q.Method == http.MethodPost {
				posts.Add(1)
				if q.Header.Get("Idempotency-Key") != "1" {
					t.Error("the endpoint does not get the key")
				}
				return // the connection ends without an answer
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	}))
	_, _ = r.do("GET", "/", "") // net/http repeats on connections that it has used
	req, err := http.NewRequest(http.MethodPost, "http://"+r.addr, bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "1")
	// The client's own net/http would repeat it as well.
	req.Header.Set("Connection", "close")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if n := posts.Load(); resp.StatusCode != http.StatusBadGateway || n != 1 {
		t.Errorf("%d; the endpoint got the request %d times", resp.StatusCode, n)
	}
}
