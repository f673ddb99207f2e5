package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/stream"
	"penstock/routing/resource"
)

// Why streams end.
var (
	errStopping = status.Error(codes.Unavailable, "this node is stopping")
	errNotReady = status.Error(codes.Unavailable, "this node is not ready to serve yet")
	errNoType   = status.Error(codes.InvalidArgument, "an aggregated stream's requests must have a type_url")
)

// client is one stream.
type client struct {
	server *Server
	conn   *conn
	raw    grpc.ServerStream
	only   snapshot.Type // its type; snapshot.Types: all, it is an aggregated stream
	delta  bool
	since  time.Time
	holds  string // the key in Server.held
	// drained is closed by Server.Drain.
	drained chan struct{}

	at       *generation // served now
	deadline *time.Timer // of the send that is under way

	// What is announced for this stream, nil: nothing; and why.
	announced    *announcement
	announceSpec *resource.Announce
	announceZone string

	mu      sync.Mutex // guards what follows, which Proxies reads
	service string
	node    nodeInfo
	session *stream.Session
}

// nodeInfo is what a client says about itself.
type nodeInfo struct{ id, cluster, agent, zone string }

// serve serves a stream until it ends.
func (s *Server) serve(ss grpc.ServerStream, only snapshot.Type, isDelta bool) error {
	p, _ := peer.FromContext(ss.Context())
	c := &client{server: s, conn: p.AuthInfo.(*conn), raw: ss, only: only, delta: isDelta, since: time.Now(), drained: make(chan struct{})}
	if err := s.admit(c); err != nil {
		return err
	}
	defer s.release(c)
	err := c.run(ss.Context())
	if err != nil && status.Code(err) == codes.PermissionDenied {
		s.stats.refuse(refusedIdentity)
		s.warn("a discovery stream was refused", "from", c.conn.remote.String(), "identity", c.conn.identity.String(), "error", err)
	}
	return err
}

// admit counts a stream, or refuses it.
func (s *Server) admit(c *client) error {
	if c.conn.plain && !s.cfg.Plain || c.conn.refused != nil {
		s.stats.refuse(refusedIdentity)
		return status.Error(codes.Unauthenticated, cmpError(c.conn.refused, errNoCertificate).Error())
	}
	c.holds = c.conn.identity.String()
	if c.conn.plain {
		c.holds = c.conn.remote.Addr().String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return errStopping
	case len(s.clients) >= s.cfg.MaxStreams:
		s.stats.refuse(refusedStreams)
		return status.Errorf(codes.ResourceExhausted, "this node has %d streams, which is its maximum", s.cfg.MaxStreams)
	case s.held[c.holds] >= s.cfg.MaxPerIdentity:
		s.stats.refuse(refusedPerIdentity)
		return status.Errorf(codes.ResourceExhausted, "%s has %d streams, which is the maximum", c.holds, s.cfg.MaxPerIdentity)
	}
	s.clients[c] = struct{}{}
	s.held[c.holds]++
	return nil
}

func cmpError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// release undoes admit and what the stream announced.
func (s *Server) release(c *client) {
	c.announce(nil, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, c)
	if s.held[c.holds]--; s.held[c.holds] == 0 {
		delete(s.held, c.holds)
	}
}

// run answers the client until the stream ends.
func (c *client) run(ctx context.Context) error {
	if err := c.start(ctx); err != nil {
		return err
	}
	requests, failed := make(chan *inbound), make(chan error, 1)
	go c.receive(ctx, requests, failed) // ends with the stream
	c.deadline = time.AfterFunc(time.Hour, c.giveUp)
	defer c.deadline.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		if err := c.sendAll(due); err != nil {
			return err
		}
		var err error
		select {
		case in := <-requests:
			err = c.request(in)
		case err = <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-c.at.next:
			err = c.update()
		case <-due.C:
		case <-c.drained:
			err = errStopping
		case <-c.server.stopping:
			err = errStopping
		}
		if err != nil {
			return err
		}
	}
}

// start waits until there is something to serve, and finds out who the client is.
func (c *client) start(ctx context.Context) error {
	c.at = c.server.current.Load()
	if c.at.state == nil {
		if err := c.awaitNext(ctx); err != nil {
			return err
		}
	}
	if c.conn.plain {
		return nil // its first request says who it is
	}
	found := c.at.identify(c.conn.identity)
	if !found.ok && c.server.behind.Load() {
		// Its service may be what has just changed.
		if err := c.awaitNext(ctx); err != nil {
			return err
		}
		found = c.at.identify(c.conn.identity)
	}
	if !found.ok {
		return status.Error(codes.PermissionDenied, found.why)
	}
	return c.open(found.name)
}

// awaitNext waits for the next snapshot.
func (c *client) awaitNext(ctx context.Context) error {
	wait := time.NewTimer(stream.MaxWait)
	defer wait.Stop()
	select {
	case <-c.at.next:
		c.at = c.server.current.Load()
		return nil
	case <-c.drained:
		return errStopping
	case <-c.server.stopping:
		return errStopping
	case <-wait.C:
		return errNotReady
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open starts the session of a proxy of a service.
func (c *client) open(service string) error {
	view := c.at.state.View(service)
	if view == nil {
		return status.Errorf(codes.PermissionDenied, "service %q does not exist or has no discovery", service)
	}
	cfg := stream.Config{Delta: c.delta, Names: c.server.names, MaxNames: c.server.cfg.MaxNames, MaxName: c.server.cfg.MaxName}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.service, c.session = service, stream.New(cfg, c.at.state, view)
	return nil
}

// receive reads requests, no faster than RequestRate.
func (c *client) receive(ctx context.Context, requests chan<- *inbound, failed chan<- error) {
	limit := rate.NewLimiter(rate.Limit(c.server.cfg.RequestRate), c.server.cfg.RequestRate)
	for {
		in := &inbound{delta: c.delta}
		if err := c.raw.RecvMsg(in); err != nil {
			failed <- err
			return
		}
		if !limit.Allow() {
			c.server.stats.delayed.Add(1)
			if err := limit.Wait(ctx); err != nil {
				return
			}
		}
		select {
		case requests <- in:
		case <-ctx.Done():
			return
		}
	}
}

// request takes a request.
func (c *client) request(in *inbound) error {
	t := c.only
	if t == snapshot.Types {
		if in.typeURL == "" {
			return errNoType
		}
		t = in.request.Type
	} else if in.typeURL != "" && in.request.Type != t {
		return status.Errorf(codes.InvalidArgument, "type_url %q on the stream of type %s", shorten(in.typeURL), t)
	}
	if err := c.hello(in.node); err != nil {
		return err
	}
	if t == snapshot.Types {
		c.server.stats.unknown.Add(1) // a type that is not served: as if it had no resources
		return nil
	}
	in.request.Type = t
	c.mu.Lock()
	result, err := c.session.Request(&in.request, time.Now())
	c.mu.Unlock()
	var bound *stream.BoundError
	if errors.As(err, &bound) {
		c.server.stats.refuse(refusedNames)
		return status.Error(codes.ResourceExhausted, bound.Error())
	}
	c.server.stats.requests[result][t].Add(1)
	if result == stream.Rejected {
		c.server.warn("a proxy refused resources", "service", c.service, "from", c.conn.remote.String(),
			"type", t.String(), "detail", shorten(in.request.Detail))
	}
	return nil
}

// hello takes what a client says about itself, in its first request at least.
func (c *client) hello(n *corev3.Node) error {
	if n == nil {
		if c.session == nil {
			return status.Error(codes.InvalidArgument, "the first request must have a node")
		}
		return nil
	}
	if c.session == nil {
		if err := c.open(n.GetCluster()); err != nil {
			return err
		}
	}
	if n.GetCluster() != "" && n.GetCluster() != c.service {
		return status.Errorf(codes.PermissionDenied, "node.cluster is %q, and the identity is that of service %q",
			shorten(n.GetCluster()), c.service)
	}
	info := nodeInfo{id: shorten(n.GetId()), cluster: c.service, agent: agentOf(n), zone: shorten(n.GetLocality().GetZone())}
	if info == c.node {
		return nil
	}
	c.mu.Lock()
	c.node = info
	c.mu.Unlock()
	c.announceAs(c.at.state.View(c.service))
	return nil
}

// update takes the newest state.
func (c *client) update() error {
	c.at = c.server.current.Load()
	if c.session == nil {
		return nil
	}
	if !c.conn.plain {
		switch found := c.at.identify(c.conn.identity); {
		case !found.ok:
			return status.Error(codes.PermissionDenied, found.why)
		case found.name != c.service:
			return status.Errorf(codes.Unavailable, "the identity is that of service %q now", found.name)
		}
	}
	view := c.at.state.View(c.service)
	if view == nil {
		return status.Errorf(codes.PermissionDenied, "service %q does not exist any more or has no discovery", c.service)
	}
	c.mu.Lock()
	c.session.Update(c.at.state, view, time.Now())
	c.mu.Unlock()
	c.announceAs(view)
	return nil
}

// sendAll sends what is due, and sets the timer for what will be without an
// event.
func (c *client) sendAll(due *time.Timer) error {
	for c.session != nil {
		now := time.Now()
		c.mu.Lock()
		r, ok := c.session.Next(now)
		next := c.session.Due()
		c.mu.Unlock()
		if !ok {
			if !next.IsZero() {
				due.Reset(next.Sub(now))
			}
			return nil
		}
		c.deadline.Reset(c.server.cfg.SendTimeout)
		err := c.raw.SendMsg(&r)
		c.deadline.Stop()
		if err != nil {
			return err
		}
		c.server.stats.responses[r.Type].Add(1)
		c.server.stats.pushes.Observe(time.Since(r.Since).Seconds())
	}
	return nil
}

// giveUp closes the connection of a client that makes no room for a response:
// without that, what is queued for it stays in memory.
func (c *client) giveUp() {
	c.server.stats.stalled.Add(1)
	c.server.warn("a discovery client does not read; its connection is closed", "from", c.conn.remote.String())
	c.conn.Close()
}

// maxInfo bounds what is kept and shown of a client's texts, in bytes.
const maxInfo = 256

// shorten returns a text of a client as printable text of a bounded length.
func shorten(text string) string {
	quoted := fmt.Sprintf("%q", text[:min(len(text), maxInfo)])
	return quoted[1 : len(quoted)-1]
}

// agentOf returns what a client is, such as "envoy 1.34.0".
func agentOf(n *corev3.Node) string {
	version := n.GetUserAgentVersion()
	if b := n.GetUserAgentBuildVersion().GetVersion(); b != nil {
		version = fmt.Sprintf("%d.%d.%d", b.GetMajorNumber(), b.GetMinorNumber(), b.GetPatch())
	}
	return shorten(joinWords(n.GetUserAgentName(), version))
}

func joinWords(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}
