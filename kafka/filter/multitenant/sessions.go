package multitenant

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// session is a fetch session of the connection (KIP-227, KIP-932): the topics
// that its requests have named. The broker answers about these until they are
// removed from the session, also when a request does not name them.
type session struct {
	// topics has the ids that the client said: true where one that nobody has
	// stands for it at the broker. What is forgotten stays until the next
	// session, since it may be forgotten in part.
	topics map[id]bool
	faked  int // of topics
}

// maxSession bounds the topics of a session. More are treated as if there were
// no session: known ids pass, others are replaced for ever.
const maxSession = 10_000

// owns reports whether a topic is in the session as the tenant's.
func (s *session) owns(t id) bool {
	faked, ok := s.topics[t]
	return ok && !faked
}

// fakes reports whether a topic is in the session under an id that no topic
// has.
func (s *session) fakes(t id) bool { return s.topics[t] }

func (s *session) add(t id, faked bool) {
	if _, ok := s.topics[t]; ok || len(s.topics) >= maxSession {
		return
	}
	if s.topics == nil {
		s.topics = map[id]bool{}
	}
	if s.topics[t] = faked; faked {
		s.faked++
	}
}

// fetch handles what a request adds to a session and removes from it. If a
// topic whose id was replaced in it turns out to be the tenant's, both ids
// would be in use from now on. Then the client is answered by again, which
// makes it begin a new session.
func (c *call) fetch(s *session, epoch int32, list []*id, again func() kmsg.Response) error {
	if epoch <= 0 { // new, or none
		clear(s.topics)
		s.faked = 0
	}
	// What is in it as the tenant's is that for as long as it lasts.
	list = slices.DeleteFunc(list, func(t *id) bool { return s.owns(*t) })
	ask := list
	if s.faked > 0 {
		for t, faked := range s.topics {
			if faked {
				ask = append(ask, &t)
			}
		}
	}
	return c.lookUp(c.unknown(len(ask), func(i int) *id { return ask[i] }), func() error {
		for _, t := range ask[len(list):] {
			if c.ids.owns(*t) {
				resp := again()
				resp.SetVersion(c.x.Version)
				c.x.Answer(resp)
				return nil
			}
		}
		for _, t := range list {
			was := *t
			c.idIn(t)
			s.add(was, *t != was)
		}
		return nil
	})
}
