package multitenant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// subscribed returns a consumer's metadata for joining a group.
func subscribed(version int16, prefix string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.UserData, m.Generation = min(max(version, 0), 3), []byte("of orders"), 7
	m.Topics = []string{prefix + "orders", prefix + "payments"}
	m.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: prefix + "orders", Partitions: []int32{0, 3}}}
	rack := "a"
	m.Rack = &rack
	b := m.AppendTo(nil)
	binary.BigEndian.PutUint16(b, uint16(version))
	return b
}

// assigned returns the assignment of a consumer by the group's leader.
func assigned(version int16, prefix string) []byte {
	m := kmsg.NewConsumerMemberAssignment()
	m.Version, m.UserData = version, []byte("of orders")
	m.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: prefix + "orders", Partitions: []int32{0, 3}},
		{Topic: prefix + "payments", Partitions: []int32{}}}
	return m.AppendTo(nil)
}

// sent returns a request as the broker gets it, and the exchange for its
// response.
func sent(t *testing.T, c filter.Conn, r kmsg.Request) (kmsg.Request, *filter.Exchange) {
	t.Helper()
	x := filter.NewExchange(r.Key(), r.GetVersion(), "", quiet{t})
	m := filter.NewMessage(filter.Request, r.Key(), r.GetVersion(), r.AppendTo(nil))
	if err := c.Request(&x, &m); err != nil {
		t.Fatal(err)
	}
	got := kmsg.RequestForKey(r.Key())
	got.SetVersion(r.GetVersion())
	if err := got.ReadFrom(m.Body()); err != nil {
		t.Fatal(err)
	}
	return got, &x
}

// received returns a response as the client gets it.
func received(t *testing.T, c filter.Conn, x *filter.Exchange, r kmsg.Response) kmsg.Response {
	t.Helper()
	r.SetVersion(x.Version)
	m := filter.NewMessage(filter.Response, x.Key, x.Version, r.AppendTo(nil))
	if err := c.Response(x, &m); err != nil {
		t.Fatal(err)
	}
	got := kmsg.ResponseForKey(x.Key)
	got.SetVersion(x.Version)
	if err := got.ReadFrom(m.Body()); err != nil {
		t.Fatal(err)
	}
	return got
}

func joining(version int16, kind string, metadata ...[]byte) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.ProtocolType = version, "g", kind
	for _, m := range metadata {
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: "range", Metadata: m})
	}
	return r
}

// Brokers parse the subscriptions of consumers: see members.go. Unknown later
// versions start like the newest known one.
func TestSubscriptionsHaveThePrefixAtTheBroker(t *testing.T) {
	c := newTenant(t, "z4de").Open(filter.Info{})
	for _, version := range []int16{-1, 0, 1, 2, 3, 4, 99} {
		for join := range int16(10) {
			direct, atBroker := subscribed(version, ""), subscribed(version, "z4de-")
			q, x := sent(t, c, joining(join, "consumer", direct, direct))
			for _, p := range q.(*kmsg.JoinGroupRequest).Protocols {
				if !bytes.Equal(p.Metadata, atBroker) {
					t.Fatalf("JoinGroup v%d, subscription v%d: the broker gets %q", join, version, p.Metadata)
				}
			}
			r := kmsg.NewPtrJoinGroupResponse()
			r.Members = []kmsg.JoinGroupResponseMember{{MemberID: "m", ProtocolMetadata: atBroker}}
			s := received(t, c, x, r)
			if got := s.(*kmsg.JoinGroupResponse).Members[0].ProtocolMetadata; !bytes.Equal(got, direct) {
				t.Fatalf("JoinGroup v%d, subscription v%d: the leader gets %q", join, version, got)
			}
		}
	}
}

func TestAssignmentsHaveThePrefixAtTheBroker(t *testing.T) {
	c := newTenant(t, "z4de").Open(filter.Info{})
	for version := range int16(4) {
		for sync := range int16(6) {
			direct, atBroker := assigned(version, ""), assigned(version, "z4de-")
			r := kmsg.NewPtrSyncGroupRequest()
			r.Version, r.Group = sync, "g"
			r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: "m", MemberAssignment: direct},
				{MemberID: "n", MemberAssignment: []byte{}}}
			q, x := sent(t, c, r)
			got := q.(*kmsg.SyncGroupRequest).GroupAssignment
			if !bytes.Equal(got[0].MemberAssignment, atBroker) || len(got[1].MemberAssignment) > 0 {
				t.Fatalf("SyncGroup v%d, assignment v%d: the broker gets %q", sync, version, got[0].MemberAssignment)
			}
			answer := kmsg.NewPtrSyncGroupResponse()
			answer.MemberAssignment = atBroker
			s := received(t, c, x, answer)
			if got := s.(*kmsg.SyncGroupResponse).MemberAssignment; !bytes.Equal(got, direct) {
				t.Fatalf("SyncGroup v%d, assignment v%d: the member gets %q", sync, version, got)
			}
		}
	}
}

func TestDescribedMembersShowTheirOwnNames(t *testing.T) {
	c := newTenant(t, "z4de").Open(filter.Info{})
	for _, kind := range []string{"consumer", "connect"} {
		q := kmsg.NewPtrDescribeGroupsRequest()
		q.Version, q.Groups = 5, []string{"g"}
		_, x := sent(t, c, q)
		r := kmsg.NewPtrDescribeGroupsResponse()
		r.Groups = []kmsg.DescribeGroupsResponseGroup{{
			Group: "z4de-g", ProtocolType: kind,
			Members: []kmsg.DescribeGroupsResponseGroupMember{{ProtocolMetadata: subscribed(3, "z4de-"), MemberAssignment: assigned(3, "z4de-")}},
		}}
		got := received(t, c, x, r).(*kmsg.DescribeGroupsResponse).Groups[0].Members[0]
		prefix := ""
		if kind != "consumer" {
			prefix = "z4de-" // metadata of other protocol types is not parsed
		}
		if !bytes.Equal(got.ProtocolMetadata, subscribed(3, prefix)) || !bytes.Equal(got.MemberAssignment, assigned(3, prefix)) {
			t.Errorf("%s: %q, %q", kind, got.ProtocolMetadata, got.MemberAssignment)
		}
	}
}

func TestMetadataOfOtherProtocolTypesIsUnchanged(t *testing.T) {
	c := newTenant(t, "z4de").Open(filter.Info{})
	q, x := sent(t, c, joining(5, "connect", subscribed(1, "")))
	if got := q.(*kmsg.JoinGroupRequest).Protocols[0].Metadata; !bytes.Equal(got, subscribed(1, "")) {
		t.Errorf("JoinGroup: the broker gets %q", got)
	}
	r := kmsg.NewPtrJoinGroupResponse()
	r.Members = []kmsg.JoinGroupResponseMember{{ProtocolMetadata: subscribed(1, "z4de-")}}
	if got := received(t, c, x, r).(*kmsg.JoinGroupResponse).Members[0].ProtocolMetadata; !bytes.Equal(got, subscribed(1, "z4de-")) {
		t.Errorf("JoinGroup: the leader gets %q", got)
	}
	kind := "connect"
	s := kmsg.NewPtrSyncGroupRequest()
	s.Version, s.Group, s.ProtocolType = 5, "g", &kind
	s.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberAssignment: assigned(0, "")}}
	q, x = sent(t, c, s)
	if got := q.(*kmsg.SyncGroupRequest).GroupAssignment[0].MemberAssignment; !bytes.Equal(got, assigned(0, "")) {
		t.Errorf("SyncGroup: the broker gets %q", got)
	}
	answer := kmsg.NewPtrSyncGroupResponse()
	answer.ProtocolType, answer.MemberAssignment = &kind, assigned(0, "z4de-")
	if got := received(t, c, x, answer).(*kmsg.SyncGroupResponse).MemberAssignment; !bytes.Equal(got, assigned(0, "z4de-")) {
		t.Errorf("SyncGroup: the member gets %q", got)
	}
}

// A broker that needs names reads only up to them. Whatever follows must not
// help names without the prefix past the filter.
func TestNamesAreChangedDespiteUnreadableRest(t *testing.T) {
	ten := newTenant(t, "z4de")
	c := &call{conn: &conn{tenant: ten}}
	v1, v3 := subscribed(1, ""), subscribed(3, "")
	for what, b := range map[string][]byte{
		"nothing behind the topics":   v1[:2+4+2+6+2+8],
		"half a length of user data":  v1[:2+4+2+6+2+8+2],
		"user data that is cut":       v1[:2+4+2+6+2+8+4+3],
		"a negative length":           append(slices.Clone(v1[:2+4+2+6+2+8]), 0xff, 0xff, 0xff, 0x80, 0, 0, 0, 1, 0, 1, 'x', 0, 0, 0, 0),
		"owned partitions that lack":  v1[:2+4+2+6+2+8+4+9],
		"owned partitions that end":   v1[:len(v1)-3],
		"something behind everything": append(slices.Clone(v3), "and more"...),
	} {
		got := c.prefixMemberNames().subscription(b)
		m := kmsg.NewConsumerMemberMetadata()
		whole := append(binary.BigEndian.AppendUint16(nil, 0), got[2:]...)
		whole = append(whole, 0xff, 0xff, 0xff, 0xff) // an absent user data field
		if i := slices.Index([]string{"half a length of user data", "user data that is cut"}, what); i >= 0 {
			whole = append(append(binary.BigEndian.AppendUint16(nil, 0), got[2:2+4+2+11+2+13]...), 0xff, 0xff, 0xff, 0xff)
		}
		if err := m.ReadFrom(whole); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if !slices.Equal(m.Topics, []string{"z4de-orders", "z4de-payments"}) {
			t.Errorf("%s: the broker reads %q", what, m.Topics)
		}
		if back := c.unprefixMemberNames().subscription(got); !bytes.Equal(back, b) {
			t.Errorf("%s: %q became %q", what, b, back)
		}
	}
	negative := c.prefixMemberNames().subscription(append(slices.Clone(v1[:2+4+2+6+2+8]), 0x80, 0, 0, 0, 0, 0, 0, 1, 0, 1, 'x', 0, 0, 0, 0))
	if !strings.HasSuffix(string(negative), "z4de-x\x00\x00\x00\x00") {
		t.Errorf("owned partitions after user data of negative length: %q", negative)
	}
}

// Names without the prefix were not sent through the proxy.
func TestForeignNamesInMemberMetadataAreRemoved(t *testing.T) {
	c := newTenant(t, "z4de").Open(filter.Info{})
	q := kmsg.NewPtrSyncGroupRequest()
	q.Version, q.Group = 5, "g"
	_, x := sent(t, c, q)
	m := kmsg.NewConsumerMemberAssignment()
	m.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "other-orders", Partitions: []int32{1, 2}},
		{Topic: "z4de-orders", Partitions: []int32{0}}}
	r := kmsg.NewPtrSyncGroupResponse()
	r.MemberAssignment = m.AppendTo(nil)
	got := kmsg.NewConsumerMemberAssignment()
	if err := got.ReadFrom(received(t, c, x, r).(*kmsg.SyncGroupResponse).MemberAssignment); err != nil {
		t.Fatal(err)
	}
	if want := []kmsg.ConsumerMemberAssignmentTopic{{Topic: "orders", Partitions: []int32{0}}}; !reflect.DeepEqual(got.Topics, want) {
		t.Errorf("the member gets %v", got.Topics)
	}
}

func TestTooManyNamesInMemberMetadataAreRefused(t *testing.T) {
	c := newTenant(t, "z4de").Open(filter.Info{})
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = slices.Repeat([]string{"a"}, maxMemberNames/2)
	some := m.AppendTo(nil)
	join := func(metadata ...[]byte) error {
		r := joining(5, "consumer", metadata...)
		x := filter.NewExchange(r.Key(), r.Version, "", quiet{t})
		b := filter.NewMessage(filter.Request, r.Key(), r.Version, r.AppendTo(nil))
		return c.Request(&x, &b)
	}
	if err := join(some, some); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := join(some, some, subscribed(0, "")); !errors.Is(err, filter.ErrDenied) {
		t.Errorf("above the limit: %v", err)
	}
}

// An overflowing length would read as that of null, and the name as the next
// field.
func TestNamesThatAreTooLongWithThePrefixAreCut(t *testing.T) {
	ten := newTenant(t, "z4de")
	c := ten.Open(filter.Info{})
	name := strings.Repeat("x", maxString-1)
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID = &name
	q, _ := sent(t, c, r)
	if got := q.(*kmsg.InitProducerIDRequest).TransactionalID; got == nil || len(*got) != maxString || !strings.HasPrefix(*got, "z4de-x") {
		t.Error("a transactional id was not cut")
	}
}

// FuzzMemberNames checks that removing the prefix restores the original, and
// that every readable name gets the prefix.
func FuzzMemberNames(f *testing.F) {
	for version := range int16(5) {
		f.Add(subscribed(version, ""))
		f.Add(assigned(version, ""))
	}
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 1, 'a', 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0, 1, 'b', 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &call{conn: &conn{tenant: newTenant(t, "z4de")}}
		before := slices.Clone(b)
		changed := c.prefixMemberNames().subscription(b)
		if back := c.unprefixMemberNames().subscription(changed); !bytes.Equal(back, b) {
			t.Errorf("a subscription %q became %q", b, back)
		}
		all := c.prefixMemberNames().assignment(b)
		if back := c.unprefixMemberNames().assignment(all); !bytes.Equal(back, b) {
			t.Errorf("an assignment %q became %q", b, back)
		}
		if !bytes.Equal(b, before) {
			t.Fatal("the input was modified")
		}
		var found []string
		m, a := kmsg.NewConsumerMemberMetadata(), kmsg.NewConsumerMemberAssignment()
		if m.ReadFrom(changed) == nil {
			found = append(found, m.Topics...)
			for _, o := range m.OwnedPartitions {
				found = append(found, o.Topic)
			}
		}
		if a.ReadFrom(all) == nil {
			for _, o := range a.Topics {
				found = append(found, o.Topic)
			}
		}
		for _, name := range found {
			if !c.isIllegalTopic(name) && !strings.HasPrefix(name, c.prefix) {
				t.Errorf("%q has %q without the prefix", b, name)
			}
		}
	})
}
