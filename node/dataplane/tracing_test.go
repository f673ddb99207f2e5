package dataplane

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio"
	"penstock/node/nodetest"
	"penstock/node/trace"
)

// collector keeps the spans that a policy exports.
type collector struct {
	mu   sync.Mutex
	list []*trace.Span
}

func (c *collector) Export(s *trace.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, s)
}

// named returns the spans with this name.
func (c *collector) named(name string) (list []*trace.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.list {
		if s.Name == name {
			list = append(list, s)
		}
	}
	return list
}

func (c *collector) all() []*trace.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// wait waits for the first n spans with this name, and returns them.
func (c *collector) wait(t *testing.T, name string, n int) []*trace.Span {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("%d spans %q", n, name), func() bool { return len(c.named(name)) >= n })
	return c.named(name)[:n]
}

// traced returns what makes a data plane export by policies, and where to.
func traced(policies ...trace.Policy) (func(*Config), *collector) {
	to := new(collector)
	tracer := new(trace.Tracer)
	var list []*trace.Policy
	for i := range policies {
		policies[i].To = to
		list = append(list, &policies[i])
	}
	tracer.Set(list)
	return func(c *Config) { c.Tracer, c.Self = tracer, "node-1" }, to
}

// value returns an attribute as text; "": there is none.
func value(s *trace.Span, key string) string {
	for _, a := range s.Attrs {
		if a.Key == key {
			switch a.ValueKind() {
			case trace.KindInt:
				return fmt.Sprint(a.Int64())
			case trace.KindFloat:
				return fmt.Sprint(a.Float64())
			case trace.KindBool:
				return fmt.Sprint(a.Boolean())
			}
			return a.Str()
		}
	}
	return ""
}

func wantValues(t *testing.T, s *trace.Span, want map[string]string) {
	t.Helper()
	for key, v := range want {
		if got := value(s, key); got != v {
			t.Errorf("span %s: %s is %q, want %q", s.Name, key, got, v)
		}
	}
}

// exchange makes a connection that goes well from its begin to its end.
func exchange(t *testing.T, n *testPlane, listener string) {
	t.Helper()
	ended := func() int {
		sum := 0
		for _, f := range n.Flows() {
			if f.Listener() == listener {
				for _, v := range f.Ended() {
					sum += int(v)
				}
			}
		}
		return sum
	}
	before := ended()
	c, _ := nodetest.Dial(t, n.at(t, listener))
	nodetest.Echo(t, c)
	c.Close()
	testkit.WaitFor(t, "the end of the connection", func() bool { return ended() > before })
}

// At 100 % each connection has a span with what happened, and one of connecting.
func TestSampledConnectionsHaveSpans(t *testing.T) {
	traces, to := traced(trace.Policy{Sample: 1, Overall: 1})
	b := nodetest.NewBackend(t, "b")
	n := start(t, oneService(b), traces)
	exchange(t, n, "front")
	s, connect := to.wait(t, "tcp front", 1)[0], to.wait(t, "connect", 1)[0]
	host, port, _ := net.SplitHostPort(n.at(t, "front"))
	wantValues(t, s, map[string]string{
		"network.transport": "tcp", "network.type": "ipv4", "server.address": host, "server.port": port, "client.address": "127.0.0.1",
		"network.peer.address": "127.0.0.1", "error.type": "", "penstock.listener": "front", "penstock.service": "apps",
		"penstock.endpoint": b.At(), "penstock.reason": "client_fin", "penstock.attempts": "1",
	})
	if s.Kind != trace.Server || s.Flags != trace.FlagSampled|trace.FlagRandom || s.ParentID != (trace.SpanID{}) || s.Error != "" {
		t.Errorf("the connection's span: %+v", s)
	}
	var events []string
	for i, e := range s.Events {
		events = append(events, e.Name)
		if e.At.Before(s.Start) || e.At.After(s.End.Add(time.Millisecond)) || i > 0 && e.At.Before(s.Events[i-1].At) && e.Name != "firstByteOut" && e.Name != "firstByteIn" {
			t.Errorf("event %s at %v, not in order or outside of %v to %v", e.Name, e.At, s.Start, s.End)
		}
	}
	if want := "accepted identified decided connecting connected firstByteIn firstByteOut closed"; strings.Join(events, " ") != want {
		t.Errorf("events %v, want %s", events, want)
	}
	if connect.ParentID != s.SpanID || connect.TraceID != s.TraceID || connect.Kind != trace.Client || connect.End.Before(connect.Start) {
		t.Errorf("the span of connecting: %+v", connect)
	}
	host, port, _ = net.SplitHostPort(b.At())
	wantValues(t, connect, map[string]string{"server.address": host, "server.port": port, "penstock.endpoint": b.At()})
	if got := to.all(); len(got) != 2 {
		t.Errorf("%d spans, want 2", len(got))
	}
	line := fmt.Sprintf("msg=\"connection closed\" .*trace=%x span=%x", s.TraceID, s.SpanID)
	testkit.WaitFor(t, "a line in the access log that names the span", func() bool { return regexp.MustCompile(line).MatchString(n.lines.String()) })
}

// A split shows where it has sent a connection.
func TestSpansNameTheRoute(t *testing.T) {
	traces, to := traced(trace.Policy{Sample: 1, Overall: 1})
	b := nodetest.NewBackend(t, "b")
	n := start(t, oneService(nodetest.NewBackend(t, "a"))+fmt.Sprintf(`---
kind: Service
name: next
spec: {endpoints: [{address: %q, tags: {version: v2}}]}
---
kind: MeshTCPRoute
name: canary
spec:
  to: [{targetRef: {kind: MeshService, name: apps}, rules: [{default: {backendRefs: [{kind: MeshServiceSubset, name: next, tags: {version: v2}}]}}]}]
`, b.At()), traces)
	exchange(t, n, "front")
	for _, s := range []*trace.Span{to.wait(t, "tcp front", 1)[0], to.wait(t, "connect", 1)[0]} {
		wantValues(t, s, map[string]string{
			"penstock.destination": "apps", "penstock.service": "next", "penstock.route": "MeshTCPRoute/canary", "penstock.subset": "version=v2",
		})
	}
}

// The span of connecting does not wait for the end of the connection.
func TestLongConnectionsShowWhenTheyConnect(t *testing.T) {
	traces, to := traced(trace.Policy{Sample: 1, Overall: 1})
	n := start(t, oneService(nodetest.NewBackend(t, "b")), traces)
	c, _ := nodetest.Dial(t, n.at(t, "front"))
	defer c.Close()
	to.wait(t, "connect", 1)
	if got := to.named("tcp front"); len(got) != 0 {
		t.Errorf("the connection is open, and its span %+v was exported", got[0])
	}
}

// At 0 % what is ordinary makes no span, and what fails does.
func TestFailuresAreKeptWithoutSampling(t *testing.T) {
	traces, to := traced(trace.Policy{Overall: 1, Errors: true, Slow: time.Hour})
	n := start(t, oneService(nodetest.NewBackend(t, "b"))+fmt.Sprintf(`---
kind: Service
name: down
spec: {endpoints: [{address: %q}], connect: {attempts: 2}}
---
kind: Listener
name: broken
spec: {address: "127.0.0.1:0", service: down}
`, testkit.FreeAddress(t)), traces)
	exchange(t, n, "front")
	n.mustApply(t, fmt.Sprintf(denyLoopback, "keep"))
	for _, l := range []string{"front", "broken"} {
		if c, err := net.Dial("tcp", n.at(t, l)); err == nil { // the reset may come before Dial returns
			_, _ = io.ReadAll(c)
			c.Close()
		}
	}
	denied, failed := to.wait(t, "tcp front", 1)[0], to.wait(t, "tcp broken", 1)[0]
	wantValues(t, denied, map[string]string{
		"error.type": "permission_denied", "penstock.permission": "no-loopback", "penstock.service": "apps", "penstock.endpoint": "",
	})
	wantValues(t, failed, map[string]string{"error.type": "connect_refused", "penstock.service": "down"})
	for _, s := range []*trace.Span{denied, failed} {
		if s.Flags&trace.FlagSampled != 0 || s.Error != value(s, "error.type") {
			t.Errorf("%s: flags %d, error %q", s.Name, s.Flags, s.Error)
		}
	}
	connect := to.wait(t, "connect", 1)[0]
	if connect.ParentID != failed.SpanID || connect.Error != "connect_refused" {
		t.Errorf("the span of connecting: %+v", connect)
	}
	if got := to.all(); len(got) != 3 {
		t.Errorf("%d spans, want 3: the ordinary connection has none", len(got))
	}
}

// A connection whose endpoint takes long to accept it is kept, once.
func TestSlowConnectsAreKept(t *testing.T) {
	const slow = 30 * time.Millisecond
	own := certs.SelfSigned("slow.example.com")
	ln := testkit.Listen(t)
	testkit.ServeOn(t, ln, func(c net.Conn) {
		since := time.Now()
		testkit.WaitFor(t, "the handshake to be slow", func() bool { return time.Since(since) > slow })
		end := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{own.TLS}})
		defer end.Close() // with a close_notify
		_, _ = io.WriteString(end, "b\n")
		_, _ = io.Copy(end, end)
	})
	traces, to := traced(trace.Policy{Overall: 1, Slow: slow})
	n := start(t, fmt.Sprintf(`---
kind: Service
name: apps
spec: {endpoints: [{address: %q}], tls: {ca: %q, serverName: slow.example.com}}
---
kind: Listener
name: front
spec: {address: "127.0.0.1:0", service: apps}
`, ln.Addr(), own.Cert), traces)
	exchange(t, n, "front")
	s := to.wait(t, "tcp front", 1)[0]
	if s.Error != "" || s.Flags&trace.FlagSampled != 0 {
		t.Errorf("error %q, flags %d", s.Error, s.Flags)
	}
	if got := to.named("connect"); len(got) != 1 || got[0].ParentID != s.SpanID || got[0].End.Sub(got[0].Start) < slow/2 {
		t.Errorf("spans of connecting: %+v", got)
	}
}

// A policy that hides clients gets no address of theirs, another one beside it does.
func TestAddressesOfClientsCanBeLeftOut(t *testing.T) {
	traces, to := traced(trace.Policy{Sample: 1, Overall: 1, HideClients: true}, trace.Policy{Sample: 1, Overall: 1})
	n := start(t, oneService(nodetest.NewBackend(t, "b")), traces)
	exchange(t, n, "front")
	hidden, open := to.wait(t, "tcp front", 2)[0], to.wait(t, "tcp front", 2)[1]
	for _, key := range []string{"client.address", "client.port", "network.peer.address", "network.peer.port"} {
		if value(hidden, key) != "" || value(open, key) == "" {
			t.Errorf("%s is %q where clients are hidden, and %q elsewhere", key, value(hidden, key), value(open, key))
		}
	}
	if hidden.SpanID != open.SpanID || value(hidden, "penstock.service") != "apps" {
		t.Errorf("%+v", hidden)
	}
}

func TestTimesToAnswer(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, c := range []struct {
		name  string
		times netio.Times
		age   time.Duration
		want  time.Duration
	}{
		{"a client that says nothing is not slow", netio.Times{}, ms(9000), 0},
		{"no endpoint takes it", netio.Times{Identified: ms(5), Decided: ms(5), Connecting: ms(6)}, ms(3005), ms(3000)},
		{"connected and silent", netio.Times{Identified: ms(900), Connecting: ms(900), Connected: ms(910)}, ms(9000), ms(10)},
		{"the endpoint speaks first", netio.Times{Identified: ms(1), Connected: ms(3), FirstOut: ms(103), FirstIn: ms(200)}, ms(900), ms(102)},
		{"the client asks late", netio.Times{Identified: ms(1), Connected: ms(3), FirstIn: ms(5000), FirstOut: ms(5007)}, ms(9000), ms(9)},
		{"a hello is passed on", netio.Times{Identified: ms(1), Connected: ms(3), FirstIn: ms(1), FirstOut: ms(8)}, ms(9000), ms(7)},
	} {
		if got := timeToAnswer(&c.times, c.age); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestHowConnectionsEndWell(t *testing.T) {
	for _, c := range []struct {
		why        netio.Reason
		owed, want bool
	}{
		{netio.ClientFIN, false, true}, {netio.UpstreamFIN, false, true}, {netio.ClientReset, false, true},
		{netio.ClientReset, true, false}, {netio.UpstreamReset, false, false}, {netio.PermissionDenied, false, false},
		{netio.ConnectTimeout, false, false}, {netio.HandshakeFailed, false, false}, {netio.Drained, false, true},
		{netio.LimitMemory, false, false}, {RateLimited, false, false},
	} {
		if got := endsWell(c.why, c.owed); got != c.want {
			t.Errorf("%s, owed %v: %v", c.why, c.owed, got)
		}
	}
}
