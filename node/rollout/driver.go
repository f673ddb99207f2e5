package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"penstock/consensus/store"
	"penstock/node/catalog"
	"penstock/routing/resource"
)

// ErrNotFound means that there is no such rollout.
var ErrNotFound = errors.New("there is no such rollout")

const (
	// defaultInterval is the default interval of Round.
	defaultInterval = time.Second
	// observeTimeout bounds the wait for the nodes' observations. A node that
	// hangs is left out, so that it does not delay the others.
	observeTimeout = time.Second
	// commitTimeout bounds one change.
	commitTimeout = 5 * time.Second
	// maxAttempts is how often a command is tried while other changes overtake it.
	maxAttempts = 4
)

// Store makes atomic read-modify-write changes; catalog.Catalog implements it.
type Store interface {
	Transact(ctx context.Context, k catalog.Transaction) (index uint64, err error)
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
	ByRoute map[string]NodeObservation
	Err     error
}

// Observation is the combined state of a rollout at one moment.
type Observation struct {
	Record
	Measured Measurements
	Nodes    int      // that responded
	Silent   []string // nodes that did not, with the reason
}

// Driver advances rollouts on the leader. On other nodes it does nothing. Its
// methods are safe for concurrent use.
type Driver struct {
	cfg Config

	mu         sync.Mutex
	windows    map[string]*window // by route
	lastErrors map[string]string  // last logged error of a route's rollout
	changes    map[string]uint64  // changes made, by resulting phase
}

// New returns a driver.
func New(cfg Config) *Driver {
	if cfg.Pace <= 0 {
		cfg.Pace = defaultInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Driver{cfg: cfg, windows: map[string]*window{}, lastErrors: map[string]string{}, changes: map[string]uint64{}}
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
	for _, obs := range d.observe(ctx, watched, true) {
		if !obs.Started() || Next(obs.Route, obs.State, &obs.Measured) != nil {
			d.advance(ctx, obs)
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

// advance commits the next state of a rollout, unless its state has changed
// since it was observed.
func (d *Driver) advance(ctx context.Context, obs *Observation) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	_, err := d.commit(ctx, obs.Name, store.ID{}, d.cfg.Name, func(r *resource.MeshTCPRoute, s *State) (*State, error) {
		if !s.Same(obs.State) {
			return nil, nil
		}
		return Next(r, s, &obs.Measured), nil
	})
	d.logOnce(obs.Name, err)
}

// logOnce logs the error of a route's rollout when it changes.
func (d *Driver) logOnce(route string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil, errors.Is(err, store.ErrNotLeader), errors.Is(err, context.Canceled):
		delete(d.lastErrors, route)
	case d.lastErrors[route] != err.Error():
		d.lastErrors[route] = err.Error()
		d.cfg.Log.Warn("cannot advance a rollout, will retry", "route", route, "error", err)
	}
}

// commit stores the state that next returns for a route's rollout.
func (d *Driver) commit(
	ctx context.Context, route string, id store.ID, who string,
	next func(*resource.MeshTCPRoute, *State) (*State, error),
) (uint64, error) {
	key := resource.Key{Kind: resource.KindRollout, Name: route}
	var r *resource.MeshTCPRoute
	var was, is *State
	index, err := d.cfg.Store.Transact(ctx, catalog.Transaction{
		ID: id, Note: store.Note{Who: who},
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
					return nil, "", fmt.Errorf("%w: route %s", ErrNotFound, route)
				}
				return []resource.Change{resource.Delete(key)}, "the route no longer has a rollout", nil
			}
			if is, err = next(r, was); err != nil || is == nil {
				return nil, "", err
			}
			is.Since = is.Since.UTC().Round(0) // the value that decoding returns
			return []resource.Change{resource.Put(resource.Object{Key: key, Spec: is})}, Text(r, is), nil
		},
	})
	if err == nil && is != nil {
		d.recordChange(route, r, was, is)
	}
	return index, err
}

// recordChange records and logs a change.
func (d *Driver) recordChange(route string, r *resource.MeshTCPRoute, was, is *State) {
	d.mu.Lock()
	d.changes[is.Phase]++
	if was == nil { // all that nodes count from now on belongs to this rollout
		d.windows[route] = &window{rolloutID: is.Of, firstState: StateDigest(is), storedAt: time.Now()}
	}
	d.mu.Unlock()
	level := slog.LevelInfo
	if is.Phase == resource.RolloutAborted {
		level = slog.LevelWarn
	}
	d.cfg.Log.Log(context.Background(), level, "rollout "+PhaseText(is.Phase),
		"route", route, "step", is.Step, "steps", len(r.Rollout.Steps), "weight", is.Weight, "why", is.Reason)
}

// Changes counts the changes that this node has made since it started, by the
// phase that they led to.
func (d *Driver) Changes() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	changes := map[string]uint64{}
	for _, phase := range Phases {
		changes[phase] = d.changes[phase]
	}
	return changes
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

// observe is Observe; with record it also records the nodes' counts. Only Round
// does, and rounds do not overlap: of two concurrent callers one could record
// answers older than those that the other has recorded.
func (d *Driver) observe(ctx context.Context, routes []string, record bool) []*Observation {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	reports := d.cfg.Ask(ctx, routes)
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	var observations []*Observation
	for _, name := range routes {
		item, ok := d.cfg.Tracker.Get(name, now)
		if !ok {
			continue
		}
		obs := &Observation{Record: item, Measured: Measurements{Now: now, Watched: item.Watched}}
		d.aggregate(obs, reports)
		if record {
			d.recordCounts(obs, reports)
		}
		if w := d.windows[name]; w.belongsTo(obs) {
			obs.Measured.Counts = w.sum
		}
		observations = append(observations, obs)
	}
	return observations
}

// aggregate adds up the nodes' answers. The caller holds d.mu.
func (d *Driver) aggregate(obs *Observation, reports []Report) {
	digest := StateDigest(obs.State)
	for _, report := range reports {
		a, ok := report.ByRoute[obs.Name]
		switch {
		case report.Err != nil:
			obs.Silent = append(obs.Silent, fmt.Sprintf("%s: %v", report.Node, report.Err))
			continue
		case !ok:
			obs.Silent = append(obs.Silent, report.Node+": has not applied the rollout yet")
			continue
		}
		obs.Nodes++
		if a.StateDigest == digest {
			obs.Measured.Watched = max(obs.Measured.Watched, a.Watched)
		}
		obs.Measured.Endpoints += a.Endpoints
		obs.Measured.Ejected += a.Ejected
	}
}

// recordCounts adds the nodes' counts to the rollout's window. The caller holds
// d.mu. If the rollout has restarted since the window began, the counts are
// skipped, since they may precede the restart.
func (d *Driver) recordCounts(obs *Observation, reports []Report) {
	if obs.Route == nil {
		return
	}
	w := d.windows[obs.Name]
	if !w.belongsTo(obs) {
		before := w
		w = &window{rolloutID: obs.Route.RolloutID(), firstState: obs.firstState()}
		if d.windows[obs.Name] = w; before != nil {
			return
		}
	}
	length := obs.Route.Rollout.WithDefaults().Abort.Window.D()
	for _, report := range reports {
		if a, ok := report.ByRoute[obs.Name]; ok && report.Err == nil {
			w.add(report.ID, obs.Measured.Now, a, length)
		}
	}
	w.sum = w.total(obs.Measured.Now, length)
}

// Execute performs a command on a route's rollout for the user by, and returns
// the index at which the change is in force. Errors wrap ErrNotFound and
// ErrRefused, or are those of catalog.Apply.
func (d *Driver) Execute(ctx context.Context, command, route, by string, id store.ID) (index uint64, err error) {
	for range maxAttempts {
		item, ok := d.cfg.Tracker.Get(route, time.Now())
		if !ok || item.Route == nil {
			return 0, fmt.Errorf("%w: route %s", ErrNotFound, route)
		}
		obs := &Observation{Record: item, Measured: Measurements{Now: time.Now(), Watched: item.Watched}}
		if command == Pause { // other nodes' observations count towards the step's time
			if all := d.Observe(ctx, []string{route}); len(all) == 1 {
				obs = all[0]
			}
		}
		stale := false
		index, err = d.commit(ctx, route, id, by, func(r *resource.MeshTCPRoute, s *State) (*State, error) {
			if stale = !s.Same(obs.State); stale {
				return nil, nil
			}
			return ApplyCommand(command, r, s, &obs.Measured, by)
		})
		if err != nil || !stale {
			return index, err
		}
	}
	return 0, fmt.Errorf("%w: it changed %d times meanwhile: try again", ErrRefused, maxAttempts)
}
