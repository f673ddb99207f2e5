package filter

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// Message is the body of a request or response that is seen whole, without its
// header. All filters of a chain get the same one, one after the other.
type Message struct {
	Direction    Direction
	Key, Version int16

	body     []byte // as received, or as SetBody gave it; nil: value or parts are newer
	head     []byte // with tail: as SetParts gave it, not joined yet
	tail     []byte
	request  kmsg.Request  // decoded; nil: not yet
	answer   kmsg.Response // the same for a response
	sizeHint int           // estimated size of the encoded value
	changed  bool
}

// growthHint is the expected growth of a message, in bytes.
const growthHint = 64

// NewMessage returns a Message for code that runs a chain. It keeps body.
func NewMessage(d Direction, key, version int16, body []byte) Message {
	return Message{Direction: d, Key: key, Version: version, body: body}
}

// NewAnswer returns a response with a decoded value.
func NewAnswer(key, version int16, resp kmsg.Response) Message {
	return Message{Direction: Response, Key: key, Version: version, answer: resp, changed: true}
}

// Changed reports whether anything was changed since NewMessage.
func (m *Message) Changed() bool { return m.changed }

// Body returns the message as bytes, encoded again if the decoded value was
// changed. They are valid until the message is changed, and must not be written
// to.
func (m *Message) Body() []byte {
	if m.body == nil {
		switch {
		case m.head != nil || m.tail != nil:
			m.body = append(append(make([]byte, 0, len(m.head)+len(m.tail)), m.head...), m.tail...)
		case m.request != nil:
			m.body = m.request.AppendTo(make([]byte, 0, m.sizeHint))
		case m.answer != nil:
			m.body = m.answer.AppendTo(make([]byte, 0, m.sizeHint))
		}
	}
	return m.body
}

// SetBody replaces the message by other bytes, and keeps them.
func (m *Message) SetBody(body []byte) {
	m.body, m.request, m.answer, m.changed = body, nil, nil, true
	m.head, m.tail = nil, nil
}

// SetParts replaces the message by head followed by tail, which may be a view
// of the old body. They are joined only if a later filter needs them joined.
func (m *Message) SetParts(head, tail []byte) {
	m.SetBody(nil)
	m.head, m.tail = head, tail
}

// Parts returns Body in two pieces if it exists in two, for sending.
func (m *Message) Parts() (head, tail []byte) {
	if m.body == nil && (m.head != nil || m.tail != nil) {
		return m.head, m.tail
	}
	return m.Body(), nil
}

// DecodeRequest returns the decoded request, the same value for all filters. A
// filter that changes it calls MarkChanged.
func (m *Message) DecodeRequest() (kmsg.Request, error) {
	if m.request != nil {
		return m.request, nil
	}
	r := kmsg.RequestForKey(m.Key)
	if r == nil || m.Direction != Request {
		return nil, fmt.Errorf("%w: unknown api key %d of a request", ErrMalformed, m.Key)
	}
	r.SetVersion(m.Version)
	if err := wire.Check(wire.Request, m.Key, m.Version, m.Body()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := r.ReadFrom(m.Body()); err != nil {
		return nil, fmt.Errorf("%w: %s v%d: %w", ErrMalformed, kmsg.NameForKey(m.Key), m.Version, err)
	}
	m.request, m.sizeHint = r, len(m.Body())+growthHint
	return r, nil
}

// DecodeResponse returns the decoded response in the same way.
func (m *Message) DecodeResponse() (kmsg.Response, error) {
	if m.answer != nil {
		return m.answer, nil
	}
	r := kmsg.ResponseForKey(m.Key)
	if r == nil || m.Direction != Response {
		return nil, fmt.Errorf("%w: unknown api key %d of a response", ErrMalformed, m.Key)
	}
	r.SetVersion(m.Version)
	if err := wire.Check(wire.Response, m.Key, m.Version, m.Body()); err != nil {
		return nil, fmt.Errorf("%w: response to %w", ErrMalformed, err)
	}
	if err := r.ReadFrom(m.Body()); err != nil {
		return nil, fmt.Errorf("%w: response to %s v%d: %w", ErrMalformed, kmsg.NameForKey(m.Key), m.Version, err)
	}
	m.answer, m.sizeHint = r, len(m.Body())+growthHint
	return r, nil
}

// MarkChanged marks the decoded value as changed.
func (m *Message) MarkChanged() {
	m.changed = true
	if m.request != nil || m.answer != nil {
		m.body, m.head, m.tail = nil, nil, nil
	}
}
