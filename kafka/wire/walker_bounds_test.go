package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names of every length grow and shrink as announced, even if their length then
// takes a byte more or less.
func TestNamesOfEveryLengthGrowAsAnnounced(t *testing.T) {
	for _, c := range []struct {
		d            Direction
		key, version int16
	}{{Request, keyProduce, 3}, {Request, keyProduce, 12}, {Response, keyFetch, 4}, {Response, keyFetch, 12}, {Response, keyProduce, 12}} {
		for _, prefix := range []string{"t", "z4de-", strings.Repeat("p", 130)} {
			edits := prefixing(c.d, prefix)
			m := newMessage(t, c.d, c.key, c.version)
			topics := reflect.ValueOf(m).Elem().FieldByName("Topics")
			topics.Set(reflect.MakeSlice(topics.Type(), 250, 250))
			for n := range 250 {
				topics.Index(n).FieldByName("Topic").SetString(strings.Repeat("n", n))
			}
			if c.d == Response {
				addPrefix(m, prefix)
			}
			body := m.AppendTo(nil)
			got, err := walk(t, rand.New(rand.NewPCG(1, 11)), c.d, c.key, c.version, body, edits, 500)
			if err != nil {
				t.Fatal(err)
			}
			want := decode(t, c.d, c.key, c.version, body)
			editTopics(t, want, edits)
			if m := decode(t, c.d, c.key, c.version, got); !reflect.DeepEqual(m, want) {
				t.Errorf("%s v%d, prefix of %d: names differ", Name(c.key), c.version, len(prefix))
			}
		}
	}
}

// Records are never held or copied: they are returned as views or let pass.
func TestRecordsAreNeitherHeldNorCopied(t *testing.T) {
	key, body := bulk(Request, 12, 100<<10)
	var w Walker
	w.Init(Request, key, 12, len(body), prefixing(Request, "z4de-"))
	copied, passed := 0, 0
	for p := body; len(p) > 0; {
		out, view, n, pass, err := w.Next(nil, p[:min(len(p), 40<<10)])
		if err != nil {
			t.Fatal(err)
		}
		if len(view) > 0 && &view[len(view)-1] != &p[n-1] {
			t.Fatal("the view is not part of the input")
		}
		copied += len(out)
		passed += len(view) + pass
		p = p[n+pass:]
	}
	if copied > 6*copyLimit || passed < len(body)*8/10 || cap(w.held) > copyLimit {
		t.Errorf("of %d bytes, %d were copied, %d passed, %d are held", len(body), copied, passed, cap(w.held))
	}
	// Two topics in one piece, with many bytes between their names, are not copied either.
	m := kmsg.NewPtrProduceRequest()
	m.Version = 12
	for range 3 {
		topic := kmsg.NewProduceRequestTopic()
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = make([]byte, 30<<10)
		topic.Topic, topic.Partitions = "orders", append(topic.Partitions, p)
		m.Topics = append(m.Topics, topic)
	}
	body = m.AppendTo(nil)
	w.Init(Request, key, 12, len(body), prefixing(Request, "z4de-"))
	for p := body; len(p) > 0; {
		out, _, n, _, err := w.Next(nil, p)
		if err != nil || len(out) > copyLimit {
			t.Fatalf("%d bytes were copied at once, %v", len(out), err)
		}
		p = p[n:]
	}
}

// A message whose frame ends too early is refused wherever it is cut, as far as
// it is read: without edits of node endpoints, up to the last topic.
func TestTruncatedMessagesAreRefused(t *testing.T) {
	walkables(t, func(d Direction, key, version int16) {
		for seed := range uint64(20) {
			rnd := rand.New(rand.NewPCG(seed, 12))
			_, body := randomMessage(t, rnd, d, key, version)
			n := rnd.IntN(len(body))
			for name, edits := range map[string]*Edits{"all edits": tolerant(), "endpoints": {Node: tolerant().Node}} {
				if _, err := walk(t, rnd, d, key, version, body[:n], edits, 200); !errors.Is(err, ErrMalformed) {
					t.Fatalf("%s v%d, %s, %d of %d bytes: %v", Name(key), version, name, n, len(body), err)
				}
				if _, err := Rewrite(nil, d, key, version, body[:n], edits); !errors.Is(err, ErrMalformed) {
					t.Fatalf("%s v%d, %s, whole, %d of %d bytes: %v", Name(key), version, name, n, len(body), err)
				}
			}
		}
	})
}

// The bytes to hold are bounded for every message.
func TestTooMuchStructureIsRefused(t *testing.T) {
	id := append(append([]byte{}, AppendUvarint(nil, 1<<20)...), bytes.Repeat([]byte{'x'}, 1<<20)...)
	name := append([]byte{0, 0, 0, 0, 0, 0, 0, 2}, id...) // no id, acks, timeout, one topic
	m := kmsg.NewPtrShareFetchResponse()
	m.Version = 1
	for i := range int32(3000) {
		n := kmsg.NewShareFetchResponseNodeEndpoint()
		n.NodeID, n.Host = i, strings.Repeat("h", 40)
		m.NodeEndpoints = append(m.NodeEndpoints, n)
	}
	for what, c := range map[string]struct {
		d            Direction
		key, version int16
		body         []byte
	}{
		"transactional id": {Request, keyProduce, 12, append(id, name...)},
		"name":             {Request, keyProduce, 12, name},
		"node endpoints":   {Response, keyShareFetch, 1, m.AppendTo(nil)},
	} {
		var w Walker
		w.Init(c.d, c.key, c.version, len(c.body), tolerant())
		var err error
		for p := c.body; err == nil && len(p) > 0; {
			var n, pass int
			_, _, n, pass, err = w.Next(nil, p[:min(len(p), 8<<10)])
			p = p[n+pass:]
		}
		if !errors.Is(err, ErrTooLarge) || cap(w.held) > 2*MaxHeld {
			t.Errorf("%s: %v, %d bytes are held", what, err, cap(w.held))
		}
	}
	// A message larger than the bound is never edited at once.
	key, body := bulk(Response, 17, 20<<10)
	var w Walker
	w.Init(Response, key, 17, len(body), &Edits{Node: tolerant().Node})
	if out, view, n, _, err := w.Next(make([]byte, 0, 10), body); err != nil || len(out) > 0 || len(view) != len(body) ||
		n != len(body) || w.resizable {
		t.Errorf("%d bytes copied, %d viewed, %d consumed, whole %v, %v", len(out), len(view), n, w.resizable, err)
	}
}

// An edit that does not grow names as announced ends the walk.
func TestEditsWithWrongGrowthAreRefused(t *testing.T) {
	key, body := bulk(Request, 12, 10)
	for by := -2; by <= 2; by++ {
		edits := &Edits{TopicGrowth: 3, Topic: func(dst, name []byte) ([]byte, error) {
			return append(append(dst, name...), make([]byte, 3+by)...), nil
		}}
		_, err := walk(t, rand.New(rand.NewPCG(1, 13)), Request, key, 12, body, edits, 50)
		if (err == nil) != (by == 0) {
			t.Errorf("a name that grew by %d, not 3: %v", 3+by, err)
		}
	}
	for name, edits := range map[string]*Edits{
		"topic":   {Topic: func([]byte, []byte) ([]byte, error) { return nil, errForeign }, TopicGrowth: 1},
		"same":    {Topic: func([]byte, []byte) ([]byte, error) { return nil, errForeign }},
		"idTopic": {TopicID: func(*[16]byte) error { return errForeign }},
	} {
		version := int16(12)
		if edits.TopicID != nil {
			version = 13
		}
		key, body := bulk(Request, version, 10)
		if _, err := walk(t, rand.New(rand.NewPCG(1, 13)), Request, key, version, body, edits, 50); !errors.Is(err, errForeign) {
			t.Errorf("%s: %v", name, fmt.Sprint(err))
		}
	}
}
