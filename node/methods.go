package node

import (
	"context"
	"runtime"
	"strings"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/routing"
)

// newAdmin makes the server of the admin methods. What each does is told by
// the types of package admin.
func newAdmin(n *Node) *admin.Server {
	s := admin.NewServer(admin.Config{Logger: n.log})
	admin.Handle(s, admin.MethodApply, admin.RoleAdmin, func(ctx context.Context, r *admin.ApplyRequest) (*admin.ApplyResult, error) {
		objects, err := n.catalog.Decode(r.Documents)
		if err != nil {
			return nil, err
		}
		result, err := n.catalog.Apply(ctx, catalog.Change{
			Objects: objects, Prune: r.Prune, DryRun: r.DryRun, ID: changeID(r.ID), Note: note(ctx),
		})
		n.countChange(err, r.DryRun)
		if err == nil && !r.DryRun {
			result.Warnings = append(result.Warnings, n.deaf(result.Changes)...)
		}
		return result, err
	}, admin.Changing())
	admin.Handle(s, admin.MethodDelete, admin.RoleAdmin, func(ctx context.Context, r *admin.DeleteRequest) (*admin.DeleteResult, error) {
		result, err := n.catalog.Delete(ctx, catalog.Target{
			Kind: r.Kind, Name: r.Name, Version: r.Version, ID: changeID(r.ID), Note: note(ctx),
		})
		n.countChange(err, false)
		return result, err
	}, admin.Changing())
	admin.Handle(s, admin.MethodGet, admin.RoleReader, func(_ context.Context, r *admin.GetRequest) (*admin.GetResult, error) {
		return n.catalog.Get(r)
	})
	admin.Handle(s, admin.MethodExplain, admin.RoleReader, func(_ context.Context, r *admin.ExplainRequest) (*routing.Explanation, error) {
		return n.explain(r)
	})
	admin.Handle(s, admin.MethodStatus, admin.RoleReader, func(context.Context, *admin.Empty) (*admin.Status, error) {
		return n.status(), nil
	})
	admin.Handle(s, admin.MethodMembers, admin.RoleReader, func(context.Context, *admin.Empty) (*admin.Members, error) {
		return n.members(), nil
	})
	admin.Handle(s, admin.MethodVersion, admin.RoleReader, func(context.Context, *admin.Empty) (*admin.Version, error) {
		return n.version(), nil
	})
	admin.Handle(s, admin.MethodDrain, admin.RoleOperator, n.drainMethod, admin.Changing())
	admin.HandleStream(s, admin.MethodTop, admin.RoleReader, n.top)
	return s
}

// changeID is the ID that a request has; what is not 16 bytes is none.
func changeID(b []byte) (id consensus.ID) {
	if len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// note says who asks for a change.
func note(ctx context.Context) consensus.Note {
	return consensus.Note{Who: admin.Caller(ctx).Name}
}

// deaf warns of the listeners among what was applied that do not listen here.
func (n *Node) deaf(changes []admin.Change) (warnings []admin.Fault) {
	applied := map[string]bool{}
	for _, c := range changes {
		if c.Kind == "Listener" {
			applied[c.Name] = true
		}
	}
	if len(applied) == 0 {
		return nil
	}
	for _, l := range n.engine.Listeners() {
		if applied[l.Name] && l.Err != nil {
			warnings = append(warnings, admin.Fault{
				Key: "Listener/" + l.Name, Path: "spec.address",
				Message: "does not listen on node " + n.cfg.Name + ", and is tried again: " + l.Err.Error(),
			})
		}
	}
	return warnings
}

func (n *Node) version() *admin.Version {
	return &admin.Version{Version: n.cfg.Version, Go: runtime.Version()}
}

func (n *Node) members() *admin.Members {
	return &admin.Members{{
		Name: n.cfg.Name, ID: n.id, Role: role, State: n.state.String(), Address: n.adminAddr,
		Version: n.cfg.Version, Connections: int64(n.engine.Stats().Connections),
	}}
}

// role is what a node without others is: it takes every decision itself.
const role = "leader"

func (n *Node) status() *admin.Status {
	set, view := n.catalog.InForce()
	s := &admin.Status{
		Leader: n.cfg.Name,
		Nodes: []admin.NodeStatus{{
			Name: n.cfg.Name, Role: role, State: n.state.String(), AppliedIndex: view.Index(), Resources: set.Len(),
			Connections: int64(n.engine.Stats().Connections), Address: n.adminAddr, HTTP: n.httpAddr,
			Uptime: time.Since(n.started).Round(time.Second).String(), Version: n.cfg.Version,
		}},
		Listeners: []admin.ListenerStatus{},
		Services:  n.serviceStatus(),
	}
	totals := map[string]uint64{}
	for _, f := range n.flows.all() {
		totals[f.listener] += f.meter.Counts().Connections
	}
	for _, l := range n.engine.Listeners() {
		one := admin.ListenerStatus{
			Name: l.Name, Address: l.Address, State: "listening",
			Connections: int64(l.Connections), Total: totals[l.Name],
		}
		if l.Err != nil {
			one.State, one.Error = "failed", l.Err.Error()
		}
		s.Listeners = append(s.Listeners, one)
	}
	return s
}

// minInterval is the least time between two samples of top.
const minInterval = 100 * time.Millisecond

// top sends a sample of the flows after each interval.
func (n *Node) top(ctx context.Context, r *admin.TopRequest, send func(*admin.TopSample) error) error {
	if r.Interval < minInterval {
		return admin.Errorf(admin.Invalid, "an interval of %v: want %v or more", r.Interval, minInterval)
	}
	ticker := time.NewTicker(r.Interval)
	defer ticker.Stop()
	last, at := n.sample(), time.Now()
	for i := 0; r.Count == 0 || i < r.Count; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		next, now := n.sample(), time.Now()
		s := n.compare(last, next, now, now.Sub(at))
		if r.Connections > 0 {
			s.Latest = n.latest(min(r.Connections, maxLatest))
		}
		if err := send(s); err != nil {
			return err
		}
		last, at = next, now
	}
	return nil
}

// maxLatest bounds the connections that a sample lists.
const maxLatest = 1000

// latest describes the latest connections.
func (n *Node) latest(limit int) []admin.Connection {
	var list []admin.Connection
	for _, c := range n.engine.Connections(limit) {
		service, at, _ := strings.Cut(c.Label, " ")
		one := admin.Connection{
			ID: c.ID, Listener: c.Listener, SNI: c.ServerName, Service: service, Endpoint: at, Phase: c.Phase,
			BytesIn: c.BytesIn, BytesOut: c.BytesOut, Age: c.Age, Idle: c.Idle,
		}
		if c.Client.IsValid() {
			one.Client = c.Client.String()
		}
		list = append(list, one)
	}
	return list
}

// sample is each flow's counts now.
func (n *Node) sample() map[*flow]admin.Flow {
	m := map[*flow]admin.Flow{}
	for _, f := range n.flows.all() {
		if f.service == "" {
			continue
		}
		c := f.meter.Counts()
		m[f] = admin.Flow{
			Listener: f.listener, Service: f.service, Connections: c.Active,
			Total: c.Connections, BytesIn: c.BytesIn, BytesOut: c.BytesOut,
		}
	}
	return m
}

// compare makes the rates between two samples.
func (n *Node) compare(last, next map[*flow]admin.Flow, now time.Time, over time.Duration) *admin.TopSample {
	s := &admin.TopSample{Node: n.cfg.Name, At: now, Interval: over, Connections: int64(n.engine.Stats().Connections), Flows: []admin.Flow{}}
	for _, f := range n.flows.all() {
		one, ok := next[f]
		if !ok {
			continue
		}
		before := last[f]
		rate := func(a, b uint64) float64 { return float64(int64(b-a)) / over.Seconds() }
		one.NewRate = rate(before.Total, one.Total)
		one.InRate = rate(before.BytesIn, one.BytesIn)
		one.OutRate = rate(before.BytesOut, one.BytesOut)
		s.Flows = append(s.Flows, one)
	}
	return s
}
