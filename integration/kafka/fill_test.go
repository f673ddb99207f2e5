package kafka

import (
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/integration/realkafka"
)

// objectNames are names for the fields of a request.
type objectNames struct {
	topic, group, share, txn, user string
	consumer                       string // a KIP-848 group; empty: group
	topicID                        [16]byte
	names                          map[string]string // of fields, by field name
	numbers                        map[string]int64
}

// request returns a request at the given version with default fields.
func request(key, version int16) kmsg.Request {
	req := kmsg.RequestForKey(key)
	if d, ok := req.(interface{ Default() }); ok {
		d.Default()
	}
	req.SetVersion(version)
	return req
}

// fill sets every field that the version has and that is harmless to set; lists
// get one element.
func (o objectNames) fill(req kmsg.Request) kmsg.Request {
	v := reflect.ValueOf(req).Elem()
	o.fillStruct(v, strings.TrimSuffix(v.Type().Name(), "Request"))
	if f, ok := req.(*kmsg.FetchRequest); ok {
		for i := range f.Topics {
			for j := range f.Topics[i].Partitions {
				onlyItsTags(&f.Topics[i].Partitions[j], f.Version)
			}
		}
	}
	return req
}

// onlyItsTags resets tagged fields that kmsg would write at any version: a
// broker closes the connection on tags of later versions.
func onlyItsTags(p *kmsg.FetchRequestTopicPartition, version int16) {
	plain := kmsg.NewFetchRequestTopicPartition()
	if version < 17 {
		p.ReplicaDirectoryID = plain.ReplicaDirectoryID
	}
	if version < 18 {
		p.HighWatermark = plain.HighWatermark
	}
}

func (o objectNames) fillStruct(v reflect.Value, api string) {
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.IsExported() && f.Name != "Version" && f.Name != "UnknownTags" {
			o.fillField(v.Field(i), f.Name, api)
		}
	}
}

func (o objectNames) fillField(v reflect.Value, name, api string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(o.text(name, api))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if v.Elem().Kind() == reflect.Struct {
			o.fillStruct(v.Elem(), api)
		} else {
			o.fillField(v.Elem(), name, api)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := o.numbers[name]
		if !ok {
			n, ok = numbers[api+"."+name]
		}
		if !ok {
			n, ok = numbers[name]
		}
		if ok {
			v.SetInt(n)
		} else if v.Int() == 0 {
			v.SetInt(1)
		}
	case reflect.Float64:
		v.SetFloat(1000)
	case reflect.Array:
		v.Set(reflect.ValueOf(o.topicID))
	case reflect.Struct:
		o.fillStruct(v, api)
	case reflect.Slice:
		o.fillSlice(v, name, api)
	}
}

func (o objectNames) fillSlice(v reflect.Value, name, api string) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		b := []byte("some bytes")
		if name == "Records" && api == "Produce" {
			b = realkafka.Batch(epoch, []byte("one"), []byte("two"))
		}
		v.SetBytes(b)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	e := v.Index(0)
	if e.Kind() == reflect.Struct {
		o.fillStruct(e, api)
		return
	}
	o.fillField(e, name, api)
}

// numbers are values for fields for which 1 would be meaningless or harmful, by
// field name, or by API and field name.
var numbers = map[string]int64{
	"Partition": 0, "Partitions": 0, "PartitionIndex": 0,
	"ReplicaID": -1, "LeaderEpoch": -1, "CurrentLeaderEpoch": -1, "LastFetchedEpoch": -1,
	"SessionID": 0, "SessionEpoch": -1, "ReplicaEpoch": -1, "LogStartOffset": -1,
	"FetchOffset": 0, "MaxBytes": 1 << 20, "PartitionMaxBytes": 1 << 20, "MinBytes": 0, "MaxWaitMillis": 10,
	"TimeoutMillis": 5000, "SessionTimeoutMillis": 6000, "RebalanceTimeoutMillis": 6000, "TransactionTimeoutMillis": 10_000,
	"IsolationLevel": 1, "Acks": -1, "ReplicationFactor": -1, "NumPartitions": -1,
	"ListOffsets.Timestamp": -1, "OffsetForLeaderEpoch.LeaderEpoch": 0,
	"Generation": 1, "MemberEpoch": 0, "ProducerEpoch": 0, "ShareSessionEpoch": 0,
	"ProducerID": 1 << 40, // brokers assign small ones
	"BrokerID":   99, "NodeID": 99, "VoterID": 99,
	// Topics; for ACLs: topics, literal, any host, allowed to read.
	"ResourceType": 2, "ResourcePatternType": 3, "Operation": 3, "PermissionType": 3,
	"DescribeACLs.ResourcePatternType": 1, "DescribeACLs.Operation": 1, "DescribeACLs.PermissionType": 1,
	"AlterConfigs.ResourceType": 2, "IncrementalAlterConfigs.ResourceType": 2,
	"FindCoordinator.CoordinatorType":    0,
	"CreatePartitions.Count":             2,
	"AlterPartitionAssignments.Replicas": 0,
	"ConsumerGroupHeartbeat.MemberEpoch": 0, "StreamsGroupHeartbeat.MemberEpoch": 0, "ShareGroupHeartbeat.MemberEpoch": 0,
	"Iterations": 4096, "Mechanism": 1,
}

// text returns the value of a string field.
func (o objectNames) text(name, api string) string {
	if s, ok := o.names[name]; ok {
		return s
	}
	switch name {
	case "Topic", "Topics", "TopicName", "TopicNames", "SubscribedTopicNames", "ResourceName":
		return o.topic
	case "Group", "Groups", "GroupID", "GroupIDs", "CoordinatorKey", "CoordinatorKeys":
		if strings.Contains(api, "Share") {
			return o.share
		}
		if strings.HasPrefix(api, "ConsumerGroup") && o.consumer != "" {
			return o.consumer
		}
		return o.group
	case "TransactionalID", "TransactionalIDs":
		return o.txn
	case "Name", "User", "Users", "PrincipalName":
		if api == "CreateTopics" || api == "AlterConfigs" || api == "IncrementalAlterConfigs" {
			return "retention.ms" // name of a config
		}
		return o.user
	case "Value":
		return "100000"
	case "Principal":
		return "User:" + o.user
	case "PrincipalType", "OwnerPrincipalType":
		return "User"
	case "Host":
		return "*"
	case "Config", "ConfigNames":
		return "retention.ms"
	case "SubscribedTopicRegex":
		return o.topic + ".*"
	case "EntityType", "Type":
		return "user"
	case "Key":
		return "producer_byte_rate"
	case "ProtocolType":
		return "consumer"
	case "Cursor":
		return o.topic
	case "Dir", "LogDirs", "Path":
		return "/nowhere"
	case "ServerAssignor":
		return "uniform"
	}
	return "word"
}
