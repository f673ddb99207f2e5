// Package rollout shifts the weight of a route over time. It owns the rule that
// advances a rollout (Next, Do), each node's record of rollouts (Tracker), and
// the leader's part (Driver). It never guesses: a step ends only after some
// node has observed it for its full duration, whatever the clocks say.
//
//	next := rollout.Next(route, state, &rollout.Seen{Watched: 10 * time.Minute, Endpoints: 2})
//	if next != nil { ... } // to be committed: the next step, or the end
//
// Timing of a step: the state of a rollout is a resource that the leader writes
// at each step. Each node measures by its monotonic clock how long that version
// has been in force there, which never exceeds the actual time. The leader
// collects the measurements of all nodes and takes the longest. So a new leader
// continues where the last one stopped, a clock jump has no effect, and a step
// never lasts less than its duration. It lasts longer if all nodes that
// observed it are gone.
package rollout
