package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

func groupPrograms() []program {
	return []program{
		{"classic group, eager", func(r *run) { group(r, kgo.Balancers(kgo.RangeBalancer())) }},
		{"classic group, cooperative", func(r *run) { group(r, kgo.Balancers(kgo.CooperativeStickyBalancer())) }},
		{"consumer group (KIP-848)", func(r *run) { group(r, kgo.ServerSideBalancer()) }},
		{"consumer group by expression (KIP-848)", groupByExpression},
		{"group of static members", func(r *run) {
			group(r, kgo.Balancers(kgo.RangeBalancer()), kgo.InstanceID("instance"))
		}},
		{"share group", shareGroup},
		{"offsets of groups", groupOffsets},
	}
}

// member is a consumer in a group.
type member struct {
	*kgo.Client
	seen chan *kgo.Record
}

func (r *run) join(group, topic string, more ...kgo.Opt) *member {
	r.t.Helper()
	m := &member{seen: make(chan *kgo.Record, 10_000)}
	m.Client = r.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond),
	}, more...)...)
	ctx, cancel := context.WithCancel(r.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := m.PollFetches(ctx)
			fetches.EachRecord(func(rec *kgo.Record) { m.seen <- rec })
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	return m
}

// take returns the next n records of the members together.
func (r *run) take(n int, members ...*member) []*kgo.Record {
	r.t.Helper()
	var got []*kgo.Record
	testkit.WaitFor(r.t, fmt.Sprintf("%d records of the group (%s)", n, r.name), func() bool {
		for _, m := range members {
			for len(m.seen) > 0 && len(got) < n {
				got = append(got, <-m.seen)
			}
		}
		return len(got) == n
	})
	return got
}

// assigned waits until the group is stable with that many members and
// partitions.
func (r *run) assigned(group string, members int, partitions int) {
	r.t.Helper()
	cl := r.client()
	defer cl.Close()
	adm := kadm.NewClient(cl)
	var shares []int
	var state string
	testkit.WaitFor(r.t, fmt.Sprintf("%s to have %d members (%s)", group, members, r.name), func() bool {
		shares, state = nil, ""
		if d, err := adm.DescribeGroups(r.ctx, group); err == nil && d[group].Err == nil {
			state = d[group].State
			for _, m := range d[group].Members {
				if c, ok := m.Assigned.AsConsumer(); ok {
					n := 0
					for _, t := range c.Topics {
						n += len(t.Partitions)
					}
					shares = append(shares, n)
				}
			}
		}
		if len(shares) == 0 {
			if d, err := adm.DescribeConsumerGroups(r.ctx, group); err == nil && d[group].Err == nil {
				state = d[group].State
				for _, m := range d[group].Members {
					n := 0
					for _, ps := range m.Assignment {
						n += len(ps)
					}
					shares = append(shares, n)
				}
			}
		}
		sum := 0
		for _, n := range shares {
			sum += n
		}
		return state == "Stable" && len(shares) == members && (members == 0 || sum == partitions)
	})
	slices.Sort(shares)
	r.record("%s is %s: %v", group, state, shares)
}

// group lets members join and leave, and commits in between.
func group(r *run, opts ...kgo.Opt) {
	topic, name := r.newTopic("grouped", 6), r.uniqueName("group")
	r.produce(r.client(), records(topic, 60, 6)...)
	one := r.join(name, topic, opts...)
	r.assigned(name, 1, 6)
	r.read("first", r.take(60, one))
	if err := one.CommitUncommittedOffsets(r.ctx); err != nil {
		r.t.Fatalf("%s: commit: %v", r.name, err)
	}
	second := append(slices.Clone(opts), kgo.ClientID("second"))
	if len(opts) == 2 { // another static member
		second = append(second, kgo.InstanceID("instance-2"))
	}
	two := r.join(name, topic, second...)
	r.assigned(name, 2, 6)
	r.produce(r.client(), records(topic, 60, 6)...)
	r.read("both", r.take(60, one, two))
	for _, m := range []*member{one, two} {
		if err := m.CommitUncommittedOffsets(r.ctx); err != nil {
			r.t.Fatalf("%s: commit: %v", r.name, err)
		}
	}
	one.Close()
	if len(opts) == 2 {
		r.remove(name, "instance")
	}
	r.assigned(name, 1, 6)
	r.produce(r.client(), records(topic, 12, 6)...)
	r.read("left", r.take(12, two))
	r.committed(name)
}

// groupByExpression subscribes with a regular expression, which the broker
// evaluates, and tries some invalid ones.
func groupByExpression(r *run) {
	one, two, name := r.newTopic("wanted.a", 2), r.newTopic("wanted.b", 3), r.uniqueName("by-expression")
	for _, topic := range []string{one, two, r.newTopic("unwanted.a", 1)} {
		r.produce(r.client(), records(topic, 12, 1)...)
	}
	expression := `^wanted\.(a|[^ac])-` + r.id + `$|(?i:WANTED)/no`
	m := r.join(name, expression, kgo.ServerSideBalancer(), kgo.ConsumeRegex())
	r.assigned(name, 1, 5)
	r.read("by expression", r.take(24, m))
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{name}
	described, err := describe.RequestWith(r.ctx, m.Client)
	must(r.t, err)
	for _, g := range described.Groups {
		for _, m := range g.Members {
			r.record("subscribed to %q, %s", m.SubscribedTopics, deref(m.SubscribedTopicRegex))
		}
	}
	for _, bad := range []string{"[", "a)|(b", "*a", "a{2,1}", `a\E`, "(?=a)", "\xff"} {
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis, beat.SubscribedTopicRegex = name, "other", 5000, &bad
		beat.SubscribedTopicNames, beat.Topics = []string{}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		resp, err := beat.RequestWith(r.ctx, m.Client)
		must(r.t, err)
		r.record("%q: error %d, %s", bad, resp.ErrorCode, deref(resp.ErrorMessage))
	}
}

func deref(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func (r *run) read(what string, all []*kgo.Record) {
	var lines []string
	for _, rec := range all {
		lines = append(lines, what+": "+whereabouts(rec))
	}
	r.recordSorted(lines)
}

// remove removes a static member, which does not leave by itself.
func (r *run) remove(group, instance string) {
	r.t.Helper()
	got, err := r.admin().LeaveGroup(r.ctx, kadm.LeaveGroup(group).InstanceIDs(instance))
	if err != nil || got.Error() != nil {
		r.t.Fatalf("%s: leave: %v, %v", r.name, err, got)
	}
}

func (r *run) committed(group string) {
	r.t.Helper()
	got, err := r.admin().FetchOffsets(r.ctx, group)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	for _, o := range got.Sorted() {
		r.record("%s has committed %s/%d@%d", group, o.Topic, o.Partition, o.At)
	}
}

// groupOffsets commits, reads, deletes and describes offsets without members.
func groupOffsets(r *run) {
	topic, name, adm := r.newTopic("kept", 3), r.uniqueName("kept"), r.admin()
	r.produce(r.client(), records(topic, 30, 3)...)
	all := kadm.Offsets{}
	for p := range int32(3) {
		all.Add(kadm.Offset{Topic: topic, Partition: p, At: int64(p) + 4, LeaderEpoch: -1, Metadata: fmt.Sprint("note ", p)})
	}
	if err := adm.CommitAllOffsets(r.ctx, name, all); err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.committed(name)
	lag, err := adm.Lag(r.ctx, name)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	for _, l := range lag.Sorted() {
		r.record("%s is %s (%s), behind by %d", l.Group, l.State, l.ProtocolType, l.Lag.Total())
	}
	listed, err := adm.ListGroups(r.ctx)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.record("listed: %+v", listed[name])
	some := kadm.TopicsSet{}
	some.Add(topic, 1)
	deleted, err := adm.DeleteOffsets(r.ctx, name, some)
	r.record("offsets deleted: %v, %v", deleted, err)
	r.committed(name)
	gone, err := adm.DeleteGroup(r.ctx, name)
	r.record("group deleted: %v, %v", gone.Err, err)
	gone, err = adm.DeleteGroup(r.ctx, name)
	r.record("and again: %v, %v", gone.Err, err)
}

// shareGroup accepts, releases and rejects records with two members.
func shareGroup(r *run) {
	topic, name := r.newTopic("shared", 2), r.uniqueName("shared")
	cl := r.client()
	set := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, name
	conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	conf.Name, conf.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	res.Configs = append(res.Configs, conf)
	set.Resources = append(set.Resources, res)
	resp, err := set.RequestWith(r.ctx, cl)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.record("%s", text(resp, r.id))
	r.produce(cl, records(topic, 40, 2)...)
	// Release one record in four once, and reject one in ten.
	c := r.client(kgo.ShareGroup(name), kgo.ConsumeTopics(topic))
	released, accepted, rejected := map[string]int{}, map[string]bool{}, map[string]bool{}
	testkit.WaitFor(r.t, "all shared records ("+r.name+")", func() bool {
		ctx, cancel := context.WithTimeout(r.ctx, 2*time.Second)
		defer cancel()
		c.PollFetches(ctx).EachRecord(func(rec *kgo.Record) {
			key := string(rec.Key)
			switch {
			case rec.Offset%4 == 1 && released[key] == 0:
				released[key]++
				rec.Ack(kgo.AckRelease)
			case rec.Offset%10 == 3:
				rejected[key] = true
				rec.Ack(kgo.AckReject)
			default:
				accepted[key] = true
				rec.Ack(kgo.AckAccept)
			}
		})
		_ = c.FlushAcks(ctx)
		return len(accepted)+len(rejected) == 40
	})
	r.record("released %d, accepted %d, rejected %d", len(released), len(accepted), len(rejected))
	c.Close()
	described, err := r.admin().DescribeShareGroups(r.ctx, name)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.record("%s is %s with %d members", name, described[name].GroupState, len(described[name].Members))
}
