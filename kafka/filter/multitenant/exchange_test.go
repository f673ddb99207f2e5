package multitenant

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// ends is a broker that answers at once.
type ends struct {
	response []byte
	calls    int
}

func (e *ends) ToBroker(c *filter.Call) error { return c.Respond(e.response) }
func (e *ends) ToClient(c *filter.Call) error {
	c.Message().Parts()
	e.calls++
	c.Done()
	return nil
}
func (e *ends) Dropped(c *filter.Call) error { c.Done(); return nil }

// walkAll feeds a streamed message through edits as a session does.
func walkAll(b *testing.B, d wire.Direction, key, version int16, body []byte, edits *filter.Edits, scratch []byte) {
	if edits == nil {
		return
	}
	var w wire.Walker
	w.Init(d, key, version, len(body), edits)
	for p := body; !w.Done(); {
		_, _, n, pass, err := w.Next(scratch[:0], p)
		if err != nil {
			b.Fatal(err)
		}
		p = p[n:]
		p = p[min(pass, len(p)):]
	}
}

// BenchmarkExchange measures the filter's cost per request and response, for
// the most frequent kinds.
func BenchmarkExchange(b *testing.B) {
	f, err := (&Config{TenantKey: "z4de"}).Provision(filter.Env{})
	if err != nil {
		b.Fatal(err)
	}
	ten := f.(*tenant)
	topic := id{1, 2, 3, 4}
	ten.ids.learn(topic)
	chain, err := filter.NewChain([]filter.Filter{f})
	if err != nil {
		b.Fatal(err)
	}
	scratch := make([]byte, 0, 64<<10)
	run := func(name string, q kmsg.Request, s kmsg.Response) {
		b.Run(fmt.Sprintf("%s v%d", name, q.GetVersion()), func(b *testing.B) {
			s.SetVersion(q.GetVersion())
			key, version, body, answer := q.Key(), q.GetVersion(), q.AppendTo(nil), s.AppendTo(nil)
			e := &ends{response: answer}
			conns := chain.Open(filter.Info{}, e)
			b.ReportAllocs()
			for b.Loop() {
				c := conns.Begin(key, version, "me", false)
				if c.Interest(filter.Request) == filter.Walk && !c.MayBuffer() {
					walkAll(b, wire.Request, key, version, body, c.Edits(filter.Request), scratch)
					if err := c.Respond(answer); err != nil {
						b.Fatal(err)
					}
					continue
				}
				if c.Interest(filter.Response) == filter.Walk {
					// Walk the streamed response as a session does after ToBroker.
					e.calls--
					walkAll(b, wire.Response, key, version, answer, c.Edits(filter.Response), scratch)
				}
				if err := c.Request(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, version := range []int16{12, 13} {
		for _, topics := range []int{1, 20} {
			q, s := kmsg.NewPtrProduceRequest(), kmsg.NewPtrProduceResponse()
			q.Version = version
			for range topics {
				qt, st := kmsg.NewProduceRequestTopic(), kmsg.NewProduceResponseTopic()
				qt.Topic, qt.TopicID, st.Topic, st.TopicID = "orders", topic, "z4de-orders", topic
				qp, sp := kmsg.NewProduceRequestTopicPartition(), kmsg.NewProduceResponseTopicPartition()
				qp.Records = make([]byte, 1000)
				qt.Partitions, st.Partitions = append(qt.Partitions, qp), append(st.Partitions, sp)
				q.Topics, s.Topics = append(q.Topics, qt), append(s.Topics, st)
			}
			run(fmt.Sprintf("Produce of %d", topics), q, s)
		}
	}
	for _, version := range []int16{12, 17} {
		q, s := kmsg.NewPtrFetchRequest(), kmsg.NewPtrFetchResponse()
		q.Version, q.SessionEpoch = version, -1
		qt, st := kmsg.NewFetchRequestTopic(), kmsg.NewFetchResponseTopic()
		qt.Topic, qt.TopicID, st.Topic, st.TopicID = "orders", topic, "z4de-orders", topic
		sp := kmsg.NewFetchResponseTopicPartition()
		sp.RecordBatches = make([]byte, 1000)
		qt.Partitions, st.Partitions = append(qt.Partitions, kmsg.NewFetchRequestTopicPartition()), append(st.Partitions, sp)
		q.Topics, s.Topics = append(q.Topics, qt), append(s.Topics, st)
		run("Fetch", q, s)
	}
	h := kmsg.NewPtrHeartbeatRequest()
	h.Version, h.Group = 4, "group"
	run("Heartbeat", h, kmsg.NewPtrHeartbeatResponse())
}
