package topiclimit

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/filter/topicid"
	"penstock/kafka/wire"
)

// ledger is a filter.TopicLimiter that writes down what is charged.
type ledger map[filter.Direction]map[string]int

func (l ledger) ChargeTopic(d filter.Direction, topic string, n int) {
	if l[d] == nil {
		l[d] = map[string]int{}
	}
	l[d][topic] += n
}

func idOf(name string) (t topicid.ID) {
	copy(t[:], name)
	return t
}

func learn(t *testing.T, c filter.Conn, names ...string) {
	t.Helper()
	m := kmsg.NewPtrMetadataResponse()
	m.Version = 12
	for _, name := range names {
		one := kmsg.NewMetadataResponseTopic()
		one.Topic, one.TopicID = &name, idOf(name)
		m.Topics = append(m.Topics, one)
	}
	msg := filter.NewMessage(filter.Response, keyMetadata, m.Version, m.AppendTo(nil))
	if err := c.Response(nil, &msg); err != nil || msg.Changed() {
		t.Fatalf("changed %v, %v", msg.Changed(), err)
	}
}

// stream brings a body through the filter, a few bytes at a time.
func stream(t *testing.T, c filter.Conn, d filter.Direction, key, version int16, body []byte) {
	t.Helper()
	x := filter.NewExchange(key, version, "", nil)
	var w wire.Walker
	w.Init(wire.Direction(d), key, version, len(body), c.Edits(d, &x))
	var out []byte
	for p := body; ; {
		sent, view, n, pass, err := w.Next(nil, p[:min(len(p), 11)])
		if err != nil {
			t.Fatalf("%s v%d: %v", wire.Name(key), version, err)
		}
		out = append(append(out, sent...), view...)
		out = append(out, p[n:n+pass]...)
		if p = p[n+pass:]; w.Done() {
			break
		}
	}
	if !bytes.Equal(out, body) {
		t.Errorf("%s v%d was changed", wire.Name(key), version)
	}
}

type part struct {
	topic string
	size  int
}

func produce(version int16, parts ...part) []byte {
	m := kmsg.NewPtrProduceRequest()
	m.Version = version
	for _, p := range parts {
		m.Topics = append(m.Topics, kmsg.ProduceRequestTopic{Topic: p.topic, TopicID: idOf(p.topic),
			Partitions: []kmsg.ProduceRequestTopicPartition{{Records: make([]byte, p.size)}}})
	}
	return m.AppendTo(nil)
}

func fetch(version int16, parts ...part) []byte {
	m := kmsg.NewPtrFetchResponse()
	m.Version = version
	for _, p := range parts {
		one := kmsg.NewFetchResponseTopicPartition()
		one.RecordBatches = make([]byte, p.size)
		m.Topics = append(m.Topics, kmsg.FetchResponseTopic{Topic: p.topic, TopicID: idOf(p.topic),
			Partitions: []kmsg.FetchResponseTopicPartition{one}})
	}
	return m.AppendTo(nil)
}

func shareFetch(version int16, parts ...part) []byte {
	m := kmsg.NewPtrShareFetchResponse()
	m.Version = version
	for _, p := range parts {
		one := kmsg.NewShareFetchResponseTopicPartition()
		one.Records = make([]byte, p.size)
		m.Topics = append(m.Topics, kmsg.ShareFetchResponseTopic{TopicID: idOf(p.topic),
			Partitions: []kmsg.ShareFetchResponseTopicPartition{one}})
	}
	return m.AppendTo(nil)
}

// In every version each topic is charged its own bytes, the records and little more, in the
// direction in which they go.
func TestEachTopicIsChargedItsBytes(t *testing.T) {
	for _, api := range []struct {
		d    filter.Direction
		key  int16
		body func(int16, ...part) []byte
	}{{filter.Request, keyProduce, produce}, {filter.Response, keyFetch, fetch}, {filter.Response, keyShareFetch, shareFetch}} {
		lowest, highest, _ := wire.Known(api.key)
		for v := lowest; v <= highest; v++ {
			f, to := New(), ledger{}
			if f.Wants(api.d, api.key, v) != filter.Walk {
				t.Fatalf("%s v%d is not walked", wire.Name(api.key), v)
			}
			c := f.Open(filter.Info{Topics: to})
			learn(t, c, "big", "small")
			for range 3 {
				stream(t, c, api.d, api.key, v, api.body(v, part{"big", 5000}, part{"small", 10}))
			}
			stream(t, c, api.d, api.key, v, api.body(v, part{"small", 1}))
			const most = 100 // of a topic beside its records, in one message
			big, small := to[api.d]["big"], to[api.d]["small"]
			if len(to) != 1 || len(to[api.d]) != 2 || big < 15_000 || big > 15_000+3*most || small < 31 || small > 31+4*most {
				t.Errorf("%s v%d: %v", wire.Name(api.key), v, to)
			}
		}
	}
}

// Ids that nobody has told of, and names that no topic can have, share one budget: a client
// that makes names up has no more budgets for it, nor larger keys.
func TestUnknownTopicsShareOneBudget(t *testing.T) {
	f, to := New(), ledger{}
	c := f.Open(filter.Info{Topics: to})
	stream(t, c, filter.Response, keyFetch, 16, fetch(16, part{"one", 1000}, part{"two", 1000}))
	if got := to[filter.Response]; len(got) != 1 || got[""] < 2000 {
		t.Errorf("unknown ids: %v", got)
	}
	long := strings.Repeat("x", 30_000)
	stream(t, c, filter.Request, keyProduce, 9, produce(9, part{long, 1000}, part{long + "y", 1000}))
	if got := to[filter.Request]; len(got) != 1 || got[""] < 2000 {
		t.Errorf("names that are too long: %v", maps.Keys(got))
	}
	learn(t, f.Open(filter.Info{}), "one") // by another connection
	stream(t, c, filter.Response, keyFetch, 16, fetch(16, part{"one", 500}))
	if got := to[filter.Response]["one"]; got < 500 || got > 600 {
		t.Errorf("an id that another connection has learnt: %d", got)
	}
}

// A connection that no limit by topic may apply to is not walked, and a broker's answer that
// is no Metadata is an error.
func TestNothingIsChargedWithoutALimiter(t *testing.T) {
	f := New()
	c := f.Open(filter.Info{})
	x := filter.NewExchange(keyProduce, 9, "", nil)
	if c.Edits(filter.Request, &x) != nil {
		t.Error("its messages are walked")
	}
	for _, key := range []int16{keyMetadata, int16(kmsg.ListOffsets)} {
		if got := f.Wants(filter.Request, key, 12); got != filter.Nothing {
			t.Errorf("requests of %s: %v", wire.Name(key), got)
		}
	}
	msg := filter.NewMessage(filter.Response, keyMetadata, 12, []byte{0, 0, 0, 0, 200, 200, 200})
	if err := c.Response(nil, &msg); !errors.Is(err, filter.ErrMalformed) {
		t.Errorf("%v, want ErrMalformed", err)
	}
}
