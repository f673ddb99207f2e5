package multitenant

import (
	"cmp"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *call) findCoordinatorRequest(r *kmsg.FindCoordinatorRequest) error {
	// Groups, transactional ids, and of share groups "group:topic id:partition":
	// the prefix stands first in each.
	if r.Version < 4 {
		c.prefixID(&r.CoordinatorKey)
	}
	prefixAll(r.CoordinatorKeys, c.prefixID)
	return nil
}

func (c *call) findCoordinatorResponse(r *kmsg.FindCoordinatorResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	return forEach(r.Coordinators, func(k *kmsg.FindCoordinatorResponseCoordinator) error {
		c.unprefixMessage(k.ErrorMessage)
		return c.unprefix(&k.Key)
	})
}

func (c *call) offsetCommitRequest(r *kmsg.OffsetCommitRequest) error {
	c.prefixOffsetsGroup(&r.Group)
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return c.substituteIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) offsetCommitResponse(r *kmsg.OffsetCommitResponse) error {
	if r.Version < 10 {
		return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	}
	return c.restoreIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) offsetFetchRequest(r *kmsg.OffsetFetchRequest) error {
	if r.Version < 8 {
		c.prefixOffsetsGroup(&r.Group)
	}
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	var list []*id
	for i := range r.Groups {
		g := &r.Groups[i]
		c.prefixOffsetsGroup(&g.Group)
		for j := range g.Topics {
			c.prefixTopic(&g.Topics[j].Topic)
			list = append(list, &g.Topics[j].TopicID)
		}
	}
	return c.substituteIDs(len(list), func(i int) *id { return list[i] })
}

// offsetFetchResponse: a group that is the tenant's has offsets of the
// tenant's topics only, so ids not seen before are learned.
func (c *call) offsetFetchResponse(r *kmsg.OffsetFetchResponse) error {
	if err := forEach(r.Topics, func(t *kmsg.OffsetFetchResponseTopic) error { return c.unprefix(&t.Topic) }); err != nil {
		return err
	}
	var list []*id
	if err := forEach(r.Groups, func(g *kmsg.OffsetFetchResponseGroup) error {
		if err := c.unprefix(&g.Group); err != nil {
			return err
		}
		return forEach(g.Topics, func(t *kmsg.OffsetFetchResponseGroupTopic) error {
			if r.Version < 10 {
				return c.unprefix(&t.Topic)
			}
			if _, substituted := c.substitutes.get(t.TopicID); !substituted && !c.substitutes.evicted {
				c.ids.learn(t.TopicID)
			}
			list = append(list, &t.TopicID)
			return nil
		})
	}); err != nil {
		return err
	}
	return c.restoreIDs(len(list), func(i int) *id { return list[i] })
}

func (c *call) offsetDeleteRequest(r *kmsg.OffsetDeleteRequest) error {
	c.prefixID(&r.Group)
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) offsetDeleteResponse(r *kmsg.OffsetDeleteResponse) error {
	return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
}

func (c *call) describeGroupsRequest(r *kmsg.DescribeGroupsRequest) error {
	prefixAll(r.Groups, c.prefixOffsetsGroup)
	return nil
}

func (c *call) describeGroupsResponse(r *kmsg.DescribeGroupsResponse) error {
	names := c.unprefixMemberNames()
	err := forEach(r.Groups, func(g *kmsg.DescribeGroupsResponseGroup) error {
		c.unprefixMessage(g.ErrorMessage)
		c.describedMembers(g, names)
		return c.unprefix(&g.Group)
	})
	return cmp.Or(err, names.err())
}

func (c *call) listGroupsResponse(r *kmsg.ListGroupsResponse) error {
	r.Groups = retain(r.Groups, func(g *kmsg.ListGroupsResponseGroup) bool { return c.tryUnprefix(&g.Group) })
	return nil
}

func (c *call) deleteGroupsRequest(r *kmsg.DeleteGroupsRequest) error {
	prefixAll(r.Groups, c.prefixOffsetsGroup)
	return nil
}

func (c *call) deleteGroupsResponse(r *kmsg.DeleteGroupsResponse) error {
	return forEach(r.Groups, func(g *kmsg.DeleteGroupsResponseGroup) error {
		c.unprefixMessage(g.ErrorMessage)
		return c.unprefix(&g.Group)
	})
}

func (c *call) heartbeatRequest(r *kmsg.ConsumerGroupHeartbeatRequest) error {
	c.prefixID(&r.Group)
	prefixAll(r.SubscribedTopicNames, c.prefixTopic)
	c.rewriteSubscription(r)
	return c.substituteIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

// heartbeatResponse finds out about what is assigned. It is not simply taken for
// the tenant's: members may have come past the proxy, or by JoinGroup, with a
// subscription that only they and the broker read.
func (c *call) heartbeatResponse(r *kmsg.ConsumerGroupHeartbeatResponse) error {
	if !c.restoreSubscriptionError(r) {
		c.unprefixMessage(r.ErrorMessage)
	}
	if r.Assignment == nil {
		return nil
	}
	// An assignment is told once, so what was found out lately elsewhere,
	// perhaps before the topic was known there, does not do.
	var list []id
	for i := range r.Assignment.Topics {
		if t := r.Assignment.Topics[i].TopicID; !c.ids.owns(t) {
			list = append(list, t)
		}
	}
	return c.lookUpIDs(list, func() error {
		r.Assignment.Topics = retain(r.Assignment.Topics, func(t *kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic) bool {
			return c.ids.owns(t.TopicID)
		})
		return nil
	})
}

func (c *call) groupDescribeRequest(r *kmsg.ConsumerGroupDescribeRequest) error {
	prefixAll(r.Groups, c.prefixOffsetsGroup)
	return nil
}

func (c *call) groupDescribeResponse(r *kmsg.ConsumerGroupDescribeResponse) error {
	assigned := func(a *kmsg.Assignment) {
		a.TopicPartitions = retain(a.TopicPartitions, func(t *kmsg.AssignmentTopicPartition) bool {
			ok := c.tryUnprefix(&t.Topic)
			if ok {
				c.ids.learn(t.TopicID)
			}
			return ok
		})
	}
	return forEach(r.Groups, func(g *kmsg.ConsumerGroupDescribeResponseGroup) error {
		c.unprefixMessage(g.ErrorMessage)
		for i := range g.Members {
			m := &g.Members[i]
			m.SubscribedTopics = retain(m.SubscribedTopics, c.tryUnprefix)
			m.SubscribedTopicRegex = c.restoreSubscription(m.SubscribedTopicRegex)
			assigned(&m.Assignment)
			assigned(&m.TargetAssignment)
		}
		return c.unprefix(&g.Group)
	})
}
