package multitenant

import (
	"bytes"
	"fmt"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// metadataBody changes a response byte by byte: a cluster may have thousands of
// partitions, of which nothing changes but the names of their topics. What is
// not the tenant's is left out; what was asked for by an id has one, see idIn.
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
	var (
		out     = make([]byte, 0, len(body)) // names become shorter
		done    int                          // of body
		kept    int
		learned learning
	)
	learned.ids = &c.ids
	for range n {
		from := r.At()
		t := readTopic(&r, v)
		if r.Err() != nil {
			return nil, fmt.Errorf("%w: response to Metadata v%d: %w", filter.ErrMalformed, v, r.Err())
		}
		kept++
		switch {
		case t.null || len(t.name) <= 2 && c.impossible(string(t.name)):
			was := t.id
			if err := c.idOut(&t.id); err != nil {
				return nil, err
			}
			if t.id != was {
				out = append(append(out, body[done:t.idAt]...), t.id[:]...)
				done = t.idAt + len(t.id)
			}
		case bytes.HasPrefix(t.name, []byte(c.prefix)):
			if t.err == 0 { // else the id is what the client said (v10, v11)
				learned.add(t.id)
			}
			out = append(out, body[done:t.nameAt]...)
			out = wire.AppendString(out, t.name[len(c.prefix):], flexible)
			done = t.afterName
		default:
			out = append(out, body[done:from]...)
			done = r.At()
			kept--
		}
	}
	learned.end()
	out = append(out, body[done:]...)
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
	err                     int16
	name                    []byte
	null                    bool
	nameAt, afterName, idAt int
	id                      id
}

func readTopic(r *wire.Reader, v int16) (t topicAt) {
	t.err = r.Int16()
	t.nameAt = r.At()
	t.name, t.null = r.String()
	t.afterName, t.idAt = r.At(), r.At()
	if v >= 10 {
		copy(t.id[:], r.Span(len(t.id)))
	}
	if v >= 1 {
		r.Bool() // internal
	}
	n := r.Array()
	if r.Flexible {
		n = skipUsual(r, n)
	}
	for range n {
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

// skipUsual reads over partitions of a flexible version as long as they are as
// usual: no list of more than 126, no tags. It gives how many of n are left.
func skipUsual(r *wire.Reader, n int) int {
	b := r.Rest()
	at := 0
	for ; n > 0; n-- {
		to := at + 2 + 4 + 4 + 4 // error, index, leader, epoch
		for range 3 {
			if to >= len(b) || b[to] > 0x7f {
				r.Span(at)
				return n
			}
			to += 1 + 4*int(max(b[to], 1)-1)
		}
		if to >= len(b) || b[to] != 0 {
			break
		}
		at = to + 1
	}
	r.Span(at)
	return n
}

func skipInts(r *wire.Reader) {
	if n := r.Array(); n > 0 {
		r.Span(4 * n)
	}
}
