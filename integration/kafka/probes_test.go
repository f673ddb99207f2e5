package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// broad returns requests for everything.
func (a *attacker) broad(key, version int16) []kmsg.Request {
	all := []kmsg.Request{request(key, version)}
	switch req := request(key, version).(type) {
	case *kmsg.MetadataRequest:
		req.Topics = nil
		all = append(all, req)
	case *kmsg.DescribeACLsRequest:
		for _, pattern := range []kmsg.ACLResourcePatternType{kmsg.ACLResourcePatternTypeAny, kmsg.ACLResourcePatternTypeMatch} {
			one := request(key, version).(*kmsg.DescribeACLsRequest)
			one.ResourceType, one.ResourcePatternType, one.Operation, one.PermissionType = kmsg.ACLResourceTypeAny, pattern,
				kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
			all = append(all, one)
		}
	case *kmsg.DeleteACLsRequest:
		filter := kmsg.NewDeleteACLsRequestFilter()
		filter.ResourceType, filter.ResourcePatternType, filter.Operation, filter.PermissionType = 1, 1, 1, 1
		req.Filters = append(req.Filters, filter)
		all = append(all, req)
	case *kmsg.ListGroupsRequest:
		req.StatesFilter = []string{"Stable", "Empty", "stable"}
		req.TypesFilter = []string{"classic", "consumer", "share", "streams"}
		all = append(all, req)
	case *kmsg.ListTransactionsRequest:
		req.TransactionalIDPattern = kmsg.StringPtr(".*")
		all = append(all, req)
	case *kmsg.ListConfigResourcesRequest:
		req.ResourceTypes = []int8{2, 4, 8, 16, 32}
		all = append(all, req)
	case *kmsg.DescribeConfigsRequest:
		for _, broker := range []string{"0", "1", "2"} {
			one := kmsg.NewDescribeConfigsRequestResource()
			one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeBroker, broker
			req.Resources = append(req.Resources, one)
		}
		req.IncludeSynonyms = true
		all = append(all, req)
	case *kmsg.DescribeLogDirsRequest:
		req.Topics = nil
		all = append(all, req)
	case *kmsg.DescribeUserSCRAMCredentialsRequest:
		req.Users = nil
		all = append(all, req)
	case *kmsg.DescribeClientQuotasRequest:
		for _, kind := range []string{"user", "client-id", "ip"} {
			one := request(key, version).(*kmsg.DescribeClientQuotasRequest)
			c := kmsg.NewDescribeClientQuotasRequestComponent()
			c.EntityType, c.MatchType = kind, kmsg.QuotasMatchTypeAny
			one.Components = append(one.Components, c)
			all = append(all, one)
		}
	case *kmsg.OffsetFetchRequest:
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: a.uniqueName("own"), MemberEpoch: -1}}
		all = append(all, req)
	case *kmsg.DescribeQuorumRequest:
		t := kmsg.NewDescribeQuorumRequestTopic()
		t.Topic = "__cluster_metadata"
		t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		req.Topics = append(req.Topics, t)
		all = append(all, req)
	case *kmsg.DescribeClusterRequest:
		req.EndpointType = 2
		all = append(all, req)
	case *kmsg.FindCoordinatorRequest:
		req.CoordinatorKeys = []string{a.uniqueName("own")}
		all = append(all, req)
	case *kmsg.DescribeTopicPartitionsRequest:
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic = "a"
		req.Cursor = &c
		all = append(all, req)
	}
	return all
}

// narrow returns requests about one object that need special fields: for
// existing and for unknown objects.
func (a *attacker) narrow(there, nowhere objectNames, key, version int16) [][2]kmsg.Request {
	both := func(change func(o objectNames, req kmsg.Request)) [2]kmsg.Request {
		one, other := request(key, version), request(key, version)
		change(there, one)
		change(nowhere, other)
		return [2]kmsg.Request{one, other}
	}
	switch request(key, version).(type) {
	case *kmsg.MetadataRequest:
		if version < 12 {
			return nil
		}
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			t := kmsg.NewMetadataRequestTopic()
			t.TopicID = o.topicID
			r.(*kmsg.MetadataRequest).Topics = append(r.(*kmsg.MetadataRequest).Topics, t)
		})}
	case *kmsg.DeleteTopicsRequest:
		// By ID alone, and by name alone.
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			req := r.(*kmsg.DeleteTopicsRequest)
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.TopicID = o.topicID
			req.TimeoutMillis = 5000
			req.Topics, req.TopicNames = append(req.Topics, t), append(req.TopicNames, o.topic)
		}), both(func(o objectNames, r kmsg.Request) {
			req := r.(*kmsg.DeleteTopicsRequest)
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = &o.topic
			req.TimeoutMillis = 5000
			req.Topics, req.TopicNames = append(req.Topics, t), append(req.TopicNames, o.topic)
		})}
	case *kmsg.OffsetFetchRequest:
		// All topics of the group.
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			req := r.(*kmsg.OffsetFetchRequest)
			req.Group, req.Groups = o.group, []kmsg.OffsetFetchRequestGroup{{Group: o.group, MemberEpoch: -1}}
		})}
	case *kmsg.FindCoordinatorRequest:
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			req := r.(*kmsg.FindCoordinatorRequest)
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 1, o.txn, []string{o.txn}
		})}
	case *kmsg.DescribeACLsRequest:
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			req := r.(*kmsg.DescribeACLsRequest)
			req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 2, 1, 1
			req.ResourceName = &o.topic
		})}
	case *kmsg.ConsumerGroupHeartbeatRequest:
		member := freshID()
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			req := r.(*kmsg.ConsumerGroupHeartbeatRequest)
			req.Group, req.MemberID, req.RebalanceTimeoutMillis = o.consumer, member, 5000
			req.SubscribedTopicNames, req.Topics = []string{a.uniqueName("own")}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		})}
	case *kmsg.InitProducerIDRequest:
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			req := r.(*kmsg.InitProducerIDRequest)
			req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &o.txn, 10_000, -1, -1
		})}
	case *kmsg.DescribeConfigsRequest:
		return [][2]kmsg.Request{both(func(o objectNames, r kmsg.Request) {
			one := kmsg.NewDescribeConfigsRequestResource()
			one.ResourceType, one.ResourceName = kmsg.ConfigResourceTypeTopic, o.topic
			r.(*kmsg.DescribeConfigsRequest).Resources = append(r.(*kmsg.DescribeConfigsRequest).Resources, one)
		})}
	}
	return nil
}

// subscribe joins a group with regular expressions (KIP-848): it must not be
// assigned anything of the victim's.
func (a *attacker) subscribe(found leaks) {
	if a.offered[68][1] < 1 {
		return
	}
	for _, expression := range []string{".*", ".*" + secret + ".*", a.v.prefix + ".*"} {
		req := request(68, 1).(*kmsg.ConsumerGroupHeartbeatRequest)
		req.Group, req.MemberID = a.uniqueName("regex"), "member-"+freshID()
		req.RebalanceTimeoutMillis, req.SubscribedTopicRegex, req.ServerAssignor = 5000, &expression, kmsg.StringPtr("uniform")
		req.SubscribedTopicNames, req.Topics = []string{}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		// The broker resolves the expression while the member is alive.
		until := time.Now().Add(3 * time.Second)
		for time.Now().Before(until) {
			resp, err := a.ask("group", req)
			if err != nil {
				break
			}
			got := resp.(*kmsg.ConsumerGroupHeartbeatResponse)
			if got.ErrorCode != 0 {
				a.t.Logf("a group by expression: error %d", got.ErrorCode)
				break
			}
			req.MemberEpoch = got.MemberEpoch
			req.SubscribedTopicNames, req.SubscribedTopicRegex, req.ServerAssignor, req.Topics = nil, nil, nil, nil
			req.RebalanceTimeoutMillis = -1
			if got.Assignment == nil {
				continue
			}
			for _, t := range got.Assignment.Topics {
				if t.TopicID == a.v.topicID {
					found.add("ConsumerGroupHeartbeat", "a group that wants %s is assigned the victim's topic", expression)
					until = time.Time{}
				}
			}
		}
		req.MemberEpoch = -1
		_, _ = a.ask("group", req)
	}
}
