package multitenant

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *call) listOffsetsRequest(r *kmsg.ListOffsetsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) listOffsetsResponse(r *kmsg.ListOffsetsResponse) error {
	return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
}

func (c *call) epochRequest(r *kmsg.OffsetForLeaderEpochRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) epochResponse(r *kmsg.OffsetForLeaderEpochResponse) error {
	return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
}

func (c *call) createTopicsRequest(r *kmsg.CreateTopicsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) createTopicsResponse(r *kmsg.CreateTopicsResponse) error {
	return forEach(r.Topics, func(t *kmsg.CreateTopicsResponseTopic) error {
		t.ErrorMessage = c.collision(t.ErrorMessage)
		c.unprefixMessage(t.ErrorMessage)
		if t.ErrorCode == 0 {
			c.ids.learn(t.TopicID)
		}
		return c.unprefix(&t.Topic)
	})
}

// collision removes a name of another tenant from the refusal of a topic
// ("Topic 'a.b' collides with existing topic: a_b"): that rule treats "." and
// "_" alike, in prefixes too.
func (t *tenant) collision(text *string) *string {
	if text == nil {
		return nil
	}
	const says = " collides with existing topic"
	before, name, ok := strings.Cut(*text, says+": ")
	if !ok || strings.HasPrefix(name, t.prefix) {
		return text
	}
	nameless := before + says
	return &nameless
}

func (c *call) deleteTopicsRequest(r *kmsg.DeleteTopicsRequest) error {
	prefixAll(r.TopicNames, c.prefixTopic)
	for i := range r.Topics {
		r.Topics[i].Topic = mapOptional(r.Topics[i].Topic, c.prefixTopic)
	}
	return c.substituteIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) deleteTopicsResponse(r *kmsg.DeleteTopicsResponse) error {
	for i := range r.Topics {
		t := &r.Topics[i]
		c.unprefixMessage(t.ErrorMessage)
		// In an error name and id are as the client said.
		if t.ErrorCode == 0 && t.Topic != nil && strings.HasPrefix(*t.Topic, c.prefix) {
			c.ids.learn(t.TopicID) // by name, of one not seen before
		}
		if t.Topic == nil {
			continue
		}
		if err := c.unprefix(t.Topic); err != nil {
			return err
		}
	}
	return c.restoreIDs(len(r.Topics), func(i int) *id { return &r.Topics[i].TopicID })
}

func (c *call) deleteRecordsRequest(r *kmsg.DeleteRecordsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) deleteRecordsResponse(r *kmsg.DeleteRecordsResponse) error {
	return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
}

func (c *call) createPartitionsRequest(r *kmsg.CreatePartitionsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) createPartitionsResponse(r *kmsg.CreatePartitionsResponse) error {
	return forEach(r.Topics, func(t *kmsg.CreatePartitionsResponseTopic) error {
		c.unprefixMessage(t.ErrorMessage)
		return c.unprefix(&t.Topic)
	})
}

// electLeadersRequest turns "all partitions" into all of the tenant's.
func (c *call) electLeadersRequest(r *kmsg.ElectLeadersRequest) error {
	if r.Topics != nil {
		c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
		return nil
	}
	all := kmsg.NewPtrMetadataRequest()
	all.Version = 4
	c.x.Ask(all, func(resp kmsg.Response, err error) error {
		if err != nil {
			return err
		}
		r.Topics = []kmsg.ElectLeadersRequestTopic{}
		m, _ := resp.(*kmsg.MetadataResponse)
		for i := range m.Topics {
			if t := &m.Topics[i]; t.Topic != nil && strings.HasPrefix(*t.Topic, c.prefix) {
				elect := kmsg.ElectLeadersRequestTopic{Topic: *t.Topic}
				for j := range t.Partitions {
					elect.Partitions = append(elect.Partitions, t.Partitions[j].Partition)
				}
				r.Topics = append(r.Topics, elect)
			}
		}
		return nil
	})
	return nil
}

func (c *call) electLeadersResponse(r *kmsg.ElectLeadersResponse) error {
	return forEach(r.Topics, func(t *kmsg.ElectLeadersResponseTopic) error {
		for i := range t.Partitions {
			c.unprefixMessage(t.Partitions[i].ErrorMessage)
		}
		return c.unprefix(&t.Topic)
	})
}

func (c *call) alterAssignmentsRequest(r *kmsg.AlterPartitionAssignmentsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) alterAssignmentsResponse(r *kmsg.AlterPartitionAssignmentsResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	return forEach(r.Topics, func(t *kmsg.AlterPartitionAssignmentsResponseTopic) error {
		for i := range t.Partitions {
			c.unprefixMessage(t.Partitions[i].ErrorMessage)
		}
		return c.unprefix(&t.Topic)
	})
}

func (c *call) listReassignmentsRequest(r *kmsg.ListPartitionReassignmentsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) listReassignmentsResponse(r *kmsg.ListPartitionReassignmentsResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	r.Topics = retain(r.Topics, func(t *kmsg.ListPartitionReassignmentsResponseTopic) bool { return c.tryUnprefix(&t.Topic) })
	return nil
}

func (c *call) alterLogDirsRequest(r *kmsg.AlterReplicaLogDirsRequest) error {
	for i := range r.Dirs {
		c.prefixEach(len(r.Dirs[i].Topics), func(j int) *string { return &r.Dirs[i].Topics[j].Topic })
	}
	return nil
}

func (c *call) alterLogDirsResponse(r *kmsg.AlterReplicaLogDirsResponse) error {
	return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
}

func (c *call) describeLogDirsRequest(r *kmsg.DescribeLogDirsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

// describeLogDirsResponse leaves out other tenants' topics, and the size of the
// volumes, which would show their growth.
func (c *call) describeLogDirsResponse(r *kmsg.DescribeLogDirsResponse) error {
	for i := range r.Dirs {
		d := &r.Dirs[i]
		d.TotalBytes, d.UsableBytes = -1, -1
		d.Topics = retain(d.Topics, func(t *kmsg.DescribeLogDirsResponseDirTopic) bool { return c.tryUnprefix(&t.Topic) })
	}
	return nil
}

func (c *call) describeProducersRequest(r *kmsg.DescribeProducersRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	return nil
}

func (c *call) describeProducersResponse(r *kmsg.DescribeProducersResponse) error {
	return forEach(r.Topics, func(t *kmsg.DescribeProducersResponseTopic) error {
		for i := range t.Partitions {
			c.unprefixMessage(t.Partitions[i].ErrorMessage)
		}
		return c.unprefix(&t.Topic)
	})
}

// describePartitionsRequest begins a list of all topics at the first of the
// tenant's: the broker sorts by name, so they are consecutive.
func (c *call) describePartitionsRequest(r *kmsg.DescribeTopicPartitionsRequest) error {
	c.prefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
	switch {
	case r.Cursor != nil:
		r.Cursor.Topic = c.prefixed(r.Cursor.Topic)
	case len(r.Topics) == 0:
		r.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: c.prefix}
	}
	return nil
}

func (c *call) describePartitionsResponse(r *kmsg.DescribeTopicPartitionsResponse) error {
	r.Topics = retain(r.Topics, func(t *kmsg.DescribeTopicPartitionsResponseTopic) bool {
		if t.Topic == nil {
			return true
		}
		if c.tryUnprefix(t.Topic) {
			c.ids.learn(t.TopicID)
			return true
		}
		return c.unprefix(t.Topic) == nil
	})
	if r.NextCursor != nil && !c.tryUnprefix(&r.NextCursor.Topic) {
		r.NextCursor = nil // the rest is others'
	}
	return nil
}
