package multitenant

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *call) shareHeartbeatRequest(r *kmsg.ShareGroupHeartbeatRequest) error {
	c.prefixID(&r.GroupID)
	prefixAll(r.SubscribedTopicNames, c.prefixTopic)
	return nil
}

// shareHeartbeatResponse learns what is assigned, as heartbeatResponse does.
func (c *call) shareHeartbeatResponse(r *kmsg.ShareGroupHeartbeatResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	if r.Assignment != nil {
		for i := range r.Assignment.TopicPartitions {
			c.ids.learn(r.Assignment.TopicPartitions[i].TopicID)
		}
	}
	return nil
}

func (c *call) shareDescribeRequest(r *kmsg.ShareGroupDescribeRequest) error {
	prefixAll(r.GroupIDs, c.prefixOffsetsGroup)
	return nil
}

func (c *call) shareDescribeResponse(r *kmsg.ShareGroupDescribeResponse) error {
	return forEach(r.Groups, func(g *kmsg.ShareGroupDescribeResponseGroup) error {
		c.unprefixMessage(g.ErrorMessage)
		for i := range g.Members {
			m := &g.Members[i]
			m.SubscribedTopicNames = retain(m.SubscribedTopicNames, c.tryUnprefix)
			m.Assignment.TopicPartitions = retain(m.Assignment.TopicPartitions,
				func(t *kmsg.ShareGroupDescribeResponseGroupMemberAssignmentTopicPartition) bool {
					return c.tryUnprefix(&t.Topic)
				})
		}
		return c.unprefix(&g.GroupID)
	})
}

func (c *call) shareFetchRequest(r *kmsg.ShareFetchRequest) error {
	r.GroupID = mapOptional(r.GroupID, c.prefixID)
	var list []*id
	for i := range r.Topics {
		list = append(list, &r.Topics[i].TopicID)
	}
	for i := range r.ForgottenTopicsData {
		list = append(list, &r.ForgottenTopicsData[i].TopicID)
	}
	return c.updateSession(&c.shareSession, r.ShareSessionEpoch, list, func() kmsg.Response {
		const shareSessionNotFound = 122
		again := kmsg.NewPtrShareFetchResponse()
		again.ErrorCode = shareSessionNotFound
		return again
	})
}

func (c *call) shareFetchResponse(r *kmsg.ShareFetchResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			c.unprefixMessage(r.Topics[i].Partitions[j].ErrorMessage)
			c.unprefixMessage(r.Topics[i].Partitions[j].AcknowledgeErrorMessage)
		}
	}
	return c.restoreIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) shareAckRequest(r *kmsg.ShareAcknowledgeRequest) error {
	r.GroupID = mapOptional(r.GroupID, c.prefixID)
	return c.substituteIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) shareAckResponse(r *kmsg.ShareAcknowledgeResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			c.unprefixMessage(r.Topics[i].Partitions[j].ErrorMessage)
		}
	}
	return c.restoreIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) shareOffsetsRequest(r *kmsg.DescribeShareGroupOffsetsRequest) error {
	for i := range r.Groups {
		g := &r.Groups[i]
		c.prefixOffsetsGroup(&g.GroupID)
		c.prefixEach(len(g.Topics), func(j int) *string { return &g.Topics[j].Topic })
	}
	return nil
}

func (c *call) shareOffsetsResponse(r *kmsg.DescribeShareGroupOffsetsResponse) error {
	return forEach(r.Groups, func(g *kmsg.DescribeShareGroupOffsetsResponseGroup) error {
		c.unprefixMessage(g.ErrorMessage)
		if err := c.unprefix(&g.GroupID); err != nil {
			return err
		}
		return forEach(g.Topics, func(t *kmsg.DescribeShareGroupOffsetsResponseGroupTopic) error {
			for i := range t.Partitions {
				c.unprefixMessage(t.Partitions[i].ErrorMessage)
			}
			return c.unprefix(&t.Topic)
		})
	})
}

func (c *call) alterShareOffsetsRequest(r *kmsg.AlterShareGroupOffsetsRequest) error {
	c.prefixID(&r.GroupID)
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) alterShareOffsetsResponse(r *kmsg.AlterShareGroupOffsetsResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	return forEach(r.Topics, func(t *kmsg.AlterShareGroupOffsetsResponseTopic) error {
		for i := range t.Partitions {
			c.unprefixMessage(t.Partitions[i].ErrorMessage)
		}
		return c.unprefix(&t.Topic)
	})
}

func (c *call) deleteShareOffsetsRequest(r *kmsg.DeleteShareGroupOffsetsRequest) error {
	c.prefixID(&r.GroupID)
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) deleteShareOffsetsResponse(r *kmsg.DeleteShareGroupOffsetsResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	return forEach(r.Topics, func(t *kmsg.DeleteShareGroupOffsetsResponseTopic) error {
		c.unprefixMessage(t.ErrorMessage)
		return c.unprefix(&t.Topic)
	})
}
