package api

import "time"

// The methods about rollouts, which the leader serves.
const (
	MethodRollouts = "rollout.list" // RolloutsRequest -> Rollouts
	MethodRollout  = "rollout.do"   // RolloutRequest -> RolloutResult
	// MethodRolloutSeen is internal: one node's observations of some rollouts.
	MethodRolloutSeen = "rollout.seen" // RolloutSeenRequest -> RolloutSeen
)

// MaxRollouts bounds the routes in one RolloutSeenRequest.
const MaxRollouts = 10_000

// RolloutsRequest lists the progress of rollouts.
type RolloutsRequest struct {
	Route string `json:"route,omitempty"` // "": all
	// Stale reads the local state of the node that serves the request, which needs
	// no leader.
	Stale bool `json:"stale,omitempty"`
}

// Rollouts is sorted by route name.
type Rollouts []Rollout

// Rollout is the progress of one rollout.
type Rollout struct {
	Route       string    `json:"route"`
	Destination string    `json:"destination"`
	Backend     string    `json:"backend"` // the new one, as "apps {version=v2}"
	Phase       string    `json:"phase"`   // running, paused, done, aborted, rolledBack
	Step        int       `json:"step"`    // from 1
	Steps       int       `json:"steps"`
	Weight      int       `json:"weight"` // percent
	Since       time.Time `json:"since"`  // start of the phase and step; zero: not recorded yet
	Reason      string    `json:"reason,omitempty"`
	// Left is the time left in the step of a running or paused rollout.
	Left time.Duration `json:"left,omitempty"`
	// Held says why the next step waits although the time is over.
	Held string `json:"held,omitempty"`
	// Outcomes of connects to the new backend within the window, and its
	// endpoints, summed over the nodes that responded. They are not collected for
	// a finished rollout.
	Connects  uint64        `json:"connects"`
	Failed    uint64        `json:"failed"`
	Resets    uint64        `json:"resets"`
	Window    time.Duration `json:"window"`
	Endpoints int           `json:"endpoints"`
	Ejected   int           `json:"ejected"`
	Nodes     int           `json:"nodes"`            // that responded
	Silent    []string      `json:"silent,omitempty"` // nodes that did not, with the reason
}

// RolloutRequest performs an action on a rollout.
type RolloutRequest struct {
	ID    []byte `json:"id,omitempty"` // as in ApplyRequest
	Do    string `json:"do"`
	Route string `json:"route"`
	Wait  Wait   `json:"wait"`
}

// Summary describes the request for the audit log.
func (r *RolloutRequest) Summary() string { return r.Do + " " + r.Route }

// RolloutResult is the rollout after the action.
type RolloutResult struct {
	Index   uint64  `json:"index"`
	Rollout Rollout `json:"rollout"`
	Reached Reached `json:"reached"`
}

// RolloutSeenRequest reads a node's observations of the rollouts of routes.
type RolloutSeenRequest struct {
	Routes []string `json:"routes"` // at most MaxRollouts
}

// RolloutSeen maps routes to the observations that the node has.
type RolloutSeen struct {
	Rollouts map[string]RolloutSight `json:"rollouts"`
}

// RolloutSight is one node's observation of a rollout.
type RolloutSight struct {
	Mark      string        `json:"mark"`    // identifies the state in force on the node
	Watched   time.Duration `json:"watched"` // how long it has been in force
	Connects  uint64        `json:"connects"`
	Failed    uint64        `json:"failed"`
	Resets    uint64        `json:"resets"`
	Counting  time.Duration `json:"counting"` // how long the three counters cover
	Endpoints int           `json:"endpoints"`
	Ejected   int           `json:"ejected"`
}
