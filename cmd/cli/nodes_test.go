package cli

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// serveLeave returns a handler for n1 of a cluster that n2 has left by the third
// members request.
func serveLeave(t *testing.T, asked *atomic.Int32) func(*rpc.Server) {
	return func(s *rpc.Server) {
		rpc.Handle(s, api.MethodLeave, api.RoleAdmin, func(_ context.Context, r *api.LeaveRequest) (*api.LeaveResult, error) {
			if r.Over == nil || *r.Over != 3*time.Second {
				t.Errorf("over %v", r.Over)
			}
			if r.Node == "" {
				go s.Drop(anyPrincipal)
			}
			return &api.LeaveResult{Node: orElse(r.Node, "n1"), Connections: 5}, nil
		}, rpc.Changing())
		rpc.Handle(s, api.MethodMembers, api.RoleReader, func(context.Context, *api.Empty) (*api.Members, error) {
			m := api.Members{{Name: "n1", State: "serving"}}
			if asked.Add(1) < 3 {
				m = append(m, api.Member{Name: "n2", State: "draining", Connections: 2})
			}
			return &m, nil
		})
		rpc.HandleStream(s, api.MethodTop, api.RoleReader, func(
			_ context.Context,
			_ *api.TopRequest,
			send func(*api.TopSample) error,
		) error {
			return send(&api.TopSample{Node: "n1"})
		})
	}
}

func TestLeaveWaitsUntilTheNodeIsGone(t *testing.T) {
	var asked atomic.Int32
	serveAdmin(t, serveLeave(t, &asked))
	penstock("leave", "n2", "--over", "3s").want(t, 0, "n2 left\n", "n2 is leaving: 5 connections to close\nn2 is draining: 2 connections\n")
	asked.Store(-1000)
	penstock("leave", "n2", "--over", "3s", "--wait-timeout", "1ms").want(t, 1, "", "n2 has not left within 1ms; it is still leaving")
	penstock("leave", "n2", "--over", "3s", "--wait-timeout", "0s").want(t, 0, "", "n2 is leaving: 5 connections to close\n")
}

func TestStatusReportsMissingLeaderFirst(t *testing.T) {
	status := api.Status{Nodes: []api.NodeStatus{
		{Name: "n1", Role: "voter", State: "serving", AppliedIndex: 12, Resources: 2, Address: "127.0.0.1:7947", Uptime: "1m", Version: "v1"},
		{Name: "n2", Role: "voter", State: "unreachable", AppliedIndex: 10, Lag: 2},
	}, Listeners: []api.ListenerStatus{
		{Node: "n1", Name: "edge", Address: "127.0.0.1:443", State: "listening"},
		{Node: "n2", Name: "edge", State: "failed", Error: "address already in use"},
	}}
	serveAdmin(t, func(s *rpc.Server) {
		rpc.Handle(s, api.MethodStatus, api.RoleReader, func(context.Context, *api.Empty) (*api.Status, error) { return &status, nil })
		rpc.Handle(s, api.MethodMembers, api.RoleReader, func(context.Context, *api.Empty) (*api.Members, error) {
			return &api.Members{{Name: "n1", Role: "voter"}}, nil
		})
	})
	const tables = `NODE   ROLE    STATE         APPLIED   LAG   RESOURCES   CONNECTIONS   ADDRESS          UPTIME   VERSION
n1     voter   serving       12        0     2           0             127.0.0.1:7947   1m       v1
n2     voter   unreachable   10        2     0           0             -                -        -

LISTENER   NODE   ADDRESS         STATE       CONNECTIONS   TOTAL   ERROR
edge       n1     127.0.0.1:443   listening   0             0       -
edge       n2     -               failed      0             0       address already in use
`
	penstock("status").want(t, 0, "NO LEADER: changes are refused, traffic is served\n\n"+tables, "")
	status.Alone = "no other node can be reached"
	penstock("status").want(t, 0, "ALONE: no other node can be reached\n\n"+tables, "")
	status.Alone, status.Leader = "", "n2"
	penstock("status").want(t, 0, tables, "")
	penstock("members").want(t, 0, "", "penstock: no leader; `penstock status` shows why\n")
}
