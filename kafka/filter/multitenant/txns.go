package multitenant

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *call) initProducerIDRequest(r *kmsg.InitProducerIDRequest) error {
	r.TransactionalID = optional(r.TransactionalID, c.inID)
	return nil
}

func (c *call) addPartitionsRequest(r *kmsg.AddPartitionsToTxnRequest) error {
	c.inID(&r.TransactionalID)
	for i := range r.Topics {
		c.in(&r.Topics[i].Topic)
	}
	for i := range r.Transactions {
		t := &r.Transactions[i]
		c.inID(&t.TransactionalID)
		for j := range t.Topics {
			c.in(&t.Topics[j].Topic)
		}
	}
	return nil
}

func (c *call) addPartitionsResponse(r *kmsg.AddPartitionsToTxnResponse) error {
	if err := each(r.Topics, func(t *kmsg.AddPartitionsToTxnResponseTopic) error { return c.out(&t.Topic) }); err != nil {
		return err
	}
	return each(r.Transactions, func(x *kmsg.AddPartitionsToTxnResponseTransaction) error {
		if err := c.out(&x.TransactionalID); err != nil {
			return err
		}
		return each(x.Topics, func(t *kmsg.AddPartitionsToTxnResponseTransactionTopic) error { return c.out(&t.Topic) })
	})
}

func (c *call) addOffsetsRequest(r *kmsg.AddOffsetsToTxnRequest) error {
	c.inID(&r.TransactionalID)
	c.inOffsets(&r.Group)
	return nil
}

func (c *call) txnOffsetCommitRequest(r *kmsg.TxnOffsetCommitRequest) error {
	c.inID(&r.TransactionalID)
	c.inOffsets(&r.Group)
	var list []id
	for i := range r.Topics {
		c.in(&r.Topics[i].Topic)
		list = append(list, r.Topics[i].TopicID)
	}
	return c.known(list, func() error {
		return each(r.Topics, func(t *kmsg.TxnOffsetCommitRequestTopic) error { return c.idIn(&t.TopicID) })
	})
}

func (c *call) txnOffsetCommitResponse(r *kmsg.TxnOffsetCommitResponse) error {
	return each(r.Topics, func(t *kmsg.TxnOffsetCommitResponseTopic) error {
		if r.Version < 6 {
			return c.out(&t.Topic)
		}
		return c.idOut(&t.TopicID)
	})
}

func (c *call) describeTxnsRequest(r *kmsg.DescribeTransactionsRequest) error {
	inAll(r.TransactionalIDs, c.inID)
	return nil
}

func (c *call) describeTxnsResponse(r *kmsg.DescribeTransactionsResponse) error {
	return each(r.TransactionStates, func(s *kmsg.DescribeTransactionsResponseTransactionState) error {
		if err := c.out(&s.TransactionalID); err != nil {
			return err
		}
		return each(s.Topics, func(t *kmsg.DescribeTransactionsResponseTransactionStateTopic) error { return c.out(&t.Topic) })
	})
}

func (c *call) listTxnsResponse(r *kmsg.ListTransactionsResponse) error {
	r.TransactionStates = keep(r.TransactionStates, func(s *kmsg.ListTransactionsResponseTransactionState) bool {
		return c.mine(&s.TransactionalID)
	})
	return nil
}
