package kafka

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

// must sends a request as the victim; the connection must not fail.
func (v *victim) must(req kmsg.Request) kmsg.Response {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, testkit.Patience)
	defer cancel()
	resp, err := v.cl.Request(ctx, req)
	if err != nil {
		v.t.Fatalf("%s: %s: %v", v.name, kmsg.NameForKey(req.Key()), err)
	}
	return resp
}

// shared gives the victim a share group with a member.
func (v *victim) shared() {
	v.t.Helper()
	c := v.client(kgo.ShareGroup(v.share), kgo.ConsumeTopics(v.topic))
	go func() {
		for v.ctx.Err() == nil && !c.PollFetches(v.ctx).IsClientClosed() {
			continue
		}
	}()
	testkit.WaitFor(v.t, "the share group to have a member", func() bool {
		req := kmsg.NewPtrShareGroupDescribeRequest()
		req.GroupIDs = []string{v.share}
		resp, err := v.cl.Request(v.ctx, req)
		if err != nil {
			return false
		}
		groups := resp.(*kmsg.ShareGroupDescribeResponse).Groups
		return len(groups) == 1 && len(groups[0].Members) == 1
	})
}

// guarded gives the victim an ACL, a quota and a configuration.
func (v *victim) guarded() {
	v.t.Helper()
	acl := kmsg.NewPtrCreateACLsRequest()
	one := kmsg.NewCreateACLsRequestCreation()
	one.ResourceType, one.ResourceName, one.Principal, one.Host = kmsg.ACLResourceTypeTopic, v.topic, "User:"+v.user, "*"
	one.ResourcePatternType, one.Operation, one.PermissionType =
		kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
	acl.Creations = append(acl.Creations, one)
	v.must(acl)
	quota := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entity := kmsg.NewAlterClientQuotasRequestEntryEntity()
	entity.Type, entity.Name = "user", &v.user
	entry.Entity = append(entry.Entity, entity)
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value = "producer_byte_rate", 1e9
	entry.Ops = append(entry.Ops, op)
	quota.Entries = append(quota.Entries, entry)
	_, err := v.cl.Request(v.ctx, quota)
	v.hasQuota = err == nil // tenants may not be offered quotas
	v.t.Cleanup(func() {    // other tests compare lists of all quotas
		if !v.hasQuota {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		own := *v.run
		own.ctx = ctx // the test's context has ended
		quota.Entries[0].Ops[0].Remove = true
		own.ask(v.cl, quota)
		own.everywhere("the quota is gone", v.cl, quotaRequest(v.user), func(resp kmsg.Response) bool {
			return len(resp.(*kmsg.DescribeClientQuotasResponse).Entries) == 0
		})
	})
}

// settled waits until every broker gives final answers about the victim's
// objects: coordinators and metadata updates reach brokers at different times.
func (v *victim) settled() {
	v.t.Helper()
	v.eventually("the transaction to be open", v.cl, transactionRequest(v.txn), func(resp kmsg.Response) bool {
		all := resp.(*kmsg.DescribeTransactionsResponse).TransactionStates
		return len(all) == 1 && all[0].State == "Ongoing" && len(all[0].Topics) == 1
	})
	classic := func(group string) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{group}
		v.eventually(group+" to be stable", v.cl, req, func(resp kmsg.Response) bool {
			all := resp.(*kmsg.DescribeGroupsResponse).Groups
			return len(all) == 1 && all[0].State == "Stable" && len(all[0].Members) == 1
		})
	}
	classic(v.group)
	consumer, classicToo := kmsg.NewPtrConsumerGroupDescribeRequest(), false
	consumer.Groups = []string{v.consumer}
	v.eventually("the other group to be stable", v.cl, consumer, func(resp kmsg.Response) bool {
		all := resp.(*kmsg.ConsumerGroupDescribeResponse).Groups
		// Without v1 of the heartbeat franz-go uses a classic group.
		classicToo = len(all) == 1 && all[0].ErrorMessage != nil && strings.HasSuffix(*all[0].ErrorMessage, "is not a consumer group.")
		return classicToo || len(all) == 1 && all[0].State == "Stable" && len(all[0].Members) == 1
	})
	if classicToo {
		classic(v.consumer)
	}
	v.known(v.cl, v.topic, 1)
	v.everywhere("the ACL", v.cl, aclRequest(v.topic), func(resp kmsg.Response) bool {
		return len(resp.(*kmsg.DescribeACLsResponse).Resources) == 1
	})
	if v.hasQuota {
		v.everywhere("the quota", v.cl, quotaRequest(v.user), func(resp kmsg.Response) bool {
			return len(resp.(*kmsg.DescribeClientQuotasResponse).Entries) == 1
		})
	}
}

func transactionRequest(id string) kmsg.Request {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	return req
}

// quotaRequest requests the quotas of a user.
func quotaRequest(user string) kmsg.Request {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	component := kmsg.NewDescribeClientQuotasRequestComponent()
	component.EntityType, component.MatchType, component.Match = "user", kmsg.QuotasMatchTypeExact, &user
	req.Components = append(req.Components, component)
	return req
}

// aclRequest requests all ACLs of a name.
func aclRequest(name string) kmsg.Request {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 1, 1, 1
	req.ResourceName = &name
	return req
}

// state returns all of the victim's state that another tenant could have
// changed.
func (v *victim) state() string {
	v.t.Helper()
	v.lines = nil
	ask := func(req kmsg.Request) kmsg.Response {
		ctx, cancel := context.WithTimeout(v.ctx, testkit.Patience) // a missing answer would look like a change
		defer cancel()
		resp, err := v.cl.Request(ctx, req)
		if err != nil {
			v.record("%s: %v", kmsg.NameForKey(req.Key()), err)
			return req.ResponseKind()
		}
		v.record("%s: %s", kmsg.NameForKey(req.Key()), text(resp, v.id))
		return resp
	}
	for _, t := range ask(metadataRequest(v.topic)).(*kmsg.MetadataResponse).Topics {
		v.record("identity as at first: %v", t.TopicID == v.topicID)
	}
	for _, at := range []int64{-2, -1} {
		list := kmsg.NewPtrListOffsetsRequest()
		list.ReplicaID = -1
		lt := kmsg.NewListOffsetsRequestTopic()
		lt.Topic = v.topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = at
		lt.Partitions = append(lt.Partitions, p)
		list.Topics = append(list.Topics, lt)
		ask(list)
	}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group, fetch.Groups = v.group, []kmsg.OffsetFetchRequestGroup{{Group: v.group, MemberEpoch: -1}}
	ask(fetch)
	groups := kmsg.NewPtrDescribeGroupsRequest()
	groups.Groups = []string{v.group}
	described := ask(groups).(*kmsg.DescribeGroupsResponse)
	for i := range described.Groups {
		for j := range described.Groups[i].Members {
			v.record("member as at first: %v", described.Groups[i].Members[j].MemberID == v.names["MemberID"])
		}
	}
	consumers := kmsg.NewPtrConsumerGroupDescribeRequest()
	consumers.Groups = []string{v.consumer}
	ask(consumers)
	ask(transactionRequest(v.txn))
	ask(aclRequest(v.topic))
	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: v.topic}}
	ask(configs)
	return v.transcript()
}

// attacker sends requests for the victim's objects, and for unknown ones.
type attacker struct {
	all []string // addresses of all brokers
	*sweep

	v         *victim
	forbidden map[string][]byte
}

// withNames returns the names with other names for objects.
func (o objectNames) withNames(rename func(string) string) objectNames {
	o.topic, o.group, o.share, o.consumer = rename(o.topic), rename(o.group), rename(o.share), rename(o.consumer)
	o.txn, o.user = rename(o.txn), rename(o.user)
	return o
}

func newAttacker(t *testing.T, w tenancy, v *victim) *attacker {
	t.Helper()
	r := newRun(t, w.attacker)
	r.ctx = t.Context()
	s := &sweep{run: r, at: map[string]string{}, conns: map[string]*rawConn{}}
	t.Cleanup(func() {
		for _, c := range s.conns {
			c.Close()
		}
	})
	s.askOffered()
	own, _, leader := r.together("own", 1)
	s.at["leader"] = leader
	cl := r.client()
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(r.ctx, cl)
	if err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	var all []string
	for _, b := range meta.Brokers {
		all = append(all, net.JoinHostPort(b.Host, fmt.Sprint(b.Port)))
	}
	for role, kind := range map[string]int8{"group": 0, "share": 0, "txn": 1} {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorType, find.CoordinatorKey, find.CoordinatorKeys = kind, own, []string{own}
		testkit.WaitFor(t, "a coordinator", func() bool {
			resp, err := find.RequestWith(r.ctx, cl)
			if err != nil || len(resp.Coordinators) != 1 || resp.Coordinators[0].ErrorCode != 0 {
				return false
			}
			s.at[role] = net.JoinHostPort(resp.Coordinators[0].Host, fmt.Sprint(resp.Coordinators[0].Port))
			return true
		})
	}
	a := &attacker{sweep: s, all: all, v: v, forbidden: map[string][]byte{
		"a name": []byte(secret + "-" + v.id), "a group's name": []byte(v.share), "the other group's name": []byte(v.consumer),
		"a topic's identity": v.topicID[:], "a member": []byte(v.names["MemberID"]),
	}}
	// The coordinator is ready when it assigns a producer ID.
	testkit.WaitFor(t, "a coordinator that coordinates", func() bool {
		req := request(22, 2).(*kmsg.InitProducerIDRequest)
		req.TransactionalID, req.TransactionTimeoutMillis = &own, 10_000
		resp, err := a.ask("txn", req)
		return err == nil && resp.(*kmsg.InitProducerIDResponse).ErrorCode == 0
	})
	for _, at := range w.addresses {
		a.forbidden["the address "+at] = []byte(at)
	}
	return a
}

// probe tests one API at one version in three ways, each for an existing and
// for an unknown object.
func (a *attacker) probe(found leaks, key, version int16) {
	api := kmsg.NameForKey(key)
	none := [16]byte{0xfe, 1, 2, 3, 15: 9}
	theirs := a.v.objectNames
	unnamed := func(s string) string { return strings.Replace(s, secret, nobody, 1) }
	prefixed := func(s string) string { return a.v.prefix + s }
	for _, way := range []struct {
		what           string
		there, nowhere objectNames
	}{
		{"by the victim's names", theirs, theirs.withNames(unnamed)},
		{"by the broker's names", theirs.withNames(prefixed), theirs.withNames(unnamed).withNames(prefixed)},
	} {
		if way.what != "by the victim's names" && a.v.prefix == "" {
			continue
		}
		way.nowhere.topicID = none
		if version == 0 || key != 64 {
			nowhere := a.answer(key, way.nowhere.fill(request(key, version)))
			there := a.answer(key, way.there.fill(request(key, version)))
			if there != nowhere {
				found.add(api, "v%d %s: %s\n  nobody's: %s", version, way.what, there, nowhere)
			}
		}
		for i, pair := range a.narrow(way.there, way.nowhere, key, version) {
			there, nowhere := a.answer(key, pair[0]), a.answer(key, pair[1])
			if there != nowhere {
				found.add(api, "v%d %s, special %d: %s\n  nobody's: %s", version, way.what, i, there, nowhere)
			}
		}
	}
}

// list requests everything from every broker.
func (a *attacker) list(found leaks, key, version int16) {
	for i, req := range a.broad(key, version) {
		if neverAnswered(req) {
			continue
		}
		for _, at := range a.all {
			a.listing(found, fmt.Sprintf("v%d, broad %d", version, i), at, req)
		}
	}
}

// answer returns the masked answer, without the requested names.
func (a *attacker) answer(key int16, req kmsg.Request) string {
	a.requests++
	began := time.Now()
	resp, err := a.ask(role(key), req)
	if took := time.Since(began); took > time.Second {
		a.t.Logf("%s v%d took %v", kmsg.NameForKey(key), req.GetVersion(), took.Round(time.Millisecond))
	}
	if err != nil {
		return failure(err)
	}
	one := text(resp, a.v.id)
	return strings.NewReplacer(secret, "NAME", nobody, "NAME").Replace(one)
}

// listing requests everything: the answer must contain nothing of the victim's.
func (a *attacker) listing(found leaks, what, at string, req kmsg.Request) {
	a.requests++
	_, frame, err := a.askAt(at, req)
	if err != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a.forbidden)) {
		if b := a.forbidden[name]; len(b) > 0 && bytes.Contains(frame, b) {
			found.add(kmsg.NameForKey(req.Key()), "%s shows %s of the victim's", what, name)
		}
	}
}
