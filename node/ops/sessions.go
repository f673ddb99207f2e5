package ops

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/dataplane"
	"penstock/node/rpc"
)

// sessions has the methods for sessions of MySQL clients.
type sessions struct {
	peers *Peers
	data  *dataplane.Dataplane
}

func (q *sessions) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodSessions, api.RoleReader, q.list)
	rpc.Handle(s, api.MethodSessionsMove, api.RoleOperator, q.move, rpc.Audited())
	rpc.Handle(s, api.MethodSessionsHere, api.RoleNode, q.here)
	rpc.Handle(s, api.MethodSessionsOrder, api.RoleNode, q.order)
	rpc.Handle(s, api.MethodSessionsOutcome, api.RoleNode, q.outcome)
}

// list lists the sessions of all nodes, or of one.
func (q *sessions) list(ctx context.Context, r *api.SessionsRequest) (*api.Sessions, error) {
	if r.Limit < 1 || r.Limit > api.MaxSessions {
		return nil, api.Errorf(api.Invalid, "invalid limit %d: want 1 to %d", r.Limit, api.MaxSessions)
	}
	members, err := q.peers.named(r.Node)
	if err != nil {
		return nil, err
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	answers, missing := askNodes(ctx, q.peers, members, reportTimeout, func(ctx context.Context, m directory.Member) (*api.Sessions, error) {
		return onNode(ctx, q.peers, m, api.MethodSessionsHere, r, q.here)
	})
	all := &api.Sessions{Sessions: []api.Session{}, Missing: missing}
	for _, one := range answers {
		if one == nil {
			continue
		}
		all.Total += one.Total
		all.Sessions = append(all.Sessions, one.Sessions...)
	}
	slices.SortStableFunc(all.Sessions, func(a, b api.Session) int {
		switch {
		case (a.Since == nil) != (b.Since == nil):
			return cmp.Compare(b.Cause, a.Cause)
		case a.Since != nil && !a.Since.Equal(*b.Since):
			return a.Since.Compare(*b.Since)
		}
		return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	all.Sessions = all.Sessions[:min(len(all.Sessions), r.Limit)]
	return all, nil
}

// here lists the sessions of this node.
func (q *sessions) here(ctx context.Context, r *api.SessionsRequest) (*api.Sessions, error) {
	found, total, err := q.data.ListSessions(ctx, filterOf(&r.SessionFilter), r.Stuck, min(max(r.Limit, 0), api.MaxSessions))
	if err != nil {
		return nil, err
	}
	list := &api.Sessions{Total: total, Sessions: make([]api.Session, 0, len(found))}
	for i := range found {
		s := &found[i]
		one := api.Session{
			Node: q.peers.self.Name, ID: s.ID, User: s.User, Listener: s.Listener, Service: s.Service, Endpoint: s.Endpoint,
			Age: s.Age, State: s.State, Cause: s.Cause, Since: timeOf(s.Since), Why: s.Why, Moves: s.Moves,
			Failure: s.Failure, FailedAt: timeOf(s.FailedAt),
		}
		if s.Client.IsValid() {
			one.Client = s.Client.String()
		}
		list.Sessions = append(list.Sessions, one)
	}
	return list, nil
}

func filterOf(f *api.SessionFilter) dataplane.SessionFilter {
	return dataplane.SessionFilter{Service: f.Service, Listener: f.Listener, User: f.User, Endpoint: f.Endpoint, ID: f.ID}
}

// maxMoveWait bounds MoveSessionsRequest.Wait.
const maxMoveWait = 10 * time.Minute

// move orders sessions to move, on all nodes or on one, and waits for the outcome.
func (q *sessions) move(ctx context.Context, r *api.MoveSessionsRequest) (*api.MovedSessions, error) {
	if err := q.checkMove(r); err != nil {
		return nil, err
	}
	members, err := q.peers.named(r.Node)
	if err != nil {
		return nil, err
	}
	orders, missing := q.orderAll(ctx, members, r)
	answers, lost := askNodes(ctx, q.peers, members, r.Wait+reportTimeout, func(ctx context.Context, m directory.Member) (*api.MovedSessions, error) {
		order := orders[m.ID]
		if order == nil {
			return nil, nil //nolint:nilnil // it is in missing, or was not asked
		}
		return onNode(ctx, q.peers, m, api.MethodSessionsOutcome, &api.SessionsOrder{ID: order.ID, Wait: r.Wait}, q.outcome)
	})
	sum := &api.MovedSessions{Missing: append(missing, lost...)}
	why := map[string]int{}
	for _, one := range answers {
		if one == nil {
			continue
		}
		sum.Asked, sum.Moved, sum.Stayed = sum.Asked+one.Asked, sum.Moved+one.Moved, sum.Stayed+one.Stayed
		sum.Closed, sum.Open = sum.Closed+one.Closed, sum.Open+one.Open
		for _, w := range one.Why {
			why[w.Reason] += w.Count
		}
	}
	sum.Why = reasonsOf(why)
	return sum, nil
}

// checkMove refuses an order that no session can follow.
func (q *sessions) checkMove(r *api.MoveSessionsRequest) error {
	switch {
	case r.Count < 0:
		return api.Errorf(api.Invalid, "invalid count %d: want 1 or more, or 0 for all", r.Count)
	case r.Wait < 0 || r.Wait > maxMoveWait:
		return api.Errorf(api.Invalid, "invalid wait %v: want 0s to %v", r.Wait, maxMoveWait)
	case !r.All && r.SessionFilter == api.SessionFilter{} && r.Count == 0:
		return api.Errorf(api.Invalid, "which sessions are to move? Name a service, an endpoint, a user, a node, an id or a count")
	case r.ID != 0 && r.Node == "" && q.peers.cluster != nil:
		return api.Errorf(api.Invalid, "id %d: each node counts by itself, so name the node as well", r.ID)
	}
	if r.Service != "" {
		switch never, ok := q.data.MovesNever(r.Service); {
		case !ok:
			return api.Errorf(api.NotFound, "there is no Service/%s with protocol: mysql", r.Service)
		case never:
			return api.Errorf(api.Refused, "Service/%s has mysql.move: never, so its sessions do not move", r.Service)
		}
	}
	if r.To != "" && !q.data.HasServer(r.Service, r.To) {
		of := "a service with protocol: mysql"
		if r.Service != "" {
			of = "Service/" + r.Service
		}
		return api.Errorf(api.NotFound, "%s is no endpoint of %s", r.To, of)
	}
	return nil
}

// orderAll gives the order to the nodes: to one after the other if the number of sessions
// is bounded.
func (q *sessions) orderAll(ctx context.Context, members []directory.Member, r *api.MoveSessionsRequest) (map[string]*api.SessionsOrder, []string) {
	give := func(ctx context.Context, m directory.Member, r *api.MoveSessionsRequest) (*api.SessionsOrder, error) {
		return onNode(ctx, q.peers, m, api.MethodSessionsOrder, r, q.order)
	}
	orders := map[string]*api.SessionsOrder{}
	if r.Count == 0 {
		answers, missing := askNodes(ctx, q.peers, members, reportTimeout, func(ctx context.Context, m directory.Member) (*api.SessionsOrder, error) {
			return give(ctx, m, r)
		})
		for i, m := range members {
			orders[m.ID] = answers[i]
		}
		return orders, missing
	}
	var missing []string
	one := *r
	for _, m := range members {
		if one.Count <= 0 {
			break
		}
		answers, failed := askNodes(ctx, q.peers, []directory.Member{m}, reportTimeout, func(ctx context.Context, m directory.Member) (*api.SessionsOrder, error) {
			return give(ctx, m, &one)
		})
		missing = append(missing, failed...)
		if orders[m.ID] = answers[0]; answers[0] != nil {
			one.Count -= answers[0].Asked
		}
	}
	return orders, missing
}

// order gives an order to the sessions of this node.
func (q *sessions) order(_ context.Context, r *api.MoveSessionsRequest) (*api.SessionsOrder, error) {
	id, asked := q.data.OrderMoves(&dataplane.MoveOrder{SessionFilter: filterOf(&r.SessionFilter), To: r.To, Count: r.Count})
	return &api.SessionsOrder{ID: id, Asked: asked}, nil
}

// outcome waits for the outcome of an order of this node.
func (q *sessions) outcome(ctx context.Context, r *api.SessionsOrder) (*api.MovedSessions, error) {
	waiting, cancel := context.WithTimeout(ctx, min(max(r.Wait, 0), maxMoveWait))
	defer cancel()
	out, err := q.data.OrderOutcome(waiting, r.ID)
	if err != nil {
		return nil, api.Errorf(api.NotFound, "%v", err)
	}
	return &api.MovedSessions{
		Asked: out.Asked, Moved: out.Moved, Stayed: out.Stayed, Closed: out.Closed, Open: out.Open, Why: reasonsOf(out.Why),
	}, nil
}

// reasonsOf sorts reasons, the most frequent first.
func reasonsOf(why map[string]int) []api.MoveReason {
	var list []api.MoveReason
	for _, reason := range slices.Sorted(maps.Keys(why)) {
		list = append(list, api.MoveReason{Reason: reason, Count: why[reason]})
	}
	slices.SortStableFunc(list, func(a, b api.MoveReason) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

// named returns the node with this name or ID, or all.
func (p *Peers) named(node string) ([]directory.Member, error) {
	all := p.members()
	if node == "" {
		return all, nil
	}
	for _, m := range all {
		if m.Name == node || m.ID == node {
			return []directory.Member{m}, nil
		}
	}
	return nil, api.Errorf(api.NotFound, "there is no node %q: see penstock members", node)
}

// askNodes asks nodes at once, and waits for their answers. answers are in the order of the
// members, nil for a node that did not answer; missing says why.
func askNodes[T any](
	ctx context.Context, p *Peers, members []directory.Member, timeout time.Duration, ask func(context.Context, directory.Member) (*T, error),
) (answers []*T, missing []string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers, errs := make([]*T, len(members)), make([]error, len(members))
	done := make(chan struct{}, len(members))
	for i, m := range members {
		go func() {
			defer func() { done <- struct{}{} }()
			asking, stop := context.WithCancel(ctx)
			defer stop()
			if !m.Self {
				go p.whileUp(asking, m.ID, stop)
			}
			answers[i], errs[i] = ask(asking, m)
			if errs[i] != nil && asking.Err() != nil && ctx.Err() == nil {
				errs[i] = errors.New("is no longer reachable")
			}
		}()
	}
	for range members {
		<-done
	}
	for i, err := range errs {
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("did not respond")
		}
		if err != nil {
			answers[i] = nil
			missing = append(missing, members[i].Name+": "+err.Error())
		}
	}
	return answers, missing
}

// onNode calls a method of a node; here is the method of this one.
func onNode[Req, Resp any](
	ctx context.Context, p *Peers, m directory.Member, method string, r *Req, here func(context.Context, *Req) (*Resp, error),
) (*Resp, error) {
	switch {
	case m.Self:
		return here(ctx, r)
	case !m.Up():
		return nil, errors.New(cmp.Or(m.State, "unreachable"))
	}
	c, err := p.cluster.Directory.Client(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	return rpc.Call[Resp](ctx, c, method, r)
}
