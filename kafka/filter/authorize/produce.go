package authorize

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// Produce (API key 0): Write on the transactional id, else the whole request is
// denied; Write on each topic.
//
//	v0-12  names
//	v13+   ids
//
// It streams through a client that may write everything. Others' are collected, since
// what is denied must be taken out; one too large for that is walked, and ends
// the connection if it has anything that is denied.

const firstProduceWithID = 13

// MayBuffer implements filter.BufferingConn.
func (c *conn) MayBuffer(x *filter.Exchange) bool {
	return x.Key == int16(kmsg.Produce) && !c.refresh(x.ClientID) && c.all != [2]bool{true, true}
}

// Edits implements filter.Conn.
func (c *conn) Edits(d filter.Direction, x *filter.Exchange) *filter.Edits {
	if d == filter.Response {
		return c.fetchEdits(x)
	}
	if !c.MayBuffer(x) {
		return nil
	}
	k := &call{c, x, nil}
	refused := func(t ResourceType) error {
		return fmt.Errorf("%w: %s on a %s in a large request", filter.ErrDenied, Write, t)
	}
	c.edits = filter.Edits{
		TransactionalID: func(dst, name []byte) ([]byte, error) {
			if !k.txn(Write, string(name)) {
				return nil, refused(TransactionalID)
			}
			return append(dst, name...), nil
		},
		Topic: func(dst, name []byte) ([]byte, error) {
			if !k.topic(Write, string(name)) {
				return nil, refused(Topic)
			}
			return append(dst, name...), nil
		},
		TopicID: func(t *[16]byte) error {
			if k.topicByID(Write, *t) != 0 {
				return refused(Topic)
			}
			return nil
		},
	}
	return &c.edits
}

func (c *call) produce(r *kmsg.ProduceRequest) error {
	byID := r.Version >= firstProduceWithID
	if !byID {
		return c.produceKnown(r, false)
	}
	return c.resolve(len(r.Topics), func(i int) id { return r.Topics[i].TopicID }, func() error { return c.produceKnown(r, true) })
}

func (c *call) produceKnown(r *kmsg.ProduceRequest, byID bool) error {
	whole := int16(0)
	if r.TransactionID != nil && !c.txn(Write, *r.TransactionID) {
		whole = transactionalIDAuthorizationFailed
	}
	var codes []int16
	denied := takeOut(&r.Topics, func(t *kmsg.ProduceRequestTopic) bool {
		code := whole
		if code == 0 {
			code = c.byNameOrID(Write, byID, t.Topic, t.TopicID)
		}
		if code != 0 {
			codes = append(codes, code)
		}
		return code == 0
	})
	if len(denied) == 0 {
		return nil
	}
	if c.x.NoResponse {
		return fmt.Errorf("%w: %s without acknowledgement", filter.ErrDenied, Write)
	}
	answers := make([]kmsg.ProduceResponseTopic, len(denied))
	for i := range denied {
		code := codes[i]
		answers[i] = kmsg.ProduceResponseTopic{Topic: denied[i].Topic, TopicID: denied[i].TopicID,
			Partitions: mapped(denied[i].Partitions, func(p *kmsg.ProduceRequestTopicPartition) kmsg.ProduceResponseTopicPartition {
				one := kmsg.NewProduceResponseTopicPartition()
				one.Partition, one.ErrorCode, one.BaseOffset, one.LogAppendTime, one.LogStartOffset = p.Partition, code, -1, -1, -1
				return one
			})}
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.ProduceResponse) { resp.Topics = append(resp.Topics, answers...) })
}
