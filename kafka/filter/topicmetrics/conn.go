package topicmetrics

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/filter/topicid"
)

// conn counts for one connection. Of each API one message streams at a time.
type conn struct {
	f      *Filter
	meters [apis]meter
}

// meter counts the messages of one API.
type meter struct {
	f       *Filter
	api     int
	edits   filter.Edits
	current *counts // of the topic that the message is at; nil: of none yet
	lastID  id      // by which now was found
}

func (m *meter) init(f *Filter, api int) {
	m.f, m.api = f, api
	m.edits = filter.Edits{Topic: m.topic, TopicID: m.topicID, TopicSize: m.size}
}

// startMessage begins a message.
func (m *meter) startMessage() *filter.Edits {
	m.current, m.lastID = nil, id{}
	return &m.edits
}

// topic counts a name, and returns it unchanged.
func (m *meter) topic(dst, name []byte) ([]byte, error) {
	m.count(m.f.countsByName(name))
	return append(dst, name...), nil
}

// topicID counts an id. It may be called twice with one id.
func (m *meter) topicID(t *id) error {
	if m.current == nil || *t != m.lastID {
		m.lastID = *t
		m.count(m.f.countsByID(*t))
	}
	return nil
}

func (m *meter) count(c *counts) {
	m.current = c
	c[m.api].messages.Add(1)
}

// size counts n bytes of the message for the current topic.
func (m *meter) size(n int) {
	if m.current != nil {
		m.current[m.api].bytes.Add(uint64(n))
	}
}

// Request implements filter.Conn; no request is wanted whole.
func (c *conn) Request(*filter.Exchange, *filter.Message) error { return nil }

// Response implements filter.Conn: it is one to Metadata.
func (c *conn) Response(_ *filter.Exchange, m *filter.Message) error {
	if m.Key != int16(kmsg.Metadata) {
		return nil
	}
	if err := topicid.Each(m.Version, m.Body(), c.f.learn); err != nil {
		return fmt.Errorf("%w: response to Metadata v%d: %w", filter.ErrMalformed, m.Version, err)
	}
	return nil
}

// Edits implements filter.Conn.
func (c *conn) Edits(_ filter.Direction, x *filter.Exchange) *filter.Edits {
	for api, key := range keys {
		if x.Key == key {
			return c.meters[api].startMessage()
		}
	}
	return nil
}

// Close implements filter.Conn.
func (c *conn) Close() {}
