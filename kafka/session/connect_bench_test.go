package session

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/filter/apiversions"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/wire"
	"penstock/netio"
	"penstock/netio/relay"
)

// BenchmarkConnection is a connection without I/O: versions, metadata with
// three brokers of which the addresses are rewritten, and the end.
func BenchmarkConnection(b *testing.B) {
	env := filter.Env{Address: func(id int32, _ string, port int32) (filter.Broker, bool) {
		return filter.Broker{NodeID: id, Host: "broker.example.com", Port: port + 1}, true
	}}
	var chain []filter.Filter
	for _, typ := range []filter.Type{apiversions.Type(), brokeraddress.Type()} {
		f, err := typ.Config().Provision(env)
		if err != nil {
			b.Fatal(err)
		}
		chain = append(chain, f)
	}
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
		w.Session = New(Options{Home: (*worldHome)(w), Settings: set})
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
