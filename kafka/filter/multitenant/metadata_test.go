package multitenant

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/kafka/filter"
)

// drawMetadata generates a response with topics of the tenant and of others.
func drawMetadata(t *rapid.T, version int16) *kmsg.MetadataResponse {
	r := kmsg.NewPtrMetadataResponse()
	r.Version = version
	for i := range rapid.IntRange(0, 3).Draw(t, "brokers") {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = int32(i), "host", 9092
		r.Brokers = append(r.Brokers, b)
	}
	r.Topics = []kmsg.MetadataResponseTopic{}
	for i := range rapid.IntRange(0, 5).Draw(t, "topics") {
		topic := kmsg.NewMetadataResponseTopic()
		name := rapid.SampledFrom([]string{"z4de-a", "other-b", "", "z4de-" + strings.Repeat("x", 200), "z4d"}).Draw(t, "name")
		topic.Topic = &name
		if version >= 12 && rapid.Bool().Draw(t, "null") {
			topic.Topic = nil
		}
		topic.TopicID = id{byte(i), byte(rapid.IntRange(0, 3).Draw(t, "id"))}
		for p := range rapid.IntRange(0, 3).Draw(t, "partitions") {
			one := kmsg.NewMetadataResponseTopicPartition()
			one.Partition, one.Replicas, one.ISR = int32(p), []int32{1, 2}, []int32{2}
			one.OfflineReplicas = make([]int32, rapid.SampledFrom([]int{0, 0, 0, 130}).Draw(t, "offline"))
			if rapid.IntRange(0, 9).Draw(t, "tags") == 0 {
				one.UnknownTags.Set(7, []byte("unknown"))
			}
			topic.Partitions = append(topic.Partitions, one)
		}
		r.Topics = append(r.Topics, topic)
	}
	return r
}

// slowly is metadataBody with full decoding, as a reference.
func slowly(c *conn, r *kmsg.MetadataResponse) {
	r.Topics = retain(r.Topics, func(t *kmsg.MetadataResponseTopic) bool {
		switch {
		case t.Topic == nil || *t.Topic == "":
			if original, ok := c.substitutes.get(t.TopicID); ok {
				t.TopicID = original
			}
			return true
		case strings.HasPrefix(*t.Topic, c.prefix):
			name := strings.TrimPrefix(*t.Topic, c.prefix)
			t.Topic = &name
			return true
		}
		return false
	})
}

func TestMetadataMatchesDecodedChange(t *testing.T) {
	ten := newTenant(t, "z4de")
	rapid.Check(t, func(t *rapid.T) {
		version := int16(rapid.IntRange(0, 13).Draw(t, "version"))
		r := drawMetadata(t, version)
		c := ten.Open(filter.Info{}).(*conn)
		for i := range r.Topics {
			// A topic without a name was requested by ID: it is the tenant's, or an
			// unknown ID was substituted.
			if one := &r.Topics[i]; one.Topic != nil && *one.Topic != "" {
				continue
			} else if rapid.Bool().Draw(t, "faked") {
				c.substituteID(&one.TopicID)
			} else {
				ten.ids.learn(one.TopicID)
			}
		}
		body := r.AppendTo(nil)
		m := filter.NewMessage(filter.Response, 3, version, body)
		x := filter.NewExchange(3, version, "", nil)
		if err := c.Response(&x, &m); err != nil {
			t.Fatal(err)
		}
		want := kmsg.NewPtrMetadataResponse()
		want.Version = version
		if err := want.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		slowly(c, want)
		got := kmsg.NewPtrMetadataResponse()
		got.Version = version
		if err := got.ReadFrom(m.Body()); err != nil {
			t.Fatalf("v%d: the result cannot be read: %v", version, err)
		}
		if !bytes.Equal(got.AppendTo(nil), want.AppendTo(nil)) {
			t.Fatalf("v%d:\n got %+v\nwant %+v", version, got, want)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	r := kmsg.NewPtrMetadataResponse()
	r.Version = 12
	name := "z4de-a"
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic = &name
	r.Topics = append(r.Topics, topic)
	f.Add(int16(12), r.AppendTo(nil))
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < 0 || version > 13 {
			return
		}
		ten := newTenant(t, "z4de")
		c := call{conn: ten.Open(filter.Info{}).(*conn), x: &filter.Exchange{}}
		m := filter.NewMessage(filter.Response, 3, version, body)
		c.m = &m
		out, err := c.metadataBody(body)
		if err == nil && len(out) > len(body) {
			t.Errorf("%d bytes became %d", len(body), len(out))
		}
	})
}

// BenchmarkMetadata uses 1,000 topics of 12 partitions.
func BenchmarkMetadata(b *testing.B) {
	f, err := (&Config{TenantKey: "z4de"}).Provision(filter.Env{})
	if err != nil {
		b.Fatal(err)
	}
	r := kmsg.NewPtrMetadataResponse()
	r.Version = 12
	for i := range 1000 {
		topic := kmsg.NewMetadataResponseTopic()
		name := fmt.Sprintf("z4de-topic-%04d", i)
		topic.Topic, topic.TopicID = &name, id{byte(i), byte(i >> 8), 1}
		for p := range 12 {
			one := kmsg.NewMetadataResponseTopicPartition()
			one.Partition, one.Replicas, one.ISR, one.OfflineReplicas = int32(p), []int32{1, 2, 3}, []int32{1, 2, 3}, []int32{}
			topic.Partitions = append(topic.Partitions, one)
		}
		r.Topics = append(r.Topics, topic)
	}
	body := r.AppendTo(nil)
	conn := f.Open(filter.Info{})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		m := filter.NewMessage(filter.Response, 3, 12, body)
		x := filter.NewExchange(3, 12, "", nil)
		if err := conn.Response(&x, &m); err != nil {
			b.Fatal(err)
		}
	}
}
