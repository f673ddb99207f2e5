package session

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/filter/apiversions"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/filter/multitenant"
	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// BenchmarkConnection is a connection without I/O: versions, metadata with
// three brokers of which the addresses are rewritten, and the end.
func BenchmarkConnection(b *testing.B) {
	chain := benchChain(b, false)
	versions := kmsg.NewPtrApiVersionsResponse()
	versions.Version = 3
	for key := range int16(wire.MaxKey + 1) {
		if r := kmsg.RequestForKey(key); r != nil {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, r.MaxVersion()
			versions.ApiKeys = append(versions.ApiKeys, k)
		}
	}
	meta := kmsg.NewPtrMetadataResponse()
	meta.Version = 12
	for id := range int32(3) {
		meta.Brokers = append(meta.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Host: "127.0.0.1", Port: 9092 + id})
	}
	ask := kmsg.NewPtrApiVersionsRequest()
	ask.Version, ask.ClientSoftwareName, ask.ClientSoftwareVersion = 3, "bench", "1"
	about := kmsg.NewPtrMetadataRequest()
	about.Version = 12
	type exchange struct{ request, response []byte }
	var exchanges []exchange
	for i, m := range []struct {
		q kmsg.Request
		s kmsg.Response
	}{{ask, versions}, {about, meta}} {
		exchanges = append(exchanges, exchange{
			sent{m.q.Key(), m.q.GetVersion(), int32(i), m.q.AppendTo(nil)}.request(),
			sent{m.q.Key(), m.q.GetVersion(), int32(i), m.s.AppendTo(nil)}.response(),
		})
	}
	w := newWorld(Limits{}, chain...)
	set := NewSettings(Limits{})
	b.ReportAllocs()
	for b.Loop() {
		w.Session = New(Options{Host: (*worldHome)(w), Settings: set})
		w.start((*worldConn)(w), w.sides[0], w.sides[1])
		for _, e := range exchanges {
			w.Received(relay.Client, e.request)
			w.Received(relay.Upstream, e.response)
		}
		if w.over > 0 {
			b.Fatal(w.why, w.err)
		}
		w.Closed(netio.ClientFIN)
		w.sides[0].out, w.sides[1].out, w.told = w.sides[0].out[:0], w.sides[1].out[:0], w.told[:0]
	}
}

// benchChain is what a virtual cluster has: the filters of all, and a tenant's.
func benchChain(b *testing.B, tenant bool) (chain []filter.Filter) {
	env := filter.Env{Address: func(id int32, _ string, port int32) (filter.Broker, bool) {
		return filter.Broker{NodeID: id, Host: "broker.example.com", Port: port + 1}, true
	}}
	configs := []filter.Config{apiversions.Type().Config(), brokeraddress.Type().Config()}
	if tenant {
		configs = append([]filter.Config{&multitenant.Config{TenantKey: "bench"}}, configs...)
	}
	for _, c := range configs {
		f, err := c.Provision(env)
		if err != nil {
			b.Fatal(err)
		}
		chain = append(chain, f)
	}
	return chain
}

// BenchmarkProduce is one request and its answer, without I/O: one that comes as
// a whole, and one of which most moves unseen.
func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{1 << 10, 768 << 10} {
		for _, tenant := range []bool{false, true} {
			name, topic := "plain", "orders"
			if tenant {
				name = "tenant"
			}
			q, s := kmsg.NewPtrProduceRequest(), kmsg.NewPtrProduceResponse()
			q.Version, s.Version, q.Acks = 9, 9, -1
			q.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, size)}}}}
			if tenant {
				topic = "bench-" + topic
			}
			s.Topics = []kmsg.ProduceResponseTopic{{Topic: topic, Partitions: []kmsg.ProduceResponseTopicPartition{{BaseOffset: 7}}}}
			request := sent{q.Key(), q.Version, 1, q.AppendTo(nil)}.request()
			response := sent{q.Key(), q.Version, 1, s.AppendTo(nil)}.response()
			b.Run(fmt.Sprintf("%dKB/%s", size>>10, name), func(b *testing.B) {
				w := newWorld(Limits{}, benchChain(b, tenant)...)
				b.ReportAllocs()
				for b.Loop() {
					first := min(len(request), 64<<10)
					w.Received(relay.Client, request[:first])
					if first < len(request) {
						w.Moved(relay.Client, len(request)-first)
					}
					w.Received(relay.Upstream, response)
					if w.over > 0 || len(w.told) != 1 {
						b.Fatal(w.why, w.err, len(w.told))
					}
					w.sides[0].out, w.sides[1].out, w.told = w.sides[0].out[:0], w.sides[1].out[:0], w.told[:0]
				}
			})
		}
	}
}
