package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"penstock/internal/testkit"
	"penstock/kafka/filter/authorize"
	"penstock/routing/resource"
)

// permit puts a permission in force.
func (s *stage) permit(name string, p resource.TrafficPermission) {
	s.t.Helper()
	change := resource.Change{Object: resource.Object{Key: resource.Key{Kind: resource.KindPermission, Name: name}, Spec: &p}}
	if _, err := s.proxy.Apply([]resource.Change{change}); err != nil {
		s.t.Fatal(err)
	}
}

// kafkaRule is a permission with one entry for the virtual cluster t1.
func kafkaRule(action string, from resource.TrafficSource, requests ...resource.KafkaRequests) resource.TrafficPermission {
	return resource.TrafficPermission{Action: action, From: []resource.TrafficSource{from},
		To: []resource.PermissionDestination{{VirtualClusters: []string{"t1"}, Kafka: requests}}}
}

// franz returns a franz-go client of the virtual broker at an address. dials counts its
// connections.
func franz(t *testing.T, at string, dials *atomic.Int32, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(at), kgo.MetadataMinAge(10 * time.Millisecond), kgo.RetryTimeout(testkit.Patience),
		kgo.ConnIdleTimeout(testkit.Patience),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			dials.Add(1)
			var d net.Dialer
			return d.DialContext(ctx, network, at)
		}),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// listed returns the topics that a client sees.
func listed(t *testing.T, c *kgo.Client) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, topic := range resp.Topics {
		names = append(names, *topic.Topic)
	}
	slices.Sort(names)
	return names
}

func produce(t *testing.T, c *kgo.Client, topic string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr()
}

// Clients work with what permissions allow, are told of the rest by Kafka's errors, and see
// no topic that they may not describe. A change applies to the next request of an
// established connection.
func TestPermissionsApplyToRequests(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1), kfake.AllowAutoTopicCreation(), kfake.SeedTopics(1, "orders", "bills", "secret"))
	var told atomic.Int64
	s := newStage(t, Config{Denied: func(cluster string, d *authorize.Denial) {
		if cluster == "t1" && d.Name == "secret" && !d.Shadow {
			told.Add(1)
		}
	}})
	s.apply(oneBroker(k.ListenAddrs()[0], ""))
	at := s.listen(nil, "one")["one"]
	var dials atomic.Int32
	c := franz(t, at, &dials, kgo.ClientID("shop"), kgo.AllowAutoTopicCreation(), kgo.DisableIdempotentWrite())
	if got := listed(t, c); !slices.Equal(got, []string{"bills", "orders", "secret"}) {
		t.Fatalf("without permissions: %v", got)
	}
	s.permit("shop", kafkaRule("allow", resource.TrafficSource{ClientIDs: []string{"sh*"}},
		resource.KafkaRequests{Operations: []string{"produce", "consume"}, Topics: []string{"orders", "bills"}}))
	if got := listed(t, c); !slices.Equal(got, []string{"bills", "orders"}) {
		t.Errorf("with a permission: %v", got)
	}
	if err := produce(t, c, "orders"); err != nil {
		t.Error(err)
	}
	for _, denied := range []string{"secret", "new"} {
		if err := produce(t, c, denied); !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("producing to %s: %v", denied, err)
		}
	}
	before := dials.Load()
	s.permit("no-bills", kafkaRule("deny", resource.TrafficSource{}, resource.KafkaRequests{Topics: []string{"b*"}}))
	if got := listed(t, c); !slices.Equal(got, []string{"orders"}) {
		t.Errorf("with a deny: %v", got)
	}
	other := franz(t, at, new(atomic.Int32), kgo.ClientID("other"), kgo.DisableIdempotentWrite())
	if got := listed(t, other); len(got) > 0 {
		t.Errorf("another client sees %v", got)
	}
	direct := franz(t, k.ListenAddrs()[0], new(atomic.Int32))
	if got := listed(t, direct); !slices.Equal(got, []string{"bills", "orders", "secret"}) {
		t.Errorf("the broker has %v", got)
	}
	// The client goes on asking for a topic that it was refused, so the broker may create
	// it from here on.
	s.remove(resource.KindPermission, "shop")
	s.remove(resource.KindPermission, "no-bills")
	got := slices.DeleteFunc(listed(t, c), func(topic string) bool { return topic == "new" })
	if !slices.Equal(got, []string{"bills", "orders", "secret"}) {
		t.Errorf("without permissions again: %v", got)
	}
	if now := dials.Load(); now != before {
		t.Errorf("%d connections were made for changes of permissions", now-before)
	}
	var denials uint64
	for _, d := range s.proxy.Counts()[0].Denials {
		if d.API == "Metadata" && d.Permission == "" && !d.Shadow {
			denials += d.Count
		}
	}
	if told.Load() == 0 {
		t.Error("Config.Denied was not told of a denial")
	}
	if denials == 0 {
		t.Errorf("no denial was counted: %+v", s.proxy.Counts()[0].Denials)
	}
}

// A principal is who the broker has confirmed, by any mechanism that shows it.
func TestPrincipalsAreWhoTheBrokerConfirms(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "alices", "bobs"), kfake.EnableSASL(),
		kfake.User("PLAIN", "alice", "a"), kfake.User("SCRAM-SHA-256", "bob", "b"))
	s := newStage(t, Config{})
	s.apply(oneBroker(k.ListenAddrs()[0], ""))
	at := s.listen(nil, "one")["one"]
	for _, who := range []string{"alice", "bob"} {
		s.permit(who, kafkaRule("allow", resource.TrafficSource{Principals: []string{"User:" + who}},
			resource.KafkaRequests{Topics: []string{who + "s"}}))
	}
	var dials atomic.Int32
	alice := franz(t, at, &dials, kgo.SASL(plain.Auth{User: "alice", Pass: "a"}.AsMechanism()))
	bob := franz(t, at, &dials, kgo.SASL(scram.Auth{User: "bob", Pass: "b"}.AsSha256Mechanism()))
	if got := fmt.Sprint(listed(t, alice), listed(t, bob)); got != "[alices] [bobs]" {
		t.Errorf("they see %s", got)
	}
}

// fetched counts the answers to fetches.
type fetched struct{ answers atomic.Int32 }

func (f *fetched) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == int16(kmsg.Fetch) && err == nil {
		f.answers.Add(1)
	}
}

// An incremental fetch under other rules than its session began with is not answered from
// the session.
func TestFetchSessionsEndWithTheirRules(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	s := newStage(t, Config{})
	s.apply(oneBroker(k.ListenAddrs()[0], ""))
	at := s.listen(nil, "one")["one"]
	orders := resource.KafkaRequests{Topics: []string{"orders"}}
	s.permit("all", kafkaRule("allow", resource.TrafficSource{}, orders, resource.KafkaRequests{Groups: []string{"*"}}))
	var dials atomic.Int32
	hook := new(fetched)
	c := franz(t, at, &dials, kgo.WithHooks(hook), kgo.ConsumeTopics("orders"), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.DisableIdempotentWrite(), kgo.KeepRetryableFetchErrors())
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := produce(t, c, "orders"); err != nil {
		t.Fatal(err)
	}
	for got := 0; got == 0; {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		got = fetches.NumRecords()
	}
	// Until fetches name no topic, because nothing has changed.
	before := hook.answers.Load()
	testkit.WaitFor(t, "some fetches without records", func() bool { return hook.answers.Load() > before+2 })
	orders.Operations = []string{"consume"}
	s.permit("none", kafkaRule("deny", resource.TrafficSource{}, orders))
	told := func() {
		t.Helper()
		for {
			fetches := c.PollFetches(ctx)
			if n := fetches.NumRecords(); n > 0 {
				t.Fatalf("%d records after the permission ended", n)
			}
			if errors.Is(fetches.Err(), kerr.TopicAuthorizationFailed) {
				return
			}
			if ctx.Err() != nil {
				t.Fatal("the consumer was not told")
			}
		}
	}
	told() // by now the fetch is over that the broker was holding, which could bring what comes next
	if err := produce(t, c, "orders"); err != nil {
		t.Fatal(err)
	}
	told()
}

// What filters count is counted as well while permissions stand before them.
func TestFiltersCountBehindPermissions(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	s := newStage(t, Config{})
	s.apply(oneBroker(k.ListenAddrs()[0], "  filters: [{type: TopicMetrics}]\n"))
	s.permit("all", kafkaRule("allow", resource.TrafficSource{}, resource.KafkaRequests{}))
	at := s.listen(nil, "one")["one"]
	if err := produce(t, franz(t, at, new(atomic.Int32)), "orders"); err != nil {
		t.Fatal(err)
	}
	if topics := s.proxy.Counts()[0].Topics; len(topics) == 0 {
		t.Error("no topic was counted")
	}
}
