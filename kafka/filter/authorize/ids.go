package authorize

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter/topicid"
)

type id = topicid.ID

// unknownTopicID is Kafka's error for an id without a topic.
const unknownTopicID = 100

// resolve asks the broker for the names of those of n ids that are not known, and
// calls then.
func (c *call) resolve(n int, at func(i int) id, then func() error) error {
	var unknown []id
	for i := range n {
		if t := at(i); t != (id{}) {
			if _, ok := c.ids.Get(t); !ok {
				unknown = append(unknown, t)
			}
		}
	}
	if len(unknown) == 0 {
		return then()
	}
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 12 // by ids (KIP-516)
	for _, t := range unknown {
		topic := kmsg.NewMetadataRequestTopic()
		topic.TopicID = t
		r.Topics = append(r.Topics, topic)
	}
	c.x.Ask(r, func(resp kmsg.Response, err error) error {
		if err != nil {
			return err
		}
		if m, ok := resp.(*kmsg.MetadataResponse); ok {
			for i := range m.Topics {
				if t := &m.Topics[i]; t.ErrorCode == 0 && t.Topic != nil {
					c.ids.Learn(t.TopicID, *t.Topic)
				}
			}
		}
		return then()
	})
	return nil
}

// topicByID decides on a topic by its id. code is the error of one that is denied, or 0.
func (c *call) topicByID(o Operation, t id) (code int16) {
	name, ok := c.ids.Get(t)
	switch {
	case !ok:
		return unknownTopicID
	case !c.topic(o, name):
		return topicAuthorizationFailed
	}
	return 0
}

// byNameOrID decides on a topic that has a name in older versions and an id in newer
// ones.
func (c *call) byNameOrID(o Operation, byID bool, name string, t id) (code int16) {
	switch {
	case byID:
		return c.topicByID(o, t)
	case !c.topic(o, name):
		return topicAuthorizationFailed
	}
	return 0
}
