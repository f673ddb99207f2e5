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

// waiting is the node's own socket while the node looks for its cluster: who
// asks there hears at once what it waits for. It opens with the first thing
// that the node has to wait for; one that needs to wait for nothing answers a
// moment later as what it is.
type waiting struct {
	now    atomic.Pointer[cluster.Waiting] // nil: for nothing
	server *admin.Server                   // nil: not opened; used by Start's goroutine alone
	served chan struct{}                   // closed when server accepts no more
}

// wait notes what the node waits for. It is called by the goroutine of Start.
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
			n.log.Error("admin", "address", listener.Addr().String(), "error", err)
		}
	})
}

// waited closes what wait opened. The socket stays: who comes meanwhile is
// answered by the server that takes its place.
func (n *Node) waited() {
	defer n.waiting.now.Store(nil)
	if n.waiting.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.waiting.server.Shutdown(ctx) // what is cut off is asked again
	n.waiting.server = nil
	// An accept that the deadline has ended, and that has not run since, takes
	// a deadline that was taken back for none at all: it would go on beside
	// the next server, and close whom it gets.
	<-n.waiting.served
	if l, ok := n.own.(*net.UnixListener); ok {
		_ = l.SetDeadline(time.Time{})
	}
}

// pausable is a listener that can be closed and used again.
type pausable struct{ net.Listener }

// Accept is net.Listener's.
func (p pausable) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = net.ErrClosed
	}
	return conn, err
}

// Close ends Accept.
func (p pausable) Close() error {
	if l, ok := p.Listener.(*net.UnixListener); ok {
		return l.SetDeadline(time.Unix(1, 0))
	}
	return p.Listener.Close()
}

// newWaitingAdmin makes the server of a node that is in no cluster yet.
func newWaitingAdmin(n *Node) *admin.Server {
	s := admin.NewServer(admin.Config{Logger: n.log, Otherwise: func(string) *admin.Error {
		return admin.Errorf(admin.Unavailable, "this node is not ready for that: %s", n.waiting.why())
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

// members are this node, by the name that it has now, and those that it
// has seen.
func (w *waiting) members(address, version string) admin.Members {
	now := w.now.Load() // there is one for as long as the server is
	list := admin.Members{{Name: now.Name, ID: now.ID, State: now.State, Address: address, Version: version}}
	for _, p := range now.Seen {
		list = append(list, admin.Member{Name: p.Name, ID: p.ID, State: now.State, Address: p.Cluster})
	}
	return list
}

// why says why the node is not in its cluster yet.
func (w *waiting) why() string {
	if now := w.now.Load(); now != nil {
		return now.Why
	}
	return "it starts"
}

// front is what HTTP serves while the node looks for its cluster.
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
