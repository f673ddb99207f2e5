package authorize

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metadata (API key 3): Describe on each topic. A list of all topics has those that it
// allows. Where a topic may be created by being asked for (v4+; always before):
// Create on the cluster or the topic.
//
// A broker creates what does not exist if the request allows that. Topics that the
// client may not create are asked for without; where the broker does not know one
// of them the client is answered as if creation was tried and refused, and others
// are asked for again.

const (
	unknownTopicOrPartition = 3
	// firstMetadataCreate is the first version in which the client says whether a topic
	// may be created.
	firstMetadataCreate = 4
	firstMetadataWithID = 10
)

func (c *call) metadata(r *kmsg.MetadataRequest) error {
	return c.resolve(len(r.Topics), func(i int) id { return r.Topics[i].TopicID }, func() error { return c.metadataKnown(r) })
}

func (c *call) metadataKnown(r *kmsg.MetadataRequest) error {
	all := r.Topics == nil || r.Version == 0 && len(r.Topics) == 0
	var answers []kmsg.MetadataResponseTopic
	takeOut(&r.Topics, func(t *kmsg.MetadataRequestTopic) bool {
		refused := c.describeNamed(t)
		if refused != nil {
			answers = append(answers, *refused)
		}
		return refused == nil
	})
	creates, careful := c.creates(r)
	none := !all && len(r.Topics) == 0
	masked := r.IncludeClusterAuthorizedOperations || r.IncludeTopicAuthorizedOperations
	if len(answers) == 0 && !all && !careful && !masked {
		return nil
	}
	if len(answers) > 0 || careful {
		if careful {
			r.AllowAutoTopicCreation = false
		}
		if r.Version == 0 && none {
			r.Topics = nil // the same as all
		}
		c.m.MarkChanged()
	}
	finish := func(resp *kmsg.MetadataResponse) {
		resp.Topics = append(resp.Topics, answers...)
		c.maskCluster(resp)
	}
	onResponse(c, func(c *call, resp *kmsg.MetadataResponse) error {
		c.showTopics(resp, none)
		if careful {
			return c.createNamed(resp, creates, finish)
		}
		finish(resp)
		return nil
	})
	return nil
}

// describeNamed decides on a topic that a request names; nil: it is allowed. Ids are no
// secret, so one that is denied has its error; the name behind it is not told.
func (c *call) describeNamed(t *kmsg.MetadataRequestTopic) *kmsg.MetadataResponseTopic {
	one := kmsg.NewMetadataResponseTopic()
	if t.Topic != nil {
		if c.topic(Describe, *t.Topic) {
			return nil
		}
		one.Topic, one.ErrorCode, one.IsInternal = t.Topic, topicAuthorizationFailed, isInternal(*t.Topic)
		return &one
	}
	if t.TopicID == (id{}) {
		return nil // the broker says what is wrong with it
	}
	code := c.topicByID(Describe, t.TopicID)
	if code == 0 {
		return nil
	}
	one.TopicID, one.ErrorCode = t.TopicID, code
	return &one
}

// creates returns the topics that a request may create. careful: the broker must not
// create all that it is asked for.
func (c *call) creates(r *kmsg.MetadataRequest) (names []string, careful bool) {
	if r.Version >= firstMetadataCreate && !r.AllowAutoTopicCreation || c.look(Create, Cluster, ClusterName).Allowed {
		return nil, false
	}
	for i := range r.Topics {
		switch name := r.Topics[i].Topic; {
		case name == nil:
		case c.look(Create, Topic, *name).Allowed:
			names = append(names, *name)
		default:
			careful = true
		}
	}
	return names, careful
}

// showTopics leaves in an answer what the client may describe.
func (c *call) showTopics(resp *kmsg.MetadataResponse, none bool) {
	takeOut(&resp.Topics, func(t *kmsg.MetadataResponseTopic) bool {
		switch {
		case none:
			return false
		case t.Topic == nil:
			return t.ErrorCode != 0
		case !c.sees(Topic, *t.Topic):
			return false
		}
		if resp.Version >= firstMetadataWithID && t.ErrorCode == 0 {
			c.ids.Learn(t.TopicID, *t.Topic)
		}
		c.mask(&t.AuthorizedOperations, Topic, *t.Topic)
		return true
	})
}

// maskCluster leaves of the operations on the cluster what is allowed: none without
// Describe.
func (c *call) maskCluster(resp *kmsg.MetadataResponse) {
	c.maskClusterBits(&resp.AuthorizedOperations)
}

func (c *call) maskClusterBits(bits *int32) {
	const notAsked = -1 << 31
	if *bits != notAsked && !c.look(Describe, Cluster, ClusterName).Allowed {
		*bits = 0
	}
	c.mask(bits, Cluster, ClusterName)
}

// createNamed finishes an answer without creation: it asks again for the topics that do
// not exist and that the client may create, and refuses the others.
func (c *call) createNamed(resp *kmsg.MetadataResponse, creates []string, finish func(*kmsg.MetadataResponse)) error {
	again := kmsg.NewPtrMetadataRequest()
	again.Version, again.AllowAutoTopicCreation = max(resp.Version, firstMetadataCreate), true
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode != unknownTopicOrPartition || t.Topic == nil {
			continue
		}
		if slices.Contains(creates, *t.Topic) {
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = t.Topic
			again.Topics = append(again.Topics, topic)
			continue
		}
		c.topic(Create, *t.Topic) // for the log
		t.ErrorCode = topicAuthorizationFailed
	}
	if len(again.Topics) == 0 {
		finish(resp)
		return nil
	}
	c.x.Ask(again, func(r kmsg.Response, err error) error {
		if err != nil {
			return err
		}
		if m, ok := r.(*kmsg.MetadataResponse); ok {
			for i := range m.Topics {
				at := slices.IndexFunc(resp.Topics, func(t kmsg.MetadataResponseTopic) bool {
					return t.Topic != nil && m.Topics[i].Topic != nil && *t.Topic == *m.Topics[i].Topic
				})
				if at >= 0 {
					resp.Topics[at] = m.Topics[i]
				}
			}
		}
		finish(resp)
		return nil
	})
	return nil
}
