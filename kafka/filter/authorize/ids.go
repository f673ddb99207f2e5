package authorize

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxIDs is how many topic ids a virtual cluster remembers, at least.
const maxIDs = 100_000

type id = [16]byte

// names are the names of topics by id. An id has one name for ever (KIP-516): a topic
// that is created again has another id. It keeps at least the maxIDs entries that
// were put or read last, and at most twice as many.
type names struct {
	mu           sync.RWMutex
	newer, older map[id]string
}

func (n *names) get(t id) (string, bool) {
	n.mu.RLock()
	name, ok := n.newer[t]
	if !ok {
		name, ok = n.older[t]
		n.mu.RUnlock()
		if ok {
			n.put(t, name)
		}
		return name, ok
	}
	n.mu.RUnlock()
	return name, ok
}

// learn is put for what is mostly known.
func (n *names) learn(t id, name string) {
	if _, ok := n.get(t); !ok && t != (id{}) {
		n.put(t, name)
	}
}

func (n *names) put(t id, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.newer[t]; !ok && len(n.newer) >= maxIDs {
		n.newer, n.older = nil, n.newer
	}
	if n.newer == nil {
		n.newer = map[id]string{}
	}
	n.newer[t] = name
}

// unknownTopicID is Kafka's error for an id without a topic.
const unknownTopicID = 100

// resolve asks the broker for the names of those of n ids that are not known, and
// calls then.
func (c *call) resolve(n int, at func(i int) id, then func() error) error {
	var unknown []id
	for i := range n {
		if t := at(i); t != (id{}) {
			if _, ok := c.ids.get(t); !ok {
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
					c.ids.learn(t.TopicID, *t.Topic)
				}
			}
		}
		return then()
	})
	return nil
}

// topicByID decides on a topic by its id. code is the error of one that is denied, or 0.
func (c *call) topicByID(o Operation, t id) (code int16) {
	name, ok := c.ids.get(t)
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
