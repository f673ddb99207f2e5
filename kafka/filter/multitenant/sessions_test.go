package multitenant

import (
	"cmp"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// cluster answers the filter's own requests: topics by ID.
type cluster struct {
	t      *testing.T
	topics map[id]string
	asked  []kmsg.Request
	answer kmsg.Response // answered by the filter instead of the broker
	err    error         // from processing the last answer
}

func (k *cluster) Answer(_ *filter.Exchange, resp kmsg.Response) { k.answer = resp }
func (k *cluster) Drop(*filter.Exchange)                         { k.t.Error("dropped") }
func (k *cluster) Ask(_ *filter.Exchange, r kmsg.Request, then func(kmsg.Response, error) error) {
	k.asked = append(k.asked, r)
	resp := kmsg.NewPtrMetadataResponse()
	for _, asked := range r.(*kmsg.MetadataRequest).Topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.TopicID, topic.ErrorCode = asked.TopicID, 100
		if name, ok := k.topics[asked.TopicID]; ok {
			topic.Topic, topic.ErrorCode = &name, 0
		}
		resp.Topics = append(resp.Topics, topic)
	}
	k.err = then(resp, nil)
}

// request returns a request as the broker gets it.
func (k *cluster) request(c filter.Conn, r kmsg.Request) (kmsg.Request, *filter.Exchange) {
	k.t.Helper()
	k.answer = nil
	x := filter.NewExchange(r.Key(), r.GetVersion(), "", k)
	m := filter.NewMessage(filter.Request, r.Key(), r.GetVersion(), r.AppendTo(nil))
	if err := cmp.Or(c.Request(&x, &m), k.err); err != nil {
		k.t.Fatal(err)
	}
	got, err := m.DecodeRequest()
	if err != nil {
		k.t.Fatal(err)
	}
	if q, ok := r.(*kmsg.FetchRequest); ok && q.SessionEpoch == 0 {
		c.(*conn).recordSession(aSession)
	}
	return got, &x
}

// aSession is the ID of new sessions.
const aSession = 77

// fetching returns a request that continues a session, or starts one with epoch
// 0.
func fetching(epoch int32, topics ...id) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.SessionEpoch = 17, epoch
	if epoch > 0 {
		r.SessionID = aSession
	}
	for _, t := range topics {
		topic := kmsg.NewFetchRequestTopic()
		topic.TopicID, topic.Partitions = t, []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}
		r.Topics = append(r.Topics, topic)
	}
	return r
}

func forgetting(epoch int32, topics ...id) *kmsg.FetchRequest {
	r := fetching(epoch)
	for _, t := range topics {
		r.ForgottenTopics = append(r.ForgottenTopics, kmsg.FetchRequestForgottenTopic{TopicID: t, Partitions: []int32{0}})
	}
	return r
}

// When the client forgets an ID, the ID substituted for it is removed from the
// session.
func TestForgottenTopicsAreSubstitutedAsTheyWereAdded(t *testing.T) {
	ten := newTenant(t, "z4de")
	k := &cluster{t: t, topics: map[id]string{{1}: "z4de-a", {2}: "other-b"}}
	c := ten.Open(filter.Info{})
	q, _ := k.request(c, fetching(0, id{1}, id{2}, id{3}))
	first := q.(*kmsg.FetchRequest).Topics
	if first[0].TopicID != (id{1}) || first[1].TopicID == (id{2}) || first[2].TopicID == (id{3}) {
		t.Fatalf("the session begins with %x", first)
	}
	q, _ = k.request(c, forgetting(1, id{1}, id{2}, id{3}))
	for i, forgotten := range q.(*kmsg.FetchRequest).ForgottenTopics {
		if forgotten.TopicID != first[i].TopicID {
			t.Errorf("forgotten topics %x, want %x", forgotten.TopicID, first[i].TopicID)
		}
	}
	if k.answer != nil {
		t.Errorf("answered: %v", k.answer)
	}
}

// A topic that was unknown when the session started would stay unknown in it,
// and forgetting it would not remove the substituted ID.
func TestFetchSessionRestartsWhenATopicBecomesKnown(t *testing.T) {
	const topicIDError, noSession = 106, 122
	for name, add := range map[string]func(epoch int32, forget bool, topics ...id) kmsg.Request{
		"Fetch": func(epoch int32, forget bool, topics ...id) kmsg.Request {
			if forget {
				return forgetting(epoch, topics...)
			}
			return fetching(epoch, topics...)
		},
		"ShareFetch": func(epoch int32, forget bool, topics ...id) kmsg.Request {
			r := kmsg.NewPtrShareFetchRequest()
			r.Version, r.ShareSessionEpoch = 1, epoch
			for _, t := range topics {
				if forget {
					r.ForgottenTopicsData = append(r.ForgottenTopicsData, kmsg.ShareFetchRequestForgottenTopicsData{TopicID: t})
				} else {
					r.Topics = append(r.Topics, kmsg.ShareFetchRequestTopic{TopicID: t})
				}
			}
			return r
		},
	} {
		for how, learn := range map[string]func(*tenant, *cluster){
			"told elsewhere": func(ten *tenant, _ *cluster) { ten.ids.learn(id{2}) },
			"asked again": func(ten *tenant, k *cluster) {
				k.topics[id{2}] = "z4de-late"
				ten.ids.recordForeign([]id{{2}}, time.Now().Add(-2*foreignTTL)) // the answer has expired
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				ten := newTenant(t, "z4de")
				k := &cluster{t: t, topics: map[id]string{{1}: "z4de-a"}}
				c := ten.Open(filter.Info{})
				k.request(c, add(0, false, id{1}, id{2}))
				k.request(c, add(1, false))
				if k.answer != nil {
					t.Fatalf("answered before anything changed: %v", k.answer)
				}
				learn(ten, k)
				k.request(c, add(2, true, id{2}))
				var code int16
				switch a := k.answer.(type) {
				case *kmsg.FetchResponse:
					code = a.ErrorCode
				case *kmsg.ShareFetchResponse:
					code = a.ErrorCode
				}
				if code != topicIDError && code != noSession || k.answer.GetVersion() != add(0, false).GetVersion() {
					t.Fatalf("answered: %+v", k.answer)
				}
				// The client starts a new session, which continues normally.
				q, _ := k.request(c, add(0, false, id{1}, id{2}))
				switch q := q.(type) {
				case *kmsg.FetchRequest:
					if q.Topics[1].TopicID != (id{2}) {
						t.Errorf("the new session has %x", q.Topics[1].TopicID)
					}
				case *kmsg.ShareFetchRequest:
					if q.Topics[1].TopicID != (id{2}) {
						t.Errorf("the new session has %x", q.Topics[1].TopicID)
					}
				}
				if k.request(c, add(1, true, id{2})); k.answer != nil {
					t.Errorf("answered: %v", k.answer)
				}
			})
		}
	}
}

// IDs that the filter has forgotten stay valid in a session that named them,
// because later answers cannot be looked up.
func TestFetchSessionKeepsItsTopics(t *testing.T) {
	ten := newTenant(t, "z4de")
	ten.ids.owned.limit = 2
	k := &cluster{t: t, topics: map[id]string{{1}: "z4de-a"}}
	c := ten.Open(filter.Info{})
	_, x := k.request(c, fetching(0, id{1}, id{9}))
	for i := range byte(10) {
		ten.ids.learn(id{100 + i})
	}
	if ten.ids.owns(id{1}) {
		t.Fatal("nothing was evicted")
	}
	q, _ := k.request(c, forgetting(1, id{1}))
	if got := q.(*kmsg.FetchRequest).ForgottenTopics[0].TopicID; got != (id{1}) || len(k.asked) > 1 {
		t.Errorf("forgotten topics %x after %d lookups", got, len(k.asked))
	}
	e := c.Edits(filter.Response, x)
	one, foreign, fake := id{1}, id{2}, ten.ids.substitute(id{9})
	if err := e.TopicID(&one); err != nil || one != (id{1}) {
		t.Errorf("a topic of the session: %v", err)
	}
	if err := e.TopicID(&foreign); !errors.Is(err, filter.ErrDenied) {
		t.Errorf("a topic of another's session: %v", err)
	}
	if err := e.TopicID(&fake); err != nil || fake != (id{9}) {
		t.Errorf("an id that no topic has: %x, %v", fake, err)
	}
	if k.request(c, fetching(0)); e.TopicID(&one) == nil {
		t.Error("a topic of the previous session counts as one of this session")
	}
}

// With more topics than the cache holds, some are evicted and looked up again
// when a request names them, also in the middle of an exchange.
func TestTopicsBeyondTheCacheWork(t *testing.T) {
	ten := newTenant(t, "z4de")
	const most = 100
	ten.ids.owned.limit = most
	k := &cluster{t: t, topics: map[id]string{}}
	var all []id
	for i := range 10 * most {
		one := id{1, byte(i >> 8), byte(i)}
		k.topics[one] = "z4de-a"
		all = append(all, one)
		ten.ids.learn(one)
	}
	if n := len(ten.ids.owned.newer) + len(ten.ids.owned.older); n > 2*most {
		t.Errorf("%d ids are cached, at most %d may be", n, 2*most)
	}
	if !ten.ids.owns(all[len(all)-most]) {
		t.Error("a recently learned id was evicted")
	}
	if ten.ids.owns(all[0]) {
		t.Fatal("nothing was evicted")
	}
	c := ten.Open(filter.Info{})
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Version, q.Group, q.Topics = 10, "g", []kmsg.OffsetCommitRequestTopic{{TopicID: all[0]}}
	got, x := k.request(c, q)
	if got := got.(*kmsg.OffsetCommitRequest).Topics[0].TopicID; got != all[0] {
		t.Errorf("the broker gets %x", got)
	}
	for _, other := range all[1:] {
		ten.ids.learn(other)
	}
	r := kmsg.NewPtrOffsetCommitResponse()
	r.Version, r.Topics = 10, []kmsg.OffsetCommitResponseTopic{{TopicID: all[0]}}
	m := filter.NewMessage(filter.Response, x.Key, x.Version, r.AppendTo(nil))
	if err := cmp.Or(c.Response(x, &m), k.err); err != nil {
		t.Errorf("an id was evicted before the response: %v", err)
	}
	r.Topics[0].TopicID = id{66}
	m = filter.NewMessage(filter.Response, x.Key, x.Version, r.AppendTo(nil))
	if err := cmp.Or(c.Response(x, &m), k.err); !errors.Is(err, filter.ErrDenied) {
		t.Errorf("another tenant's id: %v", err)
	}
}

// A request with an ID of another tenant gets the broker's answer for an
// unknown one, in the broker's order, so the broker must get the same request
// in both cases.
func TestMetadataOfAForeignIDIsUnknown(t *testing.T) {
	ids := []id{{1}, {2}, {3}, {4}, {5}, {6}, {7}}
	fakes := newTenant(t, "z4de").ids.blockCipher // same substitutes in each run
	var before kmsg.Request
	for _, others := range [][]id{nil, {{3}}, {{3}, {5}, {6}}} {
		ten := newTenant(t, "z4de")
		ten.ids.blockCipher = fakes
		k := &cluster{t: t, topics: map[id]string{{1}: "z4de-a", {2}: "z4de-b"}}
		for _, other := range others {
			k.topics[other] = "other-c"
		}
		r := kmsg.NewPtrMetadataRequest()
		r.Version = 13
		for _, one := range ids {
			topic := kmsg.NewMetadataRequestTopic()
			topic.TopicID = one
			r.Topics = append(r.Topics, topic)
		}
		c := ten.Open(filter.Info{})
		q, x := k.request(c, r)
		if before != nil && string(q.AppendTo(nil)) != string(before.AppendTo(nil)) {
			t.Fatalf("the broker gets a different request if %x are foreign", others)
		}
		before = q
		// The broker lists unknown IDs first.
		answer := kmsg.NewPtrMetadataResponse()
		answer.Version = 13
		for _, asked := range slices.Backward(q.(*kmsg.MetadataRequest).Topics) {
			topic := kmsg.NewMetadataResponseTopic()
			topic.TopicID, topic.ErrorCode = asked.TopicID, 100
			if name, ok := k.topics[asked.TopicID]; ok {
				topic.Topic, topic.ErrorCode = &name, 0
			}
			answer.Topics = append(answer.Topics, topic)
		}
		got := received(t, c, x, answer).(*kmsg.MetadataResponse).Topics
		var order []id
		for _, topic := range got {
			order = append(order, topic.TopicID)
			if known := topic.TopicID[0] <= 2; known != (topic.Topic != nil) || known != (topic.ErrorCode == 0) {
				t.Errorf("%x: %v", topic.TopicID, topic)
			}
		}
		if slices.Reverse(order); !slices.Equal(order, ids) {
			t.Errorf("got %x", order)
		}
	}
}

// A broker that denies access to a topic returns its ID without the name: that
// must not distinguish another tenant's topic from an unknown one.
func TestMetadataDoesNotTellOfForbiddenTopics(t *testing.T) {
	ten := newTenant(t, "z4de")
	k := &cluster{t: t, topics: map[id]string{}} // as Ask gets no name either
	r := kmsg.NewPtrMetadataRequest()
	r.Version = 12
	topic := kmsg.NewMetadataRequestTopic()
	topic.TopicID = id{3}
	r.Topics = append(r.Topics, topic)
	c := ten.Open(filter.Info{})
	if q, _ := k.request(c, r); q.(*kmsg.MetadataRequest).Topics[0].TopicID == (id{3}) {
		t.Error("the broker was asked about it")
	}
}
