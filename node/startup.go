package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/ops"
	"penstock/node/rpc"
)

// startupStatus serves the node's own socket while the node looks for its cluster:
// status, members and version answer at once with the reason for the wait. The
// server starts at the first call of Node.setWaiting; a node that need not wait serves
// the full set of methods a moment later instead.
type startupStatus struct {
	current atomic.Pointer[bootstrap.Waiting] // nil: nothing to wait for
	server  *rpc.Server                       // nil: not started; used by Start's goroutine alone
	served  chan struct{}                     // closed when server accepts no more
}

// setWaiting records what the node waits for. Only the goroutine of Start calls it.
func (n *Node) setWaiting(w bootstrap.Waiting) {
	n.startup.current.Store(&w)
	if n.startup.server != nil || n.socket == nil {
		return
	}
	s := newStartupAdmin(n)
	served := make(chan struct{})
	n.startup.server, n.startup.served = s, served
	listener := pausable{n.socket}
	n.background.Go(func() {
		defer close(served)
		if err := s.Serve(listener, implicitPrincipal(listener)); err != nil {
			n.log.Error("admin server failed", "address", listener.Addr().String(), "error", err)
		}
	})
}

// stopStartupServer ends the server that setWaiting started. The socket stays open: the next
// server answers clients that connect meanwhile.
func (n *Node) stopStartupServer() {
	defer n.startup.current.Store(nil)
	if n.startup.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.startup.server.Shutdown(ctx) // clients repeat requests that were cut off
	n.startup.server = nil
	// Wait for the accept loop. If its Accept were still blocked when the
	// deadline is reset, it would go on beside the next server and close the
	// connections that it accepts.
	<-n.startup.served
	if l, ok := n.socket.(ownSocket); ok {
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
	if l, ok := p.Listener.(ownSocket); ok {
		return l.SetDeadline(time.Unix(1, 0))
	}
	return p.Listener.Close()
}

// newStartupAdmin makes the server for a node that is not in a cluster yet.
func newStartupAdmin(n *Node) *rpc.Server {
	s := rpc.NewServer(rpc.Config{Logger: n.log, Otherwise: func(string) *api.Error {
		return api.Errorf(api.Unavailable, "this node cannot serve that yet: %s", n.startup.reason())
	}})
	rpc.Handle(s, api.MethodStatus, api.RoleReader, func(context.Context, *api.Empty) (*api.Status, error) {
		st := &api.Status{Alone: n.startup.reason(), Listeners: []api.ListenerStatus{}, Services: []api.ServiceStatus{}}
		for _, m := range n.startup.members(n.adminAddr, n.cfg.Version) {
			st.Nodes = append(st.Nodes, api.NodeStatus{Name: m.Name, ID: m.ID, State: m.State, Address: m.Address, Version: m.Version})
		}
		st.Nodes[0].HTTP, st.Nodes[0].Uptime = n.httpAddr, time.Since(n.started).Round(time.Second).String()
		return st, nil
	})
	rpc.Handle(s, api.MethodMembers, api.RoleReader, func(context.Context, *api.Empty) (*api.Members, error) {
		list := n.startup.members(n.adminAddr, n.cfg.Version)
		return &list, nil
	})
	rpc.Handle(s, api.MethodVersion, api.RoleReader, func(context.Context, *api.Empty) (*api.Version, error) {
		return ops.Version(n.cfg.Version), nil
	})
	return s
}

// members lists this node, under its current name, and the nodes that it has
// seen.
func (w *startupStatus) members(address, version string) api.Members {
	now := w.current.Load() // not nil while the server runs
	list := api.Members{{Name: now.Name, ID: now.ID, State: now.State, Address: address, Version: version}}
	for _, p := range now.Seen {
		list = append(list, api.Member{Name: p.Name, ID: p.ID, State: now.State, Address: p.Cluster})
	}
	return list
}

// reason returns the reason why the node is not in its cluster yet.
func (w *startupStatus) reason() string {
	if now := w.current.Load(); now != nil {
		return now.Why
	}
	return "starting"
}

// httpHandler returns the HTTP handler for the time in which the node looks for its
// cluster: /healthz answers, everything else is 503.
func (w *startupStatus) httpHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", ops.ServeAlive)
	mux.HandleFunc("/", func(rw http.ResponseWriter, _ *http.Request) {
		text := "starting: not in a cluster yet"
		if now := w.current.Load(); now != nil {
			text = "starting: " + now.Why
		}
		http.Error(rw, text, http.StatusServiceUnavailable)
	})
	return mux
}
