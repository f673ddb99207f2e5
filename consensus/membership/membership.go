// Package membership decides which nodes are Raft voters. It is pure:
// observations in, actions out, without I/O or a clock.
//
// It owns two decisions. Plan manages the voters of a cluster: how many, which
// nodes, and the order of changes. Form decides which of several nodes without
// a cluster may found one.
//
// It refuses any action that could cost the quorum: in doubt the voters stay as
// they are.
//
//	actions := membership.Plan(membership.Observed{
//		Self: "n1", Now: now, Settings: settings, Nodes: nodes,
//	})
//	for _, a := range actions {
//		do(a) // a.Kind == membership.Promote, a.ID == "n2", a.Why == "..."
//	}
//
// The scenarios in testdata document the behaviour; a line "plan" prints the
// actions in that situation.
package membership

import "time"

// Node is one node as observed by the leader.
type Node struct {
	ID   string
	Name string // display name; has no effect
	// Addr is the node's current address; "": unknown.
	Addr string
	// Zone is the node's failure domain; "": unknown.
	Zone string
	// Server: the node is in the Raft configuration. Voter: it is a voter there.
	// ConfigAddr is its address there.
	Server     bool
	Voter      bool
	ConfigAddr string
	// Up: the node is alive. Since is when the leader last saw Up change. If Since
	// is zero, it is unknown, and no action that requires a minimum time is taken.
	// A new leader, or one that sees a node for the first time, sets Since to the
	// present.
	Up    bool
	Since time.Time
	// Joined is when the node joined the cluster.
	Joined time.Time
	// Leaving: the node was told to leave for good.
	Leaving bool
	// Draining: the node is about to stop, for good or not, and should not lead.
	Draining bool
	// CaughtUp: its log is close to the leader's.
	CaughtUp bool
}

// Settings are the operator's settings. Zero fields take the defaults.
type Settings struct {
	// Voters is the maximum number of voters; an even number is lowered by one: 5.
	Voters int
	// KeepTwo keeps two voters as they are, although a single voter would be
	// available more often, so that every change is on two disks.
	KeepTwo bool
	// StableAfter is how long a node must be up before it may vote: 10 s. Up to
	// the first three voters, a tenth of it is enough.
	StableAfter time.Duration
	// ReplaceAfter is how long a voter must be down before it is replaced: 1 min.
	ReplaceAfter time.Duration
	// ForgetAfter is how long a non-voter must be down before it is removed: 72 h.
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

// Observed is the cluster as observed by the leader.
type Observed struct {
	Self     string // ID of the leader; it is in Nodes
	Now      time.Time
	Nodes    []Node // in any order
	Settings Settings
}

// ActionKind is a kind of action.
type ActionKind string

// The kinds of action. An action is not repeated once Nodes reflects it.
const (
	// AddNonvoter adds the node to the Raft configuration, with its Addr.
	AddNonvoter ActionKind = "add-nonvoter"
	// Readdress replaces the node's ConfigAddr with its Addr.
	Readdress ActionKind = "readdress"
	// Promote makes a non-voter a voter.
	Promote ActionKind = "promote"
	// Demote makes a voter a non-voter.
	Demote ActionKind = "demote"
	// Remove removes a non-voter from the Raft configuration.
	Remove ActionKind = "remove"
	// Forget deletes the record of a node that is not in the Raft configuration.
	Forget ActionKind = "forget"
	// Transfer transfers leadership to the node; the new leader continues.
	Transfer ActionKind = "transfer"
)

// Action is one action.
type Action struct {
	Kind ActionKind
	ID   string // of the affected node
	Why  string
}
