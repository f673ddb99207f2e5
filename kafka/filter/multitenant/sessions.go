package multitenant

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// session is a fetch session of the connection (KIP-227, KIP-932): the topics
// that its requests have named, which the broker goes on to answer about when
// they are not named any more.
type session struct {
	// topics has the ids that the client said: true where one that nobody has
	// stands for it at the broker. What is forgotten stays until the next
	// session, since it may be forgotten in part.
	topics map[id]bool
	faked  int // of topics
}

// maxSession is for topics of a session. What goes beyond it is treated as
// without a session: ids that are known pass, others have stood-ins for ever.
const maxSession = 10_000

// owns tells whether a topic is in the session as the tenant's.
func (s *session) owns(t id) bool {
	faked, ok := s.topics[t]
	return ok && !faked
}

// fakes tells whether a topic is in the session as one that nobody has.
func (s *session) fakes(t id) bool { return s.topics[t] }

func (s *session) note(t id, faked bool) {
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

// fetch looks at what a request of a session adds and forgets. Where a topic
// that stands as another in it has turned out to be the tenant's, both names of
// it would be in use from now on: the client is answered by again, which has it
// begin a new session with everything it wants.
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
	return c.find(c.unknown(len(ask), func(i int) *id { return ask[i] }), func() error {
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
			s.note(was, *t != was)
		}
		return nil
	})
}
