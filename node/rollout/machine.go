package rollout

import (
	"errors"
	"fmt"
	"time"

	"penstock/routing/resource"
)

// State is the stored state of a rollout.
type State = resource.Rollout

// Measurements is what the cluster has observed of a rollout.
type Measurements struct {
	// Now becomes State.Since. Nothing is timed by it.
	Now time.Time
	// Watched is how long the state has been in force, at least.
	Watched time.Duration
	// Counts are the outcomes of connects to the new backend within the abort
	// window, on all nodes that responded.
	Counts
	// Endpoints of the new backend, and how many of them are ejected, each summed
	// over the nodes that responded.
	Endpoints, Ejected int
}

// Counts counts the outcomes of connects.
type Counts struct {
	Connects, Failed, Resets uint64
}

// Next returns the next state of a route's rollout; nil: no change. s is nil if
// the rollout has not started. If s belongs to another rollout than the
// route's, the rollout starts over.
func Next(r *resource.MeshTCPRoute, s *State, measured *Measurements) *State {
	spec := r.Rollout.WithDefaults()
	switch {
	case s == nil:
		return firstStep(r, measured, "the route was applied")
	case s.Of != r.RolloutID():
		return firstStep(r, measured, "the route's rollout has changed")
	case !s.UnderWay():
		return nil
	}
	if why := abortReason(&spec.Abort, measured); why != "" {
		return &State{Of: s.Of, Phase: resource.RolloutAborted, Step: s.Step, Since: measured.Now, Reason: why}
	}
	if s.Phase == resource.RolloutPaused || TimeLeft(spec, s, measured) > 0 || WaitReason(measured) != "" {
		return nil
	}
	next := *s
	next.Since, next.Spent, next.Reason = measured.Now, 0, "previous step completed"
	if s.Step >= len(spec.Steps) {
		next.Phase, next.Reason = resource.RolloutDone, "last step completed"
		return &next
	}
	next.Step++
	next.Weight = spec.Steps[next.Step-1].Weight
	return &next
}

func firstStep(r *resource.MeshTCPRoute, measured *Measurements, why string) *State {
	return &State{
		Of: r.RolloutID(), Phase: resource.RolloutRunning, Step: 1, Weight: r.Rollout.Steps[0].Weight,
		Since: measured.Now, Reason: why,
	}
}

// TimeLeft returns the time left in the step, as far as observed. spec has its
// defaults filled in.
func TimeLeft(spec *resource.RouteRollout, s *State, measured *Measurements) time.Duration {
	if s.Step < 1 || s.Step > len(spec.Steps) {
		return 0
	}
	spent := s.Spent.D()
	if s.Phase == resource.RolloutRunning {
		spent += measured.Watched
	}
	return max(0, spec.Steps[s.Step-1].For.D()-spent)
}

// WaitReason returns the reason for which the next step waits although the time
// is over; "": none.
func WaitReason(measured *Measurements) string {
	if measured.Endpoints == 0 {
		return "the new backend has no endpoints"
	}
	return ""
}

// abortReason returns the reason to abort a rollout; "": none.
func abortReason(bounds *resource.RolloutAbort, measured *Measurements) string {
	failed, connects := measured.Failed+measured.Resets, measured.Connects
	// A reset may be counted in a later window than its connect.
	connects = max(connects, failed)
	if percent := *bounds.Failures; connects >= uint64(bounds.Connections) && failed*100 > uint64(percent)*connects {
		return fmt.Sprintf("%d of %d connects within %s failed or were reset, more than %d %%", failed, connects, bounds.Window, percent)
	}
	if percent := *bounds.Ejections; measured.Ejected*100 > percent*measured.Endpoints {
		return fmt.Sprintf("%d of %d endpoints, summed over nodes, are ejected, more than %d %%", measured.Ejected, measured.Endpoints, percent)
	}
	return ""
}

// The commands of ApplyCommand.
const (
	Pause    = "pause"
	Resume   = "resume"
	Rollback = "rollback"
	Restart  = "restart"
)

// Commands lists the commands.
var Commands = []string{Pause, Resume, Rollback, Restart}

// ErrRefused means that a command cannot be performed now.
var ErrRefused = errors.New("cannot be done now")

// ApplyCommand returns the state of a route's rollout after a command by a
// user. The error wraps ErrRefused.
func ApplyCommand(command string, r *resource.MeshTCPRoute, s *State, measured *Measurements, by string) (*State, error) {
	if s == nil || s.Of != r.RolloutID() {
		s = firstStep(r, measured, "")
		fresh := *measured
		fresh.Watched, measured = 0, &fresh // it was about another state
	}
	next := *s
	next.Since, next.Reason = measured.Now, command+" by "+by
	switch {
	case command == Restart:
		return firstStep(r, measured, next.Reason), nil
	case command == Pause && s.Phase == resource.RolloutRunning:
		next.Phase = resource.RolloutPaused
		next.Spent += resource.Duration(measured.Watched)
	case command == Resume && s.Phase == resource.RolloutPaused:
		next.Phase = resource.RolloutRunning
	case command == Rollback && (s.UnderWay() || s.Phase == resource.RolloutDone):
		next.Phase, next.Weight, next.Spent = resource.RolloutRolledBack, 0, 0
	case s.UnderWay():
		return nil, fmt.Errorf("%s %w: it is %s", command, ErrRefused, PhaseText(s.Phase))
	default:
		return nil, fmt.Errorf("%s %w: it is %s; restart starts it over", command, ErrRefused, PhaseText(s.Phase))
	}
	return &next, nil
}

// PhaseText describes a phase.
func PhaseText(phase string) string {
	if phase == resource.RolloutRolledBack {
		return "rolled back"
	}
	return phase
}

// Text summarizes a state for histories and logs.
func Text(r *resource.MeshTCPRoute, s *State) string {
	return fmt.Sprintf("rollout %s: step %d of %d, %d %%", PhaseText(s.Phase), s.Step, len(r.Rollout.Steps), s.Weight)
}
