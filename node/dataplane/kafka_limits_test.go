package dataplane

import (
	"context"
	"encoding/binary"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"penstock/internal/testkit"
	"penstock/kafka/session"
	"penstock/routing/limit"
)

// throttled counts how often brokers told a client to keep still.
type throttled struct{ times atomic.Int32 }

func (h *throttled) OnBrokerThrottle(_ kgo.BrokerMetadata, d time.Duration, after bool) {
	if d > 0 && after {
		h.times.Add(1)
	}
}

var _ kgo.HookBrokerThrottle = (*throttled)(nil)

const someClient = "spiffe://corp.example/ns/a/web"

// counts returns the counts of the only rate limit, and the keys of its budgets.
func (k *kafkaPlane) counts() (c limit.Counts, keys []string) {
	for l := range k.RateLimits() {
		c = l.Counts()
		for b := range l.Buckets() {
			keys = append(keys, b.Key().String())
		}
	}
	slices.Sort(keys)
	return c, keys
}

// Requests over their rate are answered, with the time for which the client is to keep
// still, and are not more than the rate allows. Each principal has a budget of its own.
func TestKafkaRequestsAreThrottled(t *testing.T) {
	n := startKafkaBroker(t, rateLimit(`{to: [{virtualClusters: [shop]}], by: principal, requests: {rate: 20, burst: 5}}`),
		kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "pw"), kfake.Superuser("PLAIN", "bob", "pw"))
	hook := new(throttled)
	login := func(user string) kgo.Opt { return kgo.SASL(plain.Auth{User: user, Pass: "pw"}.AsMechanism()) }
	alice, bob := n.client(t, someClient, login("alice"), kgo.WithHooks(hook)), n.client(t, someClient, login("bob"))
	begun := time.Now()
	for range 15 {
		topicsSeen(t, alice)
	}
	if took := time.Since(begun); took < 400*time.Millisecond {
		t.Errorf("15 requests took %v, at 20 in a second and 5 at once", took)
	}
	if hook.times.Load() == 0 {
		t.Error("the client was never told to keep still")
	}
	topicsSeen(t, bob)
	c, keys := n.counts()
	if c.Paced[limit.Requests] == 0 || c.Refused[limit.Requests] != 0 || !slices.Equal(keys, []string{"shop/User:alice", "shop/User:bob"}) {
		t.Errorf("%+v, %v", c, keys)
	}
}

// Bytes of a topic are charged to that topic, whether requests have its name or its id.
func TestKafkaTopicsHaveBudgets(t *testing.T) {
	for name, newest := range map[string]*kversion.Versions{"ids": kversion.V4_0_0(), "names": kversion.V2_8_0()} {
		t.Run(name, func(t *testing.T) { testTopicBudgets(t, kgo.MaxVersions(newest)) })
	}
}

func testTopicBudgets(t *testing.T, versions kgo.Opt) {
	n := startKafka(t, rateLimit(`{by: topic, produce: {rate: 1MiB, burst: 64KiB}, fetch: {rate: 1MiB, burst: 64KiB}}`), "a", "b")
	hook := new(throttled)
	c := n.client(t, someClient, versions, kgo.WithHooks(hook), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ConsumeTopics("a"), kgo.FetchMaxWait(100*time.Millisecond))
	begun := time.Now()
	for range 3 {
		if err := produceTo(t, c, "a", 128<<10); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < 180*time.Millisecond {
		t.Errorf("384 KiB took %v, at 1 MiB in a second and 64 KiB at once; the last 128 KiB need not wait", took)
	}
	if err := produceTo(t, c, "b", 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for got := 0; got < 3; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		got += f.NumRecords()
	}
	counts, keys := n.counts()
	if counts.Paced[limit.Produce] == 0 || counts.Paced[limit.Fetch] == 0 || !slices.Equal(keys, []string{"shop/a", "shop/b"}) {
		t.Errorf("%+v, %v", counts, keys)
	}
	if hook.times.Load() == 0 {
		t.Error("the client was never told to keep still")
	}
}

// A client id has a budget of its own, and others are not limited by it.
func TestKafkaClientIDsHaveBudgets(t *testing.T) {
	n := startKafka(t, rateLimit(`{by: clientID, from: [{clientIDs: ["w*"]}], produce: {rate: 1KiB, per: 1h}}`), "a")
	for _, id := range []string{"web", "other"} {
		if err := produceTo(t, n.client(t, someClient, kgo.ClientID(id)), "a", 64<<10); err != nil {
			t.Fatal(err)
		}
	}
	if c, keys := n.counts(); c.Paced[limit.Produce] != 1 || !slices.Equal(keys, []string{"shop/web"}) {
		t.Errorf("%+v, %v", c, keys)
	}
}

// A client that is held back goes on when the limit is gone.
func TestKafkaClientsGoOnWithoutALimit(t *testing.T) {
	n := startKafka(t, rateLimit(`{requests: {rate: 1, per: 1h}}`), "a")
	c, err := n.dial(t, someClient)(t.Context(), "tcp", "bootstrap.shop.test:9092")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := kmsg.NewPtrMetadataRequest()
	request.Version = 3
	send := func(id int32) {
		if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, request, id)); err != nil {
			t.Fatal(err)
		}
	}
	answer := func() (id uint32, throttle time.Duration) {
		head := make([]byte, 12) // size, correlation id, throttle time
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head))-8); err != nil {
			t.Fatal(err)
		}
		return binary.BigEndian.Uint32(head[4:]), time.Duration(binary.BigEndian.Uint32(head[8:])) * time.Millisecond
	}
	send(1)
	if id, d := answer(); id != 1 || d != 0 {
		t.Errorf("answer %d with %v", id, d)
	}
	send(2)
	if id, d := answer(); id != 2 || d != session.MaxThrottle {
		t.Errorf("answer %d with %v", id, d)
	}
	send(3)
	n.mustDelete(t, "RateLimit", "l")
	if id, d := answer(); id != 3 || d != 0 {
		t.Errorf("answer %d with %v", id, d)
	}
}

// A connection that ends gives back its place among those at once.
func TestKafkaConnectionsLeaveTheirLimits(t *testing.T) {
	n := startKafka(t, rateLimit(`{to: [{virtualClusters: [shop]}], concurrent: 2}`), "a")
	c := n.client(t, someClient)
	topicsSeen(t, c)
	concurrent := func() (n2 int64) {
		for l := range n.RateLimits() {
			for b := range l.Buckets() {
				n2 += b.Concurrent()
			}
		}
		return n2
	}
	if got := concurrent(); got == 0 || got > 2 {
		t.Errorf("%d connections at once", got)
	}
	c.Close()
	testkit.WaitFor(t, "the connections to end", func() bool { return concurrent() == 0 })
	topicsSeen(t, n.client(t, someClient))
}
