package dataplane

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
	"penstock/routing/limit"
)

// total returns what all limits count.
func (n *testPlane) total(of func(*limit.Counts) uint64) (sum uint64) {
	for l := range n.RateLimits() {
		c := l.Counts()
		sum += of(&c)
	}
	return sum
}

// A client that is held goes on when its rate rises: it does not sit out what it would have
// waited at the old one. So does a share of the cluster's budget that comes.
func TestHeldBytesGoOnWhenTheRateRises(t *testing.T) {
	const size = 1 << 20
	addr := testkit.Serve(t, func(c *net.TCPConn) { _, _ = c.Write(make([]byte, size)) })
	n := start(t, tcpListener+nodetest.PlainService("db", addr)+rateLimit(`{bytesOut: {rate: 1KiB, per: 1h, burst: 1KiB}}`))
	conn, err := net.Dial("tcp", n.at(t, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testkit.WaitFor(t, "the connection to be held", func() bool {
		return n.total(func(c *limit.Counts) uint64 { return c.Paced[limit.BytesOut] }) > 0
	})
	n.mustApply(t, rateLimit(`{bytesOut: {rate: 1GiB, burst: 1GiB}}`))
	if err := conn.SetReadDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.Copy(io.Discard, conn); err != nil || got != size {
		t.Errorf("%d of %d bytes: %v", got, size, err)
	}
}

func TestWaitingConnectionsGoOnWhenTheRateRises(t *testing.T) {
	n := start(t, tcpListener+nodetest.PlainService("db", greeter(t))+
		rateLimit(`{connections: {rate: 1, per: 9m, burst: 1}, over: slow, queue: {timeout: 10m}}`))
	if _, ok := limited(t, n.at(t, "in")); !ok {
		t.Fatal("refused within the burst")
	}
	admitted := make(chan bool)
	go func() {
		_, ok := limited(t, n.at(t, "in"))
		admitted <- ok
	}()
	testkit.WaitFor(t, "the connection to wait", func() bool {
		return n.total(func(c *limit.Counts) uint64 { return c.Queued[limit.Connections] }) > 0
	})
	n.mustApply(t, rateLimit(`{connections: {rate: 1000}, over: slow, queue: {timeout: 10m}}`))
	if !testkit.Receive(t, "the connection that waited", admitted) {
		t.Error("it was refused")
	}
}

func TestWaitingRequestsGoOnWhenTheRateRises(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		rateLimit(`{requests: {rate: 1, per: 9m, burst: 1}, over: slow, queue: {timeout: 10m}}`))
	c := nodetest.NewWebClient(t, n.at(t, "web"), true)
	c.Do("GET", "/", "")
	answered := make(chan int)
	go func() { answered <- c.Do("GET", "/", "").StatusCode }()
	testkit.WaitFor(t, "the request to wait", func() bool {
		return n.total(func(c *limit.Counts) uint64 { return c.Queued[limit.Requests] }) > 0
	})
	n.mustApply(t, rateLimit(`{requests: {rate: 1000}, over: slow, queue: {timeout: 10m}}`))
	if code := testkit.Receive(t, "the request that waited", answered); code != 200 {
		t.Errorf("answered with %d", code)
	}
}

// A client of Kafka that has exceeded its quota gains nothing by connecting anew: its next
// connection is held as soon as the broker has confirmed who it is, before its first
// request. Others are not.
func TestKafkaClientsThatConnectAgainStayHeld(t *testing.T) {
	n := startKafkaBroker(t, rateLimit(`{by: principal, from: [{principals: ["User:alice"]}], requests: {rate: 1, per: 1h, burst: 4}}`),
		kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "pw"), kfake.Superuser("PLAIN", "bob", "pw"))
	login := func(user string) kgo.Opt { return kgo.SASL(plain.Auth{User: user, Pass: "pw"}.AsMechanism()) }
	allowed := func() uint64 {
		return n.total(func(c *limit.Counts) uint64 { return c.Allowed[limit.Requests] })
	}
	first := n.client(t, someClient, login("alice"))
	go func() {
		for allowed() < 5 && first.Ping(t.Context()) == nil {
		}
	}()
	testkit.WaitFor(t, "the client to exceed its quota", func() bool { return allowed() >= 5 })
	first.Close()
	before := allowed()
	again := n.client(t, someClient, login("alice"))
	done := make(chan error, 1)
	go func() { done <- again.Ping(t.Context()) }()
	for range 5 {
		bob := n.client(t, someClient, login("bob"))
		topicsSeen(t, bob)
		bob.Close()
	}
	select {
	case <-done:
		t.Error("a new connection of the client was served")
	default:
	}
	if got := allowed(); got != before {
		t.Errorf("%d requests passed on it", got-before)
	}
	n.mustDelete(t, "RateLimit", "l")
	if err := testkit.Receive(t, "the answer without the limit", done); err != nil {
		t.Error(err)
	}
}
