package multitenant

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *call) initProducerIDRequest(r *kmsg.InitProducerIDRequest) error {
	r.TransactionalID = mapOptional(r.TransactionalID, c.prefixID)
	return nil
}

func (c *call) addPartitionsRequest(r *kmsg.AddPartitionsToTxnRequest) error {
	c.prefixID(&r.TransactionalID)
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	for i := range r.Transactions {
		t := &r.Transactions[i]
		c.prefixID(&t.TransactionalID)
		c.prefixEach(len(t.Topics), func(j int) *string { return &t.Topics[j].Topic })
	}
	return nil
}

func (c *call) addPartitionsResponse(r *kmsg.AddPartitionsToTxnResponse) error {
	if err := forEach(r.Topics, func(t *kmsg.AddPartitionsToTxnResponseTopic) error { return c.unprefix(&t.Topic) }); err != nil {
		return err
	}
	return forEach(r.Transactions, func(x *kmsg.AddPartitionsToTxnResponseTransaction) error {
		if err := c.unprefix(&x.TransactionalID); err != nil {
			return err
		}
		return c.unprefixEach(len(x.Topics), func(i int) *string { return &x.Topics[i].Topic })
	})
}

func (c *call) addOffsetsRequest(r *kmsg.AddOffsetsToTxnRequest) error {
	c.prefixID(&r.TransactionalID)
	c.prefixOffsetsGroup(&r.Group)
	return nil
}

func (c *call) txnOffsetCommitRequest(r *kmsg.TxnOffsetCommitRequest) error {
	c.prefixID(&r.TransactionalID)
	c.prefixOffsetsGroup(&r.Group)
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return c.substituteIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) txnOffsetCommitResponse(r *kmsg.TxnOffsetCommitResponse) error {
	if r.Version < 6 {
		return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	}
	return c.restoreIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) describeTxnsRequest(r *kmsg.DescribeTransactionsRequest) error {
	prefixAll(r.TransactionalIDs, c.prefixID)
	return nil
}

func (c *call) describeTxnsResponse(r *kmsg.DescribeTransactionsResponse) error {
	return forEach(r.TransactionStates, func(s *kmsg.DescribeTransactionsResponseTransactionState) error {
		if err := c.unprefix(&s.TransactionalID); err != nil {
			return err
		}
		return c.unprefixEach(len(s.Topics), func(i int) *string { return &s.Topics[i].Topic })
	})
}

func (c *call) listTxnsResponse(r *kmsg.ListTransactionsResponse) error {
	r.TransactionStates = retain(r.TransactionStates, func(s *kmsg.ListTransactionsResponseTransactionState) bool {
		return c.tryUnprefix(&s.TransactionalID)
	})
	return nil
}
