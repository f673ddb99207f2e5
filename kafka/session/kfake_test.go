package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/kafka/filter"
)

// eager is a filter that wants all it can get, and changes nothing.
type eager struct{ want filter.Interest }

func (e eager) Versions(_ int16, have filter.Range) filter.Range     { return have }
func (e eager) Wants(filter.Direction, int16, int16) filter.Interest { return e.want }
func (e eager) Open(filter.Info) filter.Conn                         { return e }
func (e eager) Close()                                               {}
func (e eager) Request(*filter.Exchange, *filter.Message) error      { return nil }
func (e eager) Response(*filter.Exchange, *filter.Message) error     { return nil }
func (e eager) Edits(filter.Direction, *filter.Exchange) *filter.Edits {
	return &filter.Edits{
		Topic: func(dst, name []byte) ([]byte, error) { return append(dst, name...), nil },
		Node:  func(_ int32, host string, port int32) (string, int32, bool, error) { return host, port, true, nil },
	}
}

// TestClientsDoNotNoticeASession produces and consumes small and large records,
// whatever filters want to see.
func TestClientsDoNotNoticeASession(t *testing.T) {
	for name, filters := range map[string][]filter.Filter{
		"unseen": nil, "walked": {eager{filter.Walk}}, "whole": {eager{filter.Whole}},
		"tls, unseen": nil, "tls, walked": {eager{filter.Walk}},
		"mixed": {eager{filter.Walk}, eager{filter.Nothing}, eager{filter.Whole}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := []kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(6, "t")}
			var config *tls.Config
			if strings.HasPrefix(name, "tls") {
				config = tlsConfig()
				opts = append(opts, kfake.TLS(config))
			}
			c := newClusterTLS(t, config, Limits{}, filters, opts...)
			ctx, cancel := context.WithTimeout(context.Background(), 3*testkit.Patience)
			defer cancel()
			producer := c.client(t, kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(20000))
			want := map[string]int{}
			const records = 200
			for i := range records {
				size := 100
				if i%20 == 0 {
					size = 700 << 10
				}
				value := bytes.Repeat([]byte{byte(i)}, size)
				key := fmt.Sprint(i)
				want[key] = size
				producer.Produce(ctx, &kgo.Record{Key: []byte(key), Value: value}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			if err := producer.Flush(ctx); err != nil || t.Failed() {
				t.Fatal(err)
			}
			consumer := c.client(t, kgo.ConsumeTopics("t"), kgo.ConsumerGroup("g"), kgo.FetchMaxWait(100*time.Millisecond))
			for len(want) > 0 {
				fetches := consumer.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					t.Fatalf("%v, %d records to come", err, len(want))
				}
				fetches.EachRecord(func(r *kgo.Record) {
					if want[string(r.Key)] != len(r.Value) || r.Value[0] != r.Value[len(r.Value)-1] {
						t.Errorf("record %s of %d bytes", r.Key, len(r.Value))
					}
					delete(want, string(r.Key))
				})
			}
			if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
				t.Error(err)
			}
			for _, e := range c.room.endings(t, 0) {
				t.Errorf("a connection ended: %s, %v", e.why, e.err)
			}
			c.room.checkExchanges(t)
		})
	}
}

// checkExchanges looks at what was told of them.
func (r *room) checkExchanges(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[int16]int{}
	for _, e := range r.exchanges {
		seen[e.Key]++
		if e.Total < e.Broker || e.Broker < 0 || e.Request < 8 || e.Response < 4 || e.Total > time.Minute {
			t.Errorf("%+v", e)
		}
	}
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.Metadata, kmsg.ApiVersions, kmsg.JoinGroup} {
		if seen[int16(key)] == 0 {
			t.Errorf("no %s was reported", key.Name())
		}
	}
}

func TestTransactionsAndGroups(t *testing.T) {
	c := newCluster(t, Limits{}, nil, kfake.NumBrokers(2), kfake.SeedTopics(2, "t"))
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	p := c.client(t, kgo.DefaultProduceTopic("t"), kgo.TransactionalID("x"))
	for i := range 4 {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := p.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	consumer := c.client(t, kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	got := map[string]bool{}
	for len(got) < 2 {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got[string(r.Value)] = true })
	}
	if !got["0"] || !got["2"] {
		t.Errorf("read %v", got)
	}
}
