package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// Topics of Kafka's word count example.
const inputTopic, outputTopic = "streams-plaintext-input", "streams-wordcount-output"

// TestStreamsGroups runs Kafka Streams with the streams rebalance protocol
// (KIP-1071) and exactly-once processing, directly and as a tenant: two
// instances, one of which leaves under load. The counts of each word must be 1,
// 2, 3, ... without duplicates.
func TestStreamsGroups(t *testing.T) {
	requireWholeSuite(t)
	c := cluster(t)
	own := direct(c)
	own.withoutInternal = true
	v := startVirtual(t, c)
	compare(t, []program{{"word count", func(r *run) { wordCount(r, nil) }}}, own, v.red)
}

// TestStreamsGroupsAreIsolated runs the application as one tenant while
// another tenant looks for it under the same names.
func TestStreamsGroupsAreIsolated(t *testing.T) {
	requireWholeSuite(t)
	c := cluster(t)
	v := startVirtual(t, c)
	wordCount(newRun(t, v.red), func(app string) {
		other := newRun(t, v.blue)
		cl := other.client()
		for _, group := range []string{app, "red-" + app} {
			if g := other.streamsGroup(cl, group); g.ErrorCode != kerrGroupIDNotFound || len(g.Members) > 0 || g.Topology != nil {
				t.Errorf("another tenant's %s is described as %+v", group, g)
			}
		}
		all, err := other.admin().ListGroups(other.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range all.Groups() {
			if strings.Contains(g, app) {
				t.Errorf("the group %s of another tenant is listed", g)
			}
		}
		topics, err := other.admin().ListTopicsWithInternal(other.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range topics.Names() {
			if strings.Contains(topic, app) {
				t.Errorf("the topic %s of another tenant is listed", topic)
			}
		}
		// Joining under the same name creates a separate group, and a topology cannot
		// refer to another tenant's topic.
		for _, source := range []string{inputTopic, "red-" + inputTopic} {
			joined := other.joinStreams(cl, app, source)
			if joined.ErrorCode != 0 || joined.MemberEpoch < 1 || len(joined.ActiveTasks) > 0 || len(joined.Status) != 1 {
				t.Errorf("joined with %s: %+v", source, joined)
				continue
			}
			if text := joined.Status[0].StatusDetail; !strings.Contains(text, source) || strings.Contains(text, "blue-") {
				t.Errorf("got %q for %s", text, source)
			}
		}
	})
}

const kerrGroupIDNotFound = 69

// wordCount runs the application, and calls look with its ID while it runs.
func wordCount(r *run, look func(app string)) {
	const partitions, words, rounds = 4, 5, 20
	cl, admin := r.client(), r.admin()
	for _, topic := range []string{inputTopic, outputTopic} {
		resp, err := admin.CreateTopic(r.ctx, partitions, -1, nil, topic)
		if err != nil || resp.Err != nil {
			r.t.Fatalf("%s: %s: %v, %v", r.name, topic, err, resp.Err)
		}
		r.known(cl, topic, partitions)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		if _, err := admin.DeleteTopics(ctx, inputTopic, outputTopic); err != nil {
			r.t.Error(err)
		}
	})
	app, written := r.uniqueName("words"), 0
	write := func() {
		var all []*kgo.Record
		for i := range rounds {
			line := fmt.Sprintf("word%d word%d", i%words, (i+1)%words)
			all = append(all, &kgo.Record{Topic: inputTopic, Partition: int32(i % partitions), Timestamp: epoch, Value: []byte(line)})
		}
		r.produce(cl, all...)
		written += 2 * rounds
	}
	out := r.client(kgo.ConsumeTopics(outputTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	counts := map[string][]int64{}
	read := func() {
		for n := 0; n < written; {
			f := out.PollFetches(r.ctx)
			if err := f.Err(); err != nil {
				r.t.Fatalf("%s: %v; counted so far: %v", r.name, err, counts)
			}
			f.EachRecord(func(record *kgo.Record) {
				counts[string(record.Key)] = append(counts[string(record.Key)], int64(binary.BigEndian.Uint64(record.Value)))
			})
			n = 0
			for _, c := range counts {
				n += len(c)
			}
		}
	}
	write()
	first, second := r.startWordCount(app), r.startWordCount(app)
	r.working(cl, app, 2)
	write()
	read()
	g := r.streamsGroup(cl, app)
	r.recordTopology(g)
	if look != nil {
		look(app)
	}
	if err := first.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	write()
	r.ended(first)
	r.working(cl, app, 1)
	write()
	read()
	r.ended(second, syscall.SIGTERM)
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		for i, n := range counts[word] {
			if n != int64(i+1) {
				r.t.Errorf("%s: %s was counted as %v", r.name, word, counts[word])
				break
			}
		}
		r.record("%s: %d", word, len(counts[word]))
	}
	r.streamsTools(app)
}

// startWordCount starts an instance of the example.
func (r *run) startWordCount(app string) *process.Process {
	r.t.Helper()
	classpath, err := realkafka.StreamsClasspath()
	must(r.t, err)
	dir := r.t.TempDir()
	file, machine := r.javaConfig(
		"bootstrap.servers="+strings.Join(r.bootstrap, ","), "application.id="+app,
		"group.protocol=streams", "processing.guarantee=exactly_once_v2", "commit.interval.ms=100",
		"dsl.store.suppliers.class=org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
		"state.dir="+filepath.Join(dir, "state"),
	)
	argv := slices.Concat([]string{"java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}, machine,
		[]string{"-cp", classpath, "org.apache.kafka.streams.examples.wordcount.WordCountDemo", file})
	p, err := process.Start("wordcount", dir, argv)
	must(r.t, err)
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("output of an instance of %s:\n%s", app, p.Output())
		}
		p.Kill()
	})
	return p
}

// ended signals an instance and waits until it has ended.
func (r *run) ended(p *process.Process, signals ...syscall.Signal) {
	r.t.Helper()
	for _, s := range signals {
		if err := p.Signal(s); err != nil {
			r.t.Fatal(err)
		}
	}
	if code, err := p.ExitCode(testkit.Patience); err != nil || code != 0 && code != 128+int(syscall.SIGTERM) {
		r.t.Errorf("%s: an instance ended with %d, %v", r.name, code, err)
	}
}

// coordinator returns the broker that coordinates the groups: one for all.
func (r *run) coordinator(cl *kgo.Client, group string) *kgo.Broker {
	r.t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	var at *kgo.Broker
	r.eventually("the coordinator of "+group, cl, req, func(resp kmsg.Response) bool {
		all := resp.(*kmsg.FindCoordinatorResponse).Coordinators
		if len(all) != 1 || all[0].ErrorCode != 0 {
			return false
		}
		at = cl.Broker(int(all[0].NodeID))
		return true
	})
	return at
}

// streamsGroup describes a streams group.
func (r *run) streamsGroup(cl *kgo.Client, group string) kmsg.StreamsGroupDescribeResponseGroup {
	r.t.Helper()
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := r.coordinator(cl, group).Request(r.ctx, req)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	return resp.(*kmsg.StreamsGroupDescribeResponse).Groups[0]
}

// working waits until the given number of members share all tasks, each with one
// or more.
func (r *run) working(cl *kgo.Client, app string, members int) {
	r.t.Helper()
	testkit.WaitFor(r.t, fmt.Sprintf("%d members of %s to work (%s)", members, app, r.name), func() bool {
		g := r.streamsGroup(cl, app)
		return g.State == "Stable" && len(g.Members) == members &&
			!slices.ContainsFunc(g.Members, func(m kmsg.StreamsGroupDescribeResponseGroupMember) bool {
				return len(m.Assignment.ActiveTasks) == 0 || m.MemberEpoch != g.Epoch
			})
	})
}

// joinStreams joins with a topology of one source, and leaves again.
func (r *run) joinStreams(cl *kgo.Client, group, source string) *kmsg.StreamsGroupHeartbeatResponse {
	r.t.Helper()
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	member := fmt.Sprintf("member-%d", time.Now().UnixNano())
	req.Group, req.MemberID, req.ProcessID, req.RebalanceTimeoutMillis = group+"-"+member, member, &member, 10_000
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	req.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{}
	req.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{
		{SubtopologyID: "0", SourceTopics: []string{source}},
	}}
	resp, err := r.coordinator(cl, group).Request(r.ctx, req)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	joined := resp.(*kmsg.StreamsGroupHeartbeatResponse)
	req.MemberEpoch, req.Topology = -1, nil
	if _, err := r.coordinator(cl, group).Request(r.ctx, req); err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	return joined
}

// recordTopology records the topics of a group, and checks that the internal ones
// exist.
func (r *run) recordTopology(g kmsg.StreamsGroupDescribeResponseGroup) {
	r.t.Helper()
	if g.Topology == nil {
		r.t.Fatalf("%s: the group has no topology: %+v", r.name, g)
	}
	topics, err := r.admin().ListTopics(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range g.Topology.Subtopologies {
		r.record("subtopology %s reads %v, writes %v", s.SubtopologyID, s.SourceTopics, s.RepartitionSinkTopics)
		for _, t := range append(s.StateChangelogTopics, s.RepartitionSourceTopics...) {
			r.record("%s has %d partitions", t.Topic, len(topics[t.Topic].Partitions))
		}
	}
}

// streamsTools runs Kafka's tools for streams groups.
func (r *run) streamsTools(app string) {
	r.t.Helper()
	at := strings.Join(r.bootstrap, ",")
	file, machine := r.javaConfig()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*testkit.Patience)
	defer cancel()
	tool := func(args ...string) string {
		r.t.Helper()
		out, err := realkafka.ToolWith(ctx, machine, "", "org.apache.kafka.tools.streams.StreamsGroupCommand",
			append([]string{"--bootstrap-server", at, "--command-config", file}, args...)...)
		if err != nil {
			r.t.Fatalf("%s: %v", r.name, err)
		}
		return out
	}
	testkit.WaitFor(r.t, "the group to be empty ("+r.name+")", func() bool { return r.streamsGroup(r.client(), app).State == "Empty" })
	for l := range strings.Lines(tool("--describe", "--group", app, "--offsets")) {
		if f := strings.Fields(l); len(f) > 4 && f[0] == app {
			r.record("offsets: %s", strings.Join(f[:3], " "))
		}
	}
	r.record("listed: %v", strings.Contains(tool("--list"), app))
	r.record("deleted: %v", strings.Contains(tool("--delete", "--group", app), "successful"))
}
