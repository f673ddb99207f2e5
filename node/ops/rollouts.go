package ops

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/node/cluster"
	"penstock/node/rollout"
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

func (l *rollouts) register(s *admin.Server) {
	led := atLeader(l.peers, l.listRollouts)
	admin.Handle(s, admin.MethodRollouts, admin.RoleReader, func(ctx context.Context, r *admin.RolloutsRequest) (*admin.Rollouts, error) {
		if r.Stale {
			return l.localRollouts(r)
		}
		list, err := led(ctx, r)
		var refused *admin.Error
		if errors.As(err, &refused) && refused.Code == admin.NoLeader {
			return nil, admin.Errorf(admin.NoLeader, "%s; --stale shows what this node has", refused.Message)
		}
		return list, err
	})
	admin.Handle(s, admin.MethodRollout, admin.RoleOperator, atLeader(l.peers, l.command), admin.Changing())
	admin.Handle(s, admin.MethodRolloutSeen, admin.RoleNode, func(_ context.Context, r *admin.RolloutSeenRequest) (*admin.RolloutSeen, error) {
		return l.localObservations(r)
	})
}

// localObservations returns this node's observations of the rollouts of some routes.
func (l *rollouts) localObservations(r *admin.RolloutSeenRequest) (*admin.RolloutSeen, error) {
	if len(r.Routes) > admin.MaxRollouts {
		return nil, admin.Errorf(admin.TooLarge, "%d routes in one request, the limit is %d", len(r.Routes), admin.MaxRollouts)
	}
	now, table := time.Now(), l.router.Table()
	seen := &admin.RolloutSeen{Rollouts: map[string]admin.RolloutSight{}}
	for _, name := range r.Routes {
		item, ok := l.tracker.Get(name, now)
		if !ok {
			continue
		}
		sight := admin.RolloutSight{Mark: rollout.StateDigest(item.State), Watched: item.Watched}
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
	own, err := queryInChunks(routes, admin.MaxRollouts, l.localObservations)
	reports := []rollout.Report{report(l.peers.self.ID, l.peers.self.Name, own, err)}
	if l.peers.cluster == nil {
		return reports
	}
	return append(reports, queryMembers(l.peers.cluster.Members(), func(m *cluster.Member) (*admin.RolloutSeen, error) {
		c, err := l.peers.cluster.Client(ctx, m.ID)
		if err != nil {
			return nil, err
		}
		return queryInChunks(routes, admin.MaxRollouts, func(r *admin.RolloutSeenRequest) (*admin.RolloutSeen, error) {
			return admin.Call[admin.RolloutSeen](ctx, c, admin.MethodRolloutSeen, r)
		})
	})...)
}

// queryInChunks calls ask for at most most routes at a time and merges the answers.
// It fails if one call fails: with a partial answer the node would seem not to
// have the other routes.
func queryInChunks(routes []string, most int, ask func(*admin.RolloutSeenRequest) (*admin.RolloutSeen, error)) (*admin.RolloutSeen, error) {
	all := &admin.RolloutSeen{Rollouts: make(map[string]admin.RolloutSight, len(routes))}
	for some := range slices.Chunk(routes, most) {
		seen, err := ask(&admin.RolloutSeenRequest{Routes: some})
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
func queryMembers(members []cluster.Member, ask func(*cluster.Member) (*admin.RolloutSeen, error)) []rollout.Report {
	members = slices.DeleteFunc(members, func(m cluster.Member) bool { return m.Self })
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
func report(id, node string, seen *admin.RolloutSeen, err error) rollout.Report {
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
func (l *rollouts) listRollouts(ctx context.Context, r *admin.RolloutsRequest) (*admin.Rollouts, error) {
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
	list := admin.Rollouts{}
	for _, observed := range l.driver.Observe(ctx, names) {
		if observed.Route != nil {
			list = append(list, describeRollout(&observed.Record, &observed.Measured, observed))
		}
	}
	return &list, nil
}

// localRollouts returns the progress of rollouts from this node's observations
// only.
func (l *rollouts) localRollouts(r *admin.RolloutsRequest) (*admin.Rollouts, error) {
	items, err := l.rolloutItems(r.Route)
	if err != nil {
		return nil, err
	}
	list := admin.Rollouts{}
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
			return nil, admin.Errorf(admin.NotFound, "MeshTCPRoute %q has no rollout", route)
		}
	}
	return nil, admin.Errorf(admin.NotFound, "there is no MeshTCPRoute %q", route)
}

// describeRollout describes one rollout; observed is nil if no other node was asked.
func describeRollout(item *rollout.Record, seen *rollout.Measurements, observed *rollout.Observation) admin.Rollout {
	spec := item.Route.Rollout.WithDefaults()
	s := item.Effective()
	if !item.Started() {
		seen.Watched = 0
	}
	out := admin.Rollout{
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
func (l *rollouts) command(ctx context.Context, r *admin.RolloutRequest) (*admin.RolloutResult, error) {
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(rollout.Commands, r.Do) {
		return nil, admin.Errorf(admin.Invalid, "unknown rollout command %q: want one of %s", r.Do, strings.Join(rollout.Commands, ", "))
	}
	if err := l.peers.ReadBarrier(ctx); err != nil {
		return nil, err
	}
	if _, err := l.rolloutItems(r.Route); err != nil {
		return nil, err
	}
	result := new(admin.RolloutResult)
	result.Index, err = l.driver.Execute(ctx, r.Do, r.Route, admin.Caller(ctx).Name, id)
	switch {
	case errors.Is(err, rollout.ErrNotFound):
		return nil, admin.Errorf(admin.NotFound, "%v", err)
	case errors.Is(err, rollout.ErrRefused):
		return nil, admin.Errorf(admin.Refused, "rollout of %s: %v", r.Route, err)
	case err != nil:
		return nil, err
	}
	list, err := l.localRollouts(&admin.RolloutsRequest{Route: r.Route})
	if err != nil {
		return nil, err // it was removed meanwhile
	}
	result.Rollout = (*list)[0]
	result.Reached, _ = l.changes.awaitIndex(ctx, result.Index, r.Wait, nil)
	return result, nil
}

// unfinished returns the rollouts that are not done, for status.
func (l *rollouts) unfinished() []admin.Rollout {
	var out []admin.Rollout
	list, err := l.localRollouts(&admin.RolloutsRequest{})
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
