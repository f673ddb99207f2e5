package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/acme"
	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/cluster/directory"
	"penstock/node/dataplane"
	"penstock/node/expiry"
	"penstock/node/federation"
	"penstock/node/follow"
	"penstock/node/kubernetes"
	"penstock/node/lifecycle"
	"penstock/node/providers"
	"penstock/node/quota"
	"penstock/node/rpc"
	"penstock/node/svid"
	"penstock/node/workload"
	"penstock/node/xds"
)

// status has the methods that report the state of the node and its cluster.
type status struct {
	peers    *Peers
	data     *dataplane.Dataplane
	catalog  *catalog.Catalog
	state    *lifecycle.State
	gateways *Gateways
	rollouts *rollouts

	providers *providers.Providers
	acme      *acme.Manager
	followed  *follow.Manager
	expiry    *expiry.Tracker

	federation *federation.Manager
	xds        *xds.Server // nil: none
	shares     *quota.Driver

	identities *workload.Source // nil: none
	sources    *svid.Manager
	kubernetes *kubernetes.Manager // nil: none

	warned recent[[]string] // for brief reports
}

func (q *status) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodStatus, api.RoleReader, func(ctx context.Context, r *api.StatusRequest) (*api.Status, error) {
		if err := rpc.LargeResponse(ctx); err != nil {
			return nil, err
		}
		return q.status(ctx, r)
	})
	rpc.Handle(s, api.MethodMembers, api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Members, error) {
		return q.members(ctx), nil
	})
	rpc.Handle(s, api.MethodReport, api.RoleNode, func(_ context.Context, r *api.StatusRequest) (*api.Report, error) {
		return q.report(r.Brief), nil
	})
}

// report returns the state of this node; if it is to be brief, without the endpoints.
func (q *status) report(brief bool) *api.Report {
	set, view := q.catalog.InForce()
	totals := map[string]uint64{}
	for _, f := range q.data.Flows() {
		totals[f.Listener()] += f.Counts().Connections
	}
	r := &api.Report{
		Node: api.NodeStatus{
			Name: q.peers.self.Name, ID: q.peers.self.ID, Role: directory.RoleLeader, State: q.state.String(),
			AppliedIndex: view.Index(), Resources: set.Len(), Connections: int64(q.data.Engine.Stats().Connections),
			Address: q.peers.self.Cluster, HTTP: q.peers.self.HTTP,
			Uptime: time.Since(q.peers.self.Started).Round(time.Second).String(), Version: q.peers.self.Version,
		},
		Listeners: []api.ListenerStatus{},
		Services:  serviceStatus(q.data, time.Now(), brief),

		VirtualClusters: virtualClusters(q.data.Kafka),
		Providers:       providerStatus(q.peers.self.Name, q.providers),
		Proxies:         q.xds.Status(),
	}
	if brief {
		r.Warnings = q.warned.get(warningAge, q.nodeWarnings)
	} else {
		r.Warnings = q.nodeWarnings()
	}
	for _, l := range q.data.Engine.Listeners() {
		one := api.ListenerStatus{
			Node: q.peers.self.Name, Name: l.Name, Address: l.Address, State: "listening",
			Connections: int64(l.Connections), Total: totals[l.Name],
		}
		if l.Err != nil {
			one.State, one.Error = "failed", l.Err.Error()
		}
		r.Listeners = append(r.Listeners, one)
	}
	return r
}

// nodeWarnings returns the warnings of this node.
func (q *status) nodeWarnings() []string {
	name := q.peers.self.Name
	return slices.Concat(q.data.PortUse().Warnings(name),
		q.shareWarnings(), q.limitWarnings(), q.meshWarnings(), q.identityWarnings(), q.followed.Problems(name),
		q.sources.Problems(name), q.expiry.Problems(name, time.Now()), q.federation.Faults(), q.kubernetes.State().Problems)
}

// shareWarnings warns that this node uses the floor of rate limits.
func (q *status) shareWarnings() []string {
	s := q.shares.Status()
	if !s.Floor {
		return nil
	}
	return []string{fmt.Sprintf("node %s: no leader has answered for %s: rate limits with scope cluster use their floor",
		q.peers.self.Name, s.Age.Round(time.Second))}
}

// meshWarnings warns of services that need a mesh where there is none.
func (q *status) meshWarnings() []string {
	const shown = 4
	names := q.data.WithoutMesh()
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("node %s is in no cluster (--dev), so connections to services with mesh: true are closed: %s",
		q.peers.self.Name, strings.Join(names[:min(len(names), shown)], ", "))}
}

// identityWarnings warns of certificates that this node holds and cannot renew.
func (q *status) identityWarnings() (list []string) {
	if q.identities == nil {
		return nil
	}
	for _, late := range q.identities.Stats().Late {
		list = append(list, fmt.Sprintf("node %s: the identity %s", q.peers.self.Name, late))
	}
	return list
}

// reportTimeout bounds the wait for the reports of other nodes.
const reportTimeout = 2 * time.Second

// reports requests the reports of the other members concurrently. The result is in
// the order of the members; nil: this node, one that is not up, or one that did
// not answer in time.
func (q *status) reports(ctx context.Context, members []directory.Member, brief bool) []*api.Report {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	reports := make([]*api.Report, len(members))
	var asked sync.WaitGroup
	for i, m := range members {
		if m.Self || !m.Up() {
			continue
		}
		asked.Go(func() {
			if c, err := q.peers.cluster.Directory.Client(ctx, m.ID); err == nil {
				reports[i], _ = rpc.Call[api.Report](ctx, c, api.MethodReport, api.StatusRequest{Brief: brief})
			}
		})
	}
	asked.Wait()
	return reports
}

// status combines the reports of the nodes. Services and listeners are those of
// this node, plus the listeners that fail on other nodes. Warnings and providers
// are those of all nodes.
func (q *status) status(ctx context.Context, r *api.StatusRequest) (*api.Status, error) {
	own := q.report(r.Brief)
	set, _ := q.catalog.InForce()
	s := &api.Status{
		Leader: q.peers.self.Name, Listeners: own.Listeners, Services: own.Services, VirtualClusters: own.VirtualClusters,
		Rollouts: q.rollouts.unfinished(), NotAccepted: q.gateways.problems(set), Warnings: own.Warnings,
		Providers: own.Providers,
	}
	s.Warnings = slices.Concat(s.Warnings, q.acme.Problems(time.Now()), q.federation.Unusable(time.Now())) // the same on every node
	if own.Proxies != nil {
		s.Proxies = append(s.Proxies, *own.Proxies)
	}
	if q.peers.cluster == nil {
		s.Nodes = []api.NodeStatus{own.Node}
		return s, nil
	}
	_, s.Leader, _ = q.peers.cluster.Leader()
	s.Alone = q.peers.cluster.Directory.Alone()
	members := q.peers.cluster.Directory.Members()
	reports := q.reports(ctx, members, true) // services are those of this node
	newest := own.Node.AppliedIndex
	for i, m := range members {
		one := api.NodeStatus{
			Name: m.Name, ID: m.ID, State: directory.StateUnreachable, AppliedIndex: m.Facts.AppliedIndex,
			Address: m.Cluster, HTTP: m.HTTP, Version: m.Version,
		}
		switch r := reports[i]; {
		case m.Self:
			one = own.Node
		case r != nil:
			one = r.Node
			s.Listeners = append(s.Listeners, failing(r.Listeners)...)
			for _, w := range r.Warnings { // what nodes have in common, each of them says
				if !slices.Contains(s.Warnings, w) {
					s.Warnings = append(s.Warnings, w)
				}
			}
			s.Providers = append(s.Providers, r.Providers...)
			if r.Proxies != nil {
				s.Proxies = append(s.Proxies, *r.Proxies)
			}
		}
		one.Role = m.Role
		newest = max(newest, one.AppliedIndex)
		s.Nodes = append(s.Nodes, one)
	}
	for i := range s.Nodes {
		s.Nodes[i].Lag = newest - s.Nodes[i].AppliedIndex
	}
	return s, nil
}

func failing(list []api.ListenerStatus) []api.ListenerStatus {
	return slices.DeleteFunc(list, func(l api.ListenerStatus) bool { return l.State != "failed" })
}

// stateSuspect is the state of a node that gossip reports up but that does not
// answer.
const stateSuspect = "suspect"

// members lists the nodes with the state that gossip last reported, corrected by a
// liveness probe.
func (q *status) members(ctx context.Context) *api.Members {
	if q.peers.cluster == nil {
		r := q.report(true).Node
		return &api.Members{{
			Name: r.Name, ID: r.ID, Role: r.Role, State: r.State, Address: r.Address, Version: r.Version, Connections: r.Connections,
		}}
	}
	list := api.Members{}
	q.peers.cluster.Directory.ProbeLiveness(ctx)
	silent := q.peers.cluster.Directory.Silent()
	for _, m := range q.peers.cluster.Directory.Members() {
		one := api.Member{
			Name: m.Name, ID: m.ID, Role: m.Role, State: m.State, Address: m.Cluster, Version: m.Version, Connections: m.Facts.Connections,
		}
		switch {
		case m.Up() && silent[m.ID]:
			one.State = stateSuspect
		case m.Up() && m.Facts.Phase != "":
			one.State = m.Facts.Phase
		case m.State == directory.StateLeft: // left gossip at its shutdown; still a member
			one.State = "stopped"
		}
		list = append(list, one)
	}
	return &list
}
