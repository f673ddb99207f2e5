package authorize

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// api says what is asked of one API. An API that is not in the table is not offered, nor
// is a version that is newer than what was looked at.
type api struct {
	highest int16
	// request decides; nil: everyone may.
	request func(*call, kmsg.Request) error
}

// hidden are the APIs that are not offered where permissions apply.
var hidden = map[int16]string{
	88: "a topology names topics and expressions that the broker creates and evaluates",
	89: "the topologies of others",
	93: "the topologies of others",
}

func apiOf(key int16) *api {
	if key < 0 || key > wire.MaxKey {
		return nil
	}
	return apis[key]
}

// handle makes an entry of a typed function.
func handle[Q kmsg.Request](highest int16, request func(*call, Q) error) *api {
	return &api{highest, func(c *call, r kmsg.Request) error {
		q, ok := r.(Q)
		if !ok {
			return fmt.Errorf("%w: unexpected request %T", filter.ErrMalformed, r)
		}
		return request(c, q)
	}}
}

// everyone makes an entry of an API that needs no permission.
func everyone(highest int16) *api { return &api{highest: highest} }

// apis is the table, by API key, with the newest version that was looked at.
// docs/permission.md has it for users.
var apis = [wire.MaxKey + 1]*api{
	0:  handle(13, (*call).produce),
	1:  handle(18, (*call).fetchRequest),
	2:  handle(11, (*call).listOffsets),
	3:  handle(13, (*call).metadata),
	8:  handle(10, (*call).offsetCommit),
	9:  handle(10, (*call).offsetFetch),
	10: handle(6, (*call).findCoordinator),
	11: handle(9, (*call).joinGroup),
	12: handle(4, (*call).heartbeat),
	13: handle(5, (*call).leaveGroup),
	14: handle(5, (*call).syncGroup),
	15: handle(6, (*call).describeGroups),
	16: handle(5, (*call).listGroups),
	17: everyone(1), // SaslHandshake
	18: everyone(5), // ApiVersions
	19: handle(7, (*call).createTopics),
	20: handle(6, (*call).deleteTopics),
	21: handle(2, (*call).deleteRecords),
	22: handle(5, (*call).initProducerID),
	23: handle(4, (*call).offsetForLeaderEpoch),
	24: handle(5, (*call).addPartitions),
	25: handle(4, (*call).addOffsets),
	26: handle(5, (*call).endTxn),
	27: handle(2, (*call).writeMarkers),
	28: handle(6, (*call).txnOffsetCommit),
	29: handle(3, onCluster[*kmsg.DescribeACLsRequest](Describe, func(r *kmsg.DescribeACLsResponse) *int16 { return &r.ErrorCode })),
	30: handle(3, refusing(Alter, refuseCreateACLs)),
	31: handle(3, refusing(Alter, refuseDeleteACLs)),
	32: handle(4, (*call).describeConfigs),
	33: handle(2, (*call).alterConfigs),
	34: handle(2, refusing(Alter, refuseAlterLogDirs)),
	35: handle(5, onCluster[*kmsg.DescribeLogDirsRequest](Describe, func(r *kmsg.DescribeLogDirsResponse) *int16 { return &r.ErrorCode })),
	36: everyone(2), // SaslAuthenticate
	37: handle(3, (*call).createPartitions),
	38: handle(3, refusing(Alter, func(_ *kmsg.CreateDelegationTokenRequest, r *kmsg.CreateDelegationTokenResponse) {
		r.ErrorCode, r.HMAC = delegationTokenAuthorizationFailed, []byte{}
		r.IssueTimestamp, r.ExpiryTimestamp, r.MaxTimestamp = -1, -1, -1
	})),
	39: handle(2, refusing(Alter, func(_ *kmsg.RenewDelegationTokenRequest, r *kmsg.RenewDelegationTokenResponse) {
		r.ErrorCode, r.ExpiryTimestamp = delegationTokenAuthorizationFailed, -1
	})),
	40: handle(2, refusing(Alter, func(_ *kmsg.ExpireDelegationTokenRequest, r *kmsg.ExpireDelegationTokenResponse) {
		r.ErrorCode, r.ExpiryTimestamp = delegationTokenAuthorizationFailed, -1
	})),
	41: handle(3, refusing(Describe, func(_ *kmsg.DescribeDelegationTokenRequest, r *kmsg.DescribeDelegationTokenResponse) {
		r.ErrorCode = delegationTokenAuthorizationFailed
	})),
	42: handle(3, (*call).deleteGroups),
	43: handle(2, refusing(Alter, refuseElectLeaders)),
	44: handle(1, (*call).incrementalAlterConfigs),
	45: handle(1, refusing(Alter, refuseReassignments)),
	46: handle(0, onCluster[*kmsg.ListPartitionReassignmentsRequest](Describe,
		func(r *kmsg.ListPartitionReassignmentsResponse) *int16 { return &r.ErrorCode })),
	47: handle(0, (*call).offsetDelete),
	48: handle(1, onCluster[*kmsg.DescribeClientQuotasRequest](DescribeConfigs,
		func(r *kmsg.DescribeClientQuotasResponse) *int16 { return &r.ErrorCode })),
	49: handle(1, refusing(AlterConfigs, refuseAlterQuotas)),
	50: handle(0, onCluster[*kmsg.DescribeUserSCRAMCredentialsRequest](Describe,
		func(r *kmsg.DescribeUserSCRAMCredentialsResponse) *int16 { return &r.ErrorCode })),
	51: handle(0, refusing(Alter, refuseAlterUsers)),
	55: handle(2, onCluster[*kmsg.DescribeQuorumRequest](Describe, func(r *kmsg.DescribeQuorumResponse) *int16 { return &r.ErrorCode })),
	57: handle(2, onCluster[*kmsg.UpdateFeaturesRequest](Alter, func(r *kmsg.UpdateFeaturesResponse) *int16 { return &r.ErrorCode })),
	60: handle(2, (*call).describeCluster),
	61: handle(0, (*call).describeProducers),
	64: handle(0, onCluster[*kmsg.UnregisterBrokerRequest](Alter, func(r *kmsg.UnregisterBrokerResponse) *int16 { return &r.ErrorCode })),
	65: handle(0, (*call).describeTransactions),
	66: handle(2, (*call).listTransactions),
	68: handle(1, (*call).consumerHeartbeat),
	69: handle(1, (*call).consumerDescribe),
	71: everyone(0), // GetTelemetrySubscriptions: about the client itself
	72: everyone(0), // PushTelemetry: of the client itself
	74: handle(1, onCluster[*kmsg.ListConfigResourcesRequest](DescribeConfigs,
		func(r *kmsg.ListConfigResourcesResponse) *int16 { return &r.ErrorCode })),
	75: handle(0, (*call).describePartitions),
	76: handle(1, (*call).shareHeartbeat),
	77: handle(1, (*call).shareDescribe),
	78: handle(2, (*call).shareFetch),
	79: handle(2, (*call).shareAcknowledge),
	90: handle(1, (*call).describeShareOffsets),
	91: handle(0, (*call).alterShareOffsets),
	92: handle(0, (*call).deleteShareOffsets),
}
