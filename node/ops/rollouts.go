package ops

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/cluster/directory"
	"penstock/node/rollout"
	"penstock/node/rpc"
	"penstock/routing"
	"penstock/routing/resource"
)

// rollouts has the methods about rollouts.
type rollouts struct {
	peers   *Peers
	router  *routing.Router
	catalog *catalog.Catalog
	tracker *rollout.Tracker
	driver  *rollout.Driver
	changes *changes
}

// newRollouts makes the methods, and the driver of rollouts.
func newRollouts(cfg *Config, peers *Peers, changes *changes) *rollouts {
	l := &rollouts{peers: peers, router: cfg.Data.Router, catalog: cfg.Catalog, tracker: cfg.Tracker, changes: changes}
	l.driver = rollout.New(rollout.Config{
		Tracker: cfg.Tracker, Store: cfg.Catalog, Leads: peers.leads, Ask: l.collectObservations, Name: cfg.Self.Name, Log: cfg.Log,
	})
	return l
}

func (l *rollouts) register(s *rpc.Server) {
	led := atLeader(l.peers, l.listRollouts)
	rpc.Handle(s, api.MethodRollouts, api.RoleReader, func(ctx context.Context, r *api.RolloutsRequest) (*api.Rollouts, error) {
		if r.Stale {
			return l.localRollouts(r)
		}
		list, err := led(ctx, r)
		var refused *api.Error
		if errors.As(err, &refused) && refused.Code == api.NoLeader {
			return nil, api.Errorf(api.NoLeader, "%s; --stale shows what this node has", refused.Message)
		}
		return list, err
	})
	rpc.Handle(s, api.MethodRollout, api.RoleOperator, atLeader(l.peers, l.command), rpc.Changing())
	rpc.Handle(s, api.MethodRolloutSeen, api.RoleNode, func(_ context.Context, r *api.RolloutSeenRequest) (*api.RolloutSeen, error) {
		return l.localObservations(r)
	})
}

// localObservations returns this node's observations of the rollouts of some routes.
func (l *rollouts) localObservations(r *api.RolloutSeenRequest) (*api.RolloutSeen, error) {
	if len(r.Routes) > api.MaxRollouts {
		return nil, api.Errorf(api.TooLarge, "%d routes in one request, the limit is %d", len(r.Routes), api.MaxRollouts)
	}
	now, table := time.Now(), l.router.Table()
	seen := &api.RolloutSeen{Rollouts: map[string]api.RolloutSight{}}
	for _, name := range r.Routes {
		item, ok := l.tracker.Get(name, now)
		if !ok {
			continue
		}
		sight := api.RolloutSight{Mark: rollout.StateDigest(item.State), Watched: item.Watched}
		if c, ok := table.RolloutCounts(name, now); ok {
			sight.Connects, sight.Failed, sight.Resets = c.Connects, c.Failed, c.Resets
			sight.Endpoints, sight.Ejected, sight.Counting = c.Endpoints, c.Ejected, c.Counting
		}
		seen.Rollouts[name] = sight
	}
	return seen, nil
}

// collectObservations collects the observations of all members about the rollouts of some
// routes.
func (l *rollouts) collectObservations(ctx context.Context, routes []string) []rollout.Report {
	own, err := queryInChunks(routes, api.MaxRollouts, l.localObservations)
	reports := []rollout.Report{report(l.peers.self.ID, l.peers.self.Name, own, err)}
	if l.peers.cluster == nil {
		return reports
	}
	return append(reports, queryMembers(l.peers.cluster.Directory.Members(), func(m *directory.Member) (*api.RolloutSeen, error) {
		c, err := l.peers.cluster.Directory.Client(ctx, m.ID)
		if err != nil {
			return nil, err
		}
		return queryInChunks(routes, api.MaxRollouts, func(r *api.RolloutSeenRequest) (*api.RolloutSeen, error) {
			return rpc.Call[api.RolloutSeen](ctx, c, api.MethodRolloutSeen, r)
		})
	})...)
}

// queryInChunks merges the answers of ask, which it calls with at most so many
// routes at a time. It fails if one call fails: with a partial answer the node
// would seem not to have the other routes.
func queryInChunks(routes []string, most int, ask func(*api.RolloutSeenRequest) (*api.RolloutSeen, error)) (*api.RolloutSeen, error) {
	all := &api.RolloutSeen{Rollouts: make(map[string]api.RolloutSight, len(routes))}
	for some := range slices.Chunk(routes, most) {
		seen, err := ask(&api.RolloutSeenRequest{Routes: some})
		if err != nil {
			return nil, err
		}
		maps.Copy(all.Rollouts, seen.Rollouts)
	}
	return all, nil
}

// queryMembers calls ask for all other members concurrently. That includes members
// that gossip does not reach: their observations count, and a network may pass one
// port and block the other. The duration depends on ask, and on the pause between
// two dials of a node that is gone.
func queryMembers(members []directory.Member, ask func(*directory.Member) (*api.RolloutSeen, error)) []rollout.Report {
	members = slices.DeleteFunc(members, func(m directory.Member) bool { return m.Self })
	reports := make([]rollout.Report, len(members))
	var asked sync.WaitGroup
	for i := range members {
		asked.Go(func() {
			m := &members[i]
			seen, err := ask(m)
			switch {
			case err != nil && !m.Up():
				err = errors.New("is unreachable")
			case errors.Is(err, context.DeadlineExceeded):
				err = errors.New("does not respond")
			}
			reports[i] = report(m.ID, m.Name, seen, err)
		})
	}
	asked.Wait()
	return reports
}

// report converts a node's answer, or its error.
func report(id, node string, seen *api.RolloutSeen, err error) rollout.Report {
	one := rollout.Report{ID: id, Node: node, Err: err}
	if err != nil {
		return one
	}
	one.ByRoute = map[string]rollout.NodeObservation{}
	for name, s := range seen.Rollouts {
		one.ByRoute[name] = rollout.NodeObservation{
			StateDigest: s.Mark, Watched: s.Watched, Counting: s.Counting, Endpoints: s.Endpoints, Ejected: s.Ejected,
			Counts: rollout.Counts{Connects: s.Connects, Failed: s.Failed, Resets: s.Resets},
		}
	}
	return one
}

// listRollouts returns the progress of rollouts from the observations of all
// nodes.
func (l *rollouts) listRollouts(ctx context.Context, r *api.RolloutsRequest) (*api.Rollouts, error) {
	if err := l.peers.ReadBarrier(ctx); err != nil {
		return nil, err
	}
	items, err := l.rolloutItems(r.Route)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(items))
	for i := range items {
		names[i] = items[i].Name
	}
	list := api.Rollouts{}
	for _, observed := range l.driver.Observe(ctx, names) {
		if observed.Route != nil {
			list = append(list, describeRollout(&observed.Record, &observed.Measured, observed))
		}
	}
	return &list, nil
}

// localRollouts returns the progress of rollouts from this node's observations
// only.
func (l *rollouts) localRollouts(r *api.RolloutsRequest) (*api.Rollouts, error) {
	items, err := l.rolloutItems(r.Route)
	if err != nil {
		return nil, err
	}
	list := api.Rollouts{}
	for i := range items {
		list = append(list, describeRollout(&items[i], &rollout.Measurements{Watched: items[i].Watched}, nil))
	}
	return &list, nil
}

// rolloutItems returns the routes with a rollout: all, or the one named.
func (l *rollouts) rolloutItems(route string) ([]rollout.Record, error) {
	items := slices.DeleteFunc(l.tracker.All(time.Now()), func(i rollout.Record) bool {
		return i.Route == nil || route != "" && i.Name != route
	})
	if route == "" || len(items) > 0 {
		return items, nil
	}
	if set, _ := l.catalog.InForce(); set != nil {
		if _, ok := set.Get(resource.Key{Kind: "MeshTCPRoute", Name: route}); ok {
			return nil, api.Errorf(api.NotFound, "MeshTCPRoute %q has no rollout", route)
		}
	}
	return nil, api.Errorf(api.NotFound, "there is no MeshTCPRoute %q", route)
}

// describeRollout describes one rollout; observed is nil if no other node was asked.
func describeRollout(item *rollout.Record, seen *rollout.Measurements, observed *rollout.Observation) api.Rollout {
	spec := item.Route.Rollout.WithDefaults()
	s := item.Effective()
	if !item.Started() {
		seen.Watched = 0
	}
	out := api.Rollout{
		Route: item.Name, Destination: item.Route.To[0].TargetRef.Name, Backend: spec.Backend.String(),
		Phase: s.Phase, Step: s.Step, Steps: len(spec.Steps), Weight: s.Weight, Since: s.Since, Reason: s.Reason,
		Window: spec.Abort.Window.D(),
	}
	if s.UnderWay() {
		out.Left = rollout.TimeLeft(spec, s, seen)
	}
	if observed == nil {
		return out
	}
	out.Connects, out.Failed, out.Resets = seen.Connects, seen.Failed, seen.Resets
	out.Endpoints, out.Ejected = seen.Endpoints, seen.Ejected
	out.Nodes, out.Silent = observed.Nodes, observed.Silent
	slices.Sort(out.Silent)
	if s.Phase == resource.RolloutRunning && out.Left == 0 {
		out.Held = rollout.WaitReason(seen)
	}
	return out
}

// command pauses, resumes, rolls back or restarts a rollout.
func (l *rollouts) command(ctx context.Context, r *api.RolloutRequest) (*api.RolloutResult, error) {
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(rollout.Commands, r.Do) {
		return nil, api.Errorf(api.Invalid, "unknown rollout command %q: want one of %s", r.Do, strings.Join(rollout.Commands, ", "))
	}
	if err := l.peers.ReadBarrier(ctx); err != nil {
		return nil, err
	}
	if _, err := l.rolloutItems(r.Route); err != nil {
		return nil, err
	}
	result := new(api.RolloutResult)
	result.Index, err = l.driver.Execute(ctx, r.Do, r.Route, rpc.Caller(ctx).Name, id)
	switch {
	case errors.Is(err, rollout.ErrNotFound):
		return nil, api.Errorf(api.NotFound, "%v", err)
	case errors.Is(err, rollout.ErrRefused):
		return nil, api.Errorf(api.Refused, "rollout of %s: %v", r.Route, err)
	case err != nil:
		return nil, err
	}
	list, err := l.localRollouts(&api.RolloutsRequest{Route: r.Route})
	if err != nil {
		return nil, err // it was removed meanwhile
	}
	result.Rollout = (*list)[0]
	result.Reached, _ = l.changes.awaitIndex(ctx, result.Index, r.Wait, nil)
	return result, nil
}

// unfinished returns the rollouts that are not done, for status.
func (l *rollouts) unfinished() []api.Rollout {
	var out []api.Rollout
	list, err := l.localRollouts(&api.RolloutsRequest{})
	if err != nil {
		return nil
	}
	for _, r := range *list {
		if r.Phase != resource.RolloutDone {
			out = append(out, r)
		}
	}
	return out
}
