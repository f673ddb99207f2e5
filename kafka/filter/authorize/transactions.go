package authorize

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// initProducerID: Write on the transactional id. Without one IdempotentWrite on the
// cluster, or Write on any topic (KIP-679).
func (c *call) initProducerID(r *kmsg.InitProducerIDRequest) error {
	code := int16(0)
	switch {
	case r.TransactionalID != nil:
		if !c.txn(Write, *r.TransactionalID) {
			code = transactionalIDAuthorizationFailed
		}
	case c.look(IdempotentWrite, Cluster, ClusterName).Allowed:
	default:
		if d := c.applied.Some(Write, Topic); !d.Allowed {
			c.report(IdempotentWrite, Cluster, ClusterName, d.Rule, false)
			code = clusterAuthorizationFailed
		}
	}
	if code == 0 {
		return nil
	}
	return answer(c, func(resp *kmsg.InitProducerIDResponse) {
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
	})
}

// operationNotAttempted is the error of what another denial has kept from happening.
const operationNotAttempted = 55

// addPartitions: Write on the transactional id and on each topic; if one is denied, none
// is added. From v4 on brokers ask, for many transactions: ClusterAction.
func (c *call) addPartitions(r *kmsg.AddPartitionsToTxnRequest) error {
	if r.Version >= 4 {
		if c.cluster(ClusterAction) {
			return nil
		}
		return answer(c, func(resp *kmsg.AddPartitionsToTxnResponse) { resp.ErrorCode = clusterAuthorizationFailed })
	}
	codes, some := make([]int16, len(r.Topics)), false
	whole := !c.txn(Write, r.TransactionalID)
	for i := range r.Topics {
		codes[i] = operationNotAttempted
		switch {
		case whole:
			codes[i] = transactionalIDAuthorizationFailed
		case !c.topic(Write, r.Topics[i].Topic):
			codes[i], some = topicAuthorizationFailed, true
		}
	}
	if !whole && !some {
		return nil
	}
	return answer(c, func(resp *kmsg.AddPartitionsToTxnResponse) {
		for i := range r.Topics {
			t := kmsg.AddPartitionsToTxnResponseTopic{Topic: r.Topics[i].Topic}
			for _, p := range r.Topics[i].Partitions {
				t.Partitions = append(t.Partitions, kmsg.AddPartitionsToTxnResponseTopicPartition{Partition: p, ErrorCode: codes[i]})
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
}

// addOffsets: Write on the transactional id, Read on the group.
func (c *call) addOffsets(r *kmsg.AddOffsetsToTxnRequest) error {
	code := c.txnAndGroup(r.TransactionalID, r.Group)
	if code == 0 {
		return nil
	}
	return answer(c, func(resp *kmsg.AddOffsetsToTxnResponse) { resp.ErrorCode = code })
}

func (c *call) txnAndGroup(txn, group string) (code int16) {
	switch {
	case !c.txn(Write, txn):
		return transactionalIDAuthorizationFailed
	case !c.group(Read, group):
		return groupAuthorizationFailed
	}
	return 0
}

// endTxn: Write on the transactional id.
func (c *call) endTxn(r *kmsg.EndTxnRequest) error {
	if c.txn(Write, r.TransactionalID) {
		return nil
	}
	return answer(c, func(resp *kmsg.EndTxnResponse) {
		resp.ErrorCode = transactionalIDAuthorizationFailed
		resp.ProducerID, resp.ProducerEpoch = -1, -1
	})
}

// writeMarkers: ClusterAction or Alter on the cluster.
func (c *call) writeMarkers(r *kmsg.WriteTxnMarkersRequest) error {
	if c.look(Alter, Cluster, ClusterName).Allowed || c.cluster(ClusterAction) {
		return nil
	}
	return answer(c, func(resp *kmsg.WriteTxnMarkersResponse) {
		for i := range r.Markers {
			m := kmsg.WriteTxnMarkersResponseMarker{ProducerID: r.Markers[i].ProducerID}
			for _, t := range r.Markers[i].Topics {
				topic := kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					topic.Partitions = append(topic.Partitions,
						kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: clusterAuthorizationFailed})
				}
				m.Topics = append(m.Topics, topic)
			}
			resp.Markers = append(resp.Markers, m)
		}
	})
}

// txnOffsetCommit: Write on the transactional id, Read on the group and on each topic.
func (c *call) txnOffsetCommit(r *kmsg.TxnOffsetCommitRequest) error {
	byID := r.Version >= 6
	n := len(r.Topics)
	if !byID {
		n = 0
	}
	return c.resolve(n, func(i int) id { return r.Topics[i].TopicID }, func() error {
		whole := c.txnAndGroup(r.TransactionalID, r.Group)
		var answers []kmsg.TxnOffsetCommitResponseTopic
		takeOut(&r.Topics, func(t *kmsg.TxnOffsetCommitRequestTopic) bool {
			code := whole
			if code == 0 {
				code = c.byNameOrID(Read, byID, t.Topic, t.TopicID)
			}
			if code != 0 {
				answers = append(answers, kmsg.TxnOffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID, Partitions: mapped(t.Partitions,
					func(p *kmsg.TxnOffsetCommitRequestTopicPartition) kmsg.TxnOffsetCommitResponseTopicPartition {
						return kmsg.TxnOffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code}
					})})
			}
			return code == 0
		})
		if len(answers) == 0 && whole == 0 {
			return nil
		}
		return send(c, len(r.Topics) > 0, func(resp *kmsg.TxnOffsetCommitResponse) { resp.Topics = append(resp.Topics, answers...) })
	})
}

// describeTransactions: Describe on each transactional id, and on the topics in it.
func (c *call) describeTransactions(r *kmsg.DescribeTransactionsRequest) error {
	denied := takeOut(&r.TransactionalIDs, func(name *string) bool { return c.txn(Describe, *name) })
	refuse := func(resp *kmsg.DescribeTransactionsResponse) {
		for i := range resp.TransactionStates {
			takeOut(&resp.TransactionStates[i].Topics, func(t *kmsg.DescribeTransactionsResponseTransactionStateTopic) bool {
				return c.sees(Topic, t.Topic)
			})
		}
		for _, name := range denied {
			one := kmsg.NewDescribeTransactionsResponseTransactionState()
			one.TransactionalID, one.ErrorCode = name, transactionalIDAuthorizationFailed
			resp.TransactionStates = append(resp.TransactionStates, one)
		}
	}
	return send(c, len(r.TransactionalIDs) > 0 || len(denied) == 0, refuse)
}

// listTransactions lists what Describe on each transactional id allows.
func (c *call) listTransactions(*kmsg.ListTransactionsRequest) error {
	onResponse(c, func(c *call, resp *kmsg.ListTransactionsResponse) error {
		takeOut(&resp.TransactionStates, func(t *kmsg.ListTransactionsResponseTransactionState) bool {
			return c.sees(TransactionalID, t.TransactionalID)
		})
		return nil
	})
	return nil
}
