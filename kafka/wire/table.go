package wire

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The keys that this package knows by name.
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
// Whatever is not known at all is withheld as well.
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

// WriteTxnMarkers is not withheld though brokers use it: an administrator ends
// hanging transactions by it (KIP-664), and the broker asks for the right to.

// An apiSpec declares what this package does to the messages of one API beyond
// passing them. It stands in the file named for the key of the API, under a
// comment that tells all that happens to that API, and in which versions.
type apiSpec struct {
	key    int16
	lowest int16 // the first version that can be carried
	// walkRequest and walkResponse write down the layout of a version, as far as
	// a Walker has to know it; nil: such messages cannot be walked.
	walkRequest, walkResponse func(b *builder, version int16)
	addressesFrom             int16                  // the first version whose responses have addresses, or noVersion
	mapAddresses              func(e *addressEditor) // edits them; nil: a Walker does
	streams                   bool                   // responses have records in them
}

// specs are the APIs that are more than passed. ApiVersions needs no spec.
var specs = []*apiSpec{
	&produce, &fetch, &metadata, &findCoordinator, &saslHandshake, &describeConfigs,
	&describeQuorum, &describeCluster, &shareFetch, &shareAcknowledge,
}

// api is what is known of one API.
type api struct {
	name     string // empty: unknown
	max      int16  // the newest version that kmsg has
	flexible int16  // the first flexible version, or noVersion
	withheld string // why no client may use it
	spec     *apiSpec
}

const (
	maxVersion = 1<<15 - 1
	noVersion  = maxVersion // no version is that new
)

var table = buildTable()

// kafkaName turns the names of kmsg into Kafka's own.
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

// specOf returns the spec of an API; nil: there is none.
func specOf(key int16) *apiSpec {
	if key < 0 || key > MaxKey {
		return nil
	}
	return table[key].spec
}

// Known returns the versions of an API that the proxy can carry for a client.
// ok is false for an unknown API, and for one that clients of a broker do not
// use: it is neither offered nor carried.
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
// A version newer than all known ones is taken to be like the newest.
func Flexible(key, version int16) bool {
	return key >= 0 && key <= MaxKey && table[key].name != "" && version >= table[key].flexible
}
