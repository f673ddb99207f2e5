package multitenant

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

type id = [16]byte

// Bounds of what is remembered of ids, each twice (see idCache). What was
// forgotten is asked for again.
const (
	// maxOwned is for the ids of a tenant's topics.
	maxOwned = 100_000
	// maxForeign is for ids that turned out not to be the tenant's, for the
	// time of foreignTTL: a client that names such a one again and again
	// does not make the broker be asked each time.
	maxForeign = 5000
	foreignTTL = 5 * time.Second
	// maxSubstitutes is for the foreign ids that are named on one
	// connection. Of more, what the client said is computed from what the
	// broker says.
	maxSubstitutes = 1000
)

// ids knows which topics are the tenant's. An id belongs to one topic for ever,
// so what is known never becomes wrong; the id of a deleted topic leads
// nowhere.
type ids struct {
	blockCipher cipher.Block // what makes stand-ins of foreign ids, by a secret key
	mu          sync.RWMutex
	owned       idCache[struct{}]
	foreign     idCache[time.Time] // when it was found so
}

func (s *ids) init() {
	var key [16]byte
	_, _ = rand.Read(key[:])                 // never fails
	s.blockCipher, _ = aes.NewCipher(key[:]) // nor does this, with a key of that size
	s.owned.limit, s.foreign.limit = maxOwned, maxForeign
}

// learn adds topics of the tenant.
func (s *ids) learn(list ...id) {
	s.mu.RLock()
	for len(list) > 0 && (s.owned.inNewer(list[0]) || list[0] == id{}) {
		list = list[1:]
	}
	s.mu.RUnlock()
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range list {
		if t != (id{}) {
			s.owned.put(t, struct{}{})
			s.foreign.remove(t)
		}
	}
}

func (s *ids) owns(t id) bool {
	s.mu.RLock()
	ok := s.owned.inNewer(t)
	s.mu.RUnlock()
	if ok {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok = s.owned.get(t)
	return ok
}

// shouldAsk reports whether the broker should be asked about an id.
func (s *ids) shouldAsk(t id, now time.Time) bool {
	if t == (id{}) || s.owns(t) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.foreign.get(t)
	return !ok || now.Sub(at) > foreignTTL
}

// recordForeign records ids that the broker did not say to be the tenant's.
func (s *ids) recordForeign(list []id, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range list {
		if _, ok := s.owned.get(t); !ok {
			s.foreign.put(t, now)
		}
	}
}

// idBatch learns many ids without taking the lock for each.
type idBatch struct {
	*ids
	n   int
	buf [64]id
}

func (l *idBatch) add(t id) {
	l.buf[l.n] = t
	if l.n++; l.n == len(l.buf) {
		l.flush()
	}
}

func (l *idBatch) flush() {
	l.learn(l.buf[:l.n]...)
	l.n = 0
}

// idCache is a map by id that keeps at least the most entries that were put or
// read last, and at most twice as many.
type idCache[V any] struct {
	limit        int
	newer, older map[id]V
	evicted      bool // something was forgotten for want of room
}

// inNewer reports whether an id is among the newer half, and changes nothing.
func (r *idCache[V]) inNewer(t id) bool {
	_, ok := r.newer[t]
	return ok
}

func (r *idCache[V]) get(t id) (v V, ok bool) {
	if v, ok = r.newer[t]; ok {
		return v, true
	}
	if v, ok = r.older[t]; ok {
		r.put(t, v)
	}
	return v, ok
}

func (r *idCache[V]) put(t id, v V) {
	if _, ok := r.newer[t]; !ok && len(r.newer) >= r.limit {
		r.evicted = r.evicted || len(r.older) > 0
		r.newer, r.older = nil, r.newer
	}
	if r.newer == nil {
		r.newer = map[id]V{}
	}
	r.newer[t] = v
}

func (r *idCache[V]) remove(t id) {
	delete(r.newer, t)
	delete(r.older, t)
}

// substitute returns the id that stands for a foreign one at the broker: the
// same one encrypted, so that no client can choose the result.
func (s *ids) substitute(t id) (f id) {
	s.blockCipher.Encrypt(f[:], t[:])
	return f
}

// original returns the id that f is the substitute of.
func (s *ids) original(f id) (t id) {
	s.blockCipher.Decrypt(t[:], f[:])
	return t
}

// substituteID replaces an id that is not known to be the tenant's. The zero id
// names no topic, and stays.
func (c *conn) substituteID(t *id) {
	if *t == (id{}) || c.ids.owns(*t) {
		return
	}
	f := c.ids.substitute(*t)
	c.substitutes.put(f, *t)
	*t = f
}

// restoreKnownID puts back what substituteID replaced, if it is remembered;
// false: the id is neither such a one nor known as the tenant's.
func (c *conn) restoreKnownID(t *id) bool {
	if original, ok := c.substitutes.get(*t); ok {
		*t = original
		return true
	}
	return *t == (id{}) || c.ids.owns(*t)
}

// restoreID puts back what substituteID replaced. An id that is neither known
// nor was replaced is another tenant's, which is an error. If the connection
// has replaced more than it remembers, the id is taken for one of these: the
// result then is an id that no topic has.
func (c *conn) restoreID(t *id) error {
	if c.restoreKnownID(t) {
		return nil
	}
	if c.substitutes.evicted {
		*t = c.ids.original(*t)
		return nil
	}
	return errForeignID
}

var errForeignID = fmt.Errorf("%w: the broker's answer has a topic id that does not belong to the tenant", filter.ErrDenied)

// substituteIDs looks up n ids of a request and calls substituteID with each.
// To leave out foreign ids would change what the others mean, and the answer.
func (c *call) substituteIDs(n int, at func(i int) *id) error {
	return c.lookUpIDs(c.unknownIDs(n, at), func() error {
		for i := range n {
			c.substituteID(at(i))
		}
		return nil
	})
}

// unknownIDs returns those of n ids that the broker should be asked about.
func (c *call) unknownIDs(n int, at func(i int) *id) (list []id) {
	now := time.Now()
	for i := range n {
		if t := *at(i); c.ids.shouldAsk(t, now) {
			list = append(list, t)
		}
	}
	return list
}

// restoreIDs calls restoreID with n ids of a response. It looks up those that were
// forgotten since the request.
func (c *call) restoreIDs(n int, at func(i int) *id) error {
	var unknown []id
	for i := range n {
		t := *at(i)
		if !c.restoreKnownID(&t) {
			unknown = append(unknown, t)
		}
	}
	return c.lookUpIDs(unknown, func() error {
		for i := range n {
			if err := c.restoreID(at(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// lookUpIDs asks the broker for topics by their ids, learns which are the tenant's,
// and calls then.
func (c *call) lookUpIDs(unknown []id, then func() error) error {
	if len(unknown) == 0 {
		return then()
	}
	c.x.Ask(metadataByID(unknown), func(resp kmsg.Response, err error) error {
		if err != nil {
			return err
		}
		c.learnMetadata(resp)
		c.ids.recordForeign(unknown, time.Now())
		return then()
	})
	return nil
}

// metadataByID makes a request for topics by their ids: Metadata v12 (KIP-516).
func metadataByID(list []id) kmsg.Request {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 12
	for _, t := range list {
		topic := kmsg.NewMetadataRequestTopic()
		topic.TopicID = t
		r.Topics = append(r.Topics, topic)
	}
	return r
}

// learnMetadata learns ids from an answer whose names still have the prefix.
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
