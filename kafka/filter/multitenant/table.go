package multitenant

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
)

// api declares what happens to one API. An API that is not in the table is
// hidden: a security filter fails closed.
type api struct {
	// limited: only the versions from min to max are for tenants.
	limited  bool
	min, max int16
	// walk tells which versions are walked rather than collected.
	walk func(d filter.Direction, version int16) bool
	// request and response change the decoded message; nil: it passes.
	request  func(*call, kmsg.Request) error
	response func(*call, kmsg.Response) error
}

func (a *api) walked(d filter.Direction, version int16) bool {
	return a.walk != nil && a.walk(d, version)
}

// on makes an entry of typed functions. Either may be nil: that side passes.
func on[Q kmsg.Request, S kmsg.Response](request func(*call, Q) error, response func(*call, S) error) api {
	var a api
	if request != nil {
		a.request = func(c *call, r kmsg.Request) error {
			q, ok := r.(Q)
			if !ok {
				return fmt.Errorf("%w: unexpected request %T", filter.ErrMalformed, r)
			}
			return request(c, q)
		}
	}
	if response != nil {
		a.response = func(c *call, r kmsg.Response) error {
			s, ok := r.(S)
			if !ok {
				return fmt.Errorf("%w: unexpected response %T", filter.ErrMalformed, r)
			}
			return response(c, s)
		}
	}
	return a
}

// limit restricts the versions that tenants are offered.
func (a api) limit(least, most int16) api {
	a.limited, a.min, a.max = true, least, most
	return a
}

// walking declares which versions are walked.
func (a api) walking(walk func(filter.Direction, int16) bool) api {
	a.walk = walk
	return a
}

// anyVersion is above all versions.
const anyVersion = 1<<15 - 1

var passes = api{}

func apiOf(key int16) *api {
	if key < 0 || int(key) >= len(apis) {
		return nil
	}
	return apis[key]
}

// apis is the table, by API key. docs/kafka.md has it for users.
var apis = func() (table [128]*api) {
	for key, a := range map[int16]api{
		0:  on((*call).produceRequest, (*call).produceResponse).walking(walkProduce),
		1:  on((*call).fetchRequest, (*call).fetchResponse).walking(walkFetch),
		2:  on((*call).listOffsetsRequest, (*call).listOffsetsResponse),
		3:  on((*call).metadataRequest, anything), // see metadataBody
		8:  on((*call).offsetCommitRequest, (*call).offsetCommitResponse),
		9:  on((*call).offsetFetchRequest, (*call).offsetFetchResponse),
		10: on((*call).findCoordinatorRequest, (*call).findCoordinatorResponse),
		11: on((*call).joinGroupRequest, (*call).joinGroupResponse),
		12: on(func(c *call, r *kmsg.HeartbeatRequest) error { c.prefixID(&r.Group); return nil }, none),
		13: on(func(c *call, r *kmsg.LeaveGroupRequest) error { c.prefixID(&r.Group); return nil }, none),
		14: on((*call).syncGroupRequest, (*call).syncGroupResponse),
		15: on((*call).describeGroupsRequest, (*call).describeGroupsResponse),
		16: on(nothing, (*call).listGroupsResponse),
		17: passes, // SaslHandshake
		18: passes, // ApiVersions
		19: on((*call).createTopicsRequest, (*call).createTopicsResponse),
		20: on((*call).deleteTopicsRequest, (*call).deleteTopicsResponse),
		21: on((*call).deleteRecordsRequest, (*call).deleteRecordsResponse),
		22: on((*call).initProducerIDRequest, none),
		23: on((*call).epochRequest, (*call).epochResponse),
		24: on((*call).addPartitionsRequest, (*call).addPartitionsResponse),
		25: on((*call).addOffsetsRequest, none),
		26: on(func(c *call, r *kmsg.EndTxnRequest) error { c.prefixID(&r.TransactionalID); return nil }, none),
		28: on((*call).txnOffsetCommitRequest, (*call).txnOffsetCommitResponse),
		// ACLs before v1 have no pattern types, so a wildcard could not be
		// kept within the prefix.
		29: on((*call).describeACLsRequest, (*call).describeACLsResponse).limit(1, anyVersion),
		30: on((*call).createACLsRequest, (*call).createACLsResponse).limit(1, anyVersion),
		31: on((*call).deleteACLsRequest, (*call).deleteACLsResponse).limit(1, anyVersion),
		32: on((*call).describeConfigsRequest, (*call).describeConfigsResponse),
		33: on((*call).alterConfigsRequest, (*call).alterConfigsResponse),
		34: on((*call).alterLogDirsRequest, (*call).alterLogDirsResponse),
		35: on((*call).describeLogDirsRequest, (*call).describeLogDirsResponse),
		36: passes, // SaslAuthenticate
		37: on((*call).createPartitionsRequest, (*call).createPartitionsResponse),
		42: on((*call).deleteGroupsRequest, (*call).deleteGroupsResponse),
		43: on((*call).electLeadersRequest, (*call).electLeadersResponse),
		44: on((*call).incrementalConfigsRequest, (*call).incrementalConfigsResponse),
		45: on((*call).alterAssignmentsRequest, (*call).alterAssignmentsResponse),
		46: on((*call).listReassignmentsRequest, (*call).listReassignmentsResponse),
		47: on((*call).offsetDeleteRequest, (*call).offsetDeleteResponse),
		48: on((*call).describeQuotasRequest, (*call).describeQuotasResponse),
		50: on((*call).describeUsersRequest, (*call).describeUsersResponse),
		60: passes, // DescribeCluster
		61: on((*call).describeProducersRequest, (*call).describeProducersResponse),
		65: on((*call).describeTxnsRequest, (*call).describeTxnsResponse),
		// v2 has a regular expression over transactional ids.
		66: on(nothing, (*call).listTxnsResponse).limit(0, 1),
		// v1 has a regular expression over topics: see expressions.go.
		68: on((*call).heartbeatRequest, (*call).heartbeatResponse).limit(0, 1),
		69: on((*call).groupDescribeRequest, (*call).groupDescribeResponse),
		71: passes, // GetTelemetrySubscriptions: about the client itself
		72: passes, // PushTelemetry
		74: on(nothing, (*call).listConfigsResponse),
		75: on((*call).describePartitionsRequest, (*call).describePartitionsResponse),
		76: on((*call).shareHeartbeatRequest, (*call).shareHeartbeatResponse),
		77: on((*call).shareDescribeRequest, (*call).shareDescribeResponse),
		78: on((*call).shareFetchRequest, (*call).shareFetchResponse),
		79: on((*call).shareAckRequest, (*call).shareAckResponse),
		88: on((*call).streamsHeartbeatRequest, (*call).streamsHeartbeatResponse).limit(0, 1),
		89: on((*call).streamsDescribeRequest, (*call).streamsDescribeResponse).limit(0, 1),
		90: on((*call).shareOffsetsRequest, (*call).shareOffsetsResponse),
		91: on((*call).alterShareOffsetsRequest, (*call).alterShareOffsetsResponse),
		92: on((*call).deleteShareOffsetsRequest, (*call).deleteShareOffsetsResponse),
		93: on((*call).topologyUpdateRequest, (*call).topologyUpdateResponse),
	} {
		table[key] = &a
	}
	return table
}()

// anything declares a response that is changed as bytes.
func anything(*call, kmsg.Response) error { return nil }

// nothing and none stand for a side that passes.
var (
	// nothing and none declare a side that passes.
	nothing func(*call, kmsg.Request) error
	none    func(*call, kmsg.Response) error
)
