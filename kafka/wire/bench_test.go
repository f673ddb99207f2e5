package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// bigMetadata is the response of a cluster of 3 brokers and 1,000 topics of 12 partitions.
func bigMetadata() []byte {
	m := kmsg.NewPtrMetadataResponse()
	m.Version, m.ClusterID = 12, kmsg.StringPtr("hJ2kzTsRTsGjWbxcm0qJ1g")
	for i := range int32(3) {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = i, fmt.Sprintf("broker-%d.azA.internal.svc", i), 9092
		m.Brokers = append(m.Brokers, b)
	}
	for i := range 1000 {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = kmsg.StringPtr(fmt.Sprintf("topic-%04d", i))
		for j := range int32(12) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Replicas, p.ISR = j, []int32{0, 1, 2}, []int32{0, 1, 2}
			t.Partitions = append(t.Partitions, p)
		}
		m.Topics = append(m.Topics, t)
	}
	return m.AppendTo(nil)
}

// The goal is 20 us and 10 allocations.
func BenchmarkMetadataAddresses(b *testing.B) {
	body := bigMetadata()
	names := []string{"broker-0.my-tenant1.kafka.com", "broker-1.my-tenant1.kafka.com", "broker-2.my-tenant1.kafka.com"}
	to := func(id int32, _ string, _ int32) (string, int32, bool, error) { return names[id], 9092, true, nil }
	b.Run("split", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, tail, _, err := MapAddresses(nil, keyMetadata, 12, body, to); err != nil || len(tail) < 400_000 {
				b.Fatal(err)
			}
		}
	})
	b.Run("joined", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, tail, _, err := MapAddresses(make([]byte, 0, len(body)+1024), keyMetadata, 12, body, to)
			if err != nil || len(append(out, tail...)) < len(body) {
				b.Fatal(err)
			}
		}
	})
	b.ReportMetric(float64(len(body)), "body-bytes")
}

// bulk is a body with 6 partitions of size bytes of records each.
func bulk(d Direction, version int16, size int) (key int16, body []byte) {
	records := randomBytes(rand.New(rand.NewPCG(1, 2)), size)
	if d == Request {
		m := kmsg.NewPtrProduceRequest()
		m.Version = version
		t := kmsg.NewProduceRequestTopic()
		t.Topic = "orders"
		for range 6 {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Records = records
			t.Partitions = append(t.Partitions, p)
		}
		m.Topics = append(m.Topics, t)
		return keyProduce, m.AppendTo(nil)
	}
	m := kmsg.NewPtrFetchResponse()
	m.Version = version
	t := kmsg.NewFetchResponseTopic()
	t.Topic = "z4de-orders"
	for range 6 {
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = records
		t.Partitions = append(t.Partitions, p)
	}
	m.Topics = append(m.Topics, t)
	return keyFetch, m.AppendTo(nil)
}

// The cost of a walk beyond moving the bytes: 64 KiB at a time, without the
// bytes that pass.
func BenchmarkWalk(b *testing.B) {
	edits := prefixing(Request, "z4de-")
	back := prefixing(Response, "z4de-")
	back.Node = func(int32, string, int32) (string, int32, bool, error) { return "", 0, false, nil }
	for _, c := range []struct {
		d       Direction
		version int16
		size    int
		edits   *Edits
	}{
		{Request, 12, 1 << 20, edits}, {Request, 12, 1 << 10, edits}, {Response, 12, 1 << 20, back},
		{Response, 17, 1 << 20, back}, {Response, 17, 100, back},
	} {
		key, body := bulk(c.d, c.version, c.size)
		b.Run(fmt.Sprintf("%s-v%d-%d", Name(key), c.version, c.size), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			var w Walker
			scratch := make([]byte, 0, 64<<10)
			for b.Loop() {
				w.Init(c.d, key, c.version, len(body), c.edits)
				for p := body; len(p) > 0; {
					_, _, n, pass, err := w.Next(scratch, p[:min(len(p), 64<<10)])
					if err != nil {
						b.Fatal(err)
					}
					p = p[n+pass:]
				}
			}
		})
	}
}

// A copy of everything, for comparison.
func BenchmarkCopy(b *testing.B) {
	_, body := bulk(Response, 12, 1<<20)
	to := make([]byte, len(body))
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		copy(to, body)
	}
}

func BenchmarkPeekRequest(b *testing.B) {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("perf-producer-client"))
	m := kmsg.NewPtrProduceRequest()
	m.Version = 12
	p := f.AppendRequest(nil, m, 7)
	b.ReportAllocs()
	for b.Loop() {
		if _, need, err := PeekRequest(p); need != 0 || err != nil {
			b.Fatal(need, err)
		}
	}
}

func BenchmarkNarrowApiVersions(b *testing.B) {
	body := offered(3, everything())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NarrowApiVersions(make([]byte, 0, len(body)), 3, body, func(key int16) (int16, int16) {
			lo, hi, _ := Known(key)
			return lo, hi
		}); err != nil {
			b.Fatal(err)
		}
	}
}
