package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// RouteRollout moves a route's connections to one of its backends, the new one,
// in timed steps. The cluster's leader takes the steps.
type RouteRollout struct {
	// Backend is the new one: one of the route's backendRefs. Required.
	Backend RolloutBackend `yaml:"backend"`
	// Steps are taken in order. Required, 1 to 100, each of a higher weight than
	// the one before it.
	Steps []RolloutStep `yaml:"steps"`
	// Abort bounds the failures of the new backend. Beyond a bound the rollout
	// ends early, and the new backend gets nothing until the rollout is restarted.
	Abort RolloutAbort `yaml:"abort"`
}

// RolloutBackend identifies a backendRef by its service and tags.
type RolloutBackend struct {
	// Name is the service. Required.
	Name string `yaml:"name"`
	// Tags are those of a MeshServiceSubset; left out: a MeshService.
	Tags map[string]string `yaml:"tags"`
}

// RolloutStep is the new backend's share for some time.
type RolloutStep struct {
	// Weight is the percentage of the destination's connections that go to the new
	// backend. Required, 1..100. The other backends share the rest in proportion
	// to their own weights.
	Weight int `yaml:"weight" range:"1..100"`
	// For is the time until the next step, 1s..720h. Required, except in the last
	// step: there it is how long the new backend is watched before the rollout is
	// done; left out: abort's window.
	For *Duration `yaml:"for" range:"1s..720h"`
}

// RolloutAbort bounds the failures of a new backend, summed over all nodes.
// Beyond a bound its rollout is aborted.
type RolloutAbort struct {
	// Failures is the percentage of the connects to the new backend that may fail
	// within the window. Resets before the endpoint's first byte and connections
	// that find no healthy endpoint count as failures. Default 5, 0..100; 100
	// never aborts.
	Failures *int `yaml:"failures" default:"5" range:"0..100"`
	// Ejections is the percentage of the new backend's endpoints that may be
	// ejected at once. It requires ejection on their Service, whose maxShare caps
	// the endpoints that are ejected. Default 30, 0..100; 100 never aborts.
	Ejections *int `yaml:"ejections" default:"30" range:"0..100"`
	// Window is the time over which failures are counted. Default 1m, 1s..1h.
	Window Duration `yaml:"window" default:"1m" range:"1s..1h"`
	// Connections is the number of connects within the window from which on
	// failures are judged. Default 20, 1..1,000,000.
	Connections int `yaml:"connections" default:"20" range:"1..1000000"`
}

// KindRollout is the kind of Rollout.
const KindRollout = "Rollout"

// Rollout is the progress of the rollout of the MeshTCPRoute of the same name.
// Only the leader writes it; as a resource it shows each step in history and
// watches.
type Rollout struct {
	// Of is the route's RolloutID when this was written. If the route's differs,
	// its rollout starts anew.
	Of string `yaml:"of"`
	// Phase is running, paused, done, aborted or rolledBack.
	Phase string `yaml:"phase" oneof:"running paused done aborted rolledBack"`
	// Step is the current step, from 1.
	Step int `yaml:"step"`
	// Weight is the new backend's share, in percent; 0 after an abort or a rollback.
	Weight int `yaml:"weight" range:"0..100"`
	// Since is when this state was entered, by the clock of the leader of that
	// time. It is for display: no step is timed by it.
	Since time.Time `yaml:"since"`
	// Spent is how much of the step's time had passed before Since, for example
	// before a pause.
	Spent Duration `yaml:"spent"`
	// Reason says why this state was entered.
	Reason string `yaml:"reason"`
}

// Values of Rollout.Phase. Running and paused are under way; the others are
// final until the rollout is restarted, by a command or by a changed route.
const (
	RolloutRunning    = "running"
	RolloutPaused     = "paused"
	RolloutDone       = "done"
	RolloutAborted    = "aborted"
	RolloutRolledBack = "rolledBack"
)

// RolloutKind describes Rollout. It is not one of RoutingKinds, since users
// cannot apply it.
func RolloutKind() Kind {
	return Kind{
		Name: KindRollout, Plural: "rollouts", New: func() Spec { return new(Rollout) },
		ReadOnly: "is written only by the cluster's leader: change spec.rollout of the MeshTCPRoute of the same name, or use penstock rollout",
	}
}

// UnderWay reports whether the rollout may still proceed or be resumed.
func (s *Rollout) UnderWay() bool { return s.Phase == RolloutRunning || s.Phase == RolloutPaused }

// Begins reports whether the rollout has just started or restarted.
func (s *Rollout) Begins() bool { return s.Phase == RolloutRunning && s.Step == 1 && s.Spent == 0 }

// Same reports whether both have the same content, times compared as instants.
func (s *Rollout) Same(o *Rollout) bool {
	if s == nil || o == nil {
		return s == o
	}
	a, b := *s, *o
	a.Since, b.Since = time.Time{}, time.Time{}
	return a == b && s.Since.Equal(o.Since)
}

// Refs returns nothing: a route may be deleted at any time, and the leader then
// deletes its Rollout.
func (s *Rollout) Refs() []Ref { return nil }

// WithDefaults returns a copy with all defaults filled in: those of abort, and
// how long the last step is watched.
func (r *RouteRollout) WithDefaults() *RouteRollout {
	out := *r
	FillDefaults(&out)
	if last := len(out.Steps) - 1; last >= 0 && out.Steps[last].For == nil {
		out.Steps = slices.Clone(out.Steps)
		out.Steps[last].For = &out.Abort.Window
	}
	return &out
}

// Matches reports whether a backendRef is the new backend.
func (b *RolloutBackend) Matches(ref *BackendRef) bool {
	return ref.Name == b.Name && maps.Equal(ref.Tags, b.Tags)
}

// String returns the backend as "apps {version=v2}".
func (b *RolloutBackend) String() string { return SubsetText(b.Name, b.Tags) }

// SubsetText formats a name and the tags that select a subset of it, as all
// commands and logs do: "apps {version=v2}", or the name alone without tags.
func SubsetText(name string, tags map[string]string) string {
	if len(tags) == 0 {
		return name
	}
	parts := make([]string, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, k+"="+tags[k])
	}
	return name + " {" + strings.Join(parts, ",") + "}"
}

// RolloutID identifies what a route's rollout moves and how: another
// destination, backend or step makes another rollout. It leaves out abort's
// bounds and the other backends' weights, which may change while the rollout is
// under way. "" without a rollout.
func (r *MeshTCPRoute) RolloutID() string {
	if r.Rollout == nil || len(r.To) != 1 {
		return ""
	}
	type step struct {
		Weight int
		For    *Duration `json:",omitempty"`
	}
	steps := make([]step, len(r.Rollout.Steps))
	for i, s := range r.Rollout.Steps {
		steps[i] = step(s)
	}
	// Plain values in one order: this cannot fail.
	text, _ := json.Marshal([]any{r.To[0].TargetRef.Name, r.Rollout.Backend.Name, r.Rollout.Backend.Tags, steps})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// RolloutRef returns the index of the new backend among the route's backendRefs,
// or -1.
func (r *MeshTCPRoute) RolloutRef() int {
	if r.Rollout == nil || len(r.To) != 1 || len(r.To[0].Rules) != 1 {
		return -1
	}
	refs := r.To[0].Rules[0].Default.BackendRefs
	return slices.IndexFunc(refs, func(b BackendRef) bool { return r.Rollout.Backend.Matches(&b) })
}

// RolloutWeights returns the weights of the route's backendRefs when the new
// backend gets percent of the connections; nil if it is not among them. They add
// up to 100 times the sum of the others' weights in lowest terms.
func (r *MeshTCPRoute) RolloutWeights(percent int) []int {
	at := r.RolloutRef()
	if at < 0 {
		return nil
	}
	refs := r.To[0].Rules[0].Default.BackendRefs
	weights := make([]int, len(refs))
	sum, divisor := 0, 0
	for i := range refs {
		if i != at {
			weights[i] = refs[i].EffectiveWeight()
			sum += weights[i]
			divisor = gcd(weights[i], divisor)
		}
	}
	if sum == 0 { // refused by validation
		weights[at] = percent
		return weights
	}
	for i := range weights {
		weights[i] = weights[i] / divisor * (100 - percent)
	}
	weights[at] = sum / divisor * percent
	return weights
}

// EffectiveWeight returns the weight, or its default.
func (b *BackendRef) EffectiveWeight() int {
	if b.Weight == nil {
		return 1
	}
	return *b.Weight
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// RolloutText describes the route's rollout in words.
func (r *MeshTCPRoute) RolloutText() string {
	if r.Rollout == nil || len(r.To) != 1 {
		return ""
	}
	full := r.Rollout.WithDefaults()
	var steps []string
	for i, s := range full.Steps {
		text := fmt.Sprintf("%d %%", s.Weight)
		switch {
		case i == 0:
			text += fmt.Sprintf(" of new connections to %s go to %s", r.To[0].TargetRef.Name, &full.Backend)
		case i == len(full.Steps)-1:
			text = "finally " + text
		default:
			text = "then " + text
		}
		if i < len(full.Steps)-1 {
			text += " for " + s.For.String()
		} else {
			text += ", watched for " + s.For.String()
		}
		steps = append(steps, text)
	}
	var bounds []string
	if p := *full.Abort.Failures; p < 100 {
		bounds = append(bounds, fmt.Sprintf(
			"more than %d %% of at least %d connects within %s fail", p, full.Abort.Connections, full.Abort.Window,
		))
	}
	if p := *full.Abort.Ejections; p < 100 {
		bounds = append(bounds, fmt.Sprintf("more than %d %% of its endpoints are ejected", p))
	}
	text := strings.Join(steps, ", ")
	if len(bounds) > 0 {
		text += "; back to 0 % if " + strings.Join(bounds, " or ")
	}
	return text
}
