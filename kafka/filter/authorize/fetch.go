package authorize

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// Fetch (API key 1): Read on each topic, ClusterAction on the cluster for replicas.
//
//	v0-6   names
//	v7+    fetch sessions (KIP-227)
//	v13+   ids
//
// A session of the broker answers about topics that a request does not name. So a
// session is begun only if all topics of the request are allowed. If some are
// not, the fetch is sent without a session, and the client, which gets none, names all
// of them again with their errors in each answer. An incremental fetch that adds
// a topic that is denied, one under other rules than the session began with, and one
// of a session that was not given to this connection, are answered
// FETCH_SESSION_ID_NOT_FOUND: clients begin again then.

const (
	firstFetchWithSession = 7
	firstFetchWithID      = 13
	fetchSessionNotFound  = 70
	shareSessionNotFound  = 122
	noSession             = -1 // the epoch of a fetch without a session
	newSession            = 0  // and of one that begins one
)

// fetchSessions are the sessions that the broker has given to the connection under
// the rules in force.
type fetchSessions struct {
	// generation counts changes of the rules, so that an answer to a fetch
	// under older ones is not taken for a session under these.
	generation uint64
	numbers    []int32 // at most maxSessions
}

// maxSessions is how many sessions a connection may go on with. Clients have one.
const maxSessions = 8

func (s *fetchSessions) forget() {
	s.generation++
	s.numbers = s.numbers[:0]
}

func (s *fetchSessions) add(number int32) {
	if number == 0 || slices.Contains(s.numbers, number) {
		return
	}
	if len(s.numbers) == maxSessions {
		s.numbers = slices.Delete(s.numbers, 0, 1)
	}
	s.numbers = append(s.numbers, number)
}

// fetchEdits learns the number of a session that a fetch has begun.
func (c *conn) fetchEdits(x *filter.Exchange) *filter.Edits {
	generation, ok := x.State.(uint64)
	if !ok {
		return nil
	}
	return &filter.Edits{FetchSession: func(number int32) {
		if generation == c.fetch.generation {
			c.fetch.add(number)
		}
	}}
}

func (c *call) fetchRequest(r *kmsg.FetchRequest) error {
	if r.ReplicaID >= 0 || r.Version >= 15 && r.ReplicaState.ID >= 0 {
		return c.fetchReplica(r)
	}
	if r.Version < firstFetchWithID {
		return c.fetchKnown(r, false)
	}
	return c.resolve(len(r.Topics), func(i int) id { return r.Topics[i].TopicID }, func() error { return c.fetchKnown(r, true) })
}

// fetchReplica handles a fetch of a broker, which may have everything or nothing.
func (c *call) fetchReplica(r *kmsg.FetchRequest) error {
	if c.cluster(ClusterAction) {
		return nil
	}
	return answer(c, func(resp *kmsg.FetchResponse) {
		resp.Topics = mapped(r.Topics, func(t *kmsg.FetchRequestTopic) kmsg.FetchResponseTopic {
			return refusedFetch(t, topicAuthorizationFailed)
		})
	})
}

func (c *call) fetchKnown(r *kmsg.FetchRequest, byID bool) error {
	incremental := r.Version >= firstFetchWithSession && r.SessionEpoch > newSession
	if incremental && !slices.Contains(c.fetch.numbers, r.SessionID) {
		return c.beginAgain()
	}
	var answers []kmsg.FetchResponseTopic
	takeOut(&r.Topics, func(t *kmsg.FetchRequestTopic) bool {
		code := c.byNameOrID(Read, byID, t.Topic, t.TopicID)
		if code != 0 {
			answers = append(answers, refusedFetch(t, code))
		}
		return code == 0
	})
	switch {
	case len(answers) == 0:
		if r.Version >= firstFetchWithSession && r.SessionEpoch == newSession {
			c.x.State = c.fetch.generation
		}
		return nil
	case incremental:
		return c.beginAgain()
	}
	r.SessionEpoch = noSession
	// What a session that ends has forgotten does not matter.
	r.ForgottenTopics = nil
	return send(c, len(r.Topics) > 0, func(resp *kmsg.FetchResponse) { resp.Topics = append(resp.Topics, answers...) })
}

func (c *call) beginAgain() error {
	return answer(c, func(resp *kmsg.FetchResponse) { resp.ErrorCode = fetchSessionNotFound })
}

func refusedFetch(t *kmsg.FetchRequestTopic, code int16) kmsg.FetchResponseTopic {
	return kmsg.FetchResponseTopic{Topic: t.Topic, TopicID: t.TopicID,
		Partitions: mapped(t.Partitions, func(p *kmsg.FetchRequestTopicPartition) kmsg.FetchResponseTopicPartition {
			one := kmsg.NewFetchResponseTopicPartition()
			one.Partition, one.ErrorCode, one.HighWatermark, one.RecordBatches = p.Partition, code, -1, []byte{}
			return one
		})}
}

// A share session is known by group and member (KIP-932), and has topics that later
// requests do not name. It may be gone on with on the connection where it began, under
// the same rules.

type shareSession struct{ group, member string }

type shareSessions struct{ begun []shareSession }

func (s *shareSessions) forget() { s.begun = s.begun[:0] }

func (s *shareSessions) begin(key shareSession) {
	if slices.Contains(s.begun, key) {
		return
	}
	if len(s.begun) == maxSessions {
		s.begun = slices.Delete(s.begun, 0, 1)
	}
	s.begun = append(s.begun, key)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// shareSession checks the session of a request. code is the error of the answer, or 0.
func (c *call) shareSession(group, member *string, epoch int32) (code int16) {
	key := shareSession{text(group), text(member)}
	switch {
	case !c.group(Read, key.group):
		return groupAuthorizationFailed
	case epoch == newSession:
		c.shares.begin(key)
	case !slices.Contains(c.shares.begun, key):
		return shareSessionNotFound
	}
	return 0
}

func (c *call) shareFetch(r *kmsg.ShareFetchRequest) error {
	return c.resolve(len(r.Topics), func(i int) id { return r.Topics[i].TopicID }, func() error {
		if code := c.shareSession(r.GroupID, r.MemberID, r.ShareSessionEpoch); code != 0 {
			return answer(c, func(resp *kmsg.ShareFetchResponse) { resp.ErrorCode = code })
		}
		var answers []kmsg.ShareFetchResponseTopic
		takeOut(&r.Topics, func(t *kmsg.ShareFetchRequestTopic) bool {
			code := c.topicByID(Read, t.TopicID)
			if code == 0 {
				return true
			}
			answers = append(answers, kmsg.ShareFetchResponseTopic{TopicID: t.TopicID,
				Partitions: mapped(t.Partitions, func(p *kmsg.ShareFetchRequestTopicPartition) kmsg.ShareFetchResponseTopicPartition {
					one := kmsg.NewShareFetchResponseTopicPartition()
					one.Partition, one.ErrorCode = p.Partition, code
					return one
				})})
			return false
		})
		if len(answers) == 0 {
			return nil
		}
		// The rest goes on even if it is empty: the session must begin and advance at
		// the broker as at the client.
		return send(c, true, func(resp *kmsg.ShareFetchResponse) { resp.Topics = append(resp.Topics, answers...) })
	})
}

func (c *call) shareAcknowledge(r *kmsg.ShareAcknowledgeRequest) error {
	return c.resolve(len(r.Topics), func(i int) id { return r.Topics[i].TopicID }, func() error {
		if code := c.shareSession(r.GroupID, r.MemberID, r.ShareSessionEpoch); code != 0 {
			return answer(c, func(resp *kmsg.ShareAcknowledgeResponse) { resp.ErrorCode = code })
		}
		var answers []kmsg.ShareAcknowledgeResponseTopic
		takeOut(&r.Topics, func(t *kmsg.ShareAcknowledgeRequestTopic) bool {
			code := c.topicByID(Read, t.TopicID)
			if code == 0 {
				return true
			}
			answers = append(answers, kmsg.ShareAcknowledgeResponseTopic{TopicID: t.TopicID,
				Partitions: mapped(t.Partitions, func(p *kmsg.ShareAcknowledgeRequestTopicPartition) kmsg.ShareAcknowledgeResponseTopicPartition {
					one := kmsg.NewShareAcknowledgeResponseTopicPartition()
					one.Partition, one.ErrorCode = p.Partition, code
					return one
				})})
			return false
		})
		if len(answers) == 0 {
			return nil
		}
		return send(c, true, func(resp *kmsg.ShareAcknowledgeResponse) { resp.Topics = append(resp.Topics, answers...) })
	})
}
