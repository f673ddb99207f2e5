package dataplane

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
	"penstock/routing"
	"penstock/routing/limit"
)

// Each stream of HTTP/2 is a request: a client gains nothing by opening many at once on one
// connection.
func TestEachStreamOfHTTP2Counts(t *testing.T) {
	const burst, streams = 5, 40
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		rateLimit(`{by: network, requests: {rate: 1, per: 1h, burst: 5}}`))
	c := nodetest.NewWebClient(t, n.at(t, "web"), true)
	codes := make(chan int, streams)
	for range streams {
		go func() {
			a, err := c.Try("GET", "/", "")
			if err != nil {
				t.Error(err)
				codes <- 0
				return
			}
			codes <- a.StatusCode
		}()
	}
	got := map[int]int{}
	for range streams {
		got[testkit.Receive(t, "a response", codes)]++
	}
	if got[http.StatusOK] != burst || got[http.StatusTooManyRequests] != streams-burst {
		t.Errorf("%d streams at once: %v, want %d times 200 and 429 else", streams, got, burst)
	}
}

// A connection whose client has ended its direction still counts, and what comes to it is
// paced.
func TestHalfOpenConnectionsStayLimited(t *testing.T) {
	const burst, read = 64 << 10, 64 << 10
	end := make(chan struct{})
	addr := testkit.Serve(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		_, _ = io.Copy(io.Discard, c) // until the client's end
		_, _ = c.Write(make([]byte, 1<<20))
		<-end
	})
	n := start(t, tcpListener+nodetest.PlainService("db", addr)+
		rateLimit(`{by: network, concurrent: 1, bytesOut: {rate: 1KiB, per: 1h, burst: 64KiB}}`))
	conn, ok := limited(t, n.at(t, "in"))
	if !ok {
		t.Fatal("the first connection is refused")
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var got atomic.Int64
	go func() { _, _ = io.Copy(counter{&got}, conn) }()
	testkit.WaitFor(t, "the direction to the client to be held", func() bool {
		return n.total(func(c *limit.Counts) uint64 { return c.Paced[limit.BytesOut] }) > 0
	})
	if _, ok := limited(t, n.at(t, "in")); ok {
		t.Error("another connection is admitted while one is half open")
	}
	if got.Load() > burst+read {
		t.Errorf("%d bytes came, want %d at most", got.Load(), burst+read)
	}
	close(end)
	conn.Close()
	testkit.WaitFor(t, "one to be admitted after the end", func() bool {
		_, ok := limited(t, n.at(t, "in"))
		return ok
	})
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// What a WebSocket carries counts as bytes, both ways.
func TestBytesOfAWebSocketArePaced(t *testing.T) {
	const burst, read, size = 64 << 10, 64 << 10, 1 << 20
	var came atomic.Int64
	addr := testkit.Serve(t, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.CopyN(counter{&came}, in, size)
		_, _ = c.Write(bytes.Repeat([]byte("y"), size))
		_, _ = io.Copy(io.Discard, in)
	})
	const slow, fast = `{rate: 1KiB, per: 1h, burst: 64KiB}`, `{rate: 1GiB, burst: 64KiB}`
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", addr)+
		rateLimit(`{by: network, bytesIn: `+slow+`, bytesOut: `+slow+`}`))
	conn, err := net.Dial("tcp", n.at(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /talk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols { //nolint:bodyclose // there is none
		t.Fatal(resp, err)
	}
	go func() { _, _ = conn.Write(make([]byte, size)) }()
	paced := func(d limit.Dimension) func() bool {
		return func() bool { return n.total(func(c *limit.Counts) uint64 { return c.Paced[d] }) > 0 }
	}
	testkit.WaitFor(t, "the WebSocket's client to be held", paced(limit.BytesIn))
	if came.Load() > burst+read {
		t.Errorf("%d bytes came to the server, want %d at most", came.Load(), burst+read)
	}
	n.mustApply(t, rateLimit(`{by: network, bytesIn: `+fast+`, bytesOut: `+slow+`}`))
	testkit.WaitFor(t, "the WebSocket's server to be held", paced(limit.BytesOut))
	n.mustApply(t, rateLimit(`{by: network, bytesIn: `+fast+`, bytesOut: `+fast+`}`))
	_ = conn.SetReadDeadline(time.Now().Add(testkit.Patience))
	if got, err := io.CopyN(io.Discard, in, size); err != nil {
		t.Errorf("%d of %d bytes: %v", got, size, err)
	}
}

// Who is at a limit has no fresh burst by connecting again around a change: of something
// else, of another limit, or of what the limit itself has beside its rate.
func TestNoChangeGivesAFreshBurst(t *testing.T) {
	const whole = `{by: network, connections: {rate: 1, per: 1h, burst: 3}`
	n := start(t, tcpListener+nodetest.PlainService("db", greeter(t))+rateLimit(whole+`}`))
	for range 3 {
		if conn, ok := limited(t, n.at(t, "in")); ok {
			conn.Close()
		}
	}
	for what, change := range map[string]string{
		"a service":           nodetest.PlainService("other", greeter(t)),
		"another limit":       "\n---\nkind: RateLimit\nname: other\nspec: {by: all, connections: {rate: 1000}}\n",
		"the number of keys":  rateLimit(whole + `, maxKeys: 7}`),
		"the queue":           rateLimit(whole + `, over: queue, queue: {timeout: 1ms}}`),
		"what it selects":     rateLimit(whole + `, to: [{services: [db, other]}]}`),
		"another dimension":   rateLimit(whole + `, bytesIn: {rate: 1MiB}}`),
		"the rate's own unit": rateLimit(`{by: network, connections: {rate: 24, per: 24h, burst: 3}}`),
	} {
		n.mustApply(t, change)
		for range 3 {
			if _, ok := limited(t, n.at(t, "in")); ok {
				t.Errorf("admitted again after a change of %s", what)
			}
		}
	}
}

// Who waits for a turn that seemed far away has it as soon as the node's part of the limit
// grows, although others have come behind it; and gives it back when it has waited for long
// enough.
func TestATurnComesNearerAsTheNodesPartGrows(t *testing.T) {
	place := limit.Place{Of: 3}
	c := limit.Config{MaxKeys: 10, Divided: true, Place: place, MaxWait: time.Hour, MaxQueue: 100}
	c.Rates[limit.Requests] = limit.Rate{N: 1000, Per: time.Second, Burst: 3}
	now := routing.LimitClock()
	l := limit.New("l", c, now)
	b := l.Bucket(limit.Key{Text: "k"}, now)
	defer b.Release()
	bs := []*limit.Bucket{b}
	b.Take(limit.Requests, 1, now)
	first, far, ok := takeAll(bs, limit.Requests, now)
	if !ok || far < time.Second {
		t.Fatalf("the first waits %v, %v, want more than a second", far, ok)
	}
	for range 50 {
		if _, _, ok := takeAll(bs, limit.Requests, now); !ok {
			t.Fatal("refused within the queue")
		}
	}
	l.Divide(1, place, routing.LimitClock())
	if wait, ok := first.wait(limit.Requests, bs); !ok || wait > 10*time.Millisecond {
		t.Errorf("with the whole limit it still waits %v, %v", wait, ok)
	}

	l.Divide(0, place, routing.LimitClock())
	late, _, _ := takeAll(bs, limit.Requests, routing.LimitClock())
	owed := b.Debt(limit.Requests, routing.LimitClock())
	late.last = routing.LimitClock()
	if _, ok := late.wait(limit.Requests, bs); ok {
		t.Error("it goes on waiting after its time")
	}
	if left := b.Debt(limit.Requests, routing.LimitClock()); left > owed-time.Hour {
		t.Errorf("the bucket owes %v after a turn of %v was given back", left, owed)
	}
}
