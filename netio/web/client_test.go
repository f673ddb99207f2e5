package web_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"penstock/netio/web"
)

// What follows a request's body goes on with it, if it was announced and has a
// place there.
func TestTrailersOfRequestsGoOn(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, q *http.Request) {
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
				req, err := http.NewRequest("POST", "http://"+r.addr, io.NopCloser(strings.NewReader("body")))
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
	r := newRig(t, &web.Profile{}, upstream(t, func(w http.ResponseWriter, q *http.Request) {
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
	r := newRig(t, &web.Profile{}, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
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
