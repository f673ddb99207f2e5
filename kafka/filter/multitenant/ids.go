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

// Bounds of what is remembered of ids, each twice (see recent). What was
// forgotten is asked for again.
const (
	// maxOwned is for the ids of a tenant's topics.
	maxOwned = 100_000
	// maxForeign is for ids that turned out not to be the tenant's, for the
	// time of foreignFor: a client that names such a one again and again
	// does not make the broker be asked each time.
	maxForeign = 5000
	foreignFor = 5 * time.Second
	// maxFakes is for the foreign ids that are named on one connection. Of
	// more, what the client said is computed from what the broker says.
	maxFakes = 1000
)

// ids knows which topics are the tenant's. An id belongs to one topic for ever,
// so what is known never becomes wrong; the id of a deleted topic leads
// nowhere.
type ids struct {
	fakes   cipher.Block // what makes stand-ins of foreign ids, by a secret key
	mu      sync.RWMutex
	owned   recent[struct{}]
	foreign recent[time.Time] // when it was found so
}

func (s *ids) init() {
	var key [16]byte
	_, _ = rand.Read(key[:])           // never fails
	s.fakes, _ = aes.NewCipher(key[:]) // nor does this, with a key of that size
	s.owned.most, s.foreign.most = maxOwned, maxForeign
}

// learn adds topics of the tenant.
func (s *ids) learn(list ...id) {
	s.mu.RLock()
	for len(list) > 0 && (s.owned.newest(list[0]) || list[0] == id{}) {
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
			s.foreign.drop(t)
		}
	}
}

func (s *ids) owns(t id) bool {
	s.mu.RLock()
	ok := s.owned.newest(t)
	s.mu.RUnlock()
	if ok {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok = s.owned.get(t)
	return ok
}

// ask reports whether the broker should be asked about an id.
func (s *ids) ask(t id, now time.Time) bool {
	if t == (id{}) || s.owns(t) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.foreign.get(t)
	return !ok || now.Sub(at) > foreignFor
}

// unknown records ids that the broker did not say to be the tenant's.
func (s *ids) unknown(list []id, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range list {
		if _, ok := s.owned.get(t); !ok {
			s.foreign.put(t, now)
		}
	}
}

// learning learns many ids without taking the lock for each.
type learning struct {
	*ids
	n   int
	few [64]id
}

func (l *learning) add(t id) {
	l.few[l.n] = t
	if l.n++; l.n == len(l.few) {
		l.flush()
	}
}

func (l *learning) flush() {
	l.learn(l.few[:l.n]...)
	l.n = 0
}

// recent is a map by id that keeps at least the most entries that were put or
// read last, and at most twice as many.
type recent[V any] struct {
	most        int
	now, before map[id]V
	lost        bool // something was forgotten for want of room
}

// newest reports whether an id is among the newer half, and changes nothing.
func (r *recent[V]) newest(t id) bool {
	_, ok := r.now[t]
	return ok
}

func (r *recent[V]) get(t id) (v V, ok bool) {
	if v, ok = r.now[t]; ok {
		return v, true
	}
	if v, ok = r.before[t]; ok {
		r.put(t, v)
	}
	return v, ok
}

func (r *recent[V]) put(t id, v V) {
	if _, ok := r.now[t]; !ok && len(r.now) >= r.most {
		r.lost = r.lost || len(r.before) > 0
		r.now, r.before = nil, r.now
	}
	if r.now == nil {
		r.now = map[id]V{}
	}
	r.now[t] = v
}

func (r *recent[V]) drop(t id) {
	delete(r.now, t)
	delete(r.before, t)
}

// fake returns the id that stands for a foreign one at the broker: the same one
// encrypted, so that no client can choose the result.
func (s *ids) fake(t id) (f id) {
	s.fakes.Encrypt(f[:], t[:])
	return f
}

// original returns the id that f is the fake of.
func (s *ids) original(f id) (t id) {
	s.fakes.Decrypt(t[:], f[:])
	return t
}

// idIn replaces an id that is not known to be the tenant's. The zero id names
// no topic, and stays.
func (c *conn) idIn(t *id) {
	if *t == (id{}) || c.ids.owns(*t) {
		return
	}
	f := c.ids.fake(*t)
	c.fakes.put(f, *t)
	*t = f
}

// idRemembered puts back what idIn replaced, if it is remembered; false: the id
// is neither such a one nor known as the tenant's.
func (c *conn) idRemembered(t *id) bool {
	if original, ok := c.fakes.get(*t); ok {
		*t = original
		return true
	}
	return *t == (id{}) || c.ids.owns(*t)
}

// idOut puts back what idIn replaced. An id that is neither known nor was
// replaced is another tenant's, which is an error. If the connection has
// replaced more than it remembers, the id is taken for one of these: the result
// then is an id that no topic has.
func (c *conn) idOut(t *id) error {
	if c.idRemembered(t) {
		return nil
	}
	if c.fakes.lost {
		*t = c.ids.original(*t)
		return nil
	}
	return errForeignID
}

var errForeignID = fmt.Errorf("%w: the broker's answer has a topic id that does not belong to the tenant", filter.ErrDenied)

// idsIn looks up n ids of a request and calls idIn with each. To leave out
// foreign ids would change what the others mean, and the answer.
func (c *call) idsIn(n int, at func(i int) *id) error {
	return c.lookUp(c.unknown(n, at), func() error {
		for i := range n {
			c.idIn(at(i))
		}
		return nil
	})
}

// unknown returns those of n ids that the broker should be asked about.
func (c *call) unknown(n int, at func(i int) *id) (list []id) {
	now := time.Now()
	for i := range n {
		if t := *at(i); c.ids.ask(t, now) {
			list = append(list, t)
		}
	}
	return list
}

// idsOut calls idOut with n ids of a response. It looks up those that were
// forgotten since the request.
func (c *call) idsOut(n int, at func(i int) *id) error {
	var unknown []id
	for i := range n {
		t := *at(i)
		if !c.idRemembered(&t) {
			unknown = append(unknown, t)
		}
	}
	return c.lookUp(unknown, func() error {
		for i := range n {
			if err := c.idOut(at(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// lookUp asks the broker for topics by their ids, learns which are the tenant's,
// and calls then.
func (c *call) lookUp(unknown []id, then func() error) error {
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

// byID makes a request for topics by their ids: Metadata v12 (KIP-516).
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
