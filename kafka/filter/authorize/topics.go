package authorize

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listOffsets: Describe on each topic.
func (c *call) listOffsets(r *kmsg.ListOffsetsRequest) error {
	denied := takeOut(&r.Topics, func(t *kmsg.ListOffsetsRequestTopic) bool { return c.topic(Describe, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.ListOffsetsResponse) {
		resp.Topics = append(resp.Topics, mapped(denied, func(t *kmsg.ListOffsetsRequestTopic) kmsg.ListOffsetsResponseTopic {
			return kmsg.ListOffsetsResponseTopic{Topic: t.Topic,
				Partitions: mapped(t.Partitions, func(p *kmsg.ListOffsetsRequestTopicPartition) kmsg.ListOffsetsResponseTopicPartition {
					one := kmsg.NewListOffsetsResponseTopicPartition()
					one.Partition, one.ErrorCode, one.Timestamp, one.Offset, one.LeaderEpoch = p.Partition, topicAuthorizationFailed, -1, -1, -1
					return one
				})}
		})...)
	})
}

// offsetForLeaderEpoch: Describe on each topic, or ClusterAction for replicas.
func (c *call) offsetForLeaderEpoch(r *kmsg.OffsetForLeaderEpochRequest) error {
	if c.look(ClusterAction, Cluster, ClusterName).Allowed {
		return nil
	}
	denied := takeOut(&r.Topics, func(t *kmsg.OffsetForLeaderEpochRequestTopic) bool { return c.topic(Describe, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.OffsetForLeaderEpochResponse) {
		for i := range denied {
			t := kmsg.OffsetForLeaderEpochResponseTopic{Topic: denied[i].Topic}
			for _, p := range denied[i].Partitions {
				one := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				one.Partition, one.ErrorCode, one.LeaderEpoch, one.EndOffset = p.Partition, topicAuthorizationFailed, -1, -1
				t.Partitions = append(t.Partitions, one)
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
}

// createTopics: Create on the cluster or on each topic; DescribeConfigs to see the
// configuration of a new one (KIP-525).
func (c *call) createTopics(r *kmsg.CreateTopicsRequest) error {
	var denied []kmsg.CreateTopicsRequestTopic
	if !c.look(Create, Cluster, ClusterName).Allowed {
		denied = takeOut(&r.Topics, func(t *kmsg.CreateTopicsRequestTopic) bool { return c.topic(Create, t.Topic) })
	}
	refuse := func(resp *kmsg.CreateTopicsResponse) {
		for i := range resp.Topics {
			t := &resp.Topics[i]
			if t.ErrorCode == 0 && !c.look(DescribeConfigs, Topic, t.Topic).Allowed {
				t.ConfigErrorCode, t.Configs = topicAuthorizationFailed, []kmsg.CreateTopicsResponseTopicConfig{}
				t.NumPartitions, t.ReplicationFactor = -1, -1
			}
		}
		for i := range denied {
			one := kmsg.NewCreateTopicsResponseTopic()
			one.Topic, one.ErrorCode, one.ErrorMessage = denied[i].Topic, topicAuthorizationFailed, message("Authorization failed.")
			one.NumPartitions, one.ReplicationFactor = -1, -1
			one.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
			resp.Topics = append(resp.Topics, one)
		}
	}
	if len(denied) > 0 {
		return send(c, len(r.Topics) > 0, refuse)
	}
	onResponse(c, func(_ *call, resp *kmsg.CreateTopicsResponse) error { refuse(resp); return nil })
	return nil
}

// message is a text of an error.
func message(s string) *string { return &s }

// deleteTopics: Delete on the cluster or on each topic. The name of one by id is told
// only to who may describe it.
func (c *call) deleteTopics(r *kmsg.DeleteTopicsRequest) error {
	if c.look(Delete, Cluster, ClusterName).Allowed {
		return nil
	}
	return c.resolve(len(r.Topics), func(i int) id { return r.Topics[i].TopicID }, func() error {
		var answers []kmsg.DeleteTopicsResponseTopic
		takeOut(&r.TopicNames, func(name *string) bool {
			if c.topic(Delete, *name) {
				return true
			}
			answers = append(answers, refusedDelete(name, id{}, topicAuthorizationFailed))
			return false
		})
		takeOut(&r.Topics, func(t *kmsg.DeleteTopicsRequestTopic) bool {
			if t.Topic != nil {
				if c.topic(Delete, *t.Topic) {
					return true
				}
				answers = append(answers, refusedDelete(t.Topic, id{}, topicAuthorizationFailed))
				return false
			}
			code := c.topicByID(Delete, t.TopicID)
			if code == 0 {
				return true
			}
			one := refusedDelete(nil, t.TopicID, code)
			if name, ok := c.ids.Get(t.TopicID); ok && c.sees(Topic, name) {
				one.Topic = &name
			}
			answers = append(answers, one)
			return false
		})
		if len(answers) == 0 {
			return nil
		}
		return send(c, len(r.Topics)+len(r.TopicNames) > 0, func(resp *kmsg.DeleteTopicsResponse) {
			resp.Topics = append(resp.Topics, answers...)
		})
	})
}

func refusedDelete(name *string, t id, code int16) kmsg.DeleteTopicsResponseTopic {
	one := kmsg.NewDeleteTopicsResponseTopic()
	one.Topic, one.TopicID, one.ErrorCode = name, t, code
	if code == topicAuthorizationFailed {
		one.ErrorMessage = refusalText(code)
	}
	return one
}

// deleteRecords: Delete on each topic.
func (c *call) deleteRecords(r *kmsg.DeleteRecordsRequest) error {
	denied := takeOut(&r.Topics, func(t *kmsg.DeleteRecordsRequestTopic) bool { return c.topic(Delete, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.DeleteRecordsResponse) {
		for i := range denied {
			t := kmsg.DeleteRecordsResponseTopic{Topic: denied[i].Topic}
			for _, p := range denied[i].Partitions {
				one := kmsg.NewDeleteRecordsResponseTopicPartition()
				one.Partition, one.ErrorCode, one.LowWatermark = p.Partition, topicAuthorizationFailed, -1
				t.Partitions = append(t.Partitions, one)
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
}

// createPartitions: Alter on each topic.
func (c *call) createPartitions(r *kmsg.CreatePartitionsRequest) error {
	denied := takeOut(&r.Topics, func(t *kmsg.CreatePartitionsRequestTopic) bool { return c.topic(Alter, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.CreatePartitionsResponse) {
		for i := range denied {
			one := kmsg.NewCreatePartitionsResponseTopic()
			one.Topic, one.ErrorCode = denied[i].Topic, topicAuthorizationFailed
			resp.Topics = append(resp.Topics, one)
		}
	})
}

// describeProducers: Read on each topic.
func (c *call) describeProducers(r *kmsg.DescribeProducersRequest) error {
	denied := takeOut(&r.Topics, func(t *kmsg.DescribeProducersRequestTopic) bool { return c.topic(Read, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.DescribeProducersResponse) {
		for i := range denied {
			t := kmsg.DescribeProducersResponseTopic{Topic: denied[i].Topic}
			for _, p := range denied[i].Partitions {
				one := kmsg.NewDescribeProducersResponseTopicPartition()
				one.Partition, one.ErrorCode, one.ErrorMessage = p, topicAuthorizationFailed, refusalText(topicAuthorizationFailed)
				t.Partitions = append(t.Partitions, one)
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
}

// isInternal reports whether a name is that of a topic of Kafka's own.
func isInternal(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state" || name == "__share_group_state"
}

// describePartitions: Describe on each topic, or of all those that it allows.
func (c *call) describePartitions(r *kmsg.DescribeTopicPartitionsRequest) error {
	all := len(r.Topics) == 0
	denied := takeOut(&r.Topics, func(t *kmsg.DescribeTopicPartitionsRequestTopic) bool { return c.topic(Describe, t.Topic) })
	refuse := func(c *call, resp *kmsg.DescribeTopicPartitionsResponse) error {
		c.showPartitions(resp)
		for i := range denied {
			one := kmsg.NewDescribeTopicPartitionsResponseTopic()
			one.Topic, one.ErrorCode, one.IsInternal = &denied[i].Topic, topicAuthorizationFailed, isInternal(denied[i].Topic)
			resp.Topics = append(resp.Topics, one)
		}
		if all {
			return c.nextPage(resp)
		}
		return nil
	}
	if len(r.Topics) == 0 && !all {
		return answer(c, func(resp *kmsg.DescribeTopicPartitionsResponse) { _ = refuse(c, resp) })
	}
	if len(denied) > 0 {
		c.m.MarkChanged()
	}
	onResponse(c, refuse)
	return nil
}

// showPartitions leaves in an answer what the client may describe.
func (c *call) showPartitions(resp *kmsg.DescribeTopicPartitionsResponse) {
	takeOut(&resp.Topics, func(t *kmsg.DescribeTopicPartitionsResponseTopic) bool {
		if t.Topic == nil || !c.sees(Topic, *t.Topic) {
			return false
		}
		c.mask(&t.AuthorizedOperations, Topic, *t.Topic)
		return true
	})
}

// maxPage is how many partitions a page has that the filter asks for: Kafka's default
// of max.request.partition.size.limit. With the client's own limit of 1 a long
// list would be as many questions.
const maxPage = 2000

// nextPage goes on with a list of all topics until the next one is one that the client
// may describe: the cursor has its name.
func (c *call) nextPage(resp *kmsg.DescribeTopicPartitionsResponse) error {
	if resp.NextCursor == nil || c.sees(Topic, resp.NextCursor.Topic) {
		return nil
	}
	next := kmsg.NewPtrDescribeTopicPartitionsRequest()
	next.ResponsePartitionLimit = maxPage
	next.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	c.x.Ask(next, func(r kmsg.Response, err error) error {
		if err != nil {
			return err
		}
		page, ok := r.(*kmsg.DescribeTopicPartitionsResponse)
		if !ok {
			resp.NextCursor = nil
			return nil
		}
		c.showPartitions(page)
		resp.Topics, resp.NextCursor = append(resp.Topics, page.Topics...), page.NextCursor
		return c.nextPage(resp)
	})
	return nil
}
