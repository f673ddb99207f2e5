package dataplane

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

// shareTimeout bounds the waits of these tests.
const shareTimeout = 5 * time.Minute

// connFrom connects from one of this machine's addresses.
func connFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: shareTimeout}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(shareTimeout)); err != nil {
		t.Fatal(err)
	}
	return c
}

// clientFrom makes an HTTP/1.1 client at one of this machine's addresses.
func clientFrom(t *testing.T, from, to string) *nodetest.WebClient {
	t.Helper()
	return nodetest.ClientOf(t, "http://"+to, &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		return d.DialContext(ctx, network, addr)
	}})
}

// slowUploads begins requests whose bodies never end, and waits until they are in
// flight.
func slowUploads(t *testing.T, n *testPlane, from string, howMany int) (all []net.Conn) {
	t.Helper()
	at := n.at(t, "web")
	for range howMany {
		c := connFrom(t, from, at)
		if _, err := io.WriteString(c, "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx"); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	testkit.WaitFor(t, "the uploads to be under way", func() bool { return n.requests.places.Used() >= int64(howMany) })
	return all
}

// answerOf returns the status and body of the first answer, or the error.
func answerOf(c net.Conn) string {
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return fmt.Sprint(r.StatusCode, " ", string(b))
}

// MaxRequests endless requests from one address do not keep out other addresses:
// the one whose body is idle longest is evicted.
func TestOneAddressCannotStarveOthers(t *testing.T) {
	t.Parallel()
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebRoute(nodetest.Rule("/", "")), func(c *Config) { c.MaxRequests = 8 })
	slow := slowUploads(t, n, "127.0.0.9", 8)
	for range 20 {
		if got := clientFrom(t, "127.0.0.10", n.at(t, "web")).Do("GET", "/", ""); got.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", got.StatusCode, got.Text)
		}
	}
	answers := make(chan string, len(slow))
	for _, c := range slow {
		go func() { answers <- answerOf(c) }()
	}
	if got := <-answers; got != "503 penstock: limit_requests\n" {
		t.Errorf("%q", got)
	}
	if v := n.metric(t, `penstock_evictions_total{budget="requests",listener="web"}`); v != "1" {
		t.Errorf("%s evictions", v)
	}
}

// A request ends if its body is idle and no answer has begun.
func TestIdleBodyTimesOut(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	server := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).EnableFullDuplex()
			_ = http.NewResponseController(w).Flush()
			begun <- struct{}{}
		}
		if r.URL.Path == "/call" {
			begun <- struct{}{}
		}
		_, _ = io.Copy(w, r.Body)
	})
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", ", http: {bodyIdleTimeout: 1s}", server)+
		nodetest.WebRoute(nodetest.Rule("/", "")))
	for _, protocol := range []string{"1", "2"} {
		t.Run("http/"+protocol, func(t *testing.T) {
			c := nodetest.NewWebClient(t, n.at(t, "web"), protocol == "2")
			body, end := io.Pipe()
			defer end.Close()
			go func() { _, _ = io.WriteString(end, "x") }()
			got, err := c.Try("POST", "/", "", func(r *http.Request) { r.Body, r.ContentLength = body, 100 })
			if err != nil || got.StatusCode != http.StatusRequestTimeout || got.Text != "penstock: body_timeout\n" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	for what, c := range map[string]struct{ path, kind string }{
		"not once the answer has begun": {"/stream", ""},
		"not a call of gRPC":            {"/call", "application/grpc+proto"},
	} {
		t.Run(what, func(t *testing.T) {
			body, end := io.Pipe()
			client := nodetest.NewWebClient(t, n.at(t, "web"), true)
			done := make(chan nodetest.Answer, 1)
			go func() {
				got, err := client.Try("POST", c.path, "", func(r *http.Request) {
					r.Body, r.ContentLength = body, -1
					r.Header.Set("Content-Type", c.kind)
				})
				if err != nil {
					t.Error(err)
				}
				done <- got
			}()
			<-begun
			<-time.After(1500 * time.Millisecond) // longer than bodyIdleTimeout
			_, _ = io.WriteString(end, "late")
			end.Close()
			if got := <-done; got.StatusCode != http.StatusOK || got.Text != "late" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// More than 200 fields are refused, in any version of HTTP.
func TestHeaderFieldsAreLimited(t *testing.T) {
	t.Parallel()
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebRoute(nodetest.Rule("/", "")))
	for _, protocol := range []string{"1", "2"} {
		for fields, want := range map[int]int{150: http.StatusOK, 201: http.StatusRequestHeaderFieldsTooLarge} {
			c := nodetest.NewWebClient(t, n.at(t, "web"), protocol == "2")
			got := c.Do("GET", "/", "", func(r *http.Request) {
				for i := range fields {
					r.Header.Add(fmt.Sprint("X-", i%100), "v")
				}
			})
			if got.StatusCode != want {
				t.Errorf("http/%s, %d fields: %d %s", protocol, fields, got.StatusCode, got.Text)
			}
		}
	}
}

// HTTP/2 connections that open the maximum of streams with the largest headers and
// leave them open do not use unbounded memory, and do not keep out other addresses.
func TestHeadersCountInMemoryBudget(t *testing.T) {
	const conns = 4
	for _, fields := range []int{190, 1800} {
		t.Run(fmt.Sprint(fields, " fields"), func(t *testing.T) {
			n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
				nodetest.WebRoute(nodetest.Rule("/", "")), func(c *Config) { c.MemoryBudget = 8 << 20 })
			before := nodetest.HeapInUse()
			for range conns {
				leaveStreams(t, connFrom(t, "127.0.0.9", n.at(t, "web")), 250, fields)
			}
			after := nodetest.HeapInUse()
			t.Logf("the heap grew by %d MiB, %d requests are under way", (after-before)>>20, n.requests.places.Used())
			if after > before+50<<20 {
				t.Errorf("the heap grew by %d MiB with a budget of 8", (after-before)>>20)
			}
			if got := clientFrom(t, "127.0.0.10", n.at(t, "web")).Do("GET", "/", ""); got.StatusCode != http.StatusOK {
				t.Errorf("another address: %d %s", got.StatusCode, got.Text)
			}
		})
	}
}

// leaveStreams opens streams with headers of about 60 KiB and no bodies, and
// returns when the node has read them all.
func leaveStreams(t *testing.T, c net.Conn, streams, fields int) {
	t.Helper()
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	enc.SetMaxDynamicTableSize(0) // so that all streams can send the same block
	for _, p := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/slow"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
	}
	// X has a Huffman code of 8 bits, so it is sent as it is. Decoding 60 MB of
	// Huffman codes twice takes half a minute with the race detector.
	value := strings.Repeat("X", max(60<<10/fields-32-6, 1))
	for i := range fields {
		_ = enc.WriteField(hpack.HeaderField{Name: fmt.Sprintf("x-%04d", i), Value: value})
	}
	for stream := range streams {
		rest := block.String()
		for first := true; first || rest != ""; first = false {
			k := min(len(rest), 16<<10)
			var err error
			if first {
				err = f.WriteHeaders(http2.HeadersFrameParam{
					StreamID: uint32(2*stream + 1), BlockFragment: []byte(rest[:k]), EndHeaders: k == len(rest),
				})
			} else {
				err = f.WriteContinuation(uint32(2*stream+1), k == len(rest), []byte(rest[:k]))
			}
			if err != nil {
				return // the node refused the connection, which is fine too
			}
			rest = rest[k:]
		}
	}
	_ = f.WritePing(false, [8]byte{1})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if p, ok := frame.(*http2.PingFrame); ok && p.IsAck() {
			return
		}
	}
}
