package session

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Rule 16: a broker that slows a client down says for how long, and that is
// found in every response that can say so.
func TestAThrottledResponseIsKnown(t *testing.T) {
	name := "orders"
	produce := func(v int16) kmsg.Response {
		r := kmsg.NewPtrProduceResponse()
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic = name
		topic.Partitions = append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
		r.Topics = append(r.Topics, topic)
		r.ThrottleMillis = 7
		r.SetVersion(v)
		return r
	}
	fetch := func(v int16) kmsg.Response {
		r := kmsg.NewPtrFetchResponse()
		r.ThrottleMillis = 7
		r.SetVersion(v)
		return r
	}
	metadata := func(v int16) kmsg.Response {
		r := kmsg.NewPtrMetadataResponse()
		r.ThrottleMillis = 7
		r.SetVersion(v)
		return r
	}
	for _, test := range []struct {
		key, from, to int16
		make          func(int16) kmsg.Response
	}{{0, 1, 13, produce}, {1, 1, 18, fetch}, {3, 3, 13, metadata}} {
		for v := range test.to + 1 {
			body := test.make(v).AppendTo(nil)
			if got := throttled(test.key, v, body); got != (v >= test.from) {
				t.Errorf("api %d v%d throttled: %t", test.key, v, got)
			}
			for n := range body { // cut anywhere
				throttled(test.key, v, body[:n])
			}
		}
	}
	if throttled(1, 11, kmsg.NewPtrFetchResponse().AppendTo(nil)) {
		t.Error("a response without a time is throttled")
	}
}
