package web_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/web"
)

// What follows a request's body goes on with it, if it was announced and has a
// place there.
func TestTrailersOfRequestsGoOn(t *testing.T) {
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		fmt.Fprintf(w, "%s %v %v %v", body, err, q.Trailer, q.Header["Content-Length"])
	})
	for _, clientHTTP2 := range []bool{false, true} {
		for _, upstreamHTTP2 := range []bool{false, true} {
			for _, length := range []int64{-1, 4} {
				if length >= 0 && !clientHTTP2 {
					continue // has no trailers then
				}
				r := newRig(t, &web.Profile{HTTP2: upstreamHTTP2}, to)
				req, err := http.NewRequest(http.MethodPost, "http://"+r.addr, io.NopCloser(strings.NewReader("body")))
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = length
				req.Trailer = http.Header{"X-Sum": {"1", "2"}, "X-None": nil}
				client := newClient(clientHTTP2)
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				client.CloseIdleConnections()
				if want := "body <nil> map[X-None:[] X-Sum:[1 2]] []"; string(got) != want {
					t.Errorf("client http2 %v, length %d, endpoint http2 %v: %q, want %q", clientHTTP2, length, upstreamHTTP2, got, want)
				}
			}
		}
	}
}

// What nobody announced, or has its place in the header alone, is no trailer.
func TestTrailersThatAreNone(t *testing.T) {
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
		_, err := io.Copy(io.Discard, q.Body)
		fmt.Fprintf(w, "%v %v", q.Trailer, err)
	}))
	c := r.dial()
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-A, X-B, Authorization\r\n\r\n"+
		"1\r\nx\r\n0\r\nX-A: 1\r\nContent-Length: 7\r\nX-C: 3\r\nAuthorization: 4\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != "map[X-A:[1] X-B:[]] <nil>" {
		t.Errorf("%d %q", resp.StatusCode, got)
	}
}

// A client need not wait for the answer to its wish to switch.
func TestBytesBehindAnUpgradeAreNotLost(t *testing.T) {
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(c, rw)
	}))
	c := r.dial()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly, ")
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	defer resp.Body.Close()
	_, _ = io.WriteString(c, "late")
	got := make([]byte, len("early, late"))
	if n, err := io.ReadFull(in, got); err != nil || string(got) != "early, late" {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// An endpoint need not wait for a body that it does not want: its answer gets to
// a client that goes on to send, and the connection ends.
func TestAnAnswerBeforeTheEndOfTheBody(t *testing.T) {
	long := strings.Repeat("too large ", 100_000)
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
		if q.ProtoMajor == 2 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, long)
			return
		}
		c, _, err := http.NewResponseController(w).Hijack() // or net/http would wait for the body
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = fmt.Fprintf(c, "HTTP/1.1 413 Request Entity Too Large\r\nContent-Length: %d\r\n\r\n%s", len(long), long)
		_, _ = io.Copy(io.Discard, c)
	})
	for _, http2 := range []bool{false, true} {
		for name, send := range map[string]string{
			"a length":                  "Content-Length: 100\r\n\r\nabc",
			"a wish to be asked for it": "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
			"chunks":                    "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		} {
			t.Run(fmt.Sprintf("%s, endpoint http2 %v", name, http2), func(t *testing.T) {
				r := newRigOf(t, web.Config{BodyWait: 100 * time.Millisecond}, &web.Profile{HTTP2: http2})
				done := r.planned(nil, to)
				c := r.dial()
				_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+send)
				in := bufio.NewReader(c)
				resp, err := http.ReadResponse(in, nil)
				if err == nil && resp.StatusCode == http.StatusContinue {
					_ = resp.Body.Close()
					resp, err = http.ReadResponse(in, nil)
				}
				if err != nil {
					t.Fatal(err, r.await(done))
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close || err != nil || string(body) != long {
					t.Errorf("%d, close %v, %d bytes, %v", resp.StatusCode, resp.Close, len(body), err)
				}
				if e := r.await(done); e.err != nil {
					t.Errorf("told %v", e.err)
				}
				if b, err := in.ReadByte(); err == nil {
					t.Errorf("%q comes after the answer", b)
				}
			})
		}
	}
}

// Whoever sends all of a body before it looks for the answer is not reset while
// it does, whether an endpoint answers or the proxy.
func TestAClientThatSendsOnIsNotReset(t *testing.T) {
	t.Parallel()
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusRequestEntityTooLarge)
	})
	for name, answer := range map[string]*web.Answer{
		"by an endpoint": nil, "by the proxy": {Status: http.StatusRequestEntityTooLarge, Body: "no\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRigOf(t, web.Config{BodyWait: 100 * time.Millisecond}, &web.Profile{HTTP2: true}, to)
			if answer != nil {
				r.plan(func(*http.Request) web.Disposition { return web.Disposition{Answer: answer} })
			}
			sendOn(t, r)
		})
	}
}

func sendOn(t *testing.T, r *rig) {
	c := r.dial()
	body := make([]byte, 4<<20) // more than sockets hold that nobody reads from
	_, _ = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(body))
	in := bufio.NewReader(c)
	if _, err := in.Peek(1); err != nil { // the answer is there
		t.Fatal(err)
	}
	if n, err := c.Write(body); err != nil {
		t.Errorf("%d bytes sent: %v", n, err)
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "no\n" || err != nil {
		t.Errorf("%d %q %v", resp.StatusCode, text, err)
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection ends with %v", err)
	}
}

// One that answers first and reads then gets the body all the same, if that is
// under way, and the connection is kept.
func TestABodyThatIsUnderWayGoesOn(t *testing.T) {
	begun := make(chan struct{}, 1)
	got := make(chan int, 1)
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		n, _ := io.Copy(io.Discard, q.Body)
		got <- int(n)
		_, _ = io.WriteString(w, "thanks")
	})
	r := newRigOf(t, web.Config{BodyWait: testkit.Patience}, &web.Profile{HTTP2: true}, to)
	c := r.dial()
	in := bufio.NewReader(c)
	for range 2 {
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc")
		<-begun
		_, _ = io.WriteString(c, "def")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if n := <-got; n != 6 || string(body) != "thanks" || err != nil || resp.Close {
			t.Errorf("the endpoint got %d bytes, the client %q, %v, close %v", n, body, err, resp.Close)
		}
	}
}
