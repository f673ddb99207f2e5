package multitenant

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Streams groups (KIP-1071) tell the broker their topology: the topics that
// they read, and the internal ones (changelogs, repartition topics), which the
// broker creates under the names it is given. All of these get the prefix, and
// so does the group, so the internal topics of an application keep the form
// "group-name-changelog" at the broker as well. Subtopologies, members,
// processes and tasks have identifiers within the group; user endpoints are
// addresses of members, for each other. None of these is touched.

// streamsInvalidTopology is the broker's error for a topology that it does not
// take.
const streamsInvalidTopology = 130

func (c *call) streamsHeartbeatRequest(r *kmsg.StreamsGroupHeartbeatRequest) error {
	c.prefixID(&r.Group)
	if r.Topology == nil {
		return nil
	}
	for i := range r.Topology.Subtopologies {
		s := &r.Topology.Subtopologies[i]
		prefixAll(s.SourceTopics, c.prefixTopic)
		prefixAll(s.RepartitionSinkTopics, c.prefixTopic)
		c.prefixEach(len(s.StateChangelogTopics), func(i int) *string { return &s.StateChangelogTopics[i].Topic })
		c.prefixEach(len(s.RepartitionSourceTopics), func(i int) *string { return &s.RepartitionSourceTopics[i].Topic })
		for j, expression := range s.SourceTopicRegex {
			ours, err := c.expressionIn(expression)
			if err != nil {
				refused := kmsg.NewPtrStreamsGroupHeartbeatResponse()
				refused.ErrorCode = streamsInvalidTopology
				why := fmt.Sprintf("The source topic expression `%s` of subtopology %s is not valid: %v.", expression, s.SubtopologyID, err)
				refused.ErrorMessage = &why
				c.x.Answer(refused)
				return nil
			}
			s.SourceTopicRegex[j] = ours
		}
	}
	return nil
}

// streamsHeartbeatResponse: what members have that came past the proxy is left
// out, as everywhere.
func (c *call) streamsHeartbeatResponse(r *kmsg.StreamsGroupHeartbeatResponse) error {
	c.message(r.ErrorMessage)
	for i := range r.Status {
		c.message(&r.Status[i].StatusDetail)
	}
	for i := range r.PartitionsByUserEndpoint {
		p := &r.PartitionsByUserEndpoint[i]
		p.ActivePartitions = keep(p.ActivePartitions, func(t *kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition) bool {
			return c.unprefixOwn(&t.Topic)
		})
		p.StandbyPartitions = keep(p.StandbyPartitions, func(t *kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition) bool {
			return c.unprefixOwn(&t.Topic)
		})
	}
	return nil
}

func (c *call) streamsDescribeRequest(r *kmsg.StreamsGroupDescribeRequest) error {
	prefixAll(r.Groups, c.prefixOffsetsGroup)
	return nil
}

func (c *call) streamsDescribeResponse(r *kmsg.StreamsGroupDescribeResponse) error {
	own := func(t *kmsg.TopicInfo) bool { return c.unprefixOwn(&t.Topic) }
	return each(r.Groups, func(g *kmsg.StreamsGroupDescribeResponseGroup) error {
		c.message(g.ErrorMessage)
		if g.Topology != nil {
			for i := range g.Topology.Subtopologies {
				s := &g.Topology.Subtopologies[i]
				s.SourceTopics = keep(s.SourceTopics, c.unprefixOwn)
				s.RepartitionSinkTopics = keep(s.RepartitionSinkTopics, c.unprefixOwn)
				s.StateChangelogTopics = keep(s.StateChangelogTopics, own)
				s.RepartitionSourceTopics = keep(s.RepartitionSourceTopics, own)
			}
		}
		if d := g.TopologyDescription; d != nil {
			eachNode(d.Subtopologies, d.GlobalStores, c.nodeOut)
		}
		return c.unprefix(&g.Group)
	})
}

func (c *call) topologyUpdateRequest(r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) error {
	c.prefixID(&r.Group)
	eachNode(r.TopologyDescription.Subtopologies, r.TopologyDescription.GlobalStores, func(n *kmsg.TopologyDescriptionNode) {
		prefixAll(n.SourceTopics, c.prefixTopic)
		n.SinkTopic = optional(n.SinkTopic, c.prefixTopic)
	})
	return nil
}

func (c *call) topologyUpdateResponse(r *kmsg.StreamsGroupTopologyDescriptionUpdateResponse) error {
	c.message(r.ErrorMessage)
	return nil
}

// nodeOut leaves out of a node's description what is not the tenant's.
func (c *call) nodeOut(n *kmsg.TopologyDescriptionNode) {
	n.SourceTopics = keep(n.SourceTopics, c.unprefixOwn)
	if n.SinkTopic != nil && !c.unprefixOwn(n.SinkTopic) {
		n.SinkTopic = nil
	}
}

// eachNode calls do with the nodes of a topology's description.
func eachNode(subtopologies []kmsg.TopologyDescriptionSubtopology, stores []kmsg.TopologyDescriptionGlobalStore,
	do func(*kmsg.TopologyDescriptionNode)) {
	for i := range subtopologies {
		for j := range subtopologies[i].Nodes {
			do(&subtopologies[i].Nodes[j])
		}
	}
	for i := range stores {
		do(&stores[i].Source)
		do(&stores[i].Processor)
	}
}
