package membership

import "time"

// Peer is a node that was started with --expect N, as it says of itself.
type Peer struct {
	ID     string
	Addr   string // of its cluster port
	Expect int    // N: how many nodes found the cluster
	// Formed says that it is in a cluster, whose ID is Cluster.
	Formed  bool
	Cluster string
	// PledgedTo is the ID of the only node that it lets found the cluster,
	// itself perhaps; "": none yet. It must be told with every view, and kept
	// in memory until the process ends.
	PledgedTo string
	// Seen are the IDs of the nodes whose views it has, not older than ActWithin.
	Seen []string

	// Age is how long ago the caller asked for this view. The question
	// counts, not the answer, so that what a slow network delivers late is
	// old. Only views that were asked for count, not those that came with
	// another's question. Of a peer; nothing for the node itself.
	Age time.Duration
	// PledgedFor is how long ago the node made its pledge, and Told how long
	// ago it last sent a view with that pledge to whom it is pledged to, in a
	// question or an answer. Of the node itself, by its own monotonic clock.
	PledgedFor time.Duration
	Told       time.Duration
}

const (
	// ActWithin bounds the age of the views on which a node may bootstrap.
	ActWithin = 5 * time.Second
	// TakeBackAfter is how long a node that is pledged to another one must
	// not have told it so before it may pledge to a third.
	TakeBackAfter = 30 * time.Second
)

// FormDo is what a decision says.
type FormDo string

// The decisions.
const (
	FormWait      FormDo = "wait"      // look again soon
	FormPledge    FormDo = "pledge"    // set PledgedTo to Peer, then look again
	FormBootstrap FormDo = "bootstrap" // found the cluster now, alone, and add the others
	FormJoin      FormDo = "join"      // join the cluster of Peer
	FormRefuse    FormDo = "refuse"    // an operator must act; look again all the same
)

// Decision is what a node that forms does next.
type Decision struct {
	Do   FormDo
	Peer string // ID of whom to pledge to or to join
	Why  string
}

// Form decides what a node that was started with --expect does next. Peers are
// the nodes that prove the same token and have answered; a node that has not
// answered is not among them and is never taken for one that is empty.
func Form(self Peer, peers []Peer) Decision {
	return Decision{Do: FormWait, Why: "not yet"}
}
