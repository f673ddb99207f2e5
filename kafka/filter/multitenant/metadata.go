package multitenant

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

const unknownTopicID = 100 // the protocol's error

// metadataBody is what metadataResponse would make of a response, byte by byte:
// a cluster may have thousands of partitions, of which nothing changes but the
// names of their topics. What is not the tenant's is left out. Where ids were
// asked for, a topic of others looks like none: the broker names it, which the
// answer about an id that nobody has does not.
func (c *call) metadataBody(body []byte) ([]byte, error) {
	v := c.m.Version
	flexible := v >= 9
	r := wire.NewReader(body, flexible)
	skipHead(&r, v)
	at := r.At()
	n := r.Array()
	size := r.At() - at
	if r.Err() != nil || n < 0 {
		return body, r.Err()
	}
	out := make([]byte, r.At(), len(body))
	copy(out, body)
	kept := 0
	for range n {
		from := r.At()
		t := readTopic(&r, v)
		if r.Err() != nil {
			return nil, fmt.Errorf("%w: response to Metadata v%d: %w", filter.ErrMalformed, v, r.Err())
		}
		name, before := string(t.name), out
		switch {
		case t.null, c.impossible(name):
			out = append(out, body[from:r.At()]...)
		case c.mine(&name):
			if t.err == 0 { // else the id is what the client said (v10, v11)
				c.ids.learn(t.id)
			}
			out = append(out, body[from:t.nameAt]...)
			out = wire.AppendString(out, name, flexible)
			out = append(out, body[t.afterName:r.At()]...)
		case c.askedID(t.id):
			out = appendUnknown(out, v, t.id)
		}
		if len(out) > len(before) {
			kept++
		}
	}
	out = append(out, r.Rest()...)
	if flexible {
		wire.AppendUvarintSize(out[:at], uint32(kept+1), size)
	} else {
		wire.AppendInt32(out[:at], int32(kept))
	}
	return out, nil
}

// skipHead reads over what stands before the topics.
func skipHead(r *wire.Reader, v int16) {
	if v >= 3 {
		r.Int32() // throttle
	}
	for range r.Array() {
		r.Int32()
		r.String()
		r.Int32()
		if v >= 1 {
			r.String() // rack
		}
		r.Tags()
	}
	if v >= 2 {
		r.String() // cluster id
	}
	if v >= 1 {
		r.Int32() // controller
	}
}

// topicAt is a topic of a Metadata response, where it stands.
type topicAt struct {
	err               int16
	name              []byte
	null              bool
	nameAt, afterName int
	id                id
}

func readTopic(r *wire.Reader, v int16) (t topicAt) {
	t.err = r.Int16()
	t.nameAt = r.At()
	t.name, t.null = r.String()
	t.afterName = r.At()
	if v >= 10 {
		copy(t.id[:], r.Span(len(t.id)))
	}
	if v >= 1 {
		r.Bool() // internal
	}
	for range r.Array() {
		r.Span(2 + 4 + 4) // error, index, leader
		if v >= 7 {
			r.Int32() // epoch
		}
		skipInts(r) // replicas
		skipInts(r) // in sync
		if v >= 5 {
			skipInts(r) // offline
		}
		r.Tags()
	}
	if v >= 8 {
		r.Int32() // operations
	}
	r.Tags()
	return t
}

func skipInts(r *wire.Reader) {
	if n := r.Array(); n > 0 {
		r.Span(4 * n)
	}
}

// appendUnknown appends the topic that the broker answers with about an id that
// nobody has.
func appendUnknown(dst []byte, v int16, t id) []byte {
	none := kmsg.NewMetadataResponse()
	none.Version = v
	topic := kmsg.NewMetadataResponseTopic()
	topic.ErrorCode, topic.TopicID = unknownTopicID, t
	if v < 12 {
		topic.Topic = new(string)
	}
	none.Topics = []kmsg.MetadataResponseTopic{topic}
	body := none.AppendTo(nil)
	r := wire.NewReader(body, v >= 9)
	skipHead(&r, v)
	r.Array()
	from := r.At()
	readTopic(&r, v)
	return append(dst, body[from:r.At()]...)
}
