package multitenant

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// Edits implements filter.Conn.
func (c *conn) Edits(d filter.Direction, x *filter.Exchange) *filter.Edits {
	switch {
	case x.Key == int16(kmsg.Produce) && d == filter.Request:
		return c.produceEdits(x)
	case x.Key == int16(kmsg.Fetch) && d == filter.Response:
		return c.fetchEdits(x)
	}
	return nil
}

// produceEdits: until v12 there are names, from then on ids. The broker cannot
// be asked in the middle of a request; so an id that is not known here goes as
// one that nobody has, the answer asks to look again, and before that is passed
// on the id is found out (produceResponse). The client's next try succeeds.
func (c *conn) produceEdits(x *filter.Exchange) *filter.Edits {
	const firstWithID = 13
	if x.Version < firstWithID {
		return &filter.Edits{Topic: c.appendIn, TopicGrowth: len(c.prefix), TransactionalID: c.appendTxn}
	}
	return &filter.Edits{TransactionalID: c.appendTxn, TopicID: func(t *id) error {
		if c.ids.ask(*t, time.Now()) {
			list, _ := x.State.([]id)
			x.State = append(list, *t)
		}
		return c.idIn(t)
	}}
}

// appendIn is in for names that stream. A name that must not get the prefix
// cannot be told here without changing the length announced.
func (c *conn) appendIn(dst, name []byte) ([]byte, error) {
	if s := string(name); s == "" || s == "." || s == ".." {
		return nil, fmt.Errorf("%w: %q is no name of a topic", filter.ErrMalformed, s)
	}
	return append(append(dst, c.prefix...), name...), nil
}

// appendTxn is in for the transactional id of Produce, by which the broker
// verifies that a transaction is open (KIP-890).
func (c *conn) appendTxn(dst, id []byte) ([]byte, error) {
	s := string(id)
	c.inID(&s)
	return append(dst, s...), nil
}

func (c *conn) appendOut(dst, name []byte) ([]byte, error) {
	s := string(name)
	if !c.mine(&s) {
		return nil, fmt.Errorf("%w: the broker's answer has a name without the tenant's prefix", filter.ErrDenied)
	}
	return append(dst, s...), nil
}

func (c *conn) fetchEdits(x *filter.Exchange) *filter.Edits {
	const firstWithID = 13
	if x.Version < firstWithID {
		return &filter.Edits{Topic: c.appendOut, TopicGrowth: -len(c.prefix)}
	}
	// What a request names was looked at; but a fetch session is known by a
	// number alone, and who guesses another tenant's need name nothing.
	return &filter.Edits{TopicID: c.idOut}
}

// produceRequest is for the versions that are not walked.
func (c *call) produceRequest(r *kmsg.ProduceRequest) error {
	r.TransactionID = optional(r.TransactionID, c.inID)
	return each(r.Topics, func(t *kmsg.ProduceRequestTopic) error {
		c.in(&t.Topic)
		return c.idIn(&t.TopicID)
	})
}

func (c *call) produceResponse(r *kmsg.ProduceResponse) error {
	restore := func() error {
		return each(r.Topics, func(t *kmsg.ProduceResponseTopic) error {
			for i := range t.Partitions {
				p := &t.Partitions[i]
				c.message(p.ErrorMessage)
				for j := range p.ErrorRecords {
					c.message(p.ErrorRecords[j].ErrorMessage)
				}
			}
			if r.Version < 13 {
				return c.out(&t.Topic)
			}
			return c.idOut(&t.TopicID)
		})
	}
	asked, _ := c.x.State.([]id)
	c.x.State = nil
	return c.known(asked, restore)
}

// fetchRequest finds out about ids first. Those that are none of the tenant's
// go on as ids that nobody has: to leave them out would change what the later
// requests of a fetch session mean (rule 11).
func (c *call) fetchRequest(r *kmsg.FetchRequest) error {
	var list []id
	for i := range r.Topics {
		c.in(&r.Topics[i].Topic)
		list = append(list, r.Topics[i].TopicID)
	}
	for i := range r.ForgottenTopics {
		c.in(&r.ForgottenTopics[i].Topic)
		list = append(list, r.ForgottenTopics[i].TopicID)
	}
	return c.known(list, func() error {
		if err := each(r.Topics, func(t *kmsg.FetchRequestTopic) error { return c.idIn(&t.TopicID) }); err != nil {
			return err
		}
		return each(r.ForgottenTopics, func(t *kmsg.FetchRequestForgottenTopic) error { return c.idIn(&t.TopicID) })
	})
}

// fetchResponse is for the versions that are not walked.
func (c *call) fetchResponse(r *kmsg.FetchResponse) error {
	return each(r.Topics, func(t *kmsg.FetchResponseTopic) error {
		if r.Version < 13 {
			return c.out(&t.Topic)
		}
		return c.idOut(&t.TopicID)
	})
}
