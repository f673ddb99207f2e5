package ops

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"

	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/node/xds"
)

// proxies has the method that lists the clients of the discovery servers.
type proxies struct {
	peers *Peers
	xds   *xds.Server // nil: none
}

func (q *proxies) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodProxies, api.RoleReader, q.list)
}

// list returns the proxies of this node, and of the others unless the request is
// local.
func (q *proxies) list(ctx context.Context, r *api.ProxiesRequest) (*api.Proxies, error) {
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	all := &api.Proxies{Proxies: q.xds.Proxies()}
	if r.Service != "" {
		all.Proxies = slices.DeleteFunc(all.Proxies, func(p api.Proxy) bool { return p.Service != r.Service })
	}
	if !r.Local {
		q.ask(ctx, r.Service, all)
	}
	slices.SortStableFunc(all.Proxies, func(a, b api.Proxy) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Address, b.Address))
	})
	return all, nil
}

// ask adds the proxies of the other nodes.
func (q *proxies) ask(ctx context.Context, service string, all *api.Proxies) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, m := range q.peers.others() {
		asked.Go(func() {
			var theirs *api.Proxies
			c, err := q.peers.cluster.Directory.Client(ctx, m.ID)
			if err == nil {
				theirs, err = rpc.Call[api.Proxies](ctx, c, api.MethodProxies, api.ProxiesRequest{Service: service, Local: true})
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				all.Silent = append(all.Silent, m.Name)
				return
			}
			all.Proxies = append(all.Proxies, theirs.Proxies...)
		})
	}
	asked.Wait()
	slices.Sort(all.Silent)
}

// proxiesRequest reads the name of a service, if there is one.
func proxiesRequest(r *http.Request) (any, error) {
	return api.ProxiesRequest{Service: r.PathValue("service")}, nil
}
