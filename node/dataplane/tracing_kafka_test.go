package dataplane

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/kafka/session"
	"penstock/node/trace"
)

// Each Produce and Fetch that is sampled has a span, with a link to its connection.
func TestKafkaRequestsHaveSpans(t *testing.T) {
	change, to := traced(trace.Policy{Sample: 1, Overall: 1})
	n := startKafkaWith(t, "", change, kfake.SeedTopics(1, "orders"))
	c := n.client(t, "spiffe://corp.example/web", kgo.ClientID("till"), kgo.ConsumeTopics("orders"))
	if err := produceTo(t, c, "orders", 100); err != nil {
		t.Fatal(err)
	}
	if f := c.PollFetches(t.Context()); f.NumRecords() != 1 {
		t.Fatalf("%d records, %v", f.NumRecords(), f.Err())
	}
	produce, fetch := to.wait(t, "produce shop", 1)[0], to.wait(t, "fetch shop", 1)[0]
	c.Close()
	connection := func(id trace.SpanID) (of *trace.Span) {
		testkit.WaitFor(t, "the span of the connection that the request links to", func() bool {
			for _, s := range to.named("tcp kafka") {
				if s.SpanID == id {
					of = s
				}
			}
			return of != nil
		})
		return of
	}
	for s, kind := range map[*trace.Span]string{produce: "send", fetch: "receive"} {
		wantValues(t, s, map[string]string{
			"messaging.system": "kafka", "messaging.operation.type": kind, "messaging.client.id": "till", "penstock.service": "shop",
			"penstock.listener": "kafka", "error.type": "", "client.address": "127.0.0.1",
		})
		of := connection(s.Links[0].SpanID)
		if of.TraceID == s.TraceID || value(of, "penstock.connection.id") != value(s, "penstock.connection.id") {
			t.Errorf("%s links to %+v", s.Name, of)
		}
		if len(s.Events) != 2 || s.Events[0].At.Before(s.Start) || s.Events[1].At.After(s.End) {
			t.Errorf("%s from %v to %v: events %+v", s.Name, s.Start, s.End, s.Events)
		}
	}
	if to.wait(t, "connect", 1)[0].TraceID == produce.TraceID {
		t.Error("a request is in the trace of its connection")
	}
}

// Errors in answers are kept without sampling; what went well is not.
func TestKafkaErrorsAreKept(t *testing.T) {
	change, to := traced(trace.Policy{Overall: 1, Errors: true})
	n := startKafkaWith(t, "", change, kfake.SeedTopics(1, "orders"))
	c := n.client(t, "spiffe://corp.example/web", kgo.DisableIdempotentWrite(), kgo.ProducerBatchMaxBytes(1<<20))
	if err := produceTo(t, c, "orders", 100); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = 1, 1000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = "none", [16]byte{1}
	partition := kmsg.NewProduceRequestTopicPartition()
	topic.Partitions = append(topic.Partitions, partition)
	req.Topics = append(req.Topics, topic)
	if _, err := c.Broker(0).Request(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	s := to.wait(t, "produce shop", 1)[0]
	if s.Error == "" || s.Error != value(s, "error.type") || s.Flags&trace.FlagSampled != 0 {
		t.Errorf("error %q, attribute %q, flags %d", s.Error, value(s, "error.type"), s.Flags)
	}
	if all := to.named("produce shop"); len(all) != 1 {
		t.Errorf("%d spans, want that of the failure alone", len(all))
	}
}

// The time that a client lets a broker wait for records does not make a Fetch slow.
func TestTimeOfExchanges(t *testing.T) {
	x := session.Exchange{Key: int16(kmsg.Fetch), Total: 5 * time.Second, Broker: 4900 * time.Millisecond}
	if got := timeOfExchange(&x); got != 100*time.Millisecond {
		t.Errorf("a Fetch took %v", got)
	}
	x.Key = int16(kmsg.Produce)
	if got := timeOfExchange(&x); got != 5*time.Second {
		t.Errorf("a Produce took %v", got)
	}
	if kafkaError(3) != "UNKNOWN_TOPIC_OR_PARTITION" || kafkaError(12345) != "12345" {
		t.Errorf("%s, %s", kafkaError(3), kafkaError(12345))
	}
}
