package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

func adminPrograms() []program {
	return []program{
		{"topics", topics}, {"configurations", configurations}, {"access control lists", accessLists},
		{"quotas", quotas}, {"users", scramUsers}, {"brokers and log folders", brokersAndFolders},
		{"reassignments and elections", reassignments}, {"transactions listed", openTransactions},
		{"fetch sessions", fetchSessions}, {"topics by identity", byIdentity},
	}
}

// ask sends a request as franz-go routes it, and records the masked answer.
func (r *run) ask(cl *kgo.Client, req kmsg.Request) kmsg.Response {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, testkit.Patience)
	defer cancel()
	resp, err := cl.Request(ctx, req)
	if err != nil {
		r.t.Fatalf("%s: %s: %v", r.name, kmsg.NameForKey(req.Key()), err)
	}
	r.record("%s: %s", kmsg.NameForKey(req.Key()), r.text(resp))
	return resp
}

func (r *run) metadata(cl *kgo.Client, topics ...string) *kmsg.MetadataResponse {
	r.t.Helper()
	req := metadataRequest(topics...)
	req.IncludeTopicAuthorizedOperations = true
	return r.ask(cl, req).(*kmsg.MetadataResponse)
}

func createRequest(validate bool, names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly, req.TimeoutMillis = validate, 10_000
	for i, n := range names {
		one := kmsg.NewCreateTopicsRequestTopic()
		one.Topic, one.NumPartitions, one.ReplicationFactor = n, int32(i+1), -1
		conf := kmsg.NewCreateTopicsRequestTopicConfig()
		conf.Name, conf.Value = "cleanup.policy", kmsg.StringPtr("compact")
		one.Configs = append(one.Configs, conf)
		req.Topics = append(req.Topics, one)
	}
	return req
}

func topics(r *run) {
	cl := r.client()
	one, two := r.uniqueName("one"), r.uniqueName("two")
	r.ask(cl, createRequest(true, one, two))
	r.ask(cl, createRequest(false, one, two))
	r.ask(cl, createRequest(false, two, "not/valid"))
	r.known(cl, one, 1)
	r.known(cl, two, 2)
	r.metadata(cl, one, two, r.uniqueName("none"))
	more := kmsg.NewPtrCreatePartitionsRequest()
	more.TimeoutMillis = 10_000
	for name, count := range map[string]int32{one: 4, two: 1} {
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = name, count
		more.Topics = append(more.Topics, t)
	}
	r.ask(cl, more)
	paged := kmsg.NewPtrDescribeTopicPartitionsRequest()
	paged.ResponsePartitionLimit = 3
	for _, name := range []string{one, two} {
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = name
		paged.Topics = append(paged.Topics, t)
	}
	r.known(cl, one, 4)
	if next := r.ask(cl, paged).(*kmsg.DescribeTopicPartitionsResponse).NextCursor; next != nil {
		cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
		cursor.Topic, cursor.Partition = next.Topic, next.Partition
		paged.Cursor = &cursor
		r.ask(cl, paged)
	}
	gone := kmsg.NewPtrDeleteTopicsRequest()
	gone.TimeoutMillis = 10_000
	for _, name := range []string{one, two, r.uniqueName("none")} {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		gone.Topics, gone.TopicNames = append(gone.Topics, t), append(gone.TopicNames, name)
	}
	r.ask(cl, gone)
	r.ask(cl, gone)
}

func configurations(r *run) {
	cl, topic := r.client(), r.newTopic("configured", 1, "retention.ms", "3600000")
	describe := func(kind kmsg.ConfigResourceType, name string, keys ...string) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, keys
		req.Resources = append(req.Resources, res)
		r.ask(cl, req)
	}
	describe(kmsg.ConfigResourceTypeTopic, topic)
	describe(kmsg.ConfigResourceTypeTopic, r.uniqueName("none"))
	describe(kmsg.ConfigResourceTypeGroupConfig, r.uniqueName("some"))
	describe(kmsg.ConfigResourceTypeBroker, "1", "log.retention.hours", "num.io.threads", "ssl.keystore.password")
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, name := range []string{topic, r.uniqueName("none")} {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, name
		for op, pair := range map[kmsg.IncrementalAlterConfigOp][2]string{0: {"retention.ms", "7200000"}, 2: {"cleanup.policy", "compact"}} {
			conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			conf.Name, conf.Op, conf.Value = pair[0], op, kmsg.StringPtr(pair[1])
			res.Configs = append(res.Configs, conf)
		}
		alter.Resources = append(alter.Resources, res)
	}
	r.ask(cl, alter)
	one := kmsg.NewPtrDescribeConfigsRequest()
	one.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: 2, ResourceName: topic, ConfigNames: []string{"retention.ms"}}}
	r.everywhere("the new retention", cl, one, func(resp kmsg.Response) bool {
		all := resp.(*kmsg.DescribeConfigsResponse).Resources
		return len(all) == 1 && len(all[0].Configs) == 1 && *all[0].Configs[0].Value == "7200000"
	})
	describe(kmsg.ConfigResourceTypeTopic, topic, "retention.ms", "cleanup.policy")
	list := kmsg.NewPtrListConfigResourcesRequest()
	list.ResourceTypes = []int8{2, 32}
	r.ask(cl, list)
}

// accessLists restricts a user, and checks the effect.
func accessLists(r *run) {
	cl, topic, group := r.client(), r.newTopic("guarded", 1), r.uniqueName("guarded")
	user := r.uniqueName("someone")
	create := kmsg.NewPtrCreateACLsRequest()
	for i, name := range []string{topic, group} {
		acl := kmsg.NewCreateACLsRequestCreation()
		acl.ResourceType = kmsg.ACLResourceType(i + 2)
		acl.ResourceName, acl.Principal, acl.Host = name, "User:"+user, "*"
		acl.ResourcePatternType, acl.Operation, acl.PermissionType =
			kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		create.Creations = append(create.Creations, acl)
		acl.ResourcePatternType, acl.Operation = kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLOperationDescribe
		create.Creations = append(create.Creations, acl)
	}
	r.ask(cl, create)
	describe := kmsg.NewPtrDescribeACLsRequest()
	describe.ResourceType, describe.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	describe.Operation, describe.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	describe.Principal = kmsg.StringPtr("User:" + user)
	r.everywhere("the new entries", cl, describe, func(resp kmsg.Response) bool {
		return len(resp.(*kmsg.DescribeACLsResponse).Resources) == 4
	})
	r.ask(cl, describe)
	describe.ResourceType, describe.ResourceName = kmsg.ACLResourceTypeTopic, kmsg.StringPtr(topic+"-and-more")
	describe.ResourcePatternType = kmsg.ACLResourcePatternTypeMatch
	r.ask(cl, describe)
	gone := kmsg.NewPtrDeleteACLsRequest()
	filter := kmsg.NewDeleteACLsRequestFilter()
	filter.ResourceType, filter.ResourcePatternType, filter.Operation, filter.PermissionType = kmsg.ACLResourceTypeAny,
		kmsg.ACLResourcePatternTypeAny, kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	filter.Principal = kmsg.StringPtr("User:" + user)
	gone.Filters = append(gone.Filters, filter)
	r.ask(cl, gone)
}

func quotas(r *run) {
	cl, user := r.client(), r.uniqueName("quoted")
	alter := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	for kind, name := range map[string]*string{"user": &user, "client-id": nil} {
		e := kmsg.NewAlterClientQuotasRequestEntryEntity()
		e.Type, e.Name = kind, name
		entry.Entity = append(entry.Entity, e)
	}
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value = "producer_byte_rate", 12_345_678
	entry.Ops = append(entry.Ops, op)
	alter.Entries = append(alter.Entries, entry)
	r.ask(cl, alter)
	describe := quotaRequest(user)
	r.everywhere("the quota", cl, describe, func(resp kmsg.Response) bool {
		return len(resp.(*kmsg.DescribeClientQuotasResponse).Entries) == 1
	})
	r.ask(cl, describe)
	alter.Entries[0].Ops[0].Remove = true
	r.ask(cl, alter)
}

func scramUsers(r *run) {
	cl, user := r.client(), r.uniqueName("scram")
	alter := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	up := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	up.Name, up.Mechanism, up.Iterations, up.Salt, up.SaltedPassword = user, 1, 4096, []byte("salt"), make([]byte, 32)
	alter.Upsertions = append(alter.Upsertions, up)
	r.ask(cl, alter)
	describe := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	for _, n := range []string{user, r.uniqueName("none")} {
		u := kmsg.NewDescribeUserSCRAMCredentialsRequestUser()
		u.Name = n
		describe.Users = append(describe.Users, u)
	}
	// One of the two is not found (error 91).
	r.everywhere("the user", cl, describe, func(resp kmsg.Response) bool {
		all := resp.(*kmsg.DescribeUserSCRAMCredentialsResponse).Results
		return len(all) == 2 && all[0].ErrorCode+all[1].ErrorCode == 91
	})
	r.ask(cl, describe)
}

func brokersAndFolders(r *run) {
	cl, topic := r.client(), r.newTopic("stored", 2)
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	r.ask(cl, req)
	folders := kmsg.NewPtrDescribeLogDirsRequest()
	t := kmsg.NewDescribeLogDirsRequestTopic()
	t.Topic, t.Partitions = topic, []int32{0, 1}
	folders.Topics = append(folders.Topics, t)
	kept := func(id int) (n int) {
		resp, err := cl.Broker(id).Request(r.ctx, folders)
		if err != nil {
			r.t.Fatalf("%s: log folders of %d: %v", r.name, id, err)
		}
		for _, d := range resp.(*kmsg.DescribeLogDirsResponse).Dirs {
			for _, t := range d.Topics {
				n += len(t.Partitions)
			}
		}
		return n
	}
	for id := range 3 {
		// Each broker creates its replicas asynchronously.
		testkit.WaitFor(r.t, fmt.Sprintf("broker %d to keep both partitions (%s)", id, r.name), func() bool { return kept(id) == 2 })
		r.record("broker %d keeps %d partitions", id, kept(id))
	}
}

func reassignments(r *run) {
	cl, topic := r.client(), r.newTopic("moving", 1)
	adm := kadm.NewClient(cl)
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign(topic, 0, []int32{2, 0})
	moved, err := adm.AlterPartitionAssignments(r.ctx, move)
	r.record("moved: %v, %v", moved.Error(), err)
	testkit.WaitFor(r.t, "the partition to have moved", func() bool {
		d, err := adm.ListTopics(r.ctx, topic)
		return err == nil && fmt.Sprint(d[topic].Partitions[0].Replicas) == "[2 0]" && len(d[topic].Partitions[0].ISR) == 2
	})
	some := kadm.TopicsSet{}
	some.Add(topic, 0)
	testkit.WaitFor(r.t, "the election to be needless", func() bool {
		_, err := adm.ElectLeaders(r.ctx, kadm.ElectPreferredReplica, some)
		d, listed := adm.ListTopics(r.ctx, topic)
		return err == nil && listed == nil && d[topic].Partitions[0].Leader == 2
	})
	elected, err := adm.ElectLeaders(r.ctx, kadm.ElectPreferredReplica, some)
	r.record("elected: %v, %v", elected[topic][0].Err, err)
	left, err := adm.ListPartitionReassignments(r.ctx, some)
	r.record("still moving: %d, %v", len(left), err)
}

func openTransactions(r *run) {
	topic, id := r.newTopic("open", 1), r.uniqueName("open")
	c := r.client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	if err := c.BeginTransaction(); err != nil {
		r.t.Fatal(err)
	}
	r.produce(c, &kgo.Record{Topic: topic, Timestamp: epoch, Value: []byte("open")})
	cl := r.client()
	adm := kadm.NewClient(cl)
	all, err := adm.ListTransactions(r.ctx, nil, nil)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.record("listed: %s %s", all[id].TxnID, all[id].State)
	one, err := adm.DescribeTransactions(r.ctx, id)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	r.record("described: %s %v", one[id].State, one[id].Topics)
	some := kadm.TopicsSet{}
	some.Add(topic, 0)
	producers, err := adm.DescribeProducers(r.ctx, some)
	if err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
	for _, p := range producers.SortedProducers() {
		r.record("producer of %s/%d: epoch %d, sequence %d, since %d",
			p.Topic, p.Partition, p.ProducerEpoch, p.LastSequence, p.CurrentTxnStartOffset)
	}
	if err := c.EndTransaction(r.ctx, kgo.TryAbort); err != nil {
		r.t.Fatalf("%s: %v", r.name, err)
	}
}
