package topicmetrics

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/filter/topicid"
	"penstock/kafka/wire"
)

func newFilter(t testing.TB, topics int) *Filter {
	t.Helper()
	c := &Config{Topics: topics}
	f, err := c.Provision(filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return f.(*Filter)
}

func idOf(n int) id { return [16]byte([]byte(fmt.Sprintf("topic number %3d", n))) }

// metadata is an answer with topics, and one that is not there.
func metadata(version int16, names ...string) *kmsg.MetadataResponse {
	m := kmsg.NewPtrMetadataResponse()
	m.Version = version
	rack := "r"
	m.Brokers = append(m.Brokers, kmsg.MetadataResponseBroker{NodeID: 1, Host: "kafka", Port: 9092, Rack: &rack})
	for i, name := range append(names, "absent") {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID = &name, idOf(i)
		for p := range int32(2) {
			one := kmsg.NewMetadataResponseTopicPartition()
			one.Partition, one.Replicas, one.ISR, one.OfflineReplicas = p, []int32{1, 2}, []int32{1}, []int32{2}
			t.Partitions = append(t.Partitions, one)
		}
		if name == "absent" {
			t.ErrorCode = 3
		}
		m.Topics = append(m.Topics, t)
	}
	return m
}

// see shows an answer to Metadata to a filter.
func see(t testing.TB, c filter.Conn, m *kmsg.MetadataResponse) {
	t.Helper()
	msg := filter.NewMessage(filter.Response, int16(kmsg.Metadata), m.Version, m.AppendTo(nil))
	if err := c.Response(nil, &msg); err != nil {
		t.Fatal(err)
	}
	if msg.Changed() {
		t.Error("the answer was changed")
	}
}

// stream brings a body through the edits of a filter, a few bytes at a time.
func stream(t testing.TB, c filter.Conn, d filter.Direction, key, version int16, body []byte) {
	t.Helper()
	x := filter.NewExchange(key, version, "", nil)
	edits := c.Edits(d, &x)
	if edits == nil {
		t.Fatalf("%s v%d is not walked", wire.Name(key), version)
	}
	var w wire.Walker
	w.Init(wire.Direction(d), key, version, len(body), edits)
	var out []byte
	for p := body; ; {
		sent, view, n, pass, err := w.Next(nil, p[:min(len(p), 7)])
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

var records = []int{100, 2000} // bytes, of the two partitions of each topic

// parts returns how many bytes of a body are for each of its topics, by where
// their names or ids stand.
func parts(key, version int16, body []byte, names []string) (sizes []uint64) {
	byID := version >= 13 || key == int16(kmsg.ShareFetch)
	end := len(body)
	for i, name := range slices.Backward(names) {
		word, length := []byte(name), 2
		if t := idOf(i); byID {
			word, length = t[:], 0
		} else if wire.Flexible(key, version) {
			length = wire.UvarintLen(uint32(len(name) + 1))
		}
		at := bytes.LastIndex(body[:end], word)
		sizes = append(sizes, uint64(end-at-len(word)))
		end = at - length
	}
	slices.Reverse(sizes)
	return sizes
}

func produced(version int16, names []string) []byte {
	m := kmsg.NewPtrProduceRequest()
	m.Version = version
	for i, name := range names {
		t := kmsg.NewProduceRequestTopic()
		t.Topic, t.TopicID = name, idOf(i)
		for p, n := range records {
			t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(p), Records: make([]byte, n)})
		}
		m.Topics = append(m.Topics, t)
	}
	return m.AppendTo(nil)
}

func fetched(version int16, names []string) []byte {
	m := kmsg.NewPtrFetchResponse()
	m.Version = version
	for i, name := range names {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = name, idOf(i)
		for p, n := range records {
			one := kmsg.NewFetchResponseTopicPartition()
			one.Partition, one.RecordBatches = int32(p), make([]byte, n)
			t.Partitions = append(t.Partitions, one)
		}
		m.Topics = append(m.Topics, t)
	}
	return m.AppendTo(nil)
}

func shareFetched(version int16, names []string) []byte {
	m := kmsg.NewPtrShareFetchResponse()
	m.Version = version
	for i := range names {
		t := kmsg.NewShareFetchResponseTopic()
		t.TopicID = idOf(i)
		for p, n := range records {
			one := kmsg.NewShareFetchResponseTopicPartition()
			one.Partition, one.Records = int32(p), make([]byte, n)
			t.Partitions = append(t.Partitions, one)
		}
		m.Topics = append(m.Topics, t)
	}
	return m.AppendTo(nil)
}

// Every version of what has records is counted by the topic's name, whether it
// names the topic or has its id.
func TestEveryVersionIsCountedByTopic(t *testing.T) {
	for _, test := range []struct {
		d    filter.Direction
		key  int16
		body func(version int16, names []string) []byte
	}{
		{filter.Request, int16(kmsg.Produce), produced},
		{filter.Response, int16(kmsg.Fetch), fetched},
		{filter.Response, int16(kmsg.ShareFetch), shareFetched},
	} {
		lowest, highest, _ := wire.Known(test.key)
		for v := lowest; v <= highest; v++ {
			f := newFilter(t, 10)
			if f.Wants(test.d, test.key, v) != filter.Walk || !wire.Walkable(wire.Direction(test.d), test.key, v) {
				t.Errorf("%s v%d is not walked", wire.Name(test.key), v)
			}
			c := f.Open(filter.Info{})
			see(t, c, metadata(12, "orders", "bills"))
			both, one := []string{"orders", "bills"}, []string{"orders"}
			for range 3 {
				stream(t, c, test.d, test.key, v, test.body(v, both))
			}
			for range 2 {
				stream(t, c, test.d, test.key, v, test.body(v, one))
			}
			api := wire.Name(test.key)
			of, alone := parts(test.key, v, test.body(v, both), both), parts(test.key, v, test.body(v, one), one)
			want := []Count{{"orders", api, 5, 3*of[0] + 2*alone[0]}, {"bills", api, 3, 3 * of[1]}}
			if of[0] < 2100 || of[0] > 2300 || of[1] < 2100 || of[1] > 2300 {
				t.Fatalf("%s v%d: parts of %d bytes, with 2,100 of records", api, v, of)
			}
			if got := f.Counts(); !slices.Equal(got, want) {
				t.Errorf("%s v%d: counted %v, want %v", api, v, got, want)
			}
		}
	}
}

// Topics are known by every version of Metadata; those that the cluster does
// not have, or cannot have, never become a name, whatever clients say.
func TestOnlyExistingTopicsAreNamed(t *testing.T) {
	lowest, highest, _ := wire.Known(int16(kmsg.Metadata))
	for v := lowest; v <= highest; v++ {
		f := newFilter(t, 10)
		c := f.Open(filter.Info{})
		see(t, c, metadata(v, "orders", "no\xfftopic", strings.Repeat("x", 300), ""))
		names := []string{"orders", "no\xfftopic", strings.Repeat("x", 300), "absent", "guessed"}
		body := produced(9, names)
		stream(t, c, filter.Request, int16(kmsg.Produce), 9, body)
		of := parts(int16(kmsg.Produce), 9, body, names)
		want := []Count{{Other, "Produce", 4, of[1] + of[2] + of[3] + of[4]}, {"orders", "Produce", 1, of[0]}}
		if got := f.Counts(); !slices.Equal(got, want) {
			t.Errorf("Metadata v%d: counted %v, want %v", v, got, want)
		}
	}
}

// No more topics are counted by themselves than it says: the first that are
// used, not the first that are there. What is remembered has a bound as well.
func TestTopicCountIsLimited(t *testing.T) {
	f := newFilter(t, 2)
	c := f.Open(filter.Info{})
	names := []string{"a", "b", "c", "d"}
	see(t, c, metadata(12, names...))
	for _, name := range []string{"d", "b", "a", "c", "d", "a"} {
		i := slices.Index(names, name)
		m := kmsg.NewPtrFetchResponse()
		m.Version = 16
		one := kmsg.NewFetchResponseTopic()
		one.TopicID = idOf(i)
		m.Topics = append(m.Topics, one)
		stream(t, c, filter.Response, int16(kmsg.Fetch), 16, m.AppendTo(nil))
	}
	want := []Count{{Other, "Fetch", 3, 9}, {"d", "Fetch", 2, 6}, {"b", "Fetch", 1, 3}} // no partitions, and two ends
	if got := f.Counts(); !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	for i := range maxTopics + 100 {
		f.learn(fmt.Appendf(nil, "t%d", i), id{byte(i), byte(i >> 8), byte(i >> 16), 1})
	}
	if len(f.byName) > maxTopics || len(f.byID) > maxTopics {
		t.Errorf("%d names and %d ids are remembered, at most %d", len(f.byName), len(f.byID), maxTopics)
	}
}

// A topic that is deleted and made again goes on under its name.
func TestRecreatedTopicKeepsCounting(t *testing.T) {
	f := newFilter(t, 2)
	for n := range 3 {
		f.learn([]byte("orders"), idOf(n))
		f.countsByID(idOf(n))[fetch].messages.Add(1)
	}
	if got, want := f.Counts(), []Count{{"orders", "Fetch", 3, 0}}; !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// An id that is asked about twice is one topic of the message.
func TestIDSeenTwiceCountsOnce(t *testing.T) {
	f := newFilter(t, 2)
	f.learn([]byte("orders"), idOf(1))
	c := f.Open(filter.Info{})
	x := filter.NewExchange(int16(kmsg.Produce), 13, "", nil)
	for range 2 {
		edits, one, zero := c.Edits(filter.Request, &x), idOf(1), id{}
		for _, t := range []*id{&zero, &zero, &one, &one} {
			_ = edits.TopicID(t)
		}
	}
	if got, want := f.Counts(), []Count{{Other, "Produce", 2, 0}, {"orders", "Produce", 2, 0}}; !slices.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// Once a topic is known, counting allocates nothing.
func TestCountingAllocatesNothing(t *testing.T) {
	f := newFilter(t, 2)
	c := f.Open(filter.Info{})
	see(t, c, metadata(12, "orders"))
	body := produced(9, []string{"orders"})
	x := filter.NewExchange(int16(kmsg.Produce), 9, "", nil)
	var w wire.Walker
	scratch := make([]byte, 0, 8<<10)
	if n := testing.AllocsPerRun(100, func() {
		w.Init(wire.Request, int16(kmsg.Produce), 9, len(body), c.Edits(filter.Request, &x))
		if _, _, _, _, err := w.Next(scratch, body); err != nil || !w.Done() {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a message", n)
	}
	again := metadata(12, "orders").AppendTo(nil)
	if n := testing.AllocsPerRun(100, func() {
		if err := topicid.Each(12, again, f.learn); err != nil {
			t.Fatal(err)
		}
	}); n > 1 { // the function that it is given
		t.Errorf("%v allocations for topics that are known", n)
	}
}

// A malformed answer ends the connection.
func TestMalformedResponseIsRefused(t *testing.T) {
	body := metadata(12, "orders").AppendTo(nil)
	for n := range body {
		msg := filter.NewMessage(filter.Response, int16(kmsg.Metadata), 12, body[:n])
		if err := newFilter(t, 1).Open(filter.Info{}).Response(nil, &msg); err == nil && n < len(body)-5 {
			t.Errorf("%d of %d bytes are used", n, len(body))
		}
	}
}

// eachTopic reports exactly the topics that kmsg reads.
func FuzzEachTopic(f *testing.F) {
	for v := range int16(14) {
		f.Add(v, metadata(v, "orders", "bills").AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, v int16, body []byte) {
		if _, highest, _ := wire.Known(int16(kmsg.Metadata)); v < 0 || v > highest {
			return
		}
		var got []string
		err := topicid.Each(v, body, func(name []byte, t id) { got = append(got, fmt.Sprintf("%q %x", name, t)) })
		if wire.Check(wire.Response, int16(kmsg.Metadata), v, body) != nil {
			return
		}
		m := kmsg.NewPtrMetadataResponse()
		m.Version = v
		if m.ReadFrom(body) != nil {
			return
		}
		if err != nil {
			t.Fatalf("v%d: %v", v, err)
		}
		var want []string
		for _, one := range m.Topics {
			if one.ErrorCode == 0 && one.Topic != nil {
				want = append(want, fmt.Sprintf("%q %x", *one.Topic, one.TopicID))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("v%d: told %v, want %v", v, got, want)
		}
	})
}
