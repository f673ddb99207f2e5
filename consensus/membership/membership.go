// Package membership decides who votes. It is pure: what the leader sees goes
// in, what it should do comes out, and there is neither I/O nor a clock in it.
//
// It owns two decisions. Plan keeps the voters of a cluster: how many, who,
// and in which order they change. Form decides which of several nodes that
// have no cluster yet may found one.
//
// It refuses to act where acting could cost the quorum: whoever is unsure
// leaves the voters as they are.
//
//	actions := membership.Plan(membership.Observed{
//		Self: "n1", Now: now, Settings: settings, Nodes: nodes,
//	})
//	for _, a := range actions {
//		do(a) // a.Do == membership.Promote, a.ID == "n2", a.Why == "..."
//	}
//
// The stories in testdata tell how it behaves; a line "plan" shows what it
// wants in that situation.
package membership

import "time"

// Node is one node as the leader sees it.
type Node struct {
	ID   string
	Name string // what people call it; decides nothing
	// Addr is where the node is now; "": unknown.
	Addr string
	// Zone is what fails together with it; "": unknown.
	Zone string
	// Server says that it is in the Raft configuration, Voter that it votes
	// there, ConfigAddr at which address it stands there.
	Server     bool
	Voter      bool
	ConfigAddr string
	// Up says that the node is there, Since when the leader saw Up change
	// last. The zero time says that it is not known, and nothing is done
	// that would need it to be long ago. A leader that is new, or that
	// sees a node for the first time, begins with the present.
	Up    bool
	Since time.Time
	// Joined is when the node came to the cluster.
	Joined time.Time
	// Leaving says that it was told to leave for good.
	Leaving bool
	// Draining says that it is about to end, for good or not: it should not lead.
	Draining bool
	// CaughtUp says that its log is close to the leader's.
	CaughtUp bool
}

// Settings are what the operator wants. Zero fields take the defaults.
type Settings struct {
	// Voters is how many nodes vote at most; an even number counts as the odd
	// one below it: 5.
	Voters int
	// Two says that two voters stay two, though one alone would decide more
	// often: no change is to rest on one disk.
	Two bool
	// StableAfter is how long a node is up before it may vote: 10 s. While
	// the voters grow to the first three a tenth of it is enough.
	StableAfter time.Duration
	// ReplaceAfter is how long a voter is down before another one takes its place: 1 min.
	ReplaceAfter time.Duration
	// ForgetAfter is how long a node that does not vote is down before it is forgotten: 72 h.
	ForgetAfter time.Duration
}

func (s Settings) withDefaults() Settings {
	if s.Voters <= 0 {
		s.Voters = 5
	}
	if s.Voters%2 == 0 {
		s.Voters--
	}
	if s.StableAfter <= 0 {
		s.StableAfter = 10 * time.Second
	}
	if s.ReplaceAfter <= 0 {
		s.ReplaceAfter = time.Minute
	}
	if s.ForgetAfter <= 0 {
		s.ForgetAfter = 72 * time.Hour
	}
	return s
}

// Observed is what the leader sees.
type Observed struct {
	Self     string // ID of the leader, which is among Nodes
	Now      time.Time
	Nodes    []Node // in any order
	Settings Settings
}

// ActionKind is a kind of action.
type ActionKind string

// The actions. None is repeated once Nodes show what it did.
const (
	// AddNonvoter takes the node into the Raft configuration, at its Addr.
	AddNonvoter ActionKind = "add-nonvoter"
	// Readdress puts the node's Addr in the place of its ConfigAddr.
	Readdress ActionKind = "readdress"
	// Promote makes a non-voter vote.
	Promote ActionKind = "promote"
	// Demote makes a voter a non-voter.
	Demote ActionKind = "demote"
	// Remove takes a non-voter out of the Raft configuration.
	Remove ActionKind = "remove"
	// Forget deletes the record of a node that is in no configuration.
	Forget ActionKind = "forget"
	// Transfer hands the lead to the node; whoever leads then goes on.
	Transfer ActionKind = "transfer"
)

// Action is one thing to do.
type Action struct {
	Kind ActionKind
	ID   string // of the node that it is done to
	Why  string
}
