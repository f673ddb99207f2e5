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
	topics      map[id]bool
	substituted int // of topics
}

// maxSession bounds the topics of a session. More are treated as if there were
// no session: known ids pass, others are replaced for ever.
const maxSession = 10_000

// isOwned reports whether a topic is in the session as the tenant's.
func (s *session) isOwned(t id) bool {
	substituted, ok := s.topics[t]
	return ok && !substituted
}

// isSubstituted reports whether a topic is in the session under an id that no topic
// has.
func (s *session) isSubstituted(t id) bool { return s.topics[t] }

func (s *session) add(t id, substituted bool) {
	if _, ok := s.topics[t]; ok || len(s.topics) >= maxSession {
		return
	}
	if s.topics == nil {
		s.topics = map[id]bool{}
	}
	if s.topics[t] = substituted; substituted {
		s.substituted++
	}
}

// updateSession handles what a request adds to a session and removes from it. If a
// topic whose id was replaced in it turns out to be the tenant's, both ids
// would be in use from now on. Then the client is answered by again, which
// makes it begin a new session.
func (c *call) updateSession(s *session, epoch int32, list []*id, again func() kmsg.Response) error {
	if epoch <= 0 { // new, or none
		clear(s.topics)
		s.substituted = 0
	}
	// What is in it as the tenant's is that for as long as it lasts.
	list = slices.DeleteFunc(list, func(t *id) bool { return s.isOwned(*t) })
	ask := list
	if s.substituted > 0 {
		for t, substituted := range s.topics {
			if substituted {
				ask = append(ask, &t)
			}
		}
	}
	return c.lookUpIDs(c.unknownIDs(len(ask), func(i int) *id { return ask[i] }), func() error {
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
			c.substituteID(t)
			s.add(was, *t != was)
		}
		return nil
	})
}
