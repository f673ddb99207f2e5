package dataplane

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
	"penstock/routing"
)

// breakingService is a service with a circuit breaker and one endpoint.
func breakingService(breaker, endpoint string) string {
	return fmt.Sprintf(`
kind: Service
name: apps
spec: {circuitBreaker: {%s}, endpoints: [{address: "%s"}]}
---
kind: Listener
name: front
spec: {address: "127.0.0.1:0", service: apps}
`, breaker, endpoint)
}

func (p *testPlane) queue(t *testing.T) routing.QueueStats {
	t.Helper()
	s, ok := p.Router.Table().Service("apps")
	if !ok {
		t.Fatal("no service")
	}
	return s.Queue()
}

func (p *testPlane) waitQueue(t *testing.T, n int) {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("%d in the queue", n), func() bool { return p.queue(t).Waiting == n })
}

func (p *testPlane) endedAtFront(t *testing.T, why string) string {
	t.Helper()
	return p.metric(t, `penstock_connections_total{listener="front",result="`+why+`",service="apps"}`)
}

func TestAConnectionWaitsForASlotAndGetsIt(t *testing.T) {
	n := start(t, breakingService("endpoint: {connections: 1}, queue: 1, queueTimeout: 10m", nodetest.NewBackend(t, "b").At()))
	at := n.at(t, "front")
	first, _ := nodetest.Dial(t, at)
	waiting, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	n.waitQueue(t, 1)
	testkit.WaitFor(t, "one too many to be refused", func() bool {
		nodetest.Attempt(at)
		return n.endedAtFront(t, "upstream_overflow") != ""
	})
	_ = first.Close()
	if got := nodetest.ReadLine(t, waiting); got != "b" {
		t.Errorf("got %q", got)
	}
	nodetest.Echo(t, waiting)
	n.waitQueue(t, 0)
}

func TestAWaitEndsWithItsTimeTheClientOrTheNode(t *testing.T) {
	backend := nodetest.NewBackend(t, "b").At()
	n := start(t, breakingService("service: {connections: 1}, queue: 10, queueTimeout: 1ms", backend))
	at := n.at(t, "front")
	nodetest.Dial(t, at)
	nodetest.Attempt(at)
	testkit.WaitFor(t, "the end of its wait", func() bool { return n.endedAtFront(t, "queue_timeout") == "1" })

	n.mustApply(t, breakingService("service: {connections: 1}, queue: 10, queueTimeout: 10m", backend))
	leaves, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	n.waitQueue(t, 1)
	_ = leaves.(*net.TCPConn).SetLinger(0)
	_ = leaves.Close() // a reset
	n.waitQueue(t, 0)

	stays, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Close()
	n.waitQueue(t, 1)
	s, _ := n.Router.Table().Service("apps")
	n.halt()
	if q, u := s.Queue(), s.Group().Usage(); q.Waiting != 0 || u.Connections != 0 || u.Pending != 0 {
		t.Errorf("after the end: %+v, %+v", q, u)
	}
}

func TestRequestsWaitForASlotAndAreAnswered503WithoutOne(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	backend := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
		w.WriteHeader(http.StatusNoContent)
	})
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "")+
		nodetest.WebService("apps", ", circuitBreaker: {endpoint: {requests: 1}, queue: 1, queueTimeout: 10m}", backend)+
		nodetest.WebRoute(nodetest.Rule("/", "backendRefs: [{kind: MeshService, name: apps}]")))
	addr := n.at(t, "web")
	get := func(answers chan<- int) {
		answers <- nodetest.NewWebClient(t, addr, false).Do("GET", "/", "").StatusCode
	}
	answers := make(chan int, 2)
	go get(answers)
	testkit.Receive(t, "the first request", arrived)
	go get(answers)
	n.waitQueue(t, 1)
	if got := nodetest.NewWebClient(t, addr, false).Do("GET", "/", ""); got.StatusCode != http.StatusServiceUnavailable || got.Text != "penstock: upstream_overflow\n" {
		t.Errorf("one too many: %d %s", got.StatusCode, got.Text)
	}
	testkit.WaitFor(t, "it to be counted", func() bool {
		return n.metric(t, `penstock_http_refused_total{reason="upstream_overflow"}`) == "1"
	})
	close(release)
	for range 2 {
		if got := testkit.Receive(t, "an answer", answers); got != http.StatusNoContent {
			t.Errorf("answered %d", got)
		}
	}
	s, _ := n.Router.Table().Service("apps")
	testkit.WaitFor(t, "no request to be under way", func() bool { return s.Group().Usage().Requests == 0 })
}

func TestARequestThatIsGivenUpLeavesTheQueue(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	backend := testkit.ServeHTTP(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "")+
		nodetest.WebService("apps", ", http: {timeout: 1h}, circuitBreaker: {service: {requests: 1}, queue: 1, queueTimeout: 10m}", backend)+
		nodetest.WebRoute(nodetest.Rule("/", "backendRefs: [{kind: MeshService, name: apps}]")))
	done := make(chan struct{})
	go func() {
		defer close(done)
		nodetest.NewWebClient(t, n.at(t, "web"), false).Do("GET", "/", "")
	}()
	testkit.Receive(t, "the first request", arrived)
	conn, err := net.Dial("tcp", n.at(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	n.waitQueue(t, 1)
	_ = conn.Close()
	n.waitQueue(t, 0)
	close(release)
	testkit.Receive(t, "the answer", done)
	if q := n.queue(t); q.Timeouts+q.Overflows != 0 {
		t.Errorf("%+v", q)
	}
}

// A wait that only time ends is served by the node's periodic work.
func TestSweepServesTheQueue(t *testing.T) {
	n := start(t, breakingService("endpoint: {connections: 1}, queue: 1, queueTimeout: 10m", nodetest.NewBackend(t, "b").At()))
	n.Sweep(time.Now())
	if len(n.reconciler.breaking) != 1 {
		t.Error("the service is not swept")
	}
	n.mustDelete(t, "Listener", "front")
	n.mustDelete(t, "Service", "apps")
	if len(n.reconciler.breaking) != 0 {
		t.Error("a deleted service is swept")
	}
}
