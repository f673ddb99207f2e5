package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestWhatMembersSayAsTenant: brokers read what members of classic groups say
// to each other, and understand it in a tenant's group as in any other.
func TestWhatMembersSayAsTenant(t *testing.T) {
	c := cluster(t)
	compare(t, []program{
		{"offsets of a topic that a group is subscribed to", subscribedOffsets},
		{"a classic group that is taken over by the new protocol", takenOver},
	}, direct(c), startVirtual(t, c).red)
}

// subscribedOffsets asks for offsets to be deleted, which a broker does only
// for topics that no member is subscribed to.
func subscribedOffsets(r *run) {
	topic, other, name, adm := r.newTopic("subscribed", 2), r.newTopic("other", 2), r.called("subscribed"), r.admin()
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
			r.say("offsets of %s/%d deleted: %v", t, p, deleted[t][p])
		}
	}
}

// takenOver has a member of the new protocol join a classic group: the broker
// turns the group into one of the new protocol, reads what the classic member
// has subscribed to and owns, and assigns it its partitions.
func takenOver(r *run) {
	topic, name := r.newTopic("taken", 6), r.called("taken")
	r.produce(r.client(), records(topic, 60, 6)...)
	classic := r.join(name, topic, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	r.assigned(name, 1, 6)
	r.read("classic", r.take(60, classic))
	if err := classic.CommitUncommittedOffsets(r.ctx); err != nil {
		r.t.Fatalf("%s: commit: %v", r.name, err)
	}
	modern := r.join(name, topic, kgo.ServerSideBalancer(), kgo.ClientID("modern"))
	r.assigned(name, 2, 6)
	r.produce(r.client(), records(topic, 60, 6)...)
	r.read("both", r.take(60, classic, modern))
}
