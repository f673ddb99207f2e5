package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"penstock/node/admin"
	"penstock/node/cluster"
	"penstock/node/ops"
)

// waiting serves the node's own socket while the node looks for its cluster:
// status, members and version answer at once with the reason for the wait. The
// server starts at the first call of Node.wait; a node that need not wait serves
// the full set of methods a moment later instead.
type waiting struct {
	now    atomic.Pointer[cluster.Waiting] // nil: nothing to wait for
	server *admin.Server                   // nil: not started; used by Start's goroutine alone
	served chan struct{}                   // closed when server accepts no more
}

// wait records what the node waits for. Only the goroutine of Start calls it.
func (n *Node) wait(w cluster.Waiting) {
	n.waiting.now.Store(&w)
	if n.waiting.server != nil || n.own == nil {
		return
	}
	s := newWaitingAdmin(n)
	served := make(chan struct{})
	n.waiting.server, n.waiting.served = s, served
	listener := pausable{n.own}
	n.background.Go(func() {
		defer close(served)
		if err := s.Serve(listener, caller(listener)); err != nil {
			n.log.Error("admin server failed", "address", listener.Addr().String(), "error", err)
		}
	})
}

// waited ends the server that wait started. The socket stays open: the next
// server answers clients that connect meanwhile.
func (n *Node) waited() {
	defer n.waiting.now.Store(nil)
	if n.waiting.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.waiting.server.Shutdown(ctx) // clients repeat requests that were cut off
	n.waiting.server = nil
	// Wait for the accept loop. If its Accept were still blocked when the
	// deadline is reset, it would go on beside the next server and close the
	// connections that it accepts.
	<-n.waiting.served
	if l, ok := n.own.(*net.UnixListener); ok {
		_ = l.SetDeadline(time.Time{})
	}
}

// pausable is a listener that can be closed and used again: Close of a unix
// listener sets a deadline in the past instead.
type pausable struct{ net.Listener }

// Accept accepts a connection. After Close it returns net.ErrClosed.
func (p pausable) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = net.ErrClosed
	}
	return conn, err
}

// Close makes Accept return.
func (p pausable) Close() error {
	if l, ok := p.Listener.(*net.UnixListener); ok {
		return l.SetDeadline(time.Unix(1, 0))
	}
	return p.Listener.Close()
}

// newWaitingAdmin makes the server for a node that is not in a cluster yet.
func newWaitingAdmin(n *Node) *admin.Server {
	s := admin.NewServer(admin.Config{Logger: n.log, Otherwise: func(string) *admin.Error {
		return admin.Errorf(admin.Unavailable, "this node cannot serve that yet: %s", n.waiting.why())
	}})
	admin.Handle(s, admin.MethodStatus, admin.RoleReader, func(context.Context, *admin.Empty) (*admin.Status, error) {
		st := &admin.Status{Alone: n.waiting.why(), Listeners: []admin.ListenerStatus{}, Services: []admin.ServiceStatus{}}
		for _, m := range n.waiting.members(n.adminAddr, n.cfg.Version) {
			st.Nodes = append(st.Nodes, admin.NodeStatus{Name: m.Name, ID: m.ID, State: m.State, Address: m.Address, Version: m.Version})
		}
		st.Nodes[0].HTTP, st.Nodes[0].Uptime = n.httpAddr, time.Since(n.started).Round(time.Second).String()
		return st, nil
	})
	admin.Handle(s, admin.MethodMembers, admin.RoleReader, func(context.Context, *admin.Empty) (*admin.Members, error) {
		list := n.waiting.members(n.adminAddr, n.cfg.Version)
		return &list, nil
	})
	admin.Handle(s, admin.MethodVersion, admin.RoleReader, func(context.Context, *admin.Empty) (*admin.Version, error) {
		return ops.Version(n.cfg.Version), nil
	})
	return s
}

// members lists this node, under its current name, and the nodes that it has
// seen.
func (w *waiting) members(address, version string) admin.Members {
	now := w.now.Load() // not nil while the server runs
	list := admin.Members{{Name: now.Name, ID: now.ID, State: now.State, Address: address, Version: version}}
	for _, p := range now.Seen {
		list = append(list, admin.Member{Name: p.Name, ID: p.ID, State: now.State, Address: p.Cluster})
	}
	return list
}

// why returns the reason why the node is not in its cluster yet.
func (w *waiting) why() string {
	if now := w.now.Load(); now != nil {
		return now.Why
	}
	return "starting"
}

// front returns the HTTP handler for the time in which the node looks for its
// cluster: /healthz answers, everything else is 503.
func (w *waiting) front() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", ops.ServeAlive)
	mux.HandleFunc("/", func(rw http.ResponseWriter, _ *http.Request) {
		text := "starting: not in a cluster yet"
		if now := w.now.Load(); now != nil {
			text = "starting: " + now.Why
		}
		http.Error(rw, text, http.StatusServiceUnavailable)
	})
	return mux
}
