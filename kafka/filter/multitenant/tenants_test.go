package multitenant

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// asks keeps the filter's own requests, which the test answers.
type asks struct {
	request kmsg.Request
	then    func(kmsg.Response, error) error
}

func (*asks) Answer(*filter.Exchange, kmsg.Response) {}
func (*asks) Drop(*filter.Exchange)                  {}
func (a *asks) Ask(_ *filter.Exchange, r kmsg.Request, then func(kmsg.Response, error) error) {
	a.request, a.then = r, then
}

// Groups and transactional IDs may be named "." and "..", which topics may not:
// without the prefix all tenants would share them.
func TestOddGroupNamesAreKeptApart(t *testing.T) {
	ten := newTenant(t, "z4de")
	ten.ids.learn(someID)
	ids := []string{"Group", "GroupID", "Groups", "GroupIDs", "TransactionalID", "TransactionalIDs", "TransactionID",
		"CoordinatorKey", "CoordinatorKeys"}
	for _, name := range []string{".", ".."} {
		everyVersion(t, ten, func(key, version int16) {
			if ten.Wants(filter.Request, key, version) != filter.Whole {
				return
			}
			r := kmsg.RequestForKey(key)
			fill(reflect.ValueOf(r).Elem(), "", name, someID)
			r.SetVersion(version)
			m := filter.NewMessage(filter.Request, key, version, r.AppendTo(nil))
			x := filter.NewExchange(key, version, "", quiet{t})
			if err := opened(ten).Request(&x, &m); err != nil {
				t.Errorf("%s v%d: %v", wire.Name(key), version, err)
				return
			}
			got := kmsg.RequestForKey(key)
			got.SetVersion(version)
			if err := got.ReadFrom(m.Body()); err != nil {
				t.Fatal(err)
			}
			found := map[string]string{}
			texts(reflect.ValueOf(got), "", "", found)
			for path, value := range found {
				field := path[lastDot(path)+1:]
				if slices.Contains(ids, field) && value != "" && value != "z4de-"+name {
					t.Errorf("%s v%d: %s is %q", wire.Name(key), version, path, value)
				}
			}
		})
	}
	c := ten.Open(filter.Info{}).(*conn)
	if got, _ := c.appendPrefixedTxnID(nil, []byte(".")); string(got) != "z4de-." {
		t.Errorf("Produce names the transactional id %q", got)
	}
}

func lastDot(path string) int {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '.' {
			return i
		}
	}
	return -1
}

// A filter for all resource types is not forwarded even with an exact name: the
// name could match a cluster-wide resource.
func TestDeletingACLsOfAllTypesKeepsClusterACLs(t *testing.T) {
	ten := newTenant(t, "kafka") // so "cluster" becomes "kafka-cluster"
	r := kmsg.NewPtrDeleteACLsRequest()
	r.Version = 3
	f := kmsg.NewDeleteACLsRequestFilter()
	name := "cluster"
	f.ResourceType, f.ResourceName, f.ResourcePatternType = kmsg.ACLResourceTypeAny, &name, kmsg.ACLResourcePatternTypeLiteral
	f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	r.Filters = append(r.Filters, f)
	a := &asks{}
	x := filter.NewExchange(int16(kmsg.DeleteACLs), 3, "", a)
	m := filter.NewMessage(filter.Request, int16(kmsg.DeleteACLs), 3, r.AppendTo(nil))
	if err := ten.Open(filter.Info{}).Request(&x, &m); err != nil {
		t.Fatal(err)
	}
	if a.then == nil {
		t.Fatal("the filter went to the broker before its matches were looked up")
	}
	d := kmsg.NewPtrDescribeACLsResponse()
	resource := kmsg.NewDescribeACLsResponseResource()
	resource.ResourceType, resource.ResourceName, resource.ResourcePatternType = kmsg.ACLResourceTypeCluster, "kafka-cluster",
		kmsg.ACLResourcePatternTypeLiteral
	resource.ACLs = []kmsg.DescribeACLsResponseResourceACL{{Principal: "User:admin", Host: "*"}}
	d.Resources = append(d.Resources, resource)
	if err := a.then(d, nil); err != nil {
		t.Fatal(err)
	}
	got, _ := m.DecodeRequest()
	for _, f := range got.(*kmsg.DeleteACLsRequest).Filters {
		if f.ResourceType != kmsg.ACLResourceTypeTopic || *f.ResourceName == "kafka-cluster" {
			t.Errorf("the broker was asked to delete %v %q", f.ResourceType, *f.ResourceName)
		}
	}
}

// Fetch session IDs can be guessed, and a request that continues one need not
// name topics: so the response is filtered by itself.
func TestFetchInAForeignSessionShowsNothing(t *testing.T) {
	ten := newTenant(t, "z4de")
	c := ten.Open(filter.Info{})
	x := filter.NewExchange(int16(kmsg.Fetch), 13, "", quiet{t})
	e := c.Edits(filter.Response, &x)
	if e == nil || e.TopicID == nil {
		t.Fatal("ids of Fetch responses are not checked")
	}
	foreign := id{7}
	if err := e.TopicID(&foreign); !errors.Is(err, filter.ErrDenied) {
		t.Errorf("a topic that was not requested: %v", err)
	}
	ten.ids.learn(foreign)
	if err := e.TopicID(&foreign); err != nil {
		t.Errorf("the tenant's topic: %v", err)
	}
}

// A member that joined with JoinGroup has an unchecked subscription, so the
// broker may assign topics of any tenant in such a group.
func TestAssignedTopicsAreLookedUpFirst(t *testing.T) {
	ten := newTenant(t, "z4de")
	own, foreign := id{1}, id{2}
	r := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	r.Assignment = &kmsg.ConsumerGroupHeartbeatResponseAssignment{
		Topics: []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{{TopicID: foreign}, {TopicID: own}},
	}
	a := &asks{}
	x := filter.NewExchange(int16(kmsg.ConsumerGroupHeartbeat), 0, "", a)
	m := filter.NewMessage(filter.Response, int16(kmsg.ConsumerGroupHeartbeat), 0, r.AppendTo(nil))
	if err := ten.Open(filter.Info{}).Response(&x, &m); err != nil {
		t.Fatal(err)
	}
	if ten.ids.owns(foreign) || a.then == nil {
		t.Fatal("assigned topics count as the tenant's without a lookup")
	}
	found := kmsg.NewPtrMetadataResponse()
	for t, name := range map[id]string{own: "z4de-orders", foreign: "other-orders"} {
		topic := kmsg.NewMetadataResponseTopic()
		topic.TopicID, topic.Topic = t, &name
		found.Topics = append(found.Topics, topic)
	}
	if err := a.then(found, nil); err != nil {
		t.Fatal(err)
	}
	got, _ := m.DecodeResponse()
	topics := got.(*kmsg.ConsumerGroupHeartbeatResponse).Assignment.Topics
	if len(topics) != 1 || topics[0].TopicID != own || ten.ids.owns(foreign) {
		t.Errorf("assigned topics: %v", topics)
	}
}

// A response edited as bytes is identical to one that was decoded and encoded.
func TestProduceResponseMatchesDecodedChange(t *testing.T) {
	own, foreign := id{1}, id{2}
	texts := []string{"", "no", "topic z4de-a is gone"}
	for _, version := range []int16{3, 8, 9, 12, 13} {
		for _, text := range texts {
			for _, names := range [][]string{{}, {"z4de-a"}, {"z4de-a", "z4de-z4de-b"}, {"z4de-a", ""}} {
				plain, decoded := newTenant(t, "z4de"), newTenant(t, "z4de")
				decoded.ids.blockCipher = plain.ids.blockCipher
				r := kmsg.NewPtrProduceResponse()
				r.Version, r.ThrottleMillis = version, 7
				for i, name := range names {
					topic := kmsg.NewProduceResponseTopic()
					topic.Topic, topic.TopicID = name, own
					if i > 0 {
						topic.TopicID = plain.ids.substitute(foreign)
					}
					p := kmsg.NewProduceResponseTopicPartition()
					if text != "" {
						p.ErrorMessage = &text
						p.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{ErrorMessage: &text}}
					}
					topic.Partitions = append(topic.Partitions, p)
					r.Topics = append(r.Topics, topic)
				}
				answered := func(ten *tenant, slowly bool) string {
					ten.ids.learn(own)
					c := ten.Open(filter.Info{}).(*conn)
					faked := foreign
					c.substituteID(&faked)
					x := filter.NewExchange(r.Key(), version, "", quiet{t})
					if slowly {
						x.State = []id{}
					}
					m := filter.NewMessage(filter.Response, r.Key(), version, r.AppendTo(nil))
					if err := c.Response(&x, &m); err != nil {
						t.Fatal(err)
					}
					return string(m.Body())
				}
				if got, want := answered(plain, false), answered(decoded, true); got != want || text != "" && strings.Contains(got, "z4de-a") {
					t.Errorf("v%d, %q, %q:\n got %q\nwant %q", version, text, names, got, want)
				}
			}
		}
	}
}
