package authorize

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusedGroup answers a request of a member whose group is denied.
func refusedGroup[S kmsg.Response](c *call, group string, code func(S) *int16) error {
	if c.group(Read, group) {
		return nil
	}
	return answer(c, func(resp S) { *code(resp) = groupAuthorizationFailed })
}

func (c *call) joinGroup(r *kmsg.JoinGroupRequest) error {
	return refusedGroup(c, r.Group, func(resp *kmsg.JoinGroupResponse) *int16 {
		resp.Generation = -1
		if none := ""; resp.Version < 7 {
			resp.Protocol = &none
		}
		return &resp.ErrorCode
	})
}

func (c *call) heartbeat(r *kmsg.HeartbeatRequest) error {
	return refusedGroup(c, r.Group, func(resp *kmsg.HeartbeatResponse) *int16 { return &resp.ErrorCode })
}

func (c *call) leaveGroup(r *kmsg.LeaveGroupRequest) error {
	return refusedGroup(c, r.Group, func(resp *kmsg.LeaveGroupResponse) *int16 { return &resp.ErrorCode })
}

func (c *call) syncGroup(r *kmsg.SyncGroupRequest) error {
	return refusedGroup(c, r.Group, func(resp *kmsg.SyncGroupResponse) *int16 {
		resp.MemberAssignment = []byte{}
		return &resp.ErrorCode
	})
}

// consumerHeartbeat: Read on the group, Describe on each topic of the subscription. The
// broker evaluates an expression over all its topics, so one needs Describe on all.
func (c *call) consumerHeartbeat(r *kmsg.ConsumerGroupHeartbeatRequest) error {
	code := c.subscription(r.Group, r.SubscribedTopicNames)
	if code == 0 && text(r.SubscribedTopicRegex) != "" && !c.applied.All(Describe, Topic) {
		c.report(Describe, Topic, "*", "", false)
		code = topicAuthorizationFailed
	}
	if code == 0 {
		return nil
	}
	return answer(c, func(resp *kmsg.ConsumerGroupHeartbeatResponse) { resp.ErrorCode = code })
}

func (c *call) shareHeartbeat(r *kmsg.ShareGroupHeartbeatRequest) error {
	code := c.subscription(r.GroupID, r.SubscribedTopicNames)
	if code == 0 {
		return nil
	}
	return answer(c, func(resp *kmsg.ShareGroupHeartbeatResponse) { resp.ErrorCode = code })
}

func (c *call) subscription(group string, topics []string) (code int16) {
	if !c.group(Read, group) {
		return groupAuthorizationFailed
	}
	for _, t := range topics {
		if !c.topic(Describe, t) {
			return topicAuthorizationFailed
		}
	}
	return 0
}

// describeGroups: Describe on each group.
func (c *call) describeGroups(r *kmsg.DescribeGroupsRequest) error {
	denied := takeOut(&r.Groups, func(name *string) bool { return c.group(Describe, *name) })
	return send(c, len(r.Groups) > 0 || len(denied) == 0, func(resp *kmsg.DescribeGroupsResponse) {
		for i := range resp.Groups {
			c.mask(&resp.Groups[i].AuthorizedOperations, Group, resp.Groups[i].Group)
		}
		for _, name := range denied {
			one := kmsg.NewDescribeGroupsResponseGroup()
			one.Group, one.ErrorCode = name, groupAuthorizationFailed
			resp.Groups = append(resp.Groups, one)
		}
	})
}

// topicsDenied is Kafka's text for a group with topics that may not be described.
const topicsDenied = "The described group uses topics that the client is not authorized to describe."

// consumerDescribe: Describe on each group and on all topics that its members have.
func (c *call) consumerDescribe(r *kmsg.ConsumerGroupDescribeRequest) error {
	denied := takeOut(&r.Groups, func(name *string) bool { return c.group(Describe, *name) })
	return send(c, len(r.Groups) > 0 || len(denied) == 0, func(resp *kmsg.ConsumerGroupDescribeResponse) {
		for i := range resp.Groups {
			g := &resp.Groups[i]
			c.mask(&g.AuthorizedOperations, Group, g.Group)
			if slices.ContainsFunc(g.Members, func(m kmsg.ConsumerGroupDescribeResponseGroupMember) bool {
				return !c.seesAll(m.SubscribedTopics) || !c.seesAssigned(&m.Assignment) || !c.seesAssigned(&m.TargetAssignment)
			}) {
				hidden := kmsg.NewConsumerGroupDescribeResponseGroup()
				hidden.Group, hidden.ErrorCode, hidden.ErrorMessage = g.Group, topicAuthorizationFailed, message(topicsDenied)
				*g = hidden
			}
		}
		for _, name := range denied {
			one := kmsg.NewConsumerGroupDescribeResponseGroup()
			one.Group, one.ErrorCode = name, groupAuthorizationFailed
			resp.Groups = append(resp.Groups, one)
		}
	})
}

// shareDescribe is the same for share groups.
func (c *call) shareDescribe(r *kmsg.ShareGroupDescribeRequest) error {
	denied := takeOut(&r.GroupIDs, func(name *string) bool { return c.group(Describe, *name) })
	return send(c, len(r.GroupIDs) > 0 || len(denied) == 0, func(resp *kmsg.ShareGroupDescribeResponse) {
		for i := range resp.Groups {
			g := &resp.Groups[i]
			c.mask(&g.AuthorizedOperations, Group, g.GroupID)
			if slices.ContainsFunc(g.Members, func(m kmsg.ShareGroupDescribeResponseGroupMember) bool {
				return !c.seesAll(m.SubscribedTopicNames) ||
					slices.ContainsFunc(m.Assignment.TopicPartitions, func(t kmsg.ShareGroupDescribeResponseGroupMemberAssignmentTopicPartition) bool {
						return !c.sees(Topic, t.Topic)
					})
			}) {
				hidden := kmsg.NewShareGroupDescribeResponseGroup()
				hidden.GroupID, hidden.ErrorCode, hidden.ErrorMessage = g.GroupID, topicAuthorizationFailed, message(topicsDenied)
				*g = hidden
			}
		}
		for _, name := range denied {
			one := kmsg.NewShareGroupDescribeResponseGroup()
			one.GroupID, one.ErrorCode = name, groupAuthorizationFailed
			resp.Groups = append(resp.Groups, one)
		}
	})
}

func (c *call) seesAll(topics []string) bool {
	return !slices.ContainsFunc(topics, func(t string) bool { return !c.sees(Topic, t) })
}

func (c *call) seesAssigned(a *kmsg.Assignment) bool {
	return !slices.ContainsFunc(a.TopicPartitions, func(t kmsg.AssignmentTopicPartition) bool { return !c.sees(Topic, t.Topic) })
}

// listGroups lists all with Describe on the cluster, else what Describe on each allows.
func (c *call) listGroups(*kmsg.ListGroupsRequest) error {
	if c.look(Describe, Cluster, ClusterName).Allowed {
		return nil
	}
	onResponse(c, func(c *call, resp *kmsg.ListGroupsResponse) error {
		takeOut(&resp.Groups, func(g *kmsg.ListGroupsResponseGroup) bool { return c.sees(Group, g.Group) })
		return nil
	})
	return nil
}

// deleteGroups: Delete on each group.
func (c *call) deleteGroups(r *kmsg.DeleteGroupsRequest) error {
	denied := takeOut(&r.Groups, func(name *string) bool { return c.group(Delete, *name) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Groups) > 0, func(resp *kmsg.DeleteGroupsResponse) {
		for _, name := range denied {
			one := kmsg.NewDeleteGroupsResponseGroup()
			one.Group, one.ErrorCode = name, groupAuthorizationFailed
			resp.Groups = append(resp.Groups, one)
		}
	})
}

// offsetCommit: Read on the group and on each topic.
func (c *call) offsetCommit(r *kmsg.OffsetCommitRequest) error {
	byID := r.Version >= 10
	n := len(r.Topics)
	if !byID {
		n = 0
	}
	return c.resolve(n, func(i int) id { return r.Topics[i].TopicID }, func() error {
		whole := int16(0)
		if !c.group(Read, r.Group) {
			whole = groupAuthorizationFailed
		}
		var answers []kmsg.OffsetCommitResponseTopic
		takeOut(&r.Topics, func(t *kmsg.OffsetCommitRequestTopic) bool {
			code := whole
			if code == 0 {
				code = c.byNameOrID(Read, byID, t.Topic, t.TopicID)
			}
			if code != 0 {
				answers = append(answers, kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID, Partitions: mapped(t.Partitions,
					func(p *kmsg.OffsetCommitRequestTopicPartition) kmsg.OffsetCommitResponseTopicPartition {
						return kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: code}
					})})
			}
			return code == 0
		})
		if len(answers) == 0 && whole == 0 {
			return nil
		}
		return send(c, len(r.Topics) > 0, func(resp *kmsg.OffsetCommitResponse) { resp.Topics = append(resp.Topics, answers...) })
	})
}

// offsetDelete: Delete on the group, Read on each topic.
func (c *call) offsetDelete(r *kmsg.OffsetDeleteRequest) error {
	if !c.group(Delete, r.Group) {
		return answer(c, func(resp *kmsg.OffsetDeleteResponse) { resp.ErrorCode = groupAuthorizationFailed })
	}
	denied := takeOut(&r.Topics, func(t *kmsg.OffsetDeleteRequestTopic) bool { return c.topic(Read, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.OffsetDeleteResponse) {
		for i := range denied {
			t := kmsg.OffsetDeleteResponseTopic{Topic: denied[i].Topic}
			for _, p := range denied[i].Partitions {
				t.Partitions = append(t.Partitions,
					kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: topicAuthorizationFailed})
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
}
