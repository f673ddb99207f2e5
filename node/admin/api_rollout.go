package admin

import "time"

// The methods about rollouts. The leader answers them.
const (
	MethodRollouts = "rollout.list" // RolloutsRequest -> Rollouts
	MethodRollout  = "rollout.do"   // RolloutRequest -> RolloutResult
	// MethodRolloutSeen is between nodes: what one sees of some rollouts.
	MethodRolloutSeen = "rollout.seen" // RolloutSeenRequest -> RolloutSeen
)

// MaxRollouts bounds the routes of one question between nodes.
const MaxRollouts = 10_000

// RolloutsRequest asks how far rollouts have come.
type RolloutsRequest struct {
	Route string `json:"route,omitempty"` // "": all
	// Stale takes what the node asked knows by itself, without a leader.
	Stale bool `json:"stale,omitempty"`
}

// Rollouts are by the name of the route.
type Rollouts []Rollout

// Rollout is how far one rollout has come.
type Rollout struct {
	Route       string    `json:"route"`
	Destination string    `json:"destination"`
	Backend     string    `json:"backend"` // the new one, as "apps {version=v2}"
	Phase       string    `json:"phase"`   // running, paused, done, aborted, rolledBack
	Step        int       `json:"step"`    // from 1
	Steps       int       `json:"steps"`
	Weight      int       `json:"weight"` // percent
	Since       time.Time `json:"since"`  // of the phase and step; zero: not noted yet
	Reason      string    `json:"reason,omitempty"`
	// Left is how much of the step's time is left, of one that is running or paused.
	Left time.Duration `json:"left,omitempty"`
	// Held says why the next step waits though the time is over.
	Held string `json:"held,omitempty"`
	// What became of the connects to the new backend within the window, and
	// its endpoints, on the nodes that answered; each node's are counted.
	// Those of a rollout that is over are not asked for.
	Connects  uint64        `json:"connects"`
	Failed    uint64        `json:"failed"`
	Resets    uint64        `json:"resets"`
	Window    time.Duration `json:"window"`
	Endpoints int           `json:"endpoints"`
	Ejected   int           `json:"ejected"`
	Nodes     int           `json:"nodes"`            // that answered
	Silent    []string      `json:"silent,omitempty"` // nodes that did not, with why
}

// RolloutRequest does something with a rollout: pause, resume, rollback or
// restart.
type RolloutRequest struct {
	ID    []byte `json:"id,omitempty"` // ApplyRequest.ID's
	Do    string `json:"do"`
	Route string `json:"route"`
	Wait  Wait   `json:"wait"`
}

// Summary says what is asked for, for the audit log.
func (r *RolloutRequest) Summary() string { return r.Do + " " + r.Route }

// RolloutResult is what came of it.
type RolloutResult struct {
	Index   uint64  `json:"index"`
	Rollout Rollout `json:"rollout"`
	Reached Reached `json:"reached"`
}

// RolloutSeenRequest asks a node what it sees of the rollouts of routes.
type RolloutSeenRequest struct {
	Routes []string `json:"routes"` // at most MaxRollouts
}

// RolloutSeen has those that the node has, by the route.
type RolloutSeen struct {
	Rollouts map[string]RolloutSight `json:"rollouts"`
}

// RolloutSight is what one node sees of a rollout.
type RolloutSight struct {
	Mark      string        `json:"mark"`    // of the state that is in force there
	Watched   time.Duration `json:"watched"` // for how long it is
	Connects  uint64        `json:"connects"`
	Failed    uint64        `json:"failed"`
	Resets    uint64        `json:"resets"`
	Counting  time.Duration `json:"counting"` // for how long those three have been counted
	Endpoints int           `json:"endpoints"`
	Ejected   int           `json:"ejected"`
}
