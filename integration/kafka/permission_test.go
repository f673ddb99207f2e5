package kafka

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// TestPermissionsAnswerLikeKafka sends the same requests to a broker whose own authorizer
// decides about alice by ACLs, and through a virtual cluster whose permissions say the
// same about admin, who may do everything at the broker. The answers are the same.
func TestPermissionsAnswerLikeKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT TESTED: -short starts no brokers")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*testkit.Patience)
	defer cancel()
	c, err := realkafka.Start(ctx, realkafka.Config{Dir: t.TempDir(), Brokers: 1, FastStart: true, Properties: map[string]string{
		"allow.everyone.if.no.acl.found": "false", "super.users": "User:admin;User:ANONYMOUS", "auto.create.topics.enable": "true",
	}})
	must(t, err)
	t.Cleanup(c.Stop)
	seedAuthorized(ctx, t, c)
	ports, err := process.FreePorts(1)
	must(t, err)
	startPenstock(t, fmt.Sprintf(permissionResources, c.Brokers[0].Addr(realkafka.SASL), ports[0]), ports[0])
	login := func(name string) []sasl.Mechanism {
		return []sasl.Mechanism{plain.Auth{User: name, Pass: realkafka.Users[name]}.AsMechanism()}
	}
	at := fmt.Sprintf("127.0.0.1:%d", ports[0])
	compare(t, []program{{"what is denied", deniedRequests}, {"what is listed", listedRequests}},
		target{name: "ACLs", bootstrap: c.Bootstrap(realkafka.SASL), sasl: login("alice")},
		target{name: "permissions", bootstrap: []string{at}, sasl: login("admin"), hosts: func(string) string { return "127.0.0.1" }})
}

const permissionResources = `kind: PhysicalCluster
name: big
spec: {brokers: [{name: b0, address: %q}]}
---
kind: Listener
name: kafka
spec: {address: "127.0.0.1:%d", protocol: kafka}
---
kind: VirtualCluster
name: shop
spec:
  physicalClusterRef: big
  brokers: [{name: v0, endpointRef: kafka, physicalBrokerRef: b0}]
---
kind: TrafficPermission
name: some
spec:
  action: allow
  from: [{principals: ["User:admin"]}]
  to:
  - virtualClusters: [shop]
    kafka:
    - {operations: [consume, produce], topics: [ok]}
    - {operations: [consume], topics: [pre*]}
    - {operations: [describe], topics: [seen]}
    - {operations: [alter, alterConfigs], topics: [changed]}
    - {operations: [create], topics: [made]}
    - {operations: [consume], groups: [g]}
    - {operations: [produce], transactionalIDs: [t]}
---
kind: TrafficPermission
name: but-not
spec:
  action: deny
  from: [{principals: ["User:admin"]}]
  to:
  - {virtualClusters: [shop], kafka: [{operations: [consume], topics: [pre-x]}]}
`

// seedAuthorized makes topics, and the ACLs of alice.
func seedAuthorized(ctx context.Context, t *testing.T, c *realkafka.Cluster) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap(realkafka.Plain)...))
	must(t, err)
	defer cl.Close()
	admin := kadm.NewClient(cl)
	created, err := admin.CreateTopics(ctx, 1, 1, nil, "ok", "no", "pre-1", "pre-x", "seen", "changed")
	must(t, err)
	for _, topic := range created {
		must(t, topic.Err)
	}
	acls := []*kadm.ACLBuilder{
		kadm.NewACLs().Topics("ok").Operations(kadm.OpRead, kadm.OpWrite),
		kadm.NewACLs().Topics("pre").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpRead),
		kadm.NewACLs().Topics("seen").Operations(kadm.OpDescribe),
		kadm.NewACLs().Topics("changed").Operations(kadm.OpAlter, kadm.OpAlterConfigs),
		kadm.NewACLs().Topics("made").Operations(kadm.OpCreate),
		kadm.NewACLs().Groups("g").Operations(kadm.OpRead),
		kadm.NewACLs().TransactionalIDs("t").Operations(kadm.OpWrite),
	}
	for _, a := range acls {
		_, err := admin.CreateACLs(ctx, a.Allow("User:alice").AllowHosts("*"))
		must(t, err)
	}
	_, err = admin.CreateACLs(ctx, kadm.NewACLs().Topics("pre-x").Operations(kadm.OpRead).Deny("User:alice").DenyHosts("*"))
	must(t, err)
	// The controller has all of it; the broker acts on it a little later.
	testkit.WaitFor(t, "the broker to have the last ACL", func() bool {
		found, err := admin.DescribeACLs(ctx, kadm.NewACLs().Topics("pre-x").ResourcePatternType(kadm.ACLPatternLiteral).
			Operations(kadm.OpRead).Deny("User:alice").DenyHosts("*"))
		must(t, err)
		return len(found) == 1 && found[0].Err == nil && len(found[0].Described) == 1
	})
	testkit.WaitFor(t, "all topics to have leaders", func() bool {
		topics, err := admin.ListTopics(ctx, slices.Collect(maps.Keys(created))...)
		must(t, err)
		for _, topic := range topics {
			if topic.Err != nil || len(topic.Partitions) != 1 || topic.Partitions[0].Err != nil {
				return false
			}
		}
		return true
	})
}

var permissionTopics = []string{"ok", "no", "pre-1", "pre-x", "seen", "changed", "missing"}

var clusterMessage = regexp.MustCompile(`(ErrorCode:31) ErrorMessage:"[^"]*"`)

// deniedRequests sends requests that name what is allowed and what is not.
func deniedRequests(r *run) {
	b := r.client(kgo.RequestRetries(0)).Broker(0)
	ask := func(req kmsg.Request) {
		r.t.Helper()
		resp, err := b.Request(r.ctx, req)
		if err != nil {
			r.t.Fatalf("%s: %s: %v", r.name, kmsg.NameForKey(req.Key()), err)
		}
		// Brokers print their request object into some messages. Those are not compared, nor
		// is whether an answer about the cluster has one.
		line := clusterMessage.ReplaceAllString(r.text(resp), "$1")
		r.record("%s: %s", kmsg.NameForKey(req.Key()), line)
	}
	metadata := metadataRequest(permissionTopics...)
	metadata.IncludeTopicAuthorizedOperations = true
	ask(metadata)
	metadata = metadataRequest("missing", "ok")
	metadata.AllowAutoTopicCreation = true
	ask(metadata)
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.ReplicaID = -1
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.ReplicaID = -2
	commit, fetch := kmsg.NewPtrTxnOffsetCommitRequest(), kmsg.NewPtrOffsetFetchRequest()
	commit.TransactionalID, commit.Group, commit.ProducerID = "other", "g", 1
	records, producers := kmsg.NewPtrDeleteRecordsRequest(), kmsg.NewPtrDescribeProducersRequest()
	partitions, remove := kmsg.NewPtrCreatePartitionsRequest(), kmsg.NewPtrDeleteTopicsRequest()
	partitions.ValidateOnly = true
	configs, described := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewPtrDescribeTopicPartitionsRequest()
	described.ResponsePartitionLimit = 2000
	txn := kmsg.NewPtrAddPartitionsToTxnRequest()
	txn.Version, txn.TransactionalID, txn.ProducerID = 3, "t", 1
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = "g"
	for _, name := range permissionTopics {
		offsets.Topics = append(offsets.Topics, kmsg.ListOffsetsRequestTopic{Topic: name,
			Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}})
		epochs.Topics = append(epochs.Topics, kmsg.OffsetForLeaderEpochRequestTopic{Topic: name,
			Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}})
		commit.Topics = append(commit.Topics, kmsg.TxnOffsetCommitRequestTopic{Topic: name,
			Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{}}})
		producers.Topics = append(producers.Topics, kmsg.DescribeProducersRequestTopic{Topic: name, Partitions: []int32{0}})
		group.Topics = append(group.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: name, Partitions: []int32{0}})
		partitions.Topics = append(partitions.Topics, kmsg.CreatePartitionsRequestTopic{Topic: name, Count: 2})
		configs.Resources = append(configs.Resources, kmsg.DescribeConfigsRequestResource{
			ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name, ConfigNames: []string{"retention.ms"}})
		described.Topics = append(described.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		if name != "changed" {
			records.Topics = append(records.Topics, kmsg.DeleteRecordsRequestTopic{Topic: name,
				Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{}}})
			topic := kmsg.NewDeleteTopicsRequestTopic()
			topic.Topic = &name
			remove.Topics = append(remove.Topics, topic)
		}
	}
	other := group
	other.Group = "other"
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{group, other}
	txn.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "ok", Partitions: []int32{0}}, {Topic: "no", Partitions: []int32{0}}}
	for _, req := range []kmsg.Request{offsets, epochs, commit, fetch, records, producers, partitions, remove, configs, described} {
		ask(req)
	}
	for _, coordinator := range []int8{0, 1} {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorType, find.CoordinatorKeys = coordinator, []string{"other", "no"}
		ask(find)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.ValidateOnly, create.TimeoutMillis = true, 10_000
	for _, name := range []string{"made", "other"} {
		create.Topics = append(create.Topics, kmsg.CreateTopicsRequestTopic{Topic: name, NumPartitions: 1, ReplicationFactor: 1})
	}
	ask(create)
	for _, req := range refusedRequests() {
		ask(req)
	}
}

// refusedRequests are requests that are denied as a whole.
func refusedRequests() []kmsg.Request {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "other", "consumer", 10_000, 10_000
	beat, leave := kmsg.NewPtrHeartbeatRequest(), kmsg.NewPtrLeaveGroupRequest()
	beat.Group, leave.Group = "other", "other"
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.ProtocolType, sync.Protocol = "other", kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	consumer := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	consumer.Group, consumer.SubscribedTopicNames, consumer.Topics = "g", []string{"ok", "no"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	consumer.MemberID, consumer.RebalanceTimeoutMillis = "m", 10_000
	groups, consumers := kmsg.NewPtrDescribeGroupsRequest(), kmsg.NewPtrConsumerGroupDescribeRequest()
	groups.Groups, consumers.Groups = []string{"other"}, []string{"other"}
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"g", "other"}
	initTxn := kmsg.NewPtrInitProducerIDRequest()
	initTxn.TransactionalID, initTxn.TransactionTimeoutMillis = kmsg.StringPtr("other"), 1000
	add, end := kmsg.NewPtrAddOffsetsToTxnRequest(), kmsg.NewPtrEndTxnRequest()
	add.TransactionalID, add.Group, end.TransactionalID = "t", "other", "other"
	txns := kmsg.NewPtrDescribeTransactionsRequest()
	txns.TransactionalIDs = []string{"other"}
	acls := kmsg.NewPtrDescribeACLsRequest()
	acls.ResourceType, acls.ResourcePatternType, acls.Operation, acls.PermissionType = 1, 1, 1, 1
	quotas := kmsg.NewPtrDescribeClientQuotasRequest()
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "ok", Partitions: []int32{0}}}
	assign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	assign.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "ok",
		Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{0}}}}}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.ValidateOnly = true
	for kind, name := range map[kmsg.ConfigResourceType]string{
		kmsg.ConfigResourceTypeTopic: "ok", kmsg.ConfigResourceTypeBroker: "0", kmsg.ConfigResourceTypeGroupConfig: "g",
	} {
		alter.Resources = append(alter.Resources, kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kind, ResourceName: name})
	}
	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group = "g"
	return []kmsg.Request{
		join, beat, leave, sync, consumer, groups, consumers, remove, initTxn, add, end, txns, acls, quotas, elect, assign, alter,
		offsets, kmsg.NewPtrDescribeLogDirsRequest(), kmsg.NewPtrListPartitionReassignmentsRequest(), kmsg.NewPtrListConfigResourcesRequest(),
		kmsg.NewPtrDescribeQuorumRequest(),
	}
}

// listedRequests lists everything there is to see, and writes and reads what is allowed.
func listedRequests(r *run) {
	cl := r.client(kgo.RequestRetries(0))
	all := kmsg.NewPtrMetadataRequest()
	all.IncludeClusterAuthorizedOperations, all.IncludeTopicAuthorizedOperations = true, true
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.IncludeClusterAuthorizedOperations = true
	described := kmsg.NewPtrDescribeTopicPartitionsRequest()
	described.ResponsePartitionLimit = 2000 // pages of a proxy may be shorter
	for _, req := range []kmsg.Request{all, cluster, described, kmsg.NewPtrListGroupsRequest(), kmsg.NewPtrListTransactionsRequest()} {
		resp, err := cl.Broker(0).Request(r.ctx, req)
		must(r.t, err)
		r.record("%s: %s", kmsg.NameForKey(req.Key()), r.text(resp))
	}
	for _, topic := range []string{"ok", "no", "pre-1", "seen"} {
		r.record("producing to %s: %v", topic, cl.ProduceSync(r.ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr())
	}
}
