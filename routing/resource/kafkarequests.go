package resource

// KafkaRequests selects requests to virtual clusters by what they do. A request may
// be several operations on several resources; each is decided by itself.
type KafkaRequests struct {
	// Operations are those of Kafka's ACLs: consume (Read), produce (Write), create,
	// delete, alter, describe, alterConfigs, describeConfigs, clusterAction,
	// idempotentWrite. To allow consume, produce, delete or alter allows describe,
	// and alterConfigs allows describeConfigs. Default all.
	Operations []string `yaml:"operations"`
	// Topics are names of topics as clients see them; a prefix ends in *. Without
	// topics, groups, transactionalIDs and cluster the entry is about everything.
	Topics []string `yaml:"topics"`
	// Groups are names of groups in the same way.
	Groups []string `yaml:"groups"`
	// TransactionalIDs are transactional ids in the same way.
	TransactionalIDs []string `yaml:"transactionalIDs"`
	// Cluster selects operations on the whole cluster, such as to list quotas or
	// to change ACLs. Default false.
	Cluster bool `yaml:"cluster"`
}

// KafkaOperations are the words of KafkaRequests.Operations.
const KafkaOperations = "consume produce create delete alter describe alterConfigs describeConfigs clusterAction idempotentWrite"
