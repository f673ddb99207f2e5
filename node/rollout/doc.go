// Package rollout moves the weight of a route over time. It owns the rule by
// which a rollout goes on (Next, Do), what a node knows of rollouts (Tracker), and
// what the leader does about them (Driver). It refuses to guess: a step is over
// when a node has watched it for as long as it is said to last, whatever
// clocks say.
//
//	next := rollout.Next(route, state, &rollout.Seen{Watched: 10 * time.Minute, Endpoints: 2})
//	if next != nil { ... } // what to agree on: the next step, or an end
//
// How a step is timed: the state of a rollout is a resource that the leader
// writes at each step. Each node watches, by its monotonic clock, how long that
// version of it is in force there, which is never longer than it truly is. The
// leader asks all nodes and takes the longest time. So a new leader goes on
// where the last one was, a jump of a clock moves nothing, and a step is never
// shorter than it is said to be; it is longer where every node that watched it
// is gone.
package rollout
