// Package topiclimit is the filter that tells a filter.TopicLimiter how many bytes are
// produced to and fetched from each topic. It changes nothing, and stands before the
// filters that users write, so names are those that clients see.
//
// Newer versions have ids in place of names. Responses to Metadata, which every client
// asks for before it uses a topic, tell which names these are. The bytes of an id of which
// this node has seen no such response are charged to the name "", and so are those of names that no topic can have.
package topiclimit

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/filter/topicid"
)

const (
	keyProduce    = int16(kmsg.Produce)
	keyFetch      = int16(kmsg.Fetch)
	keyShareFetch = int16(kmsg.ShareFetch)
	keyMetadata   = int16(kmsg.Metadata)
)

// Filter is the filter of one virtual cluster.
type Filter struct{ ids topicid.Names }

// New returns the filter. The topic ids that it learns are known to all its connections.
func New() *Filter { return new(Filter) }

// Versions implements filter.Filter: every version that is known is carried.
func (f *Filter) Versions(_ int16, have filter.Range) filter.Range { return have }

// Wants implements filter.Filter.
func (f *Filter) Wants(d filter.Direction, key, version int16) filter.Interest {
	switch {
	case d == filter.Response && key == keyMetadata && version >= 10: // with ids (KIP-516)
		return filter.Whole
	case d == filter.Request && key == keyProduce, d == filter.Response && (key == keyFetch || key == keyShareFetch):
		return filter.Walk
	}
	return filter.Nothing
}

// Open implements filter.Filter.
func (f *Filter) Open(info filter.Info) filter.Conn {
	c := &conn{f: f, to: info.Topics}
	for d := range c.meters {
		m := &c.meters[d]
		m.conn, m.direction = c, filter.Direction(d)
		m.edits = filter.Edits{Topic: m.topic, TopicID: m.topicID, TopicSize: m.size}
	}
	return c
}

// Close implements filter.Filter.
func (f *Filter) Close() {}

// conn charges the bytes of one connection. One message streams at a time in each
// direction.
type conn struct {
	f      *Filter
	to     filter.TopicLimiter
	meters [2]meter
}

// meter charges what goes in one direction.
type meter struct {
	*conn
	direction filter.Direction
	edits     filter.Edits
	current   string // the topic that the message is at
}

// maxName is the length of the longest name that a topic can have. A client may send up to
// 32 KiB, which would be remembered as the key of a budget.
const maxName = 249

// topic begins a topic with a name, and returns that unchanged.
func (m *meter) topic(dst, name []byte) ([]byte, error) {
	if len(name) > maxName {
		m.current = ""
	} else if m.current != string(name) { // mostly it is the one of the last message
		m.current = string(name)
	}
	return append(dst, name...), nil
}

// topicID begins a topic with an id.
func (m *meter) topicID(t *topicid.ID) error {
	m.current, _ = m.f.ids.Get(*t)
	return nil
}

// size charges n bytes of the message to the topic that it is at.
func (m *meter) size(n int) { m.to.ChargeTopic(m.direction, m.current, n) }

// Request implements filter.Conn; no request is wanted whole.
func (c *conn) Request(*filter.Exchange, *filter.Message) error { return nil }

// Response implements filter.Conn: it is one to Metadata.
func (c *conn) Response(_ *filter.Exchange, m *filter.Message) error {
	err := topicid.Each(m.Version, m.Body(), func(name []byte, t topicid.ID) {
		if _, known := c.f.ids.Get(t); !known {
			c.f.ids.Learn(t, string(name))
		}
	})
	if err != nil {
		return fmt.Errorf("%w: response to Metadata v%d: %w", filter.ErrMalformed, m.Version, err)
	}
	return nil
}

// Edits implements filter.Conn.
func (c *conn) Edits(d filter.Direction, _ *filter.Exchange) *filter.Edits {
	if c.to == nil {
		return nil
	}
	return &c.meters[d].edits
}

// Close implements filter.Conn.
func (c *conn) Close() {}
