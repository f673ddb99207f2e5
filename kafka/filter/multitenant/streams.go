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
			ours, err := c.rewriteExpression(expression)
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
	c.unprefixMessage(r.ErrorMessage)
	for i := range r.Status {
		c.unprefixMessage(&r.Status[i].StatusDetail)
	}
	for i := range r.PartitionsByUserEndpoint {
		p := &r.PartitionsByUserEndpoint[i]
		p.ActivePartitions = retain(p.ActivePartitions,
			func(t *kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition) bool {
				return c.tryUnprefix(&t.Topic)
			})
		p.StandbyPartitions = retain(p.StandbyPartitions,
			func(t *kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition) bool {
				return c.tryUnprefix(&t.Topic)
			})
	}
	return nil
}

func (c *call) streamsDescribeRequest(r *kmsg.StreamsGroupDescribeRequest) error {
	prefixAll(r.Groups, c.prefixOffsetsGroup)
	return nil
}

func (c *call) streamsDescribeResponse(r *kmsg.StreamsGroupDescribeResponse) error {
	own := func(t *kmsg.TopicInfo) bool { return c.tryUnprefix(&t.Topic) }
	return forEach(r.Groups, func(g *kmsg.StreamsGroupDescribeResponseGroup) error {
		c.unprefixMessage(g.ErrorMessage)
		if g.Topology != nil {
			for i := range g.Topology.Subtopologies {
				s := &g.Topology.Subtopologies[i]
				s.SourceTopics = retain(s.SourceTopics, c.tryUnprefix)
				s.RepartitionSinkTopics = retain(s.RepartitionSinkTopics, c.tryUnprefix)
				s.StateChangelogTopics = retain(s.StateChangelogTopics, own)
				s.RepartitionSourceTopics = retain(s.RepartitionSourceTopics, own)
			}
		}
		if d := g.TopologyDescription; d != nil {
			eachNode(d.Subtopologies, d.GlobalStores, c.unprefixNode)
		}
		return c.unprefix(&g.Group)
	})
}

func (c *call) topologyUpdateRequest(r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) error {
	c.prefixID(&r.Group)
	eachNode(r.TopologyDescription.Subtopologies, r.TopologyDescription.GlobalStores, func(n *kmsg.TopologyDescriptionNode) {
		prefixAll(n.SourceTopics, c.prefixTopic)
		n.SinkTopic = mapOptional(n.SinkTopic, c.prefixTopic)
	})
	return nil
}

func (c *call) topologyUpdateResponse(r *kmsg.StreamsGroupTopologyDescriptionUpdateResponse) error {
	c.unprefixMessage(r.ErrorMessage)
	return nil
}

// unprefixNode leaves out of a node's description what is not the tenant's.
func (c *call) unprefixNode(n *kmsg.TopologyDescriptionNode) {
	n.SourceTopics = retain(n.SourceTopics, c.tryUnprefix)
	if n.SinkTopic != nil && !c.tryUnprefix(n.SinkTopic) {
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
