// Package xds is the discovery server: it serves clusters, endpoints, listeners,
// routes and secrets by xDS v3, to Envoys and other clients of that protocol. The
// client's certificate says which service's proxy it is, and so what it sees.
//
//	s := xds.New(xds.Config{Build: build, Announcer: announcer, Log: log})
//	go s.Serve(listener) // of connections whose TLS handshake is over
//	s.Changed()          // after each change of what Build returns
//	...
//	s.Stop(ctx)
//
// Package stream has the protocol, package snapshot what is served.
package xds

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/stream"
	"penstock/routing/provider"
)

// Defaults and bounds of Config.
const (
	DefaultWindow         = 50 * time.Millisecond
	DefaultMaxWindow      = 500 * time.Millisecond
	DefaultMaxConnections = 10_000
	DefaultMaxStreams     = 10_000
	DefaultMaxPerIdentity = 1_000
	DefaultMaxNames       = 20_000
	DefaultMaxName        = 512
	DefaultMaxRequest     = 4 << 20
	DefaultRequestRate    = 100
	DefaultSendTimeout    = 20 * time.Second
	DefaultKeepAlive      = 20 * time.Second
	DefaultMinPing        = 5 * time.Second
)

// Config configures New. What is left out has its default.
type Config struct {
	// Build returns what is to be served now. Calls do not overlap. Required.
	Build func() snapshot.Snapshot
	// Announcer makes connected proxies endpoints of their services; nil: none is.
	Announcer Announcer
	// Plain accepts connections without TLS: their clients are those of the service
	// that node.cluster of their requests names. For --dev.
	Plain bool
	// Node is this node's name, for Proxies.
	Node string
	Log  *slog.Logger // nil: none

	// Window is the time without a change after which changes are sent, MaxWindow
	// the time after which they are sent in any case. Default 50ms and 500ms.
	Window, MaxWindow time.Duration

	// MaxConnections bounds the connections, MaxStreams the streams on them, and
	// MaxPerIdentity those of one identity. Default 10,000, 10,000 and 1,000.
	MaxConnections, MaxStreams, MaxPerIdentity int
	// MaxNames bounds the names of a subscription, MaxName the bytes of each. Default
	// 20,000 and 512.
	MaxNames, MaxName int
	// MaxRequest bounds a request, in bytes. Default 4 MiB.
	MaxRequest int
	// RequestRate is how many requests a second of one stream are read; more wait.
	// Default 100.
	RequestRate int
	// SendTimeout is how long a client may take to make room for a response, by
	// HTTP/2's flow control, before its connection is closed. Default 20s.
	SendTimeout time.Duration
	// KeepAlive is the time without traffic after which a connection is checked; it
	// is closed if there is no answer for half that time. Default 20s.
	KeepAlive time.Duration
	// MinPing is the least time between two checks (HTTP/2 pings) by a client. The
	// connection of one that checks more often is closed. Default 5s.
	MinPing time.Duration
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.MaxWindow = max(cmp.Or(c.MaxWindow, DefaultMaxWindow), c.Window)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	c.MaxStreams = cmp.Or(c.MaxStreams, DefaultMaxStreams)
	c.MaxPerIdentity = cmp.Or(c.MaxPerIdentity, DefaultMaxPerIdentity)
	c.MaxNames = cmp.Or(c.MaxNames, DefaultMaxNames)
	c.MaxName = cmp.Or(c.MaxName, DefaultMaxName)
	c.MaxRequest = cmp.Or(c.MaxRequest, DefaultMaxRequest)
	c.RequestRate = cmp.Or(c.RequestRate, DefaultRequestRate)
	c.SendTimeout = cmp.Or(c.SendTimeout, DefaultSendTimeout)
	c.KeepAlive = cmp.Or(c.KeepAlive, DefaultKeepAlive)
	c.MinPing = cmp.Or(c.MinPing, DefaultMinPing)
	return c
}

// Announcer makes proxies endpoints of their services.
type Announcer interface {
	// Announce makes e an endpoint of a service until withdraw is called.
	Announce(service string, e provider.Endpoint) (withdraw func())
}

// Server is the discovery server. Create it with New and end it with Stop.
type Server struct {
	cfg   Config
	grpc  *grpc.Server
	names *stream.Names
	stats *stats
	logs  *rate.Limiter

	current  atomic.Pointer[generation]
	updating sync.Mutex    // held while current changes
	changed  chan struct{} // has room for one
	behind   atomic.Bool   // there are changes that are not served yet
	stopping chan struct{} // closed by Stop
	stopped  sync.WaitGroup
	stopOnce sync.Once

	mu    sync.Mutex
	conns map[*conn]struct{}
	// clients are the streams, and how many each identity has.
	clients map[*client]struct{}
	held    map[string]int
	// draining: there are no streams until Resume.
	draining bool
}

// generation is what is served until next is closed.
type generation struct {
	state *stream.State // nil: nothing yet
	next  chan struct{}

	mu         sync.Mutex
	identities map[snapshot.Identity]service
}

// service is the service of an identity, or why it has none.
type service struct {
	name, why string
	ok        bool
}

// identify is Snapshot.Identify, asked once for each identity.
func (g *generation) identify(id snapshot.Identity) service {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, known := g.identities[id]
	if !known {
		s.name, s.ok, s.why = g.state.Identify(id)
		g.identities[id] = s
	}
	return s
}

// New starts a server, which builds its first snapshot at once.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg.withDefaults(), names: stream.NewNames(), stats: newStats(), logs: rate.NewLimiter(1, 20),
		changed: make(chan struct{}, 1), stopping: make(chan struct{}),
		conns: map[*conn]struct{}{}, clients: map[*client]struct{}{}, held: map[string]int{},
	}
	s.current.Store(&generation{next: make(chan struct{})})
	s.grpc = s.newGRPC()
	s.stopped.Go(s.follow)
	return s
}

// Serve serves the connections of a listener until Stop. A connection's TLS
// handshake is over, and it has ConnectionState() tls.ConnectionState; or it is
// plain. Several calls may run at a time.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Changed makes the server build a new snapshot soon.
func (s *Server) Changed() {
	s.behind.Store(true)
	select {
	case s.changed <- struct{}{}:
	default: // known already
	}
}

// Update serves a snapshot from now on.
func (s *Server) Update(next snapshot.Snapshot) {
	s.updating.Lock()
	defer s.updating.Unlock()
	before := s.current.Load()
	s.current.Store(&generation{
		state: stream.NewState(next, time.Now()), next: make(chan struct{}), identities: map[snapshot.Identity]service{},
	})
	close(before.next)
	s.stats.snapshots.Add(1)
}

// follow builds snapshots: the first one at once, later ones when no change has
// come for a while.
func (s *Server) follow() {
	for {
		s.behind.Store(false)
		s.Update(s.cfg.Build())
		select {
		case <-s.stopping:
			return
		case <-s.changed:
		}
		if !s.settle() {
			return
		}
	}
}

// settle returns when there was no change for Window, or after MaxWindow. It
// returns false if the server stops.
func (s *Server) settle() bool {
	over := time.NewTimer(s.cfg.MaxWindow)
	defer over.Stop()
	quiet := time.NewTimer(s.cfg.Window)
	defer quiet.Stop()
	for {
		select {
		case <-s.stopping:
			return false
		case <-s.changed:
			quiet.Reset(s.cfg.Window)
		case <-quiet.C:
			return true
		case <-over.C:
			return true
		}
	}
}

// warn logs what clients cause, so no more often than once a second.
func (s *Server) warn(message string, args ...any) {
	if s.logs.Allow() {
		s.cfg.Log.Warn(message, args...)
	}
}

// Drain ends all streams with the status Unavailable, so that the clients go to
// another node, and refuses new ones until Resume.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	s.draining = true
	for c := range s.clients {
		close(c.drained)
	}
}

// Resume accepts streams again after Drain.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = false
}

// Stop ends all streams with the status Unavailable, so that the clients go to
// another node, and then their connections. It returns when all have ended; when
// ctx ends, it closes the connections first.
func (s *Server) Stop(ctx context.Context) {
	s.stopOnce.Do(func() { close(s.stopping) })
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
	s.stopped.Wait()
}
