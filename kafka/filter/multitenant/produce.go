package multitenant

import (
	"bytes"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// Produce (API key 0):
//
//	request   v0-2   decoded: names get the prefix
//	          v3-12  walked: names and the transactional id get the prefix
//	          v13+   walked: topic ids are looked at. The first requests of a
//	                 connection, and all without a response, are looked at whole,
//	                 since the broker may have to be asked about an id
//	response  v0+    rewritten as bytes where that is enough, else decoded: names
//	                 and messages lose the prefix, ids become the client's again

// firstProduceWithID is the first version with ids in place of names (KIP-516).
const firstProduceWithID = 13

// maxAnswer is how much of an answer's room a connection keeps for the next one.
const maxAnswer = 512

// walkProduce reports which requests stream: names and ids stand between the
// records, so that nothing has to be collected.
func walkProduce(d filter.Direction, version int16) bool { return d == filter.Request && version >= 3 }

// produceEdits are the edits of a request that streams.
func (c *conn) produceEdits(x *filter.Exchange) *filter.Edits {
	e := &c.edits
	if x.Version < firstProduceWithID {
		if e.produceNames == nil {
			e.produceNames = &filter.Edits{Topic: c.appendPrefixed, TopicGrowth: len(c.prefix), TransactionalID: c.appendPrefixedTxnID}
		}
		return e.produceNames
	}
	if e.produceIDs == nil {
		e.produceIDs = &filter.Edits{TopicID: c.substituteProducedID, TransactionalID: c.appendPrefixedTxnID}
	}
	e.produce = x
	return e.produceIDs
}

// MayBuffer implements filter.BufferingConn. In the midst of a request that streams
// the broker cannot be asked about an id that is not known. So a connection's
// first requests with ids are looked at before they go on, until all of one are
// known, and always those that have no answer, which would be lost.
func (c *conn) MayBuffer(x *filter.Exchange) bool {
	return x.Key == int16(kmsg.Produce) && x.Version >= firstProduceWithID && (x.NoResponse || !c.idsKnown)
}

// produceBuffered handles a request that is there as a whole: it looks up unknown
// ids before the request goes on.
func (c *call) produceBuffered() error {
	var unknown []id
	now := time.Now()
	look := filter.Edits{TopicID: func(t *id) error {
		if c.ids.shouldAsk(*t, now) {
			unknown = append(unknown, *t)
		}
		return nil
	}}
	if _, err := c.rewrite(&look); err != nil {
		return err
	}
	return c.lookUpIDs(unknown, func() error {
		c.idsKnown = true
		body, err := c.rewrite(c.Edits(filter.Request, c.x))
		if old := c.m.Body(); err == nil && (len(body) != len(old) || len(body) > 0 && &body[0] != &old[0]) {
			c.m.SetBody(body)
		}
		return err
	})
}

// rewrite returns the new body of a request that could stream.
func (c *call) rewrite(e *filter.Edits) ([]byte, error) {
	body, err := wire.Rewrite(nil, wire.Request, c.x.Key, c.x.Version, c.m.Body(), e)
	if err != nil {
		return nil, fmt.Errorf("%w: %s v%d: %w", filter.ErrMalformed, wire.Name(c.x.Key), c.x.Version, err)
	}
	return body, nil
}

// substituteProducedID looks at an id in a request that may stream. One that is
// not known goes as one that nobody has; the answer asks to look again, and
// before that is passed on the id is found out (produceResponse). The client's
// next try succeeds.
func (c *conn) substituteProducedID(t *id) error {
	if *t == (id{}) || c.ids.owns(*t) {
		return nil
	}
	if x := c.edits.produce; c.ids.shouldAsk(*t, time.Now()) {
		list, _ := x.State.([]id)
		x.State = append(list, *t)
		c.idsKnown = false
	}
	c.substituteID(t)
	return nil
}

// appendPrefixed prefixes names that stream. A name that must not get the prefix is
// refused: without it the frame would not have the length that was announced.
func (c *conn) appendPrefixed(dst, name []byte) ([]byte, error) {
	if len(name) <= 2 && c.isIllegalTopic(string(name)) {
		return nil, fmt.Errorf("%w: invalid topic name %q", filter.ErrMalformed, name)
	}
	return append(append(dst, c.prefix...), name...), nil
}

// appendPrefixedTxnID prefixes the transactional id of Produce, by which the broker
// verifies that a transaction is open (KIP-890).
func (c *conn) appendPrefixedTxnID(dst, id []byte) ([]byte, error) {
	if len(id) == 0 {
		return dst, nil
	}
	return append(append(dst, c.prefix...), id...), nil
}

// produceRequest handles the versions that are not walked, which have no ids.
func (c *call) produceRequest(r *kmsg.ProduceRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

// rewriteProduceResponse changes a response as bytes, which is enough if names
// and ids are all that there is of the tenant's in it: nothing is to be asked,
// and no message to people has the prefix. false: it is as it was.
func (c *conn) rewriteProduceResponse(x *filter.Exchange, m *filter.Message) bool {
	if x.State != nil {
		return false
	}
	e := &c.edits
	if e.answer == nil {
		e.answer = &filter.Edits{TopicID: c.restoreID, Topic: func(dst, name []byte) ([]byte, error) {
			e.names++
			return c.appendUnprefixed(dst, name)
		}}
	}
	e.names = 0
	body := m.Body()
	dst := e.body // an answer is on its way before the next one is looked at
	if x.Version < firstProduceWithID && cap(dst) < len(body) {
		dst = make([]byte, 0, len(body)) // names become shorter
	}
	changed, err := wire.Rewrite(dst[:0], wire.Response, x.Key, x.Version, body, e.answer)
	if err != nil || bytes.Count(body, []byte(c.prefix)) != e.names {
		return false
	}
	if len(changed) != len(body) || len(body) > 0 && &changed[0] != &body[0] {
		m.SetBody(changed)
		if cap(changed) <= maxAnswer {
			e.body = changed[:0]
		}
	}
	return true
}

func (c *call) produceResponse(r *kmsg.ProduceResponse) error {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			c.unprefixMessage(p.ErrorMessage)
			for k := range p.ErrorRecords {
				c.unprefixMessage(p.ErrorRecords[k].ErrorMessage)
			}
		}
	}
	if r.Version < firstProduceWithID {
		return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	}
	asked, _ := c.x.State.([]id)
	c.x.State = nil
	return c.lookUpIDs(asked, func() error {
		return c.restoreIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
	})
}
