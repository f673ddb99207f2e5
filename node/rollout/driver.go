package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"penstock/consensus"
	"penstock/node/catalog"
	"penstock/routing/resource"
)

// ErrNone means that there is no such rollout.
var ErrNone = errors.New("there is no such rollout")

const (
	// defaultPace is the default interval of Round.
	defaultPace = time.Second
	// askPatience bounds the wait for the nodes' observations. A node that hangs
	// is left out, so that it does not delay the others.
	askPatience = time.Second
	// keepPatience bounds one change.
	keepPatience = 5 * time.Second
	// maxAgain is how often a command is tried while other changes overtake it.
	maxAgain = 4
)

// Store makes atomic read-modify-write changes; catalog.Catalog implements it.
type Store interface {
	Keep(ctx context.Context, k catalog.Keeping) (index uint64, err error)
}

// Config configures a Driver.
type Config struct {
	// Tracker is this node's. On the leader it has everything in the store.
	Tracker *Tracker
	// Store receives the new states of rollouts.
	Store Store
	// Leads reports whether this node leads and has applied everything committed
	// before.
	Leads func() bool
	// Ask collects the observations of the routes' rollouts from all nodes,
	// including this one. It returns a report for each, before ctx ends.
	Ask func(ctx context.Context, routes []string) []Report
	// Name is this node's name, for the history.
	Name string
	// Pace is the interval of Round. Default 1s.
	Pace time.Duration
	Log  *slog.Logger // nil: none
}

// Report has one node's observations by route, or the reason for their absence.
type Report struct {
	ID      string // unique node ID
	Node    string // node name, for people
	Answers map[string]Answer
	Err     error
}

// Observation is the combined state of a rollout at one moment.
type Observation struct {
	Item
	Seen   Seen
	Nodes  int      // that responded
	Silent []string // nodes that did not, with the reason
}

// Driver advances rollouts on the leader. On other nodes it does nothing. Its
// methods are safe for concurrent use.
type Driver struct {
	cfg Config

	mu      sync.Mutex
	windows map[string]*window // by route
	told    map[string]string  // last logged error of a route's rollout
	moves   map[string]uint64  // changes made, by resulting phase
}

// New returns a driver.
func New(cfg Config) *Driver {
	if cfg.Pace <= 0 {
		cfg.Pace = defaultPace
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{cfg: cfg, windows: map[string]*window{}, told: map[string]string{}, moves: map[string]uint64{}}
}

// Run calls Round every Config.Pace until ctx ends.
func (d *Driver) Run(ctx context.Context) {
	ticker := time.NewTicker(d.cfg.Pace)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			d.Round(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Round examines all rollouts once and makes the changes that are due.
func (d *Driver) Round(ctx context.Context) {
	if !d.cfg.Leads() {
		d.dropWindows(nil)
		return
	}
	var watched []string
	for _, item := range d.cfg.Tracker.All(time.Now()) {
		if item.UnderWay() {
			watched = append(watched, item.Name)
		}
	}
	d.dropWindows(watched)
	if len(watched) == 0 {
		return
	}
	for _, look := range d.observe(ctx, watched, true) {
		if !look.Begun() || Next(look.Route, look.State, &look.Seen) != nil {
			d.move(ctx, look)
		}
	}
}

// dropWindows deletes the windows of all routes but the kept ones.
func (d *Driver) dropWindows(kept []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.windows {
		if !slices.Contains(kept, name) {
			delete(d.windows, name)
		}
	}
}

// move commits the next state of a rollout, unless its state has changed since
// it was observed.
func (d *Driver) move(ctx context.Context, look *Observation) {
	ctx, cancel := context.WithTimeout(ctx, keepPatience)
	defer cancel()
	_, err := d.keep(ctx, look.Name, consensus.ID{}, d.cfg.Name, func(r *resource.MeshTCPRoute, s *State) (*State, error) {
		if !s.Same(look.State) {
			return nil, nil
		}
		return Next(r, s, &look.Seen), nil
	})
	d.logOnce(look.Name, err)
}

// logOnce logs the error of a route's rollout when it changes.
func (d *Driver) logOnce(route string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, consensus.ErrNotLeader), errors.Is(err, context.Canceled):
		delete(d.told, route)
	case d.told[route] != err.Error():
		d.told[route] = err.Error()
		d.cfg.Log.Warn("a rollout cannot go on, and is tried again", "route", route, "error", err)
	}
}

// keep stores the state that next returns for a route's rollout.
func (d *Driver) keep(
	ctx context.Context, route string, id consensus.ID, who string,
	next func(*resource.MeshTCPRoute, *State) (*State, error),
) (uint64, error) {
	key := resource.Key{Kind: resource.KindRollout, Name: route}
	var r *resource.MeshTCPRoute
	var was, is *State
	index, err := d.cfg.Store.Keep(ctx, catalog.Keeping{
		ID: id, Note: consensus.Note{Who: who},
		Make: func(get func(resource.Key) (resource.Object, bool)) (changes []resource.Change, what string, err error) {
			r, was, is = nil, nil, nil
			if o, ok := get(resource.Key{Kind: kindRoute, Name: route}); ok {
				r, _ = o.Spec.(*resource.MeshTCPRoute)
			}
			if o, ok := get(key); ok {
				was, _ = o.Spec.(*State)
			}
			if r == nil || r.Rollout == nil {
				if was == nil {
					return nil, "", fmt.Errorf("%w: route %s", ErrNone, route)
				}
				return []resource.Change{resource.Delete(key)}, "the route has no rollout any more", nil
			}
			if is, err = next(r, was); err != nil || is == nil {
				return nil, "", err
			}
			is.Since = is.Since.UTC().Round(0) // the value that decoding returns
			return []resource.Change{resource.Put(resource.Object{Key: key, Spec: is})}, Text(r, is), nil
		},
	})
	if err == nil && is != nil {
		d.moved(route, r, was, is)
	}
	return index, err
}

// moved records and logs a change.
func (d *Driver) moved(route string, r *resource.MeshTCPRoute, was, is *State) {
	d.mu.Lock()
	d.moves[is.Phase]++
	if was == nil { // all that nodes count from now on belongs to this rollout
		d.windows[route] = &window{of: is.Of, begin: Mark(is), begun: time.Now()}
	}
	d.mu.Unlock()
	level := slog.LevelInfo
	if is.Phase == resource.RolloutAborted {
		level = slog.LevelWarn
	}
	d.cfg.Log.Log(context.Background(), level, "rollout "+PhaseText(is.Phase),
		"route", route, "step", is.Step, "steps", len(r.Rollout.Steps), "weight", is.Weight, "why", is.Reason)
}

// Moves counts the changes that this node has made since it started, by the
// phase that they led to.
func (d *Driver) Moves() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	moves := map[string]uint64{}
	for _, phase := range Phases {
		moves[phase] = d.moves[phase]
	}
	return moves
}

// Phases lists the phases of rollouts.
var Phases = []string{
	resource.RolloutRunning,
	resource.RolloutPaused,
	resource.RolloutDone,
	resource.RolloutAborted,
	resource.RolloutRolledBack,
}

// Observe collects the observations of all nodes for some routes, and returns
// those of the routes in the Tracker. Its counts are those of the last Round.
func (d *Driver) Observe(ctx context.Context, routes []string) []*Observation {
	return d.observe(ctx, routes, false)
}

// observe is Observe; with note it also records the nodes' counts. Only Round
// does, and rounds do not overlap: of two concurrent callers one could record
// answers older than those that the other has recorded.
func (d *Driver) observe(ctx context.Context, routes []string, note bool) []*Observation {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	reports := d.cfg.Ask(ctx, routes)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	var looks []*Observation
	for _, name := range routes {
		item, ok := d.cfg.Tracker.Get(name, now)
		if !ok {
			continue
		}
		look := &Observation{Item: item, Seen: Seen{Now: now, Watched: item.Watched}}
		d.gather(look, reports)
		if note {
			d.note(look, reports)
		}
		if w := d.windows[name]; w.isOf(look) {
			look.Seen.Counts = w.sum
		}
		looks = append(looks, look)
	}
	return looks
}

// gather adds up the nodes' answers. The caller holds d.mu.
func (d *Driver) gather(look *Observation, reports []Report) {
	mark := Mark(look.State)
	for _, report := range reports {
		a, ok := report.Answers[look.Name]
		switch {
		case report.Err != nil:
			look.Silent = append(look.Silent, fmt.Sprintf("%s: %v", report.Node, report.Err))
			continue
		case !ok:
			look.Silent = append(look.Silent, report.Node+": does not have it yet")
			continue
		}
		look.Nodes++
		if a.Mark == mark {
			look.Seen.Watched = max(look.Seen.Watched, a.Watched)
		}
		look.Seen.Endpoints += a.Endpoints
		look.Seen.Ejected += a.Ejected
	}
}

// note adds the nodes' counts to the rollout's window. The caller holds d.mu.
// If the rollout has restarted since the window began, the counts are skipped,
// since they may precede the restart.
func (d *Driver) note(look *Observation, reports []Report) {
	if look.Route == nil {
		return
	}
	w := d.windows[look.Name]
	if !w.isOf(look) {
		before := w
		w = &window{of: look.Route.RolloutOf(), begin: look.begin()}
		if d.windows[look.Name] = w; before != nil {
			return
		}
	}
	length := look.Route.Rollout.WithDefaults().Abort.Window.D()
	for _, report := range reports {
		if a, ok := report.Answers[look.Name]; ok && report.Err == nil {
			w.add(report.ID, look.Seen.Now, a, length)
		}
	}
	w.sum = w.since(look.Seen.Now, length)
}

// Do performs a command on a route's rollout for the user by, and returns the
// index at which the change is in force. Errors wrap ErrNone and ErrRefused, or
// are those of catalog.Apply.
func (d *Driver) Do(ctx context.Context, command, route, by string, id consensus.ID) (index uint64, err error) {
	for range maxAgain {
		item, ok := d.cfg.Tracker.Get(route, time.Now())
		if !ok || item.Route == nil {
			return 0, fmt.Errorf("%w: route %s", ErrNone, route)
		}
		look := &Observation{Item: item, Seen: Seen{Now: time.Now(), Watched: item.Watched}}
		if command == Pause { // other nodes' observations count towards the step's time
			if all := d.Observe(ctx, []string{route}); len(all) == 1 {
				look = all[0]
			}
		}
		stale := false
		index, err = d.keep(ctx, route, id, by, func(r *resource.MeshTCPRoute, s *State) (*State, error) {
			if stale = !s.Same(look.State); stale {
				return nil, nil
			}
			return Do(command, r, s, &look.Seen, by)
		})
		if err != nil || !stale {
			return index, err
		}
	}
	return 0, fmt.Errorf("%w: it has changed %d times meanwhile: try again", ErrRefused, maxAgain)
}
