package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/consensus"
	"penstock/netio"
	"penstock/node/admin"
	"penstock/node/cluster"
	"penstock/node/lifecycle"
	"penstock/routing"
	"penstock/routing/gateway"
)

// openCluster makes the node one of a cluster; with --dev it stays by itself.
// It returns when the node knows its cluster, which may take as long as it
// takes to find it.
func (n *Node) openCluster(ctx context.Context, d *listenerSet) error {
	if n.cfg.Dev {
		n.store = consensus.NewMemory(consensus.Limits{})
		return nil
	}
	c, err := cluster.Open(ctx, cluster.Config{
		Dir: n.cfg.DataDir, Name: n.cfg.Name, Version: n.cfg.Version, Zone: n.cfg.Zone,
		Listener: d.cluster, Gossip: n.cfg.Gossip, Advertise: n.cfg.Advertise, HTTP: n.httpAddr,
		Init: n.cfg.Init, Expect: n.cfg.Expect, Join: n.cfg.Join, Token: n.cfg.Token,
		Voters: n.cfg.Voters, ReplaceAfter: n.cfg.DeadVoterAfter, ForgetAfter: n.cfg.ForgetAfter,
		Log: n.log, Facts: n.facts, Tickets: n.tickets.SetKeys, Stop: n.fail, Waits: n.wait, Audit: n.audit,
	})
	d.cluster = nil // it is the cluster's now
	if err != nil {
		return err
	}
	n.cluster, n.store, n.id = c, c.Store(), c.ID()
	n.cfg.Name = c.Name() // a node keeps the name that it joined with
	if line := c.JoinCommand(); line != "" {
		n.cfg.Announce(line)
	}
	return nil
}

// receive waits, on a node that is new to its cluster, until it acts on what
// was agreed before: it has no older content to serve traffic by, and must not
// say that it is ready without any.
func (n *Node) receive(ctx context.Context) error {
	if !n.cluster.New() {
		return nil
	}
	for told := false; ; told = true {
		err := n.current(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !told {
			n.log.Warn("the cluster's content is not there yet; this node waits for it", "error", err)
		}
		n.wait(cluster.Waiting{ID: n.id, Name: n.cfg.Name, State: n.state.String(), Why: fmt.Sprintf("waiting for the cluster's content: %v", err)})
		select { // the error has taken its time as well
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// facts are what this node tells all others.
func (n *Node) facts() cluster.Facts {
	if !n.made.Load() {
		return cluster.Facts{Phase: n.state.String()}
	}
	_, view := n.catalog.InForce()
	return cluster.Facts{
		Phase: n.state.String(), Connections: int64(n.data.Engine.Stats().Connections), Acted: view.Index(), Hints: n.data.Hints(),
	}
}

// alone says why nothing can be decided now; "": all is well.
func (n *Node) alone() string {
	if n.cluster == nil {
		return ""
	}
	return n.cluster.Alone()
}

// authenticate finds out whose token that is.
func (n *Node) authenticate(ctx context.Context, token string) (admin.Principal, error) {
	if n.cluster == nil {
		return admin.Principal{}, admin.Errorf(admin.Unauthenticated, "a node with --dev knows no tokens")
	}
	return n.cluster.Authenticate(ctx, token)
}

// atLeader makes do run where the cluster is led from: here, or there by
// passing the request on.
func atLeader[Req, Resp any](n *Node, do func(context.Context, *Req) (*Resp, error)) func(context.Context, *Req) (*Resp, error) {
	if n.cluster == nil {
		return do
	}
	return cluster.OnLeader(n.cluster, do)
}

// elsewhere passes a request on to the node that it is meant for, unless that
// is this one.
func (n *Node) elsewhere(ctx context.Context, node string) (passed bool, err error) {
	if node == "" || node == n.cfg.Name || node == n.id {
		return false, nil
	}
	if n.cluster == nil {
		return true, admin.Errorf(admin.NotFound, "there is no node %q; this one is %q", node, n.cfg.Name)
	}
	c, err := n.cluster.Client(ctx, node)
	if err != nil {
		return true, err
	}
	return true, admin.Pass(ctx, c)
}

// current waits until this node acts on everything that was answered before,
// wherever it was asked for.
func (n *Node) current(ctx context.Context) error {
	if n.cluster == nil {
		return nil
	}
	index, err := n.cluster.Read(ctx)
	if err != nil {
		if why := n.cluster.Alone(); why != "" {
			return admin.Errorf(admin.NoLeader, "%s; --stale shows what this node has", why)
		}
		return err
	}
	return n.catalog.Await(ctx, index)
}

// others are the members that are up, without this one.
func (n *Node) others() []cluster.Member {
	if n.cluster == nil {
		return nil
	}
	return slices.DeleteFunc(n.cluster.Members(), func(m cluster.Member) bool { return m.Self || !m.Up() })
}

// reachPatience is how long a change waits for the nodes to act on it, if its
// sender does not say.
const reachPatience = 10 * time.Second

// reach waits for as many nodes to act on an index as the sender wishes, and
// gathers what they have to say about the listeners among the changes.
func (n *Node) reach(ctx context.Context, index uint64, wait admin.Wait, changes []admin.Change) (admin.Reached, []admin.Fault) {
	listeners := n.listenersOf(changes)
	reached, warnings := admin.Reached{Nodes: 1}, n.deaf(listeners)
	if wait.Nodes < 0 {
		return reached, warnings
	}
	others := n.others()
	wanted := len(others) + 1
	if wait.Nodes > 0 {
		wanted = wait.Nodes
	}
	if wanted <= 1 || index == 0 {
		return reached, warnings
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(wait.For, reachPatience))
	defer cancel()
	answers := n.askAll(ctx, others, &admin.AwaitRequest{Index: index, Listeners: listeners})
	for range others {
		if reached.Nodes >= wanted {
			break
		}
		a := <-answers
		if a.err != nil {
			switch {
			case errors.Is(a.err, context.DeadlineExceeded):
				a.err = errors.New("does not act on it yet")
			case errors.Is(a.err, context.Canceled) && ctx.Err() == nil:
				a.err = errors.New("is not in reach any more")
			}
			reached.Late = append(reached.Late, admin.Late{Node: a.node, Why: a.err.Error()})
			continue
		}
		reached.Nodes++
		warnings = append(warnings, a.result.Warnings...)
	}
	if reached.Nodes >= wanted {
		reached.Late = nil
	} else if wanted > len(others)+1 {
		reached.Late = append(reached.Late, admin.Late{Why: fmt.Sprintf("%d nodes are up, %d were asked for", len(others)+1, wanted)})
	}
	return reached, warnings
}

// reachedBy is what one node answers to whether it acts on something.
type reachedBy struct {
	node   string
	result *admin.AwaitResult
	err    error
}

// askAll asks nodes to answer when they act on an index. One that hangs or is
// cut off is waited for as long as it is known to be up: context.Canceled is
// what it answers then.
func (n *Node) askAll(ctx context.Context, nodes []cluster.Member, r *admin.AwaitRequest) <-chan reachedBy {
	answers := make(chan reachedBy, len(nodes))
	for _, m := range nodes {
		go func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			go n.whileUp(ctx, m.ID, cancel)
			a := reachedBy{node: m.Name}
			var c *admin.Client
			if c, a.err = n.cluster.Client(ctx, m.ID); a.err == nil {
				a.result, a.err = admin.Call[admin.AwaitResult](ctx, c, admin.MethodAwait, r)
			}
			answers <- a
		}()
	}
	return answers
}

// lookAgain is how often it is looked whether a node is still up.
const lookAgain = 500 * time.Millisecond

// whileUp calls down when a node is not up any more, and returns then, or when
// ctx ends.
func (n *Node) whileUp(ctx context.Context, id string, down func()) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !slices.ContainsFunc(n.others(), func(m cluster.Member) bool { return m.ID == id }) {
				down()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// listenersOf names the listeners among changes, and those that come of the
// Gateways among them; this node acts on the changes already.
func (n *Node) listenersOf(changes []admin.Change) (names []string) {
	gateways := map[string]bool{}
	for _, c := range changes {
		switch {
		case c.Action == admin.Deleted:
		case c.Kind == "Listener":
			names = append(names, c.Name)
		case c.Kind == gateway.KindGateway:
			gateways[c.Name] = true
		}
	}
	if len(gateways) == 0 {
		return names
	}
	for _, l := range n.data.Engine.Listeners() {
		if of, _, ok := strings.Cut(l.Name, "/"); ok && gateways[of] {
			names = append(names, l.Name)
		}
	}
	return names
}

// await tells when this node acts on an index.
func (n *Node) await(ctx context.Context, r *admin.AwaitRequest) (*admin.AwaitResult, error) {
	if err := n.catalog.Await(ctx, r.Index); err != nil {
		return nil, err
	}
	return &admin.AwaitResult{Index: r.Index, Warnings: n.deaf(r.Listeners)}, nil
}

// report is what this node says of itself.
func (n *Node) report() *admin.Report {
	set, view := n.catalog.InForce()
	totals := map[string]uint64{}
	for _, f := range n.data.Flows() {
		totals[f.Listener()] += f.Counts().Connections
	}
	r := &admin.Report{
		Node: admin.NodeStatus{
			Name: n.cfg.Name, ID: n.id, Role: cluster.RoleLeader, State: n.state.String(), AppliedIndex: view.Index(),
			Resources: set.Len(), Connections: int64(n.data.Engine.Stats().Connections), Address: n.adminAddr, HTTP: n.httpAddr,
			Uptime: time.Since(n.started).Round(time.Second).String(), Version: n.cfg.Version,
		},
		Listeners: []admin.ListenerStatus{},
		Services:  n.serviceStatus(),

		VirtualClusters: n.virtualClusters(),
		Warnings:        n.data.PortUse().Warnings(n.cfg.Name),
	}
	for _, l := range n.data.Engine.Listeners() {
		one := admin.ListenerStatus{
			Node: n.cfg.Name, Name: l.Name, Address: l.Address, State: "listening",
			Connections: int64(l.Connections), Total: totals[l.Name],
		}
		if l.Err != nil {
			one.State, one.Error = "failed", l.Err.Error()
		}
		r.Listeners = append(r.Listeners, one)
	}
	return r
}

// reportPatience bounds the wait for what other nodes say of themselves.
const reportPatience = 2 * time.Second

// reports asks other members what they say of themselves, all at once. The
// answers stand in the order of the members; nil: this node itself, or one that
// did not answer in time.
func (n *Node) reports(ctx context.Context, members []cluster.Member) []*admin.Report {
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	reports := make([]*admin.Report, len(members))
	var asked sync.WaitGroup
	for i, m := range members {
		if m.Self || !m.Up() {
			continue
		}
		asked.Go(func() {
			if c, err := n.cluster.Client(ctx, m.ID); err == nil {
				reports[i], _ = admin.Call[admin.Report](ctx, c, admin.MethodReport, admin.Empty{})
			}
		})
	}
	asked.Wait()
	return reports
}

// status gathers what the nodes say of themselves. Services and listeners are
// those of the node asked, and whatever listeners fail elsewhere; warnings are
// everybody's.
func (n *Node) status(ctx context.Context) *admin.Status {
	own := n.report()
	s := &admin.Status{
		Leader: n.cfg.Name, Listeners: own.Listeners, Services: own.Services, VirtualClusters: own.VirtualClusters,
		Rollouts: n.statusRollouts(), NotAccepted: n.gatewayProblems(), Warnings: own.Warnings,
	}
	if n.cluster == nil {
		s.Nodes = []admin.NodeStatus{own.Node}
		return s
	}
	_, s.Leader, _ = n.cluster.Leader()
	s.Alone = n.cluster.Alone()
	members := n.cluster.Members()
	reports := n.reports(ctx, members)
	newest := own.Node.AppliedIndex
	for i, m := range members {
		one := admin.NodeStatus{
			Name: m.Name, ID: m.ID, State: cluster.StateUnreachable, AppliedIndex: m.Facts.Acted, Address: m.Cluster, HTTP: m.HTTP, Version: m.Version,
		}
		switch r := reports[i]; {
		case m.Self:
			one = own.Node
		case r != nil:
			one = r.Node
			s.Listeners = append(s.Listeners, failing(r.Listeners)...)
			s.Warnings = append(s.Warnings, r.Warnings...)
		}
		one.Role = m.Role
		newest = max(newest, one.AppliedIndex)
		s.Nodes = append(s.Nodes, one)
	}
	for i := range s.Nodes {
		s.Nodes[i].Lag = newest - s.Nodes[i].AppliedIndex
	}
	return s
}

func failing(list []admin.ListenerStatus) []admin.ListenerStatus {
	return slices.DeleteFunc(list, func(l admin.ListenerStatus) bool { return l.State != "failed" })
}

// stateSuspect is a node that gossip has not given up, and that does not answer.
const stateSuspect = "suspect"

// members lists the nodes, by what gossip last said of the others, and whether
// they answer.
func (n *Node) members(ctx context.Context) *admin.Members {
	if n.cluster == nil {
		r := n.report().Node
		return &admin.Members{{Name: r.Name, ID: r.ID, Role: r.Role, State: r.State, Address: r.Address, Version: r.Version, Connections: r.Connections}}
	}
	list := admin.Members{}
	n.cluster.ProbeLiveness(ctx)
	silent := n.cluster.Silent()
	for _, m := range n.cluster.Members() {
		one := admin.Member{
			Name: m.Name, ID: m.ID, Role: m.Role, State: m.State, Address: m.Cluster, Version: m.Version, Connections: m.Facts.Connections,
		}
		switch {
		case m.Up() && silent[m.ID]:
			one.State = stateSuspect
		case m.Up() && m.Facts.Phase != "":
			one.State = m.Facts.Phase
		case m.State == cluster.StateLeft: // its process; it is a member
			one.State = "stopped"
		}
		list = append(list, one)
	}
	return &list
}

// explainHere asks the table of the node that is meant how it would decide.
func (n *Node) explainHere(ctx context.Context, r *admin.ExplainRequest) (*routing.Explanation, error) {
	if passed, err := n.elsewhere(ctx, r.Node); passed {
		return nil, err
	}
	return n.explain(r)
}

// readiness says whether a node should get traffic.
type readiness struct {
	state  *lifecycle.State
	engine *netio.Engine
}

// NotReady says why the node should get no traffic; "": it should.
func (r readiness) NotReady() string {
	if why := r.state.NotReady(); why != "" {
		return why
	}
	if r.engine.Exhausted() {
		return outOfFiles
	}
	return ""
}

// outOfFiles is why a node is not ready on which new connections have to wait.
const outOfFiles = "out of file descriptors: new connections wait to be accepted (raise the limit, or close some)"

// handOver lets another node lead, if this one does: it is about to get less
// to do, or to end.
func (n *Node) handOver() {
	if n.cluster == nil {
		return
	}
	n.background.Go(func() {
		ctx, cancel := context.WithTimeout(n.alive, handOverPatience)
		defer cancel()
		n.cluster.HandOver(ctx)
	})
}

// handOverPatience bounds the wait for another node to lead.
const handOverPatience = 3 * time.Second
