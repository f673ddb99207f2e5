package session

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/kafka/filter"
	"penstock/kafka/filter/multitenant"
)

// TestProduceWaitsUntilTheTopicIsKnown: a client has learned of a topic
// elsewhere, and produces to it by its id through a filter that has not seen
// it. The request is held until the broker was asked: without answers it would
// be lost, and with them the client would be sent to look again.
func TestProduceWaitsUntilTheTopicIsKnown(t *testing.T) {
	for name, acks := range map[string]kgo.Acks{"without answers": kgo.NoAck(), "with answers": kgo.LeaderAck()} {
		t.Run(name, func(t *testing.T) {
			f, err := (&multitenant.Config{TenantKey: "z4de"}).Provision(filter.Env{})
			if err != nil {
				t.Fatal(err)
			}
			c := newCluster(t, Limits{}, []filter.Filter{f}, kfake.NumBrokers(1), kfake.SeedTopics(1, "z4de-t"))
			// What it asks first is where its topic is.
			var dialed atomic.Int32
			elsewhere := func(ctx context.Context, network, host string) (net.Conn, error) {
				if dialed.Add(1) > 1 {
					host = c.front[host]
				}
				return (&net.Dialer{}).DialContext(ctx, network, host)
			}
			cl := c.client(t, kgo.Dialer(elsewhere), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite(), kgo.DefaultProduceTopic("z4de-t"),
				kgo.RecordRetries(0), kgo.ManualFlushing(), kgo.MetadataMinAge(time.Minute), kgo.MetadataMaxAge(time.Hour))
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
			defer cancel()
			cl.Produce(ctx, kgo.StringRecord("x"), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			direct, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics("z4de-t"))
			if err != nil {
				t.Fatal(err)
			}
			defer direct.Close()
			if got := direct.PollRecords(ctx, 1).Records(); len(got) != 1 || string(got[0].Value) != "x" {
				t.Errorf("the broker has %v", got)
			}
			testkit.WaitFor(t, "the exchange", func() bool { return len(c.room.produced()) > 0 })
			for _, e := range c.room.produced() {
				if e.Error != 0 || e.Version < 13 {
					t.Errorf("Produce v%d was answered by error %d", e.Version, e.Error)
				}
			}
		})
	}
}

// produced are the exchanges of Produce.
func (r *room) produced() (list []Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.exchanges {
		if e.Key == int16(kmsg.Produce) {
			list = append(list, e)
		}
	}
	return list
}
