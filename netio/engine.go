package netio

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/netio/budget"
	"penstock/netio/reactor"
	"penstock/netio/tlsstream"
)

// Config is the configuration of an engine. Zero values mean the defaults.
type Config struct {
	// Handler decides about connections; required.
	Handler Handler
	// Log receives events of listeners; required. Logging connections is up to
	// the Handler.
	Log *slog.Logger
	// Loops is the number of event loops; default GOMAXPROCS.
	Loops int
	// MemoryBudget bounds the bytes held for all connections before they are
	// relayed; default 64 MiB, at least 1 MiB. See newBudget.
	MemoryBudget int64
	// MaxHandshakes bounds the concurrent TLS handshakes, with clients and
	// endpoints together; default 4096.
	MaxHandshakes int
	// KeepAlive is the idle time before TCP keepalive probes, and their
	// interval, on both sides. Probes to an endpoint begin when the connection
	// is that old. Default 60s; negative means no probes.
	KeepAlive time.Duration
	// BindRetry is the pause before binding an address is retried; it doubles
	// up to BindRetryMax. Default 1s and 30s.
	BindRetry, BindRetryMax time.Duration
	// CloseTimeout bounds how long a closed connection may take to send
	// pending bytes and to see the peer's end; default 10s.
	CloseTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	var faults []error
	if c.Handler == nil {
		faults = append(faults, errors.New("config: no handler"))
	}
	if c.Log == nil {
		faults = append(faults, errors.New("config: no log"))
	}
	if c.Loops < 0 {
		faults = append(faults, fmt.Errorf("config: %d loops", c.Loops))
	}
	if c.Loops == 0 {
		c.Loops = runtime.GOMAXPROCS(0)
	}
	if c.MemoryBudget == 0 {
		c.MemoryBudget = 64 << 20
	}
	if c.MemoryBudget < 1<<20 {
		faults = append(faults, fmt.Errorf("config: memory budget %d, at least %d", c.MemoryBudget, 1<<20))
	}
	if c.MaxHandshakes <= 0 {
		c.MaxHandshakes = 4096
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = time.Minute
	}
	if c.BindRetry <= 0 {
		c.BindRetry = time.Second
	}
	if c.BindRetryMax <= 0 {
		c.BindRetryMax = 30 * time.Second
	}
	return c, errors.Join(faults...)
}

// An Engine runs the loops. Its methods may be called from any goroutine
// except the loops' own, so not by a Handler or a Plan. Most methods wait for
// the loops: do not hold a lock that a Handler or a Plan takes.
type Engine struct {
	cfg       Config
	log       *slog.Logger
	handler   Handler
	tcp       reactor.TCPOptions
	loops     []*loop
	pool      *tlsstream.Pool
	budget    *budget.Budget
	places    *budget.Budget // of handshakes with clients
	refused   refusals
	rests     atomic.Uint64 // times that accepting rested for want of descriptors
	rested    atomic.Int64  // when it rested last, in ns since 1970; 0: not lately
	restLasts time.Duration // shortageLasts
	instance  [8]byte       // chance; begins the unique ids of this process
	files     int64         // connections that the descriptors suffice for

	running sync.WaitGroup // the loops' goroutines
	over    chan struct{}  // closed when they have ended

	mu        sync.Mutex
	listeners map[string]*listener
	next      int  // loop that gets the next socket
	stopped   bool // drained or closed: nothing listens
	closed    bool
}

// New returns an engine with its loops running. Close stops it.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, log: cfg.Log, handler: cfg.Handler,
		tcp:       reactor.TCPOptions{KeepAlive: max(cfg.KeepAlive, 0)},
		pool:      tlsstream.NewPool(cfg.MaxHandshakes),
		budget:    newBudget(cfg.MemoryBudget),
		places:    newPlaces(cfg.MaxHandshakes),
		instance:  newInstance(),
		restLasts: shortageLasts,
		listeners: make(map[string]*listener),
		over:      make(chan struct{}),
	}
	for i := range cfg.Loops {
		l, err := newLoop(e, i)
		if err != nil {
			for _, l := range e.loops {
				l.Close()
				_ = l.Run() // which releases what it has, and returns
			}
			return nil, err
		}
		e.loops = append(e.loops, l)
	}
	e.files = roomFor()
	for _, l := range e.loops {
		e.running.Go(l.run)
	}
	return e, nil
}

// Loops returns the number of loops, for NewMeter.
func (e *Engine) Loops() int { return len(e.loops) }

// onLoops has fn called on every loop and waits for all of them.
func (e *Engine) onLoops(fn func(l *loop)) {
	var wg sync.WaitGroup
	for _, l := range e.loops {
		wg.Add(1)
		if !l.Post(func() { defer wg.Done(); fn(l) }) {
			wg.Done()
		}
	}
	wg.Wait()
}

// Stats are the current numbers of an engine.
type Stats struct {
	// Connections counts the open connections; PerLoop does so for each loop.
	Connections int
	PerLoop     []int
	// Pending is the number of bytes that the kernel has not taken yet.
	Pending int64
	// Budget is the memory budget and BudgetUsed what is charged to it.
	// BudgetBulk is the part that frames and requests may use; the rest is
	// reserved for identifying connections.
	Budget, BudgetUsed, BudgetBulk int64
	// Evicted counts the connections that were closed to free memory for
	// others, by listener; EvictedHandshakes those closed to free a place for
	// a handshake.
	Evicted, EvictedHandshakes map[string]uint64
	// Handshakes is the number of TLS handshakes under way.
	Handshakes int
	// Refused counts the connections that a limit refused since start.
	Refused map[Reason]uint64
	// AcceptRests counts how often accepting paused for lack of descriptors or
	// memory, while connections waited in the kernel.
	AcceptRests uint64
}

// Stats returns the current numbers.
func (e *Engine) Stats() Stats {
	s := Stats{
		Budget: e.budget.Limit(), BudgetUsed: e.budget.Used(), BudgetBulk: e.budget.MaxBulk(),
		Evicted: e.budget.Evictions(), EvictedHandshakes: e.places.Evictions(),
		Handshakes: e.pool.Handshakes(), Refused: e.refused.counts(), AcceptRests: e.rests.Load(),
	}
	for _, l := range e.loops {
		n := int(l.open.Load())
		s.PerLoop = append(s.PerLoop, n)
		s.Connections += n
		s.Pending += l.Pending()
	}
	return s
}

// ConnectionInfo describes one connection.
type ConnectionInfo struct {
	ID       uint64
	Listener string
	Peer     netip.AddrPort // the other end of the socket
	Client   netip.AddrPort // the client, behind a PROXY header
	// ServerName is the name in the ClientHello, exactly as sent.
	ServerName string
	// Label is the plan's description (see Described).
	Label string
	// Phase is proxy_header, hello, handshake, greeting, connecting or relaying.
	Phase             string
	BytesIn, BytesOut uint64 // from the client, from the endpoint
	Age, Idle         time.Duration
}

// A Described is a Plan that can describe where it leads.
type Described interface{ Description() string }

// Connections describes up to limit connections, the newest first. It asks the
// loops and waits for their answers.
func (e *Engine) Connections(limit int) []ConnectionInfo {
	var mu sync.Mutex
	var all []ConnectionInfo
	e.onLoops(func(l *loop) {
		var some []ConnectionInfo
		for c := l.conns.head; c != nil && len(some) < limit; c = c.next {
			some = append(some, c.info())
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
	})
	slices.SortFunc(all, func(a, b ConnectionInfo) int { return cmp.Compare(a.Age, b.Age) })
	return all[:min(len(all), max(limit, 0))]
}

// Listeners returns the state of the listeners, sorted by name.
func (e *Engine) Listeners() []ListenerStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]ListenerStatus, 0, len(e.listeners))
	for _, l := range e.listeners {
		s := ListenerStatus{Name: l.name, Address: l.spec.Load().Address, Err: l.err, Connections: int(l.open.Load())}
		if l.socket != nil {
			s.Address = l.socket.bound
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b ListenerStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}
