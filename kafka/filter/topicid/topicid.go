// Package topicid remembers the names of Kafka's topics by id, for filters.
package topicid

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// maxIDs is how many topic ids a virtual cluster remembers, at least.
const maxIDs = 100_000

// ID is the id of a topic.
type ID = [16]byte

// Names are the names of topics by id. An id has one name for ever (KIP-516): a topic
// that is created again has another id. It keeps at least the maxIDs entries that
// were put or read last, and at most twice as many. All methods are safe for concurrent
// use.
type Names struct {
	mu           sync.RWMutex
	newer, older map[ID]string
}

// Get returns the name of a topic.
func (n *Names) Get(t ID) (string, bool) {
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

// Learn remembers the name of a topic.
func (n *Names) Learn(t ID, name string) {
	if _, ok := n.Get(t); !ok && t != (ID{}) {
		n.put(t, name)
	}
}

func (n *Names) put(t ID, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.newer[t]; !ok && len(n.newer) >= maxIDs {
		n.newer, n.older = nil, n.newer
	}
	if n.newer == nil {
		n.newer = map[ID]string{}
	}
	n.newer[t] = name
}

// Each tells of the topics in the body of a response to Metadata, but for those that
// have an error. Nothing that is around them is decoded. name is valid during the call.
func Each(version int16, body []byte, tell func(name []byte, t ID)) error {
	r := wire.NewReader(body, wire.Flexible(int16(kmsg.Metadata), version))
	wire.SkipMetadataBrokers(&r, version)
	for range r.Array() {
		if t := wire.ReadMetadataTopic(&r, version); t.ErrorCode == 0 && !t.NoName && r.Err() == nil {
			tell(t.Name, t.ID)
		}
	}
	return r.Err()
}
