package authorize

import (
	"fmt"
	"math/bits"

	"penstock/routing/resource"
)

// Operation is a set of Kafka's ACL operations.
type Operation uint16

// The operations, in the words of Kafka's ACLs.
const (
	Read Operation = 1 << iota
	Write
	Create
	Delete
	Alter
	Describe
	ClusterAction
	DescribeConfigs
	AlterConfigs
	IdempotentWrite

	allOperations = 1<<iota - 1
)

// operations are the words of a permission, by bit: what people call Read and Write
// is what a consumer and a producer need.
var operations = [...]string{
	"consume", "produce", "create", "delete", "alter", "describe", "clusterAction", "describeConfigs", "alterConfigs", "idempotentWrite",
}

// String returns the word for a single operation.
func (o Operation) String() string {
	if i := bits.TrailingZeros16(uint16(o)); i < len(operations) {
		return operations[i]
	}
	return "none"
}

// ParseOperation returns the operation of a word.
func ParseOperation(word string) (Operation, error) {
	for i, name := range operations {
		if name == word {
			return 1 << i, nil
		}
	}
	return 0, fmt.Errorf("%q is no operation; there are %s", word, resource.KafkaOperations)
}

// grantedBy returns the operations whose permission implies o (Kafka's AclAuthorizer
// and StandardAuthorizer).
func (o Operation) grantedBy() Operation {
	switch o {
	case Describe:
		return Describe | Read | Write | Delete | Alter
	case DescribeConfigs:
		return DescribeConfigs | AlterConfigs
	}
	return o
}

// code is the number of an operation in authorizedOperations, where it is a bit
// (KIP-430, AclOperation).
func (o Operation) code() int {
	switch o {
	case Read:
		return 3
	case Write:
		return 4
	case Create:
		return 5
	case Delete:
		return 6
	case Alter:
		return 7
	case Describe:
		return 8
	case ClusterAction:
		return 9
	case DescribeConfigs:
		return 10
	case AlterConfigs:
		return 11
	}
	return 12 // IdempotentWrite
}

// ResourceType is a type of what operations are on.
type ResourceType uint8

// The types.
const (
	Topic ResourceType = iota
	Group
	TransactionalID
	Cluster

	resourceTypes
)

var typeNames = [resourceTypes]string{"topic", "group", "transactionalID", "cluster"}

// String returns the name of the type.
func (t ResourceType) String() string { return typeNames[t] }

// ClusterName is the name of the only resource of type Cluster, as Kafka has it.
const ClusterName = "kafka-cluster"

// The errors by which Kafka refuses.
const (
	topicAuthorizationFailed           = 29
	groupAuthorizationFailed           = 30
	clusterAuthorizationFailed         = 31
	transactionalIDAuthorizationFailed = 53
	delegationTokenAuthorizationFailed = 65
)
