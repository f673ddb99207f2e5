package multitenant

import (
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// streamsTopology has one element of each kind.
func streamsTopology(expressions ...string) *kmsg.StreamsGroupHeartbeatRequest {
	info := func(name string) []kmsg.TopicInfo {
		t := kmsg.NewTopicInfo()
		t.Topic, t.NumPartitions = name, 3
		t.Configs = []kmsg.TopicInfoConfig{{Key: "cleanup.policy", Value: "compact"}}
		return []kmsg.TopicInfo{t}
	}
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Group, r.MemberID = "words", "member"
	process := "process"
	r.ProcessID = &process
	r.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: "me.example.com", Port: 80}
	r.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{{Key: "zone", Value: "a"}}
	r.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{
		SubtopologyID: "0", SourceTopics: []string{"in", "."}, SourceTopicRegex: expressions,
		StateChangelogTopics: info("words-store-changelog"), RepartitionSinkTopics: []string{"words-by-repartition"},
		RepartitionSourceTopics: info("words-by-repartition"),
		CopartitionGroups: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{SourceTopics: []int16{0},
			SourceTopicRegex: []int16{0}, RepartitionSourceTopics: []int16{0}}},
	}}}
	r.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{1}}}
	return r
}

func TestTopologyHasThePrefixAtTheBroker(t *testing.T) {
	for version := range int16(2) {
		ten := newTenant(t, "z4de")
		r := streamsTopology("in-[0-9]+")
		r.Version = version
		got, _ := sent(t, opened(ten), r)

		want := streamsTopology("^z4de-(?:in-[0-9]+)$")
		want.Version = version
		want.Group = "z4de-words"
		s := &want.Topology.Subtopologies[0]
		s.SourceTopics[0] = "z4de-in" // the broker refuses a source topic ".", as it must
		s.StateChangelogTopics[0].Topic = "z4de-words-store-changelog"
		s.RepartitionSinkTopics[0] = "z4de-words-by-repartition"
		s.RepartitionSourceTopics[0].Topic = "z4de-words-by-repartition"
		got.(*kmsg.StreamsGroupHeartbeatRequest).Topology.Subtopologies[0].SourceTopicRegex = oursShown(ten, got)
		if !reflect.DeepEqual(got.AppendTo(nil), want.AppendTo(nil)) {
			t.Errorf("v%d: the broker gets\n%+v\nwant\n%+v", version, got.(*kmsg.StreamsGroupHeartbeatRequest).Topology, want.Topology)
		}
	}
}

// oursShown returns the expressions of a request without the embedded
// originals.
func oursShown(ten *tenant, r kmsg.Request) []string {
	var all []string
	for _, e := range r.(*kmsg.StreamsGroupHeartbeatRequest).Topology.Subtopologies[0].SourceTopicRegex {
		if inside, _, kept := strings.Cut(e, "|"+neverMatches); kept {
			e = inside + expressionSuffix
		}
		all = append(all, e)
	}
	return all
}

// An expression that would reach beyond the prefix is never sent: the group
// gets the reason why its topology is invalid.
func TestTopologyWithAnInvalidExpressionIsRefused(t *testing.T) {
	for _, expression := range []string{"a)|(b", `\bin`, "["} {
		ten := newTenant(t, "z4de")
		k := &cluster{t: t}
		r := streamsTopology("fine", expression)
		m := filter.NewMessage(filter.Request, r.Key(), 0, r.AppendTo(nil))
		x := filter.NewExchange(r.Key(), 0, "", k)
		if err := opened(ten).Request(&x, &m); err != nil {
			t.Fatal(err)
		}
		answer, ok := k.answer.(*kmsg.StreamsGroupHeartbeatResponse)
		if !ok || answer.ErrorCode != streamsInvalidTopology || answer.ErrorMessage == nil ||
			!strings.Contains(*answer.ErrorMessage, "`"+expression+"`") {
			t.Errorf("%s: answered %+v", expression, k.answer)
		}
	}
}

func TestStreamsGroupResponsesHaveNoPrefix(t *testing.T) {
	c := opened(newTenant(t, "z4de"))
	_, x := sent(t, c, streamsTopology())
	r := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	text := "Group z4de-words has no topic z4de-in."
	r.ErrorMessage, r.MemberID = &text, "member"
	r.Status = []kmsg.StreamsGroupHeartbeatResponseStatus{{StatusCode: 1, StatusDetail: "Source topics z4de-in, z4de-more are missing."}}
	r.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{1}}}
	endpoint := kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint{UserEndpoint: kmsg.Endpoint{Host: "me.example.com", Port: 80}}
	endpoint.ActivePartitions = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition{
		{Topic: "z4de-in", Partitions: []int32{1}}, {Topic: "other-in", Partitions: []int32{2}},
	}
	endpoint.StandbyPartitions = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition{
		{Topic: "other-in", Partitions: []int32{2}}, {Topic: "z4de-words-store-changelog", Partitions: []int32{0}},
	}
	r.PartitionsByUserEndpoint = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint{endpoint}

	got := received(t, c, x, r).(*kmsg.StreamsGroupHeartbeatResponse)
	if *got.ErrorMessage != "Group words has no topic in." || got.Status[0].StatusDetail != "Source topics in, more are missing." {
		t.Errorf("told %q, %q", *got.ErrorMessage, got.Status[0].StatusDetail)
	}
	e := got.PartitionsByUserEndpoint[0]
	if e.UserEndpoint.Host != "me.example.com" || len(e.ActivePartitions) != 1 || e.ActivePartitions[0].Topic != "in" ||
		len(e.StandbyPartitions) != 1 || e.StandbyPartitions[0].Topic != "words-store-changelog" {
		t.Errorf("partitions by endpoint: %+v", e)
	}
	if len(got.ActiveTasks) != 1 || got.ActiveTasks[0].SubtopologyID != "0" || got.StandbyTasks != nil {
		t.Errorf("tasks: %+v, %+v", got.ActiveTasks, got.StandbyTasks)
	}
}

// A group that a client outside of the proxy has joined shows only the tenant's
// topics.
func TestDescribedStreamsGroupShowsOnlyTheTenantsTopics(t *testing.T) {
	c := opened(newTenant(t, "z4de"))
	ask := kmsg.NewPtrStreamsGroupDescribeRequest()
	ask.Version, ask.Groups = 1, []string{"words"}
	sentAs, x := sent(t, c, ask)
	if got := sentAs.(*kmsg.StreamsGroupDescribeRequest).Groups[0]; got != "z4de-words" {
		t.Errorf("requested %q", got)
	}
	both := func(name string) []kmsg.TopicInfo {
		return []kmsg.TopicInfo{{Topic: "z4de-" + name}, {Topic: "other-" + name}}
	}
	node := func() kmsg.TopologyDescriptionNode {
		sink := "other-out"
		return kmsg.TopologyDescriptionNode{Name: "node", SourceTopics: []string{"other-in", "z4de-in"}, SinkTopic: &sink}
	}
	r := kmsg.NewPtrStreamsGroupDescribeResponse()
	r.Groups = []kmsg.StreamsGroupDescribeResponseGroup{{
		Group: "z4de-words",
		Topology: &kmsg.StreamsGroupDescribeResponseGroupTopology{Subtopologies: []kmsg.StreamsGroupDescribeResponseGroupTopologySubtopology{{
			SubtopologyID: "0", SourceTopics: []string{"z4de-in", "other-in"}, RepartitionSinkTopics: []string{"other-r", "z4de-r"},
			StateChangelogTopics: both("c"), RepartitionSourceTopics: both("r"),
		}}},
		TopologyDescription: &kmsg.StreamsGroupDescribeResponseGroupTopologyDescription{
			Subtopologies: []kmsg.TopologyDescriptionSubtopology{{SubtopologyID: "0", Nodes: []kmsg.TopologyDescriptionNode{node()}}},
			GlobalStores:  []kmsg.TopologyDescriptionGlobalStore{{Source: node(), Processor: node()}},
		},
	}}
	g := received(t, c, x, r).(*kmsg.StreamsGroupDescribeResponse).Groups[0]
	s := g.Topology.Subtopologies[0]
	if g.Group != "words" || !reflect.DeepEqual(s.SourceTopics, []string{"in"}) ||
		!reflect.DeepEqual(s.RepartitionSinkTopics, []string{"r"}) ||
		len(s.StateChangelogTopics) != 1 || s.StateChangelogTopics[0].Topic != "c" || len(s.RepartitionSourceTopics) != 1 ||
		s.RepartitionSourceTopics[0].Topic != "r" {
		t.Errorf("%s: %+v", g.Group, s)
	}
	d := g.TopologyDescription
	for _, n := range []kmsg.TopologyDescriptionNode{d.Subtopologies[0].Nodes[0], d.GlobalStores[0].Source, d.GlobalStores[0].Processor} {
		if !reflect.DeepEqual(n.SourceTopics, []string{"in"}) || n.SinkTopic != nil || n.Name != "node" {
			t.Errorf("node %+v", n)
		}
	}
}
