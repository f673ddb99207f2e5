package dataplane

import (
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

const tcpListener = `
---
kind: Listener
name: in
spec: {address: "127.0.0.1:0", service: db}
`

func rateLimit(spec string) string { return "\n---\nkind: RateLimit\nname: l\nspec: " + spec + "\n" }

// limited dials a listener and reports whether its server's greeting came.
func limited(t *testing.T, addr string) (conn net.Conn, admitted bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil, false // refused before the dial returned
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, err = io.ReadFull(conn, make([]byte, 1))
	return conn, err == nil
}

func greeter(t *testing.T) string {
	return testkit.Serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		_, _ = io.Copy(io.Discard, c)
	})
}

// Connections over the burst are refused with their reason, until the rate brings more.
func TestConnectionsOverTheirRateAreRefused(t *testing.T) {
	n := start(t, tcpListener+nodetest.PlainService("db", greeter(t))+
		rateLimit(`{by: network, connections: {rate: 1, per: 1h, burst: 3}}`))
	for i := range 5 {
		if _, ok := limited(t, n.at(t, "in")); ok != (i < 3) {
			t.Errorf("connection %d: admitted %v", i, ok)
		}
	}
	testkit.WaitFor(t, "two are counted as refused", func() bool {
		return n.metric(t, `penstock_connections_total{listener="in",result="rate_limited",service="db"}`) == "2"
	})
	n.mustApply(t, rateLimit(`{by: network, connections: {rate: 1, per: 2h, burst: 3}}`))
	if _, ok := limited(t, n.at(t, "in")); ok {
		t.Error("a changed rate filled the bucket")
	}
	n.mustDelete(t, "RateLimit", "l")
	if _, ok := limited(t, n.at(t, "in")); !ok {
		t.Error("a limit that is gone refuses")
	}
}

// A connection over concurrent is refused until another one ends.
func TestConcurrentConnectionsAreBounded(t *testing.T) {
	n := start(t, tcpListener+nodetest.PlainService("db", greeter(t))+rateLimit(`{to: [{services: [db]}], concurrent: 2}`))
	first, _ := limited(t, n.at(t, "in"))
	limited(t, n.at(t, "in"))
	if _, ok := limited(t, n.at(t, "in")); ok {
		t.Fatal("a third one was admitted")
	}
	first.Close()
	testkit.WaitFor(t, "one is admitted after another has ended", func() bool {
		_, ok := limited(t, n.at(t, "in"))
		return ok
	})
}

// Connections over their rate wait for their turn, and are refused beyond the queue.
func TestConnectionsWaitInTheQueue(t *testing.T) {
	n := start(t, tcpListener+nodetest.PlainService("db", greeter(t))+
		rateLimit(`{connections: {rate: 10, per: 1s, burst: 1}, over: queue, queue: {length: 2, timeout: 1m}}`))
	begun := time.Now()
	admitted := make(chan bool)
	addr := n.at(t, "in")
	for range 3 {
		go func() {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				defer conn.Close()
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
			admitted <- err == nil
		}()
	}
	for range 3 {
		if !testkit.Receive(t, "a connection", admitted) {
			t.Error("refused within the queue")
		}
	}
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("three took %v, and the third one must wait 200ms", took)
	}
}

// Limits of other clients and destinations do not apply.
func TestLimitsApplyToWhatTheySelect(t *testing.T) {
	other := []string{
		`{from: [{networks: [192.0.2.0/24]}], concurrent: 1}`, `{from: [{identities: ["spiffe://*/**"]}], concurrent: 1}`,
		`{from: [{services: [web]}], concurrent: 1}`, `{from: [{tags: {team: a}}], concurrent: 1}`,
		`{to: [{services: [other]}], concurrent: 1}`, `{to: [{listeners: [other]}], concurrent: 1}`,
		`{to: [{services: [db], listeners: [other]}], concurrent: 1}`,
	}
	same := []string{
		`{from: [{networks: [127.0.0.0/8]}], concurrent: 1}`, `{to: [{listeners: [in]}], concurrent: 1}`,
		`{to: [{services: [other]}, {services: [db], listeners: [in]}], concurrent: 1}`, `{by: tag, tag: team, concurrent: 1}`,
	}
	n := start(t, tcpListener+nodetest.PlainService("db", greeter(t)))
	for i, spec := range append(other, same...) {
		n.mustApply(t, rateLimit(spec))
		first, _ := limited(t, n.at(t, "in"))
		second, ok := limited(t, n.at(t, "in"))
		if ok != (i < len(other)) {
			t.Errorf("%s: the second is admitted: %v", spec, ok)
		}
		first.Close()
		if second != nil {
			second.Close()
		}
		n.mustDelete(t, "RateLimit", "l")
	}
}

// A client receives no more bytes than burst and rate allow, and all of them in the
// end, with splice(2) and without.
func TestBytesArePaced(t *testing.T) {
	const size, rate, burst, read = 3 << 20, 2 << 20, 1 << 20, 64 << 10
	addr := testkit.Serve(t, func(c *net.TCPConn) { _, _ = c.Write(make([]byte, size)) })
	n := start(t, tcpListener+nodetest.PlainService("db", addr)+rateLimit(`{by: network, bytesOut: {rate: 2MiB, burst: 1MiB}}`))
	begun := time.Now()
	conn, err := net.Dial("tcp", n.at(t, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, read)
	for total := 0; ; {
		k, err := conn.Read(buf)
		total += k
		if most := burst + read + int(rate*time.Since(begun).Seconds()); total > most {
			t.Fatalf("%d bytes, want at most %d", total, most)
		}
		if errors.Is(err, io.EOF) {
			if total != size {
				t.Errorf("%d bytes, want %d", total, size)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Requests over their rate get 429 with the time to wait, although no MeshHTTPRoute
// routes them.
func TestRequestsOverTheirRateAreRefused(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		rateLimit(`{to: [{services: [shop]}], by: network, requests: {rate: 1, per: 1h, burst: 2}}`))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	begun := time.Now()
	for i := range 3 {
		want := http.StatusOK
		if i == 2 {
			want = http.StatusTooManyRequests
		}
		got := c.Do("GET", "/", "")
		if got.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i, got.StatusCode, want)
		}
		if i < 2 {
			continue
		}
		// The next one comes an hour after the first of the three.
		least := int(math.Ceil((time.Hour - time.Since(begun)).Seconds()))
		if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < least || after > 3600 {
			t.Errorf("Retry-After: %q, want %d to 3600", got.Header.Get("Retry-After"), least)
		}
	}
	for l := range n.RateLimits() {
		if c := l.Counts(); c.Keys != 1 || c.Allowed[1] != 2 || c.Refused[1] != 1 {
			t.Errorf("%+v", c)
		}
	}
	if reason := n.metric(t, `penstock_http_refused_total{reason="rate_limited"}`); reason != "1" {
		t.Errorf("%s refused requests are counted", reason)
	}
}

// With over: queue requests wait for their turn.
func TestRequestsWaitInTheQueue(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		rateLimit(`{requests: {rate: 10, burst: 1}, over: slow, queue: {timeout: 1m}}`))
	c := nodetest.NewWebClient(t, n.at(t, "web"), true)
	begun := time.Now()
	for range 3 {
		if got := c.Do("GET", "/", ""); got.StatusCode != http.StatusOK {
			t.Errorf("%d", got.StatusCode)
		}
	}
	if took := time.Since(begun); took < 200*time.Millisecond {
		t.Errorf("three took %v, and the third one must wait", took)
	}
}
