package authorize

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeShareOffsets: Describe on each group and topic. A list of all topics of a group
// has those that Describe allows.
func (c *call) describeShareOffsets(r *kmsg.DescribeShareGroupOffsetsRequest) error {
	refused := map[string][]kmsg.DescribeShareGroupOffsetsResponseGroupTopic{} // by group
	denied := takeOut(&r.Groups, func(g *kmsg.DescribeShareGroupOffsetsRequestGroup) bool {
		if !c.group(Describe, g.GroupID) {
			return false
		}
		takeOut(&g.Topics, func(t *kmsg.DescribeShareGroupOffsetsRequestGroupTopic) bool {
			if c.topic(Describe, t.Topic) {
				return true
			}
			refused[g.GroupID] = append(refused[g.GroupID], kmsg.DescribeShareGroupOffsetsResponseGroupTopic{Topic: t.Topic,
				Partitions: mapped(t.Partitions, func(p *int32) kmsg.DescribeShareGroupOffsetsResponseGroupTopicPartition {
					one := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
					one.Partition, one.ErrorCode, one.ErrorMessage = *p, topicAuthorizationFailed, refusalText(topicAuthorizationFailed)
					return one
				})})
			return false
		})
		return true
	})
	return send(c, len(r.Groups) > 0 || len(denied) == 0, func(resp *kmsg.DescribeShareGroupOffsetsResponse) {
		for i := range resp.Groups {
			g := &resp.Groups[i]
			takeOut(&g.Topics, func(t *kmsg.DescribeShareGroupOffsetsResponseGroupTopic) bool { return c.sees(Topic, t.Topic) })
			g.Topics = append(g.Topics, refused[g.GroupID]...)
		}
		for i := range denied {
			one := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			one.GroupID, one.ErrorCode, one.ErrorMessage = denied[i].GroupID, groupAuthorizationFailed, refusalText(groupAuthorizationFailed)
			resp.Groups = append(resp.Groups, one)
		}
	})
}

// alterShareOffsets: Read on the group and on each topic.
func (c *call) alterShareOffsets(r *kmsg.AlterShareGroupOffsetsRequest) error {
	if !c.group(Read, r.GroupID) {
		return answer(c, func(resp *kmsg.AlterShareGroupOffsetsResponse) {
			resp.ErrorCode, resp.ErrorMessage = groupAuthorizationFailed, refusalText(groupAuthorizationFailed)
		})
	}
	denied := takeOut(&r.Topics, func(t *kmsg.AlterShareGroupOffsetsRequestTopic) bool { return c.topic(Read, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.AlterShareGroupOffsetsResponse) {
		for i := range denied {
			t := kmsg.AlterShareGroupOffsetsResponseTopic{Topic: denied[i].Topic}
			for _, p := range denied[i].Partitions {
				t.Partitions = append(t.Partitions, kmsg.AlterShareGroupOffsetsResponseTopicPartition{Partition: p.Partition,
					ErrorCode: topicAuthorizationFailed, ErrorMessage: refusalText(topicAuthorizationFailed)})
			}
			resp.Topics = append(resp.Topics, t)
		}
	})
}

// deleteShareOffsets: Delete on the group, Read on each topic.
func (c *call) deleteShareOffsets(r *kmsg.DeleteShareGroupOffsetsRequest) error {
	if !c.group(Delete, r.GroupID) {
		return answer(c, func(resp *kmsg.DeleteShareGroupOffsetsResponse) {
			resp.ErrorCode, resp.ErrorMessage = groupAuthorizationFailed, refusalText(groupAuthorizationFailed)
		})
	}
	denied := takeOut(&r.Topics, func(t *kmsg.DeleteShareGroupOffsetsRequestTopic) bool { return c.topic(Read, t.Topic) })
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.Topics) > 0, func(resp *kmsg.DeleteShareGroupOffsetsResponse) {
		for i := range denied {
			one := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
			one.Topic, one.ErrorCode, one.ErrorMessage = denied[i].Topic, topicAuthorizationFailed, refusalText(topicAuthorizationFailed)
			resp.Topics = append(resp.Topics, one)
		}
	})
}
