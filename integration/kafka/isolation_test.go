package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/integration/realkafka"
)

// tenancy is two tenants of one physical cluster.
type tenancy struct {
	victim, attacker target
	// physical is the cluster itself, where the tenants' objects have prefixed
	// names; addresses must not be shown to tenants.
	physical  target
	addresses []string
}

// TestIsolationFindsLeaks runs the probes without tenants: each of these
// APIs must be found open, otherwise the probes prove nothing.
func TestIsolationFindsLeaks(t *testing.T) {
	c := cluster(t)
	d := direct(c)
	found := isolation(t, tenancy{victim: d, attacker: d, physical: d})
	for _, api := range []string{
		"Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "Heartbeat", "LeaveGroup", "SyncGroup",
		"DescribeGroups", "ListGroups", "DeleteTopics", "DeleteRecords", "InitProducerID", "OffsetForLeaderEpoch", "AddPartitionsToTxn",
		"AddOffsetsToTxn", "EndTxn", "DescribeACLs", "DeleteACLs", "DescribeConfigs", "AlterConfigs", "DescribeLogDirs", "DeleteGroups",
		"IncrementalAlterConfigs", "OffsetDelete", "DescribeProducers", "DescribeTransactions", "ListTransactions",
		"ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "DescribeTopicPartitions", "CreatePartitions", "CreateTopics",
		"DescribeClientQuotas", "ShareGroupDescribe", "DescribeShareGroupOffsets",
	} {
		t.Logf("%s: %d leaks", api, len(found[api]))
		if len(found[api]) == 0 {
			t.Errorf("%s: nothing was found without isolation", api)
		}
	}
	if len(found["the victim's objects"]) == 0 {
		t.Error("nothing of the victim's was changed without isolation")
	}
}

// TestIsolationOfOtherClusters runs the probes on clusters that share nothing:
// they must find nothing.
func TestIsolationOfOtherClusters(t *testing.T) {
	long(t)
	c := cluster(t)
	other, err := realkafka.Start(t.Context(), realkafka.Config{Dir: t.TempDir(), Brokers: 1, FastStart: true})
	must(t, err)
	t.Cleanup(other.Stop)
	wantIsolated(t, tenancy{victim: direct(c), attacker: direct(other), physical: direct(c)})
}

func wantIsolated(t *testing.T, w tenancy) {
	t.Helper()
	found := isolation(t, w)
	for _, api := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s: %d responses reveal another tenant:\n%s", api, len(found[api]), strings.Join(found[api][:min(3, len(found[api]))], "\n"))
	}
}

// leaks are what an attacker learned or changed, by API.
type leaks map[string][]string

func (f leaks) add(api, format string, args ...any) {
	f[api] = append(f[api], clip(fmt.Sprintf(format, args...)))
}

// isolation sends requests of every API and version as the attacker for the
// victim's objects: by the victim's names, by the broker's names, by IDs. Each
// answer must equal the one for names that do not exist. Listings must contain
// nothing of the victim's. At the end the victim's objects must be unchanged.
func isolation(t *testing.T, w tenancy) leaks {
	t.Helper()
	found := leaks{}
	v := newVictim(t, w)
	before := v.state()
	a := newAttacker(t, w, v)
	// A change removes what later probes could find, so each step spares what the
	// next ones need. Listings come before the attacker has objects of the same
	// names.
	began := time.Now()
	step := func(what string, keys []int16, visit func(found leaks, key, version int16)) {
		a.each(keys, func(key, version int16) { visit(found, key, version) })
		t.Logf("%s: %d requests until %v", what, a.requests, time.Since(began).Round(time.Millisecond))
	}
	all := slices.Sorted(maps.Keys(a.offered))
	last := []int16{deleteACLs}
	step("lists", without(all, last), a.list)
	a.subscribe(found)
	step("reads", reads, a.probe)
	step("lists that delete", last, a.list)
	step("changes", without(all, reads, ending), a.probe)
	step("ends", ending, a.probe)
	if after := v.state(); after != before {
		found.add("the victim's objects", "have changed:\n%s", difference(before, after))
	}
	t.Logf("%d requests as the attacker", a.requests)
	return found
}

const deleteACLs = 31

var (
	// reads are the APIs that change nothing, including the heartbeat of a member.
	reads = []int16{
		1, 2, 3, 9, 10, 12, 15, 16, 23, 29, 32, 35, 41, 46, 48, 50, 55, 60, 61, 65, 66, 69, 71, 74, 75, 77, 89, 90,
	}
	// ending are the APIs that end or replace what others need, ordered so that
	// each still finds something: first generations of a group, then producer
	// epochs, then deletions.
	ending = []int16{14, 24, 25, 28, 26, 22, 21, deleteACLs, 47, 13, 11, 92, 42, 20}
)

// without returns the keys that are in none of the lists.
func without(keys []int16, lists ...[]int16) []int16 {
	return slices.DeleteFunc(slices.Clone(keys), func(key int16) bool { return slices.Contains(slices.Concat(lists...), key) })
}

// each visits those of the APIs that are offered and concern tenants, at each
// version.
func (a *attacker) each(keys []int16, visit func(key, version int16)) {
	for _, key := range keys {
		offered, ok := a.offered[key]
		// The broker's own state does not belong to tenants: see unswept, and
		// UnregisterBroker and UpdateFeatures.
		if !ok || unswept[key] != "" || key > kmsg.MaxKey || key == 64 || key == 57 {
			continue
		}
		for _, version := range versions(offered[0], min(offered[1], kmsg.RequestForKey(key).MaxVersion())) {
			visit(key, version)
		}
	}
}

// victim owns one object of each kind.
type victim struct {
	*run
	objectNames
	cl *kgo.Client // the victim's own client
	// hasQuota reports whether the cluster allowed the victim a quota.
	hasQuota bool
	prefix   string // of the broker's names for the victim's objects
}

const secret, nobody = "secret", "nobody"

func newVictim(t *testing.T, w tenancy) *victim {
	t.Helper()
	r := newRun(t, w.victim)
	r.ctx = t.Context()
	v := &victim{run: r, cl: r.client()}
	v.topic, v.topicID, _ = r.together(secret, 1)
	v.group, v.txn, v.user = v.topic, v.topic, v.topic
	v.share, v.consumer = r.uniqueName(secret+"s"), r.uniqueName(secret+"c")
	v.numbers, v.names = map[string]int64{}, map[string]string{}
	r.produce(v.cl, records(v.topic, 20, 1)...)
	// A group with a member and committed offsets.
	m := r.join(v.group, v.topic, kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(2*time.Minute))
	r.take(20, m)
	if err := m.CommitUncommittedOffsets(r.ctx); err != nil {
		t.Fatalf("%s: commit: %v", r.name, err)
	}
	id, generation := m.GroupMetadata()
	v.names["MemberID"], v.numbers["Generation"] = id, int64(generation)
	r.take(20, r.join(v.consumer, v.topic, kgo.ServerSideBalancer()))
	v.shared()
	// An open transaction.
	p := r.client(kgo.TransactionalID(v.txn), kgo.TransactionTimeout(10*time.Minute))
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	r.produce(p, &kgo.Record{Topic: v.topic, Timestamp: epoch, Value: []byte("open")})
	producer, _, err := p.ProducerID(r.ctx)
	if err != nil {
		t.Fatalf("%s: %v", r.name, err)
	}
	v.numbers["ProducerID"] = producer
	v.guarded()
	v.settled()
	direct := newRun(t, w.physical)
	all, err := direct.admin().ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all.Names() {
		if prefix, ok := strings.CutSuffix(name, v.topic); ok {
			v.prefix = prefix
		}
	}
	return v
}
