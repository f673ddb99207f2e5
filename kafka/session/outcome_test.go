package session

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// TestErrorCodesAreFound: error codes are found where the schemas have them, in a
// whole response or its beginning; Produce has them by partition.
func TestErrorCodesAreFound(t *testing.T) {
	for version := int16(0); version <= 13; version++ {
		r := kmsg.NewPtrProduceResponse()
		r.Version = version
		for i := range 3 {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = "topic"
			for j := range 2 {
				p := kmsg.NewProduceResponseTopicPartition()
				if i == 2 && j == 1 {
					p.ErrorCode = 19
				}
				if version >= 8 {
					p.ErrorRecords = append(p.ErrorRecords, kmsg.NewProduceResponseTopicPartitionErrorRecord())
				}
				topic.Partitions = append(topic.Partitions, p)
			}
			r.Topics = append(r.Topics, topic)
		}
		body := r.AppendTo(nil)
		if code, _ := outcome(keyProduce, version, body); code != 19 {
			t.Errorf("Produce v%d: %d", version, code)
		}
		for n := range body {
			if code, _ := outcome(keyProduce, version, body[:n]); code != 0 && code != 19 {
				t.Errorf("Produce v%d, %d bytes: %d", version, n, code)
			}
		}
	}
	found := 0
	for key := range int16(wire.MaxKey + 1) {
		_, highest, ok := wire.Known(key)
		for v := int16(0); ok && v <= highest; v++ {
			if offsets().failed[key][v] > 0 {
				found++
			}
		}
	}
	if found < 130 {
		t.Errorf("%d versions of responses have an error", found)
	}
	for _, test := range []struct {
		resp kmsg.Response
		v    int16
	}{
		{&kmsg.FetchResponse{ErrorCode: 70}, 7}, {&kmsg.HeartbeatResponse{ErrorCode: 70}, 0},
		{&kmsg.HeartbeatResponse{ErrorCode: 70}, 4}, {&kmsg.SASLAuthenticateResponse{ErrorCode: 70}, 2},
	} {
		test.resp.SetVersion(test.v)
		body := test.resp.AppendTo(nil)
		if code, _ := outcome(test.resp.Key(), test.v, body); code != 70 {
			t.Errorf("%T v%d: %d", test.resp, test.v, code)
		}
		if code, _ := outcome(test.resp.Key(), test.v, body[:1]); code != 0 {
			t.Errorf("%T v%d, a byte of it: %d", test.resp, test.v, code)
		}
	}
}

// Rule 16: a broker that slows a client down says for how long, and that is
// found in every response that can say so.
func TestThrottledResponsesAreRecognized(t *testing.T) {
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
			if _, got := outcome(test.key, v, body); got != (v >= test.from) {
				t.Errorf("api %d v%d throttled: %t", test.key, v, got)
			}
			for n := range body { // cut anywhere
				outcome(test.key, v, body[:n])
			}
		}
	}
	if _, got := outcome(1, 11, kmsg.NewPtrFetchResponse().AppendTo(nil)); got {
		t.Error("a response without a time is throttled")
	}
}
