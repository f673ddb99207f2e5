package multitenant

import (
	"bytes"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// Metadata (API key 3):
//
//	request   v0+    names get the prefix; ids (v10+) that are not the tenant's
//	                 become ids that nobody has
//	response  v0+    edited as bytes: topics without the prefix are left out,
//	                 the others lose it; ids are learned

// metadataRequest lets the broker say itself what it says of an id that nobody
// has: it may stand elsewhere in the answer than one of others does.
func (c *call) metadataRequest(r *kmsg.MetadataRequest) error {
	for i := range r.Topics {
		r.Topics[i].Topic = mapOptional(r.Topics[i].Topic, c.prefixTopic)
	}
	return c.substituteIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

// metadataBody changes a response byte by byte: a cluster may have thousands of
// partitions, of which nothing changes but the names of their topics. What is
// not the tenant's is left out; what was asked for by an id has one, see
// substituteID.
func (c *call) metadataBody(body []byte) ([]byte, error) {
	v := c.m.Version
	flexible := wire.Flexible(int16(kmsg.Metadata), v)
	r := wire.NewReader(body, flexible)
	wire.SkipMetadataBrokers(&r, v)
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
		learned idBatch
	)
	learned.ids = &c.ids
	for range n {
		from := r.At()
		t := wire.ReadMetadataTopic(&r, v)
		if r.Err() != nil {
			return nil, fmt.Errorf("%w: response to Metadata v%d: %w", filter.ErrMalformed, v, r.Err())
		}
		kept++
		switch {
		case t.NoName || len(t.Name) <= 2 && c.isIllegalTopic(string(t.Name)):
			was := t.ID
			if err := c.restoreID(&t.ID); err != nil {
				return nil, err
			}
			if t.ID != was {
				out = append(append(out, body[done:t.IDAt]...), t.ID[:]...)
				done = t.IDAt + len(t.ID)
			}
		case bytes.HasPrefix(t.Name, []byte(c.prefix)):
			if t.ErrorCode == 0 { // else the id is what the client said (v10, v11)
				learned.add(t.ID)
			}
			out = append(out, body[done:t.NameAt]...)
			out = wire.AppendString(out, t.Name[len(c.prefix):], flexible)
			done = t.NameEnd
		default:
			out = append(out, body[done:from]...)
			done = r.At()
			kept--
		}
	}
	learned.flush()
	out = append(out, body[done:]...)
	if flexible {
		wire.AppendUvarintSize(out[:at], uint32(kept+1), size)
	} else {
		wire.AppendInt32(out[:at], int32(kept))
	}
	return out, nil
}
