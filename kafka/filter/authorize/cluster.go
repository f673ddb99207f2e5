package authorize

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// onCluster makes the handler of an API whose requests need one operation on the
// cluster. code is where the answer has its error.
func onCluster[Q kmsg.Request, S kmsg.Response](o Operation, code func(S) *int16) func(*call, Q) error {
	return refusing(o, func(_ Q, resp S) { *code(resp) = clusterAuthorizationFailed })
}

// refusing is the same for answers that say it elsewhere.
func refusing[Q kmsg.Request, S kmsg.Response](o Operation, refuse func(Q, S)) func(*call, Q) error {
	return func(c *call, r Q) error {
		if c.cluster(o) {
			return nil
		}
		return answer(c, func(resp S) { refuse(r, resp) })
	}
}

// The types of coordinators of FindCoordinator.
const (
	coordinatorGroup = iota
	coordinatorTransaction
	coordinatorShare
)

// findCoordinator: Describe on the group or the transactional id; ClusterAction for the
// state of share groups, which brokers ask for.
func (c *call) findCoordinator(r *kmsg.FindCoordinatorRequest) error {
	refusal := [...]int16{groupAuthorizationFailed, transactionalIDAuthorizationFailed, clusterAuthorizationFailed}
	allowed := func(key *string) bool {
		switch r.CoordinatorType {
		case coordinatorGroup:
			return c.group(Describe, *key)
		case coordinatorTransaction:
			return c.txn(Describe, *key)
		case coordinatorShare:
			return c.cluster(ClusterAction)
		}
		return true // the broker refuses it
	}
	if r.Version < 4 {
		if allowed(&r.CoordinatorKey) {
			return nil
		}
		return answer(c, func(resp *kmsg.FindCoordinatorResponse) {
			resp.ErrorCode, resp.NodeID, resp.Port = refusal[r.CoordinatorType], -1, -1
		})
	}
	denied := takeOut(&r.CoordinatorKeys, allowed)
	if len(denied) == 0 {
		return nil
	}
	return send(c, len(r.CoordinatorKeys) > 0, func(resp *kmsg.FindCoordinatorResponse) {
		for _, key := range denied {
			one := kmsg.NewFindCoordinatorResponseCoordinator()
			one.Key, one.ErrorCode, one.ErrorMessage, one.NodeID, one.Port = key, refusal[r.CoordinatorType], message(""), -1, -1
			resp.Coordinators = append(resp.Coordinators, one)
		}
	})
}

// describeCluster: everyone may; the operations are masked.
func (c *call) describeCluster(r *kmsg.DescribeClusterRequest) error {
	if r.IncludeClusterAuthorizedOperations {
		onResponse(c, func(c *call, resp *kmsg.DescribeClusterResponse) error {
			c.maskClusterBits(&resp.ClusterAuthorizedOperations)
			return nil
		})
	}
	return nil
}

// The operations on configurations.

// config decides on the configuration of a resource.
func (c *call) config(o Operation, t kmsg.ConfigResourceType, name string) (code int16) {
	var allowed bool
	switch t {
	case kmsg.ConfigResourceTypeTopic:
		allowed, code = c.topic(o, name), topicAuthorizationFailed
	case kmsg.ConfigResourceTypeGroupConfig:
		allowed, code = c.group(o, name), groupAuthorizationFailed
	default:
		allowed, code = c.cluster(o), clusterAuthorizationFailed
	}
	if allowed {
		return 0
	}
	return code
}

// refusalText is Kafka's message of an error.
func refusalText(code int16) *string {
	switch code {
	case topicAuthorizationFailed:
		return message("Topic authorization failed.")
	case groupAuthorizationFailed:
		return message("Group authorization failed.")
	}
	return message("Cluster authorization failed.")
}

func (c *call) describeConfigs(r *kmsg.DescribeConfigsRequest) error {
	var answers []kmsg.DescribeConfigsResponseResource
	takeOut(&r.Resources, func(x *kmsg.DescribeConfigsRequestResource) bool {
		code := c.config(DescribeConfigs, x.ResourceType, x.ResourceName)
		if code != 0 {
			answers = append(answers, kmsg.DescribeConfigsResponseResource{
				ErrorCode: code, ErrorMessage: refusalText(code), ResourceType: x.ResourceType, ResourceName: x.ResourceName})
		}
		return code == 0
	})
	if len(answers) == 0 {
		return nil
	}
	return send(c, len(r.Resources) > 0, func(resp *kmsg.DescribeConfigsResponse) { resp.Resources = append(resp.Resources, answers...) })
}

func (c *call) alterConfigs(r *kmsg.AlterConfigsRequest) error {
	var answers []kmsg.AlterConfigsResponseResource
	takeOut(&r.Resources, func(x *kmsg.AlterConfigsRequestResource) bool {
		code := c.config(AlterConfigs, x.ResourceType, x.ResourceName)
		if code != 0 {
			answers = append(answers, kmsg.AlterConfigsResponseResource{
				ErrorCode: code, ErrorMessage: refusalText(code), ResourceType: x.ResourceType, ResourceName: x.ResourceName})
		}
		return code == 0
	})
	if len(answers) == 0 {
		return nil
	}
	return send(c, len(r.Resources) > 0, func(resp *kmsg.AlterConfigsResponse) { resp.Resources = append(resp.Resources, answers...) })
}

func (c *call) incrementalAlterConfigs(r *kmsg.IncrementalAlterConfigsRequest) error {
	var answers []kmsg.IncrementalAlterConfigsResponseResource
	takeOut(&r.Resources, func(x *kmsg.IncrementalAlterConfigsRequestResource) bool {
		code := c.config(AlterConfigs, x.ResourceType, x.ResourceName)
		if code != 0 {
			answers = append(answers, kmsg.IncrementalAlterConfigsResponseResource{
				ErrorCode: code, ErrorMessage: refusalText(code), ResourceType: x.ResourceType, ResourceName: x.ResourceName})
		}
		return code == 0
	})
	if len(answers) == 0 {
		return nil
	}
	return send(c, len(r.Resources) > 0, func(resp *kmsg.IncrementalAlterConfigsResponse) {
		resp.Resources = append(resp.Resources, answers...)
	})
}

// Answers that have their errors elsewhere than at the top.

func refuseCreateACLs(r *kmsg.CreateACLsRequest, resp *kmsg.CreateACLsResponse) {
	for range r.Creations {
		resp.Results = append(resp.Results, kmsg.CreateACLsResponseResult{
			ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalText(clusterAuthorizationFailed)})
	}
}

func refuseDeleteACLs(r *kmsg.DeleteACLsRequest, resp *kmsg.DeleteACLsResponse) {
	for range r.Filters {
		resp.Results = append(resp.Results, kmsg.DeleteACLsResponseResult{
			ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalText(clusterAuthorizationFailed)})
	}
}

func refuseAlterLogDirs(r *kmsg.AlterReplicaLogDirsRequest, resp *kmsg.AlterReplicaLogDirsResponse) {
	for i := range r.Dirs {
		for _, t := range r.Dirs[i].Topics {
			topic := kmsg.AlterReplicaLogDirsResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				topic.Partitions = append(topic.Partitions,
					kmsg.AlterReplicaLogDirsResponseTopicPartition{Partition: p, ErrorCode: clusterAuthorizationFailed})
			}
			resp.Topics = append(resp.Topics, topic)
		}
	}
}

func refuseElectLeaders(r *kmsg.ElectLeadersRequest, resp *kmsg.ElectLeadersResponse) {
	resp.ErrorCode = clusterAuthorizationFailed
	for i := range r.Topics {
		topic := kmsg.ElectLeadersResponseTopic{Topic: r.Topics[i].Topic}
		for _, p := range r.Topics[i].Partitions {
			topic.Partitions = append(topic.Partitions, kmsg.ElectLeadersResponseTopicPartition{
				Partition: p, ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalText(clusterAuthorizationFailed)})
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func refuseReassignments(r *kmsg.AlterPartitionAssignmentsRequest, resp *kmsg.AlterPartitionAssignmentsResponse) {
	resp.ErrorCode, resp.ErrorMessage = clusterAuthorizationFailed, refusalText(clusterAuthorizationFailed)
	for i := range r.Topics {
		topic := kmsg.AlterPartitionAssignmentsResponseTopic{Topic: r.Topics[i].Topic}
		for j := range r.Topics[i].Partitions {
			topic.Partitions = append(topic.Partitions, kmsg.AlterPartitionAssignmentsResponseTopicPartition{
				Partition: r.Topics[i].Partitions[j].Partition, ErrorCode: clusterAuthorizationFailed,
				ErrorMessage: refusalText(clusterAuthorizationFailed)})
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func refuseAlterQuotas(r *kmsg.AlterClientQuotasRequest, resp *kmsg.AlterClientQuotasResponse) {
	for i := range r.Entries {
		one := kmsg.AlterClientQuotasResponseEntry{
			ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalText(clusterAuthorizationFailed)}
		for _, e := range r.Entries[i].Entity {
			one.Entity = append(one.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: e.Type, Name: e.Name})
		}
		resp.Entries = append(resp.Entries, one)
	}
}

// refuseAlterUsers names each user once, as Kafka does. Nothing of a password is in it.
func refuseAlterUsers(r *kmsg.AlterUserSCRAMCredentialsRequest, resp *kmsg.AlterUserSCRAMCredentialsResponse) {
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			resp.Results = append(resp.Results, kmsg.AlterUserSCRAMCredentialsResponseResult{
				User: strings.Clone(name), ErrorCode: clusterAuthorizationFailed, ErrorMessage: refusalText(clusterAuthorizationFailed)})
		}
	}
	for i := range r.Deletions {
		add(r.Deletions[i].Name)
	}
	for i := range r.Upsertions {
		add(r.Upsertions[i].Name)
	}
}
