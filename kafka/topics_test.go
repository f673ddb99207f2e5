package kafka

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/internal/testkit"
	"penstock/kafka/filter/topicmetrics"
)

// A tenant's topics are counted by the names that it knows, with the newest
// versions of a real client, up to the bound.
func TestTopicsAreCountedByTheirNames(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "red-orders", "red-bills", "blue-orders"))
	at := k.ListenAddrs()[0]
	s := newStage(t, Config{})
	const filters = "  filters: [{type: TopicMetrics, config: {topics: 1}}, {type: MultiTenant, config: {tenantKey: red}}]\n"
	s.apply(oneBroker(at, filters))
	front := s.listen(nil, "one")["one"]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(front), kgo.DisableClientMetrics(), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().AtStart()}}),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, front)
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	const size = 10_000
	for range 3 {
		for _, topic := range []string{"orders", "bills"} {
			if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, size)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := 0; n < 3; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		n += fetches.NumRecords()
	}
	count := func(topic, api string) (c topicmetrics.Count) {
		list := s.proxy.Counts()[0].Topics
		if i := slices.IndexFunc(list, func(c topicmetrics.Count) bool { return c.Topic == topic && c.API == api }); i >= 0 {
			c = list[i]
		}
		return c
	}
	for _, topic := range []string{"orders", topicmetrics.Other} {
		if c := count(topic, "Produce"); c.Messages != 3 || c.Bytes < 3*size || c.Bytes > 3*size+1000 {
			t.Errorf("produced to %s: %+v", topic, c)
		}
	}
	if c := count("orders", "Fetch"); c.Messages == 0 || c.Bytes < 3*size {
		t.Errorf("fetched: %+v", c)
	}
	if c := count("bills", "Produce"); c.Messages > 0 {
		t.Errorf("bills are counted separately, above the limit: %+v", c)
	}
	// Other settings do not begin anew.
	s.apply(oneBroker(at, filters+"  maxInFlight: 9\n"))
	if err := dial(t, front).versions(); err != nil {
		t.Fatal(err)
	}
	if c := count("orders", "Produce"); c.Messages != 3 {
		t.Errorf("after a change of settings: %+v", c)
	}
}
