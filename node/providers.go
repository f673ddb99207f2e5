package node

import (
	"context"
	"net/netip"

	"penstock/node/api"
	"penstock/node/providers"
	"penstock/node/rpc"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// providersConfig makes the configuration of the endpoint providers. What it
// refers to is there before the providers run.
func (n *Node) providersConfig() providers.Config {
	cfg := providers.Config{
		Store: n.store, Log: n.log,
		Source: func(spec *resource.EndpointProvider) (provider.Source, error) {
			return providers.NewSource(spec, n.data.Certificates(), n.cfg.DataDir, n.log)
		},
		Leads: n.leads,
		Await: func(ctx context.Context, index uint64) error { return n.catalog.Await(ctx, index) },
		Changed: func(refs []provider.Ref) {
			n.data.Discovered(refs)
			n.xds.Changed()
		},
		Refuse:  func(ref provider.Ref, at netip.AddrPort) error { return n.data.Loop(ref, at) },
		Self:    n.id,
		Leaving: n.state.Leaving,
	}
	if n.cluster != nil {
		cfg.Leader = func() string { leader, _, _ := n.cluster.Leader(); return leader }
		cfg.Members = n.cluster.Directory.MemberIDs
		cfg.Tell = func(ctx context.Context, node string, m *providers.Announcements) (*providers.AnnouncementsResult, error) {
			client, err := n.cluster.Directory.Pool.Get(ctx, node)
			if err != nil {
				return nil, err
			}
			return rpc.Call[providers.AnnouncementsResult](ctx, client, api.MethodEndpointsAnnounced, m)
		}
	}
	return cfg
}
