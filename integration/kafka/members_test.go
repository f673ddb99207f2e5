package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

// TestGroupMembersAsTenant: brokers parse the metadata of members of classic
// groups, and understand it in a tenant's group as in any other.
func TestGroupMembersAsTenant(t *testing.T) {
	c := cluster(t)
	compare(t, []program{
		{"offsets of a topic that a group is subscribed to", subscribedOffsets},
		{"a classic group that is taken over by the new protocol", takenOver},
	}, direct(c), startVirtual(t, c).red)
}

// subscribedOffsets deletes offsets, which a broker does only for topics
// without a subscribed member.
func subscribedOffsets(r *run) {
	topic, other, name, adm := r.newTopic("subscribed", 2), r.newTopic("other", 2), r.uniqueName("subscribed"), r.admin()
	r.join(name, topic, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	r.assigned(name, 1, 2)
	for _, t := range []string{topic, other} {
		offsets := kadm.TopicsSet{}
		offsets.Add(t, 0, 1)
		deleted, err := adm.DeleteOffsets(r.ctx, name, offsets)
		if err != nil {
			r.t.Fatalf("%s: %v", r.name, err)
		}
		for p := range int32(2) {
			r.record("offsets of %s/%d deleted: %v", t, p, deleted[t][p])
		}
	}
}

// takenOver has a KIP-848 member join a classic group: the broker converts the
// group, parses the classic member's subscription and owned partitions, and
// assigns partitions to it.
func takenOver(r *run) {
	topic, name := r.newTopic("taken", 6), r.uniqueName("taken")
	r.produce(r.client(), records(topic, 60, 6)...)
	classic := r.join(name, topic, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	r.assigned(name, 1, 6)
	r.read("classic", r.take(60, classic))
	if err := classic.CommitUncommittedOffsets(r.ctx); err != nil {
		r.t.Fatalf("%s: commit: %v", r.name, err)
	}
	// franz-go cannot do this for tenants, which are offered v0 only.
	modern := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	modern.Group, modern.MemberID, modern.RebalanceTimeoutMillis = name, r.uniqueName("modern"), 30_000
	modern.SubscribedTopicNames, modern.Topics = []string{topic}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	cl := r.client()
	testkit.WaitFor(r.t, "the new member to have half of the partitions ("+r.name+")", func() bool {
		resp, err := modern.RequestWith(r.ctx, cl)
		if err != nil || resp.ErrorCode != 0 {
			r.t.Fatalf("%s: heartbeat: %v, %s", r.name, err, text(resp, r.id))
		}
		modern.MemberEpoch = resp.MemberEpoch
		owned := 0
		if resp.Assignment != nil {
			modern.Topics = modern.Topics[:0]
			for _, t := range resp.Assignment.Topics {
				modern.Topics = append(modern.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
			}
		}
		for _, t := range modern.Topics {
			owned += len(t.Partitions)
		}
		return owned == 3
	})
	r.assigned(name, 2, 6)
	r.produce(r.client(), records(topic, 60, 6)...)
	left := map[int32]int{}
	for _, rec := range r.take(30, classic) {
		left[rec.Partition]++
	}
	r.record("the classic member has %d partitions", len(left))
}
