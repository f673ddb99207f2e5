package multitenant

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

type id = [16]byte

// Bounds of what is remembered of ids.
const (
	// maxOwned is for the ids of a tenant's topics. Beyond it some are
	// forgotten, and asked for again.
	maxOwned = 100_000
	// maxForeign is for ids that turned out not to be the tenant's, for the
	// time of foreignFor: a client that names such a one again and again
	// does not make the broker be asked each time.
	maxForeign = 1000
	foreignFor = 5 * time.Second
	// maxFakes is for the foreign ids that one connection may have named.
	maxFakes = 1000
)

// ids knows which topics are the tenant's. An id is that of one topic for
// ever, so what is known never becomes wrong; a deleted topic's id leads
// nowhere by itself.
type ids struct {
	secret  [16]byte // so that nobody can make an id that fakes another
	mu      sync.RWMutex
	owned   map[id]struct{}
	foreign map[id]time.Time // when it was found so
}

func (s *ids) init() {
	_, _ = rand.Read(s.secret[:]) // never fails
	s.owned, s.foreign = map[id]struct{}{}, map[id]time.Time{}
}

// learn notes a topic of the tenant.
func (s *ids) learn(t id) {
	if t == (id{}) || s.owns(t) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owned) >= maxOwned {
		for some := range s.owned {
			delete(s.owned, some)
			break
		}
	}
	s.owned[t] = struct{}{}
	delete(s.foreign, t)
}

func (s *ids) owns(t id) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.owned[t]
	return ok
}

// ask tells whether the broker should be asked about an id.
func (s *ids) ask(t id, now time.Time) bool {
	if t == (id{}) || s.owns(t) {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	at, ok := s.foreign[t]
	return !ok || now.Sub(at) > foreignFor
}

// unknown notes ids that the broker did not say to be the tenant's.
func (s *ids) unknown(list []id, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range list {
		if _, ok := s.owned[t]; ok {
			continue
		}
		if len(s.foreign) >= maxForeign {
			clear(s.foreign) // then some are asked about a little earlier
		}
		s.foreign[t] = now
	}
}

// fake gives the id that stands for a foreign one towards the broker.
func (s *ids) fake(t id) (f id) {
	sum := sha256.Sum256(append(s.secret[:], t[:]...))
	copy(f[:], sum[:])
	f[6], f[8] = f[6]&0x0f|0x40, f[8]&0x3f|0x80 // a random UUID (RFC 9562)
	return f
}

// idIn replaces an id that is not known to be the tenant's. The zero id names
// no topic, and stays.
func (c *conn) idIn(t *id) error {
	if *t == (id{}) || c.ids.owns(*t) {
		return nil
	}
	f := c.ids.fake(*t)
	if _, ok := c.fakes[f]; !ok {
		if len(c.fakes) >= maxFakes {
			return fmt.Errorf("%w: more than %d topic ids that are none of the tenant's", filter.ErrDenied, maxFakes)
		}
		if c.fakes == nil {
			c.fakes = map[id]id{}
		}
		c.fakes[f] = *t
	}
	*t = f
	return nil
}

// idOut puts back what idIn replaced. An id that is neither known nor was
// replaced is somebody else's.
func (c *conn) idOut(t *id) error {
	if original, ok := c.fakes[*t]; ok {
		*t = original
		return nil
	}
	if *t == (id{}) || c.ids.owns(*t) {
		return nil
	}
	return fmt.Errorf("%w: the broker's answer has a topic id that is none of the tenant's", filter.ErrDenied)
}

// known finds out about ids before then goes on.
func (c *call) known(list []id, then func() error) error {
	now := time.Now()
	var unknown []id
	for _, t := range list {
		if c.ids.ask(t, now) {
			unknown = append(unknown, t)
		}
	}
	return c.find(unknown, then)
}

// find asks the broker whose the ids are before then goes on.
func (c *call) find(unknown []id, then func() error) error {
	if len(unknown) == 0 {
		return then()
	}
	c.x.Ask(byID(unknown), func(resp kmsg.Response, err error) error {
		if err != nil {
			return err
		}
		c.learnMetadata(resp)
		c.ids.unknown(unknown, time.Now())
		return then()
	})
	return nil
}

// byID asks for topics by their ids, for which there is Metadata v12 (KIP-516).
func byID(list []id) kmsg.Request {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 12
	for _, t := range list {
		topic := kmsg.NewMetadataRequestTopic()
		topic.TopicID = t
		r.Topics = append(r.Topics, topic)
	}
	return r
}

// learnMetadata learns from an answer that has not lost its prefixes.
func (c *call) learnMetadata(resp kmsg.Response) {
	m, ok := resp.(*kmsg.MetadataResponse)
	if !ok {
		return
	}
	for i := range m.Topics {
		t := &m.Topics[i]
		if t.ErrorCode == 0 && t.Topic != nil && strings.HasPrefix(*t.Topic, c.prefix) {
			c.ids.learn(t.TopicID)
		}
	}
}
