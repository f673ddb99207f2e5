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

// handle makes an entry of typed functions. Either may be nil: that side passes.
func handle[Q kmsg.Request, S kmsg.Response](request func(*call, Q) error, response func(*call, S) error) api {
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

// withVersions restricts the versions that tenants are offered.
func (a api) withVersions(least, most int16) api {
	a.limited, a.min, a.max = true, least, most
	return a
}

// withWalk declares which versions are walked.
func (a api) withWalk(walk func(filter.Direction, int16) bool) api {
	a.walk = walk
	return a
}

// anyVersion is above all versions.
const anyVersion = 1<<15 - 1

var passThrough = api{}

func apiOf(key int16) *api {
	if key < 0 || int(key) >= len(apis) {
		return nil
	}
	return apis[key]
}

// apis is the table, by API key. docs/kafka.md has it for users.
var apis = func() (table [128]*api) {
	for key, a := range map[int16]api{
		0:  handle((*call).produceRequest, (*call).produceResponse).withWalk(walkProduce),
		1:  handle((*call).fetchRequest, (*call).fetchResponse).withWalk(walkFetch),
		2:  handle((*call).listOffsetsRequest, (*call).listOffsetsResponse),
		3:  handle((*call).metadataRequest, changedAsBytes), // see metadataBody
		8:  handle((*call).offsetCommitRequest, (*call).offsetCommitResponse),
		9:  handle((*call).offsetFetchRequest, (*call).offsetFetchResponse),
		10: handle((*call).findCoordinatorRequest, (*call).findCoordinatorResponse),
		11: handle((*call).joinGroupRequest, (*call).joinGroupResponse),
		12: handle(func(c *call, r *kmsg.HeartbeatRequest) error { c.prefixID(&r.Group); return nil }, unchangedResponse),
		13: handle(func(c *call, r *kmsg.LeaveGroupRequest) error { c.prefixID(&r.Group); return nil }, unchangedResponse),
		14: handle((*call).syncGroupRequest, (*call).syncGroupResponse),
		15: handle((*call).describeGroupsRequest, (*call).describeGroupsResponse),
		16: handle(unchangedRequest, (*call).listGroupsResponse),
		17: passThrough, // SaslHandshake
		18: passThrough, // ApiVersions
		19: handle((*call).createTopicsRequest, (*call).createTopicsResponse),
		20: handle((*call).deleteTopicsRequest, (*call).deleteTopicsResponse),
		21: handle((*call).deleteRecordsRequest, (*call).deleteRecordsResponse),
		22: handle((*call).initProducerIDRequest, unchangedResponse),
		23: handle((*call).epochRequest, (*call).epochResponse),
		24: handle((*call).addPartitionsRequest, (*call).addPartitionsResponse),
		25: handle((*call).addOffsetsRequest, unchangedResponse),
		26: handle(func(c *call, r *kmsg.EndTxnRequest) error { c.prefixID(&r.TransactionalID); return nil }, unchangedResponse),
		28: handle((*call).txnOffsetCommitRequest, (*call).txnOffsetCommitResponse),
		// ACLs before v1 have no pattern types, so a wildcard could not be
		// kept within the prefix.
		29: handle((*call).describeACLsRequest, (*call).describeACLsResponse).withVersions(1, anyVersion),
		30: handle((*call).createACLsRequest, (*call).createACLsResponse).withVersions(1, anyVersion),
		31: handle((*call).deleteACLsRequest, (*call).deleteACLsResponse).withVersions(1, anyVersion),
		32: handle((*call).describeConfigsRequest, (*call).describeConfigsResponse),
		33: handle((*call).alterConfigsRequest, (*call).alterConfigsResponse),
		34: handle((*call).alterLogDirsRequest, (*call).alterLogDirsResponse),
		35: handle((*call).describeLogDirsRequest, (*call).describeLogDirsResponse),
		36: passThrough, // SaslAuthenticate
		37: handle((*call).createPartitionsRequest, (*call).createPartitionsResponse),
		42: handle((*call).deleteGroupsRequest, (*call).deleteGroupsResponse),
		43: handle((*call).electLeadersRequest, (*call).electLeadersResponse),
		44: handle((*call).incrementalConfigsRequest, (*call).incrementalConfigsResponse),
		45: handle((*call).alterAssignmentsRequest, (*call).alterAssignmentsResponse),
		46: handle((*call).listReassignmentsRequest, (*call).listReassignmentsResponse),
		47: handle((*call).offsetDeleteRequest, (*call).offsetDeleteResponse),
		48: handle((*call).describeQuotasRequest, (*call).describeQuotasResponse),
		50: handle((*call).describeUsersRequest, (*call).describeUsersResponse),
		60: passThrough, // DescribeCluster
		61: handle((*call).describeProducersRequest, (*call).describeProducersResponse),
		65: handle((*call).describeTxnsRequest, (*call).describeTxnsResponse),
		// v2 has a regular expression over transactional ids.
		66: handle(unchangedRequest, (*call).listTxnsResponse).withVersions(0, 1),
		// v1 has a regular expression over topics: see expressions.go.
		68: handle((*call).heartbeatRequest, (*call).heartbeatResponse).withVersions(0, 1),
		69: handle((*call).groupDescribeRequest, (*call).groupDescribeResponse),
		71: passThrough, // GetTelemetrySubscriptions: about the client itself
		72: passThrough, // PushTelemetry
		74: handle(unchangedRequest, (*call).listConfigsResponse),
		75: handle((*call).describePartitionsRequest, (*call).describePartitionsResponse),
		76: handle((*call).shareHeartbeatRequest, (*call).shareHeartbeatResponse),
		77: handle((*call).shareDescribeRequest, (*call).shareDescribeResponse),
		78: handle((*call).shareFetchRequest, (*call).shareFetchResponse),
		79: handle((*call).shareAckRequest, (*call).shareAckResponse),
		88: handle((*call).streamsHeartbeatRequest, (*call).streamsHeartbeatResponse).withVersions(0, 1),
		89: handle((*call).streamsDescribeRequest, (*call).streamsDescribeResponse).withVersions(0, 1),
		90: handle((*call).shareOffsetsRequest, (*call).shareOffsetsResponse),
		91: handle((*call).alterShareOffsetsRequest, (*call).alterShareOffsetsResponse),
		92: handle((*call).deleteShareOffsetsRequest, (*call).deleteShareOffsetsResponse),
		93: handle((*call).topologyUpdateRequest, (*call).topologyUpdateResponse),
	} {
		table[key] = &a
	}
	return table
}()

// changedAsBytes declares a response that is changed as bytes.
func changedAsBytes(*call, kmsg.Response) error { return nil }

// nothing and none stand for a side that passes.
var (
	// unchangedRequest and none declare a side that passes.
	unchangedRequest  func(*call, kmsg.Request) error
	unchangedResponse func(*call, kmsg.Response) error
)
