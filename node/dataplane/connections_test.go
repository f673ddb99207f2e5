package dataplane

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"
	"unsafe"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio"
	"penstock/node/nodetest"
)

// The runtime allocates 144 bytes or 160.
func TestPlansAreSmall(t *testing.T) {
	if n := unsafe.Sizeof(plan{}); n > 144 {
		t.Errorf("the plan of a connection has %d bytes, want at most 144", n)
	}
}

// list lists connections, which must succeed.
func (p *testPlane) list(t testing.TB, q ConnectionQuery) (list []*ConnectionInfo, total int) {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	list, total, err := p.ListConnections(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	return list, total
}

// canary returns a listener, a service whose endpoints have versions, and a route that
// sends half of the connections to each.
func canary(t *testing.T) (text string, one, two *nodetest.Backend) {
	one, two = nodetest.NewBackend(t, "one"), nodetest.NewBackend(t, "two")
	return fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Service
name: apps
spec: {endpoints: [{address: %q, tags: {version: v1}}, {address: %q, tags: {version: v2}}]}
---
kind: MeshTCPRoute
name: canary
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules:
    - default:
        backendRefs:
        - {kind: MeshServiceSubset, name: apps, weight: 1, tags: {version: v1}}
        - {kind: MeshServiceSubset, name: apps, weight: 1, tags: {version: v2}}
`, one.At(), two.At()), one, two
}

func TestConnectionsAreListed(t *testing.T) {
	text, one, two := canary(t)
	n := start(t, text)
	addr := n.at(t, "edge")
	conns := make([]net.Conn, 6)
	for i := range conns {
		conns[i], _ = nodetest.Dial(t, addr)
	}
	for range 3 {
		nodetest.Echo(t, conns[1])
	}
	nodetest.Echo(t, conns[2])
	local := func(i int) netip.AddrPort { return conns[i].LocalAddr().(*net.TCPAddr).AddrPort() }

	all, total := n.list(t, ConnectionQuery{})
	if len(all) != 6 || total != 6 {
		t.Fatalf("%d of %d connections, want 6", len(all), total)
	}
	at := map[string]string{"version=v1": one.At(), "version=v2": two.At()}
	for place, i := range all {
		if i.Client != local(5-place) || i.Listener != "edge" || i.Service != "apps" || i.Destination != "apps" || i.Phase != "relaying" || i.Attempts != 1 {
			t.Errorf("number %d is %+v", place, i)
		}
		if i.Via == nil || i.Via.Route != "MeshTCPRoute/canary" || i.Endpoint() != at[i.Via.Subset] {
			t.Errorf("%d goes to %s by %v", i.ID, i.Endpoint(), i.Via)
		}
		if i.Times.Connected == 0 || i.Times.FirstOut == 0 || i.Accepted().IsZero() {
			t.Errorf("%d has the times %+v", i.ID, i.Times)
		}
	}
	for order, want := range map[int]int{LargestFirst: 1, IdlestFirst: 0, OldestFirst: 0, NewestFirst: 5} {
		got, total := n.list(t, ConnectionQuery{Order: order, Limit: 2})
		if len(got) != 2 || total != 6 || got[0].Client != local(want) {
			t.Errorf("order %d begins with %v, want %v", order, got[0].Client, local(want))
		}
	}
	for name, c := range map[string]struct {
		filter ConnectionFilter
		want   int
	}{
		"listener":         {ConnectionFilter{Listener: "edge"}, 6},
		"another listener": {ConnectionFilter{Listener: "edg"}, 0},
		"service":          {ConnectionFilter{Service: "apps"}, 6},
		"another service":  {ConnectionFilter{Service: "app"}, 0},
		"endpoint":         {ConnectionFilter{Endpoint: two.At()}, 3},
		"a client":         {ConnectionFilter{Client: netip.PrefixFrom(local(0).Addr(), 32)}, 6},
		"no client":        {ConnectionFilter{Client: netip.MustParsePrefix("127.0.0.2/32")}, 0},
		"a network":        {ConnectionFilter{Client: netip.MustParsePrefix("127.0.0.0/8")}, 6},
		"nobody":           {ConnectionFilter{Who: "nobody"}, 0},
		"an id":            {ConnectionFilter{ID: all[2].ID}, 1},
		"another id":       {ConnectionFilter{ID: 1 << 40}, 0},
	} {
		if got, total := n.list(t, ConnectionQuery{ConnectionFilter: c.filter}); len(got) != c.want || total != c.want {
			t.Errorf("%s: %d connections of %d, want %d", name, len(got), total, c.want)
		}
	}

	closing, err := n.CloseConnections(t.Context(), &ConnectionFilter{Endpoint: one.At()}, 0)
	if err != nil || closing != 3 {
		t.Fatalf("%d connections are closed, want 3 (%v)", closing, err)
	}
	testkit.WaitFor(t, "them to have ended", func() bool { _, ended := n.list(t, ConnectionQuery{Ended: true}); return ended == 3 })
	if left, _ := n.list(t, ConnectionQuery{}); len(left) != 3 || left[0].Endpoint() != two.At() {
		t.Errorf("%d are left", len(left))
	}
	ended, _ := n.list(t, ConnectionQuery{Ended: true, ConnectionFilter: ConnectionFilter{Reason: "closed_by_operator", Failures: true}})
	if len(ended) != 3 || ended[0].Reason != netio.ClosedByOperator || ended[0].Via == nil || ended[0].Endpoint() != one.At() || ended[0].Ended.IsZero() {
		t.Fatalf("ended are %+v", ended)
	}
}

// What TLS says of a client is listed, for one that is open and one that has ended; and a
// server name is what the client says, whatever that is.
func TestConnectionsSayWhoTheClientIs(t *testing.T) {
	ca := certs.NewCA("test CA")
	b := nodetest.NewBackend(t, "one")
	n := start(t, fmt.Sprintf(`
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", protocol: tls, tls: {mode: terminate, certificateRefs: [own], clientAuth: {mode: request, ca: %q}}, service: apps}
---
kind: Service
name: apps
spec: {endpoints: [{address: %q}]}
`, ca.PEM, b.At())+nodetest.Certificate("own", ca.Issue("apps.example.com")))
	id, _ := url.Parse("spiffe://prod/web")
	cert := ca.Sign(&x509.Certificate{
		URIs: []*url.URL{id}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}).TLS
	config := &tls.Config{ServerName: "apps.example.com", RootCAs: ca.Pool, Certificates: []tls.Certificate{cert}}
	c, _, err := nodetest.DialTLS(t, n.at(t, "edge"), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"spiffe://prod/web", "apps.example.com"} {
		list, _ := n.list(t, ConnectionQuery{ConnectionFilter: ConnectionFilter{Who: who}})
		if len(list) != 1 || list[0].TLS != "1.3" || list[0].Identity != id.String() || list[0].SNI != "apps.example.com" || list[0].Tags["spiffe"] != id.String() {
			t.Errorf("%s is %+v", who, list)
		}
	}
	c.Close()
	odd := "a\x1b[31m<b>\n.example.com"
	refused, err := net.Dial("tcp", n.at(t, "edge"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { refused.Close() })
	_ = tls.Client(refused, &tls.Config{ServerName: odd, InsecureSkipVerify: true}).Handshake()
	testkit.WaitFor(t, "both to have ended", func() bool { _, ended := n.list(t, ConnectionQuery{Ended: true}); return ended == 2 })
	list, _ := n.list(t, ConnectionQuery{Ended: true, ConnectionFilter: ConnectionFilter{Who: id.String()}})
	if len(list) != 1 || list[0].Tags["service"] != "web" || list[0].TLS != "1.3" {
		t.Errorf("ended is %+v", list)
	}
	if list, _ := n.list(t, ConnectionQuery{Ended: true, ConnectionFilter: ConnectionFilter{Who: odd}}); len(list) != 1 || list[0].Times.Connected != 0 {
		t.Errorf("refused is %+v", list)
	}
}

func TestConnectionsOfKafkaAreListed(t *testing.T) {
	k := startKafka(t, "", "orders")
	c := k.client(t, "spiffe://prod/shop")
	topicsSeen(t, c)
	list, _ := k.list(t, ConnectionQuery{ConnectionFilter: ConnectionFilter{Who: "kgo"}})
	if len(list) == 0 || list[0].Service != "shop" || list[0].Identity != "spiffe://prod/shop" || list[0].Endpoint() == "" || list[0].ClientID != "kgo" {
		t.Fatalf("clients are %+v", list)
	}
	if again, _ := k.list(t, ConnectionQuery{ConnectionFilter: ConnectionFilter{Endpoint: list[0].Endpoint()}}); len(again) == 0 {
		t.Errorf("none is at %s", list[0].Endpoint())
	}
	streams, _, err := k.Streams(t.Context())
	if err != nil || len(streams) == 0 || streams[0].Service != "shop" || streams[0].Listener != "kafka" || streams[0].Endpoint != list[0].Endpoint() {
		t.Errorf("streams are %+v (%v)", streams, err)
	}
}

func TestConnectionsOfHTTPAreListed(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebRoute(nodetest.Rule("/", nodetest.To("shop"))))
	c, err := net.Dial("tcp", n.at(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	list, _ := n.list(t, ConnectionQuery{})
	if len(list) != 1 || list[0].Service != "shop" || list[0].Destination != "shop" || list[0].Endpoint() != "" || list[0].In == 0 {
		t.Fatalf("clients are %+v", list)
	}
	c.Close()
	testkit.WaitFor(t, "it to have ended", func() bool {
		ended, _ := n.list(t, ConnectionQuery{Ended: true})
		return len(ended) == 1 && ended[0].Reason == netio.ClientFIN && ended[0].ID == list[0].ID
	})
}

// Failures survive any number of other ends, and of connections that a limit keeps out;
// what is remembered is bounded.
func TestEndedConnectionsAreBounded(t *testing.T) {
	e := newEnded(3)
	for i := range MaxEnded / 2 {
		e.add(i, &ConnectionInfo{ID: uint64(i), Reason: netio.ConnectRefused})
	}
	for i := range 100_000 {
		why := netio.ClientFIN
		if i%2 == 0 {
			why = netio.LimitRate
		}
		e.add(i, &ConnectionInfo{ID: uint64(i), Reason: why, SNI: fmt.Sprint(i)})
	}
	usual, failures := e.counts()
	if usual > MaxEnded || usual < MaxEnded-3*ringChunk || failures != MaxEnded/2 {
		t.Errorf("%d and %d failures are remembered, want at most %d and %d", usual, failures, MaxEnded, MaxEnded/2)
	}
	newest, n := uint64(0), 0
	e.each(func(i *ConnectionInfo) {
		if n++; i.Reason != netio.ConnectRefused {
			newest = max(newest, i.ID)
			if i.ID < uint64(100_000-MaxEnded) {
				t.Errorf("%d is still remembered", i.ID)
			}
		}
	})
	if newest != 99_999 || n != usual+failures {
		t.Errorf("%d are shown, the last of which is %d", n, newest)
	}
	for i := range 100_000 {
		e.add(i, &ConnectionInfo{Reason: netio.ClientReset})
	}
	if _, failures := e.counts(); failures > MaxEnded {
		t.Errorf("%d failures are remembered, want at most %d", failures, MaxEnded)
	}
}

func TestTheFirstAreKept(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, limit := range []int{0, 1, 2, 7, 100, 1000} {
		f := first{limit: limit}
		var want []int64
		for range 500 {
			key := int64(r.IntN(300))
			if want = append(want, key); f.wants(key) {
				f.add(key, &ConnectionInfo{})
			}
		}
		slices.SortFunc(want, func(a, b int64) int { return int(b - a) })
		f.sorted()
		got := make([]int64, 0, limit)
		for _, one := range f.list {
			got = append(got, one.key)
		}
		if !slices.Equal(got, want[:min(limit, len(want))]) {
			t.Errorf("the first %d are %v", limit, got)
		}
	}
}

// Every byte takes one way, once: of connections that come and end while the loops are
// visited again and again, and of a session that moves.
func TestStreamsLoseNoByte(t *testing.T) {
	text, _, _ := canary(t)
	servers := mysqlServers(t, 2, nil)
	n := start(t, text+mysqlListener+mysqlService("tidb", "", servers...))
	if _, _, err := n.streams.visit(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	addr := n.at(t, "edge")
	for range 500 { // so that a visit has several turns
		nodetest.Dial(t, addr)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				for range rand.N(20) {
					_, _ = io.WriteString(c, "0123456789\n")
				}
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
		}()
	}
	session := mustOpenMySQL(t, n, nil)
	var sum volume
	before := volumes{}
	look := func() {
		open, gone, err := n.streams.visit(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for w, v := range between(before, open, gone) {
			if v.in < 0 || v.out < 0 {
				t.Errorf("%d bytes in and %d out went to %s since the last visit", v.in, v.out, w.endpoint())
			}
			sum.in, sum.out = sum.in+v.in, sum.out+v.out
		}
		before = open
	}
	visits := 0
	testkit.WaitFor(t, "many connections and visits", func() bool {
		look()
		visits++
		if visits%50 == 0 {
			n.OrderMoves(&MoveOrder{SessionFilter: SessionFilter{Service: "tidb"}})
			if _, err := session.ExecContext(t.Context(), "DO 1"); err != nil {
				t.Fatal(err)
			}
		}
		return visits > 300 && n.flows.get("edge", "apps").Counts().Connections > 1000
	})
	stop()
	for range 8 {
		<-ended
	}
	if list, _ := n.list(t, ConnectionQuery{ConnectionFilter: ConnectionFilter{Service: "tidb"}}); len(list) != 1 || list[0].User != "app" {
		t.Errorf("the session is %+v", list)
	}
	testkit.WaitFor(t, "all others to have ended", func() bool { return n.Engine.Stats().Connections == 501 })
	look()
	var want volume
	for _, f := range n.Flows() {
		c := f.Counts()
		want.in, want.out = want.in+int64(c.BytesIn), want.out+int64(c.BytesOut)
	}
	if sum.in != want.in || sum.out != want.out {
		t.Errorf("the streams had %d bytes in and %d out, the connections %d and %d", sum.in, sum.out, want.in, want.out)
	}
}

// between returns the bytes that took each way between two visits.
func between(before, open, gone volumes) volumes {
	all := volumes{}
	for _, m := range []volumes{open, gone} {
		for w, v := range m {
			all.add(w, v)
		}
	}
	for w, v := range before {
		all.add(w, volume{in: -v.in, out: -v.out})
	}
	return all
}

// Connections that end bring no bytes to a visit that they had not before, whether the
// visit under way has seen them or not.
func TestStreamsOfConnectionsThatOnlyEnd(t *testing.T) {
	text, _, _ := canary(t)
	n := start(t, text)
	conns := make([]net.Conn, 1500)
	for i := range conns {
		conns[i], _ = nodetest.Dial(t, n.at(t, "edge"))
		nodetest.Echo(t, conns[i])
	}
	before, _, err := n.streams.visit(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for _, c := range slices.Backward(conns) { // as a visit goes
			c.Close()
		}
	}()
	for len(before) > 0 { // one visit follows the other, so that most ends fall into one
		open, gone, err := n.streams.visit(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for w, v := range between(before, open, gone) {
			if v.in != 0 || v.out != 0 {
				t.Fatalf("%d bytes in and %d out went to %s, where there were none", v.in, v.out, w.endpoint())
			}
		}
		before = open
	}
}

func TestStreams(t *testing.T) {
	text, one, two := canary(t)
	n := start(t, text)
	var conns []net.Conn
	for range 5 {
		c, _ := nodetest.Dial(t, n.at(t, "edge"))
		conns = append(conns, c)
	}
	type answer struct {
		streams []Stream
		at      time.Time
		err     error
	}
	answers := make(chan answer)
	for range 4 { // all wait for one
		go func() {
			s, at, err := n.Streams(t.Context())
			answers <- answer{s, at, err}
		}()
	}
	var first []Stream
	var began time.Time
	for range 4 {
		a := <-answers
		if a.err != nil || len(a.streams) != 2 {
			t.Fatalf("%d streams (%v)", len(a.streams), a.err)
		}
		if first == nil {
			first, began = a.streams, a.at
		}
		if &first[0] != &a.streams[0] {
			t.Error("it was computed twice")
		}
	}
	for place, want := range []Stream{
		{StreamKey{"edge", "MeshTCPRoute/canary", "apps", "apps", "version=v1", one.At()}, 3, 0, 0},
		{StreamKey{"edge", "MeshTCPRoute/canary", "apps", "apps", "version=v2", two.At()}, 2, 0, 0},
	} {
		if first[place] != want {
			t.Errorf("stream %d is %+v, want %+v", place, first[place], want)
		}
	}
	for range 10 {
		nodetest.Echo(t, conns[0])
	}
	conns[0].Close()
	testkit.WaitFor(t, "the end", func() bool { return n.Engine.Stats().Connections == 4 })
	var s []Stream
	var at time.Time
	var err error
	testkit.WaitFor(t, "the next answer", func() bool {
		s, at, err = n.Streams(t.Context())
		return err != nil || at.After(began)
	})
	if err != nil || len(s) != 2 || s[0].Connections != 2 || s[1].Connections != 2 {
		t.Fatalf("streams %+v (%v)", s, err)
	}
	over := at.Sub(began).Seconds()
	if got := (s[0].InRate + s[1].InRate) * over; got < 20 || got > 60 {
		t.Errorf("%v bytes came in %v s, want 50", got, over)
	}
	n.streams.forget()
	if n.streams.open != nil {
		t.Error("what nobody asks for is kept")
	}
}
