package node

import (
	"context"
	"net/http"
	"strconv"

	"penstock/node/admin"
	"penstock/routing"
)

// registerPolicies adds the methods about what policies come to.
func (n *Node) registerPolicies(s *admin.Server) {
	admin.Handle(s, admin.MethodEffective, admin.RoleReader, n.effective)
	admin.Handle(s, admin.MethodSimulate, admin.RoleReader, n.simulate)
}

// effective tells which policies decide for which sources here.
func (n *Node) effective(ctx context.Context, r *admin.EffectiveRequest) (*admin.EffectiveResult, error) {
	if !r.Stale {
		if err := n.current(ctx); err != nil {
			return nil, err
		}
	}
	if err := admin.LargeResponse(ctx); err != nil {
		return nil, err
	}
	if r.Limit < 0 || r.After.Sources < 0 {
		return nil, admin.Errorf(admin.Invalid, "a limit of %d behind %d sources: want 0 or more", r.Limit, r.After.Sources)
	}
	q := routing.EffectiveQuery{Destination: r.Destination, All: r.All, After: r.After, Limit: r.Limit}
	if q.Limit == 0 || q.Limit > admin.MaxEffective {
		q.Limit = admin.MaxEffective
	}
	result := &admin.EffectiveResult{Node: n.cfg.Name}
	result.Destinations, result.More = n.data.Router.Table().Effective(&q)
	switch {
	case r.Destination != "" && len(result.Destinations) == 0:
		return nil, admin.Errorf(admin.NotFound, "there is no Service %q, and no policy for one", r.Destination)
	case result.Destinations == nil:
		result.Destinations = []routing.Effective{}
	}
	return result, nil
}

// effectiveRequest reads one of HTTP: ?destination, all, stale, limit, and
// afterDestination with afterSources, which are what "more" of the answer
// before has.
func effectiveRequest(r *http.Request) (any, error) {
	q := r.URL.Query()
	req := admin.EffectiveRequest{Destination: q.Get("destination"), All: q.Has("all"), Stale: q.Has("stale")}
	req.After.Destination = q.Get("afterDestination")
	for name, into := range map[string]*int{"limit": &req.Limit, "afterSources": &req.After.Sources} {
		if text := q.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, admin.Errorf(admin.Invalid, "%s: want a number", name)
			}
			*into = n
		}
	}
	return req, nil
}
