package ops

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/dataplane"
	"penstock/node/providers"
	"penstock/node/rpc"
	"penstock/routing"
	"penstock/routing/balance"
	"penstock/routing/provider"
)

// endpoints has the methods that show where endpoints come from.
type endpoints struct {
	data      *dataplane.Dataplane
	providers *providers.Providers
}

func (q *endpoints) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodEndpoints, api.RoleReader, q.list)
}

// list returns the endpoints of one service or of all.
func (q *endpoints) list(ctx context.Context, r *api.EndpointsRequest) (*api.Endpoints, error) {
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	services := q.data.Services()
	if r.Service != "" {
		services = slices.DeleteFunc(services, func(s *routing.Service) bool { return s.Name() != r.Service })
		if len(services) == 0 {
			return nil, api.Errorf(api.NotFound, "Service/%s does not exist", r.Service)
		}
	}
	slices.SortFunc(services, func(a, b *routing.Service) int { return strings.Compare(a.Name(), b.Name()) })
	all, now := api.Endpoints{}, time.Now()
	for _, s := range services {
		all = q.appendEndpoints(all, s, now)
	}
	return &all, nil
}

// appendEndpoints appends the endpoints of a service.
func (q *endpoints) appendEndpoints(all api.Endpoints, s *routing.Service, now time.Time) api.Endpoints {
	origins := s.Origins(q.providers)
	for i, m := range s.Members() {
		e := q.endpoint(s, m, origins[m.Address], now)
		e.LevelShare = s.LevelShare(i, now) * 100
		all = append(all, e)
	}
	for _, address := range s.Unresolved() {
		o := origins[address]
		all = append(all, api.Endpoint{
			Service: s.Name(), Address: address, Source: o.Source, AlsoFrom: o.AlsoFrom, Since: timeOf(o.Since), State: o.State.String(),
			Health: "unresolved",
		})
	}
	return all
}

func (q *endpoints) endpoint(s *routing.Service, m balance.Member, o routing.Origin, now time.Time) api.Endpoint {
	status := endpointStatus(q.data, s.Group(), m.Endpoint, now)
	e := api.Endpoint{
		Service: s.Name(), Address: m.Address, Source: o.Source, AlsoFrom: o.AlsoFrom, Since: timeOf(o.Since), State: o.State.String(),
		Health: status.Health, Weight: m.Weight,
		Priority: m.Level % balance.Backup, Backup: m.Level >= balance.Backup, Zone: m.Tags[cmp.Or(s.Spec().Balancing.Zone, provider.ZoneTag)], Tags: m.Tags,
		Connections: status.Connections, Load: status.Load,
	}
	if b := s.Group().Breaker(); b != nil {
		e.Bound = cmp.Or(b.Endpoint.Connections, b.Endpoint.Requests)
	}
	if status.Resolved != m.Address {
		e.Resolved = status.Resolved
	}
	return e
}

// providerStatus returns the state of the providers that run on this node.
func providerStatus(node string, p *providers.Providers) []api.ProviderStatus {
	var all []api.ProviderStatus
	for _, s := range p.Status() {
		one := api.ProviderStatus{Node: node, Name: s.Name, State: api.ProviderOK, Error: s.Err}
		switch {
		case s.Failed:
			one.State = api.ProviderFailed
		case len(s.Queries) == 0:
			one.State = api.ProviderIdle
		}
		for i := range s.Queries {
			query := queryStatus(&s.Queries[i])
			if query.Stale && one.State == api.ProviderOK {
				one.State = api.ProviderStale
			}
			one.Services = append(one.Services, query)
		}
		all = append(all, one)
	}
	return all
}

func queryStatus(q *provider.QueryStatus) api.ProviderQuery {
	return api.ProviderQuery{
		Service: q.Service, Port: q.Port, Endpoints: q.Endpoints, Unused: q.Unused, Fault: q.Fault,
		Answered: timeOf(q.Answered), Changed: timeOf(q.Changed), Stale: q.Stale, Error: q.Err, Failures: q.Failures,
		Warning:   q.Warning,
		HeldSince: timeOf(q.HeldSince), Expired: q.Expired,
	}
}

// timeOf returns nil for the zero time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
