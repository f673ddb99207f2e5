package wire

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API keys that this package uses by name.
const (
	keyProduce            = int16(kmsg.Produce)
	keyFetch              = int16(kmsg.Fetch)
	keyMetadata           = int16(kmsg.Metadata)
	keyControlledShutdown = int16(kmsg.ControlledShutdown)
	keyFindCoordinator    = int16(kmsg.FindCoordinator)
	keySASLHandshake      = int16(kmsg.SASLHandshake)
	keyAPIVersions        = int16(kmsg.ApiVersions)
	keyDescribeConfigs    = int16(kmsg.DescribeConfigs)
	keyDescribeQuorum     = int16(kmsg.DescribeQuorum)
	keyDescribeCluster    = int16(kmsg.DescribeCluster)
	keyShareFetch         = int16(kmsg.ShareFetch)
	keyShareAcknowledge   = int16(kmsg.ShareAcknowledge)
)

// MaxKey is the highest known API key.
const MaxKey = kmsg.MaxKey

// withheld are the APIs that no client of a broker uses, with the reason.
// Unknown APIs are withheld as well.
var withheld = map[kmsg.Key]string{
	kmsg.LeaderAndISR:       "from the controller to brokers",
	kmsg.StopReplica:        "from the controller to brokers",
	kmsg.UpdateMetadata:     "from the controller to brokers",
	kmsg.ControlledShutdown: "from brokers to the controller",
	kmsg.AlterPartition:     "from brokers to the controller",
	kmsg.Envelope:           "forwards requests from brokers to the controller",

	kmsg.BrokerRegistration:     "from brokers to the controller",
	kmsg.BrokerHeartbeat:        "from brokers to the controller",
	kmsg.AllocateProducerIDs:    "from brokers to the controller",
	kmsg.AssignReplicasToDirs:   "from brokers to the controller",
	kmsg.ControllerRegistration: "between controllers",

	kmsg.Vote:                 "between members of the metadata quorum",
	kmsg.BeginQuorumEpoch:     "between members of the metadata quorum",
	kmsg.EndQuorumEpoch:       "between members of the metadata quorum",
	kmsg.FetchSnapshot:        "between members of the metadata quorum",
	kmsg.UpdateRaftVoter:      "between members of the metadata quorum",
	kmsg.AddRaftVoter:         "changes the metadata quorum, and carries controllers' addresses",
	kmsg.RemoveRaftVoter:      "changes the metadata quorum",
	kmsg.UnregisterController: "changes the metadata quorum",

	kmsg.InitializeShareGroupState:  "between brokers: the state of share groups",
	kmsg.ReadShareGroupState:        "between brokers: the state of share groups",
	kmsg.WriteShareGroupState:       "between brokers: the state of share groups",
	kmsg.DeleteShareGroupState:      "between brokers: the state of share groups",
	kmsg.ReadShareGroupStateSummary: "between brokers: the state of share groups",
}

// WriteTxnMarkers is not withheld although brokers use it: administrators abort
// hanging transactions with it (KIP-664), and the broker authorizes it.

// An apiSpec declares what this package does to the messages of one API beyond
// passing them. It is in the file named for the API key, below a comment that
// documents all handling of that API by version.
type apiSpec struct {
	key    int16
	lowest int16 // the first version that can be carried
	// walkRequest and walkResponse build the shape of a version; nil if such
	// messages cannot be walked.
	walkRequest, walkResponse func(b *builder, version int16)
	addressesFrom             int16                  // the first version whose responses have addresses, or noVersion
	mapAddresses              func(e *addressEditor) // edits them; nil: a Walker does
	carriesRecords            bool                   // responses contain records
}

// specs are the APIs that are not only passed. ApiVersions needs no spec.
var specs = []*apiSpec{
	&produce, &fetch, &metadata, &findCoordinator, &saslHandshake, &describeConfigs,
	&describeQuorum, &describeCluster, &shareFetch, &shareAcknowledge,
}

// api is the table entry of one API.
type api struct {
	name     string // empty: unknown
	max      int16  // the newest version in kmsg
	flexible int16  // the first flexible version, or noVersion
	withheld string // why no client may use it
	spec     *apiSpec
}

const (
	maxVersion = 1<<15 - 1
	noVersion  = maxVersion // no version is that new
)

var table = buildTable()

// kafkaName turns names of kmsg into Kafka's own.
var kafkaName = strings.NewReplacer("SASL", "Sasl", "SCRAM", "Scram", "ACL", "Acl", "ISR", "Isr", "ID", "Id",
	"PartitionAssignments", "PartitionReassignments")

func buildTable() (t [MaxKey + 1]api) {
	for key := range t {
		r := kmsg.RequestForKey(int16(key))
		if r == nil {
			continue
		}
		a := api{name: kafkaName.Replace(kmsg.NameForKey(int16(key))), max: r.MaxVersion(), flexible: noVersion}
		for v := r.MaxVersion(); v >= 0; v-- {
			if r.SetVersion(v); r.IsFlexible() {
				a.flexible = v
			}
		}
		a.withheld = withheld[kmsg.Key(key)]
		t[key] = a
	}
	for _, s := range specs {
		t[s.key].spec = s
	}
	return t
}

// specOf returns the spec of an API, or nil.
func specOf(key int16) *apiSpec {
	if key < 0 || key > MaxKey {
		return nil
	}
	return table[key].spec
}

// Known returns the versions of an API that the proxy can carry for a client. ok
// is false for an unknown API and for a withheld one, which are neither offered
// nor carried.
func Known(key int16) (lowest, highest int16, ok bool) {
	if key < 0 || key > MaxKey || table[key].name == "" || table[key].withheld != "" {
		return 0, -1, false
	}
	if s := table[key].spec; s != nil {
		lowest = s.lowest
	}
	return lowest, table[key].max, true
}

// Withheld returns why a known API is not for clients, or "" if it is.
func Withheld(key int16) string {
	if key < 0 || key > MaxKey {
		return ""
	}
	return table[key].withheld
}

// Name returns the name of an API, or "Unknown".
func Name(key int16) string {
	if key < 0 || key > MaxKey || table[key].name == "" {
		return "Unknown"
	}
	return table[key].name
}

// Flexible reports whether a version of an API is flexible: compact, with tags.
// Versions newer than all known ones are like the newest.
func Flexible(key, version int16) bool {
	return key >= 0 && key <= MaxKey && table[key].name != "" && version >= table[key].flexible
}
