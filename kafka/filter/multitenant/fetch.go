package multitenant

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// Fetch (API key 1):
//
//	request   v0+    names get the prefix
//	          v7+    the session's number (KIP-227) must be one that was handed
//	                 to the tenant
//	          v13+   topic ids that are not the tenant's become ids that nobody
//	                 has
//	response  v0-3   decoded: names lose the prefix
//	          v4-12  walked: the same; the session's number is noted
//	          v13+   walked: ids become the client's again; an id that is not the
//	                 tenant's ends the connection

// firstFetchWithID is the first version with ids in place of names (KIP-516).
const firstFetchWithID = 13

// walkFetch reports which responses stream.
func walkFetch(d filter.Direction, version int16) bool { return d == filter.Response && version >= 4 }

// fetchEdits are the edits of a response that streams.
func (c *conn) fetchEdits(x *filter.Exchange) *filter.Edits {
	e := &c.edits
	if x.Version < firstFetchWithID {
		if e.fetchNames == nil {
			e.fetchNames = &filter.Edits{Topic: c.appendUnprefixed, TopicGrowth: -len(c.prefix), FetchSession: c.recordSession}
		}
		return e.fetchNames
	}
	if e.fetchIDs == nil {
		e.fetchIDs = &filter.Edits{TopicID: c.restoreFetchedID, FetchSession: c.recordSession}
	}
	return e.fetchIDs
}

func (c *call) fetchRequest(r *kmsg.FetchRequest) error {
	if !c.checkSession(r) {
		return nil
	}
	var list []*id
	for i := range r.Topics {
		c.prefixTopic(&r.Topics[i].Topic)
		list = append(list, &r.Topics[i].TopicID)
	}
	for i := range r.ForgottenTopics {
		c.prefixTopic(&r.ForgottenTopics[i].Topic)
		list = append(list, &r.ForgottenTopics[i].TopicID)
	}
	if r.Version < firstFetchWithID {
		return nil
	}
	return c.updateSession(&c.fetchSession, r.SessionEpoch, list, func() kmsg.Response {
		const fetchSessionTopicIDError = 106
		again := kmsg.NewPtrFetchResponse()
		again.ErrorCode = fetchSessionTopicIDError
		return again
	})
}

// fetchResponse handles the versions that are not walked, which have no ids.
func (c *call) fetchResponse(r *kmsg.FetchResponse) error {
	return c.unprefixEach(len(r.Topics), func(i int) *string { return &r.Topics[i].Topic })
}

// restoreFetchedID looks at an id in a response. What a request names was looked at;
// but a fetch session is known by a number alone, and who guesses another
// tenant's need name nothing.
func (c *conn) restoreFetchedID(t *id) error {
	if c.fetchSession.isOwned(*t) || c.restoreKnownID(t) {
		return nil
	}
	// Records follow: only what the session has asked for may have been
	// replaced and forgotten.
	if original := c.ids.original(*t); c.substitutes.evicted && c.fetchSession.isSubstituted(original) {
		*t = original
		return nil
	}
	return errForeignID
}

func (c *conn) appendUnprefixed(dst, name []byte) ([]byte, error) {
	if len(name) < len(c.prefix) || string(name[:len(c.prefix)]) != c.prefix {
		return nil, fmt.Errorf("%w: the broker's answer has a name without the tenant's prefix", filter.ErrDenied)
	}
	return append(dst, name[len(c.prefix):]...), nil
}

// A fetch session is a number (KIP-227), good on its broker for whoever says it.
// A tenant may say only those that were handed to it; any other is treated as
// the broker treats one that it does not know, or has forgotten:
//
//   - A request that goes on with it, or a connection's that got another, is
//     answered FETCH_SESSION_ID_NOT_FOUND. Every client begins a new one then.
//     Clients continue only where they began: after a reconnect they start again.
//   - A request that ends it and begins another, or none, does the latter only.
//     That may come on any connection: it is how Java begins after a reconnect.
//
// What a node has not seen handed out is unknown to it, so a session that is
// ended through another node stays at the broker until that makes room.

const (
	// maxIssuedSessions is how many sessions of a tenant may be ended, at least. A
	// broker has room for 1000 of all its clients by default.
	maxIssuedSessions = 10_000
	// maxOwnSessions is how many may be gone on with on one connection.
	// Clients have one.
	maxOwnSessions = 8
	// fetchSessionIDNotFound is the error.
	fetchSessionIDNotFound = 70
)

// issuedSessions are the sessions that brokers have given to a tenant, on this node.
type issuedSessions struct {
	mu   sync.Mutex
	keys idCache[struct{}]
}

func (h *issuedSessions) put(key id) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys.put(key, struct{}{})
}

// remove deletes a session, and reports whether it was the tenant's.
func (h *issuedSessions) remove(key id) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.keys.get(key)
	h.keys.remove(key)
	return ok
}

// ownSessions are the sessions of one connection.
type ownSessions struct {
	broker  [sha256.Size]byte // of the name of the virtual broker
	numbers [maxOwnSessions]int32
	next    int // where the next one goes
}

func (n *ownSessions) init(broker string) { n.broker = sha256.Sum256([]byte(broker)) }

// key is a session among all of a tenant's.
func (n *ownSessions) key(number int32) (key id) {
	binary.BigEndian.PutUint32(key[:], uint32(number))
	copy(key[4:], n.broker[:])
	return key
}

// recordSession records the session of a response.
func (c *conn) recordSession(number int32) {
	n := &c.ownSessions
	if number == 0 || slices.Contains(n.numbers[:], number) {
		return
	}
	n.numbers[n.next] = number
	n.next = (n.next + 1) % len(n.numbers)
	c.issued.put(n.key(number))
}

// checkSession looks at the session that a request names. ok false: it is answered.
func (c *call) checkSession(r *kmsg.FetchRequest) (ok bool) {
	const begins, ends = 0, -1
	n := &c.ownSessions
	at := slices.Index(n.numbers[:], r.SessionID)
	switch {
	case r.SessionID == 0:
	case r.SessionEpoch == begins, r.SessionEpoch == ends:
		if !c.issued.remove(n.key(r.SessionID)) {
			r.SessionID = 0
		} else if at >= 0 {
			n.numbers[at] = 0
		}
	case at < 0:
		none := kmsg.NewPtrFetchResponse()
		none.Version, none.ErrorCode = r.Version, fetchSessionIDNotFound
		c.x.Answer(none)
		return false
	}
	return true
}
