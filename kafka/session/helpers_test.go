package session

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/kafka/filter"
	"penstock/netio"
	"penstock/netio/clienthello"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// room is the room of tests: an engine whose connections are sessions to one
// broker for each listener.
type room struct {
	*netio.Engine
	settings *Settings
	meter    *netio.Meter

	mu        sync.Mutex
	chain     *filter.Chain
	refs      map[*filter.Chain]int
	targets   map[string]string // listener -> broker
	exchanges []Exchange
	ends      []ending
	homes     []*home
	listeners []netio.Listener
	tls       *tls.Config // of both sides; nil: in the clear
	plain     bool        // connections are no sessions
}

type ending struct {
	why  netio.Reason
	err  error
	peer Peer
}

// home is the room for one session.
type home struct {
	r       *room
	to      string
	tried   bool
	session *Session
	conn    *netio.Conn
}

func (h *home) Next(_ *netio.Conn, err error) (netio.Target, netio.Reason) {
	if h.tried {
		return netio.Target{}, netio.ConnectReason(err)
	}
	h.tried = true
	return netio.Target{Addr: netip.MustParseAddrPort(h.to), Profile: &netio.Profile{Meter: h.r.meter, TLS: h.r.tls}}, netio.OK
}

func (h *home) Connected(*netio.Conn, time.Duration) {}

func (h *home) Chain(have *filter.Chain) *filter.Chain {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if h.r.chain != have {
		h.r.refs[h.r.chain]++
	}
	return h.r.chain
}

func (h *home) Release(c *filter.Chain) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.r.refs[c]--
}

func (h *home) Exchanged(e Exchange) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	if len(h.r.exchanges) < 10000 {
		h.r.exchanges = append(h.r.exchanges, e)
	}
}

func (r *room) Route(c *netio.Conn) (netio.Plan, netio.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &home{r: r, to: r.targets[c.Listener()], conn: c}
	if r.plain {
		return &relayed{h}, netio.OK
	}
	h.session = New(Options{Host: h, Settings: r.settings})
	r.homes = append(r.homes, h)
	return h.session, netio.OK
}

func (r *room) Closed(c *netio.Conn, why netio.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := ending{why: why, err: c.Failure()}
	if s, ok := c.Plan().(*Session); ok {
		e.peer = s.Peer()
	}
	r.ends = append(r.ends, e)
}

// relayed is a plan that is no session.
type relayed struct{ h *home }

func (p *relayed) Next(c *netio.Conn, err error) (netio.Target, netio.Reason) {
	return p.h.Next(c, err)
}
func (p *relayed) Connected(*netio.Conn, time.Duration) {}

// endings waits for n of them.
func (r *room) endings(t testing.TB, n int) []ending {
	t.Helper()
	testkit.WaitFor(t, "connections to end", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.ends) >= n
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]ending(nil), r.ends...)
}

// setChain changes the chain for requests to come.
func (r *room) setChain(t testing.TB, filters ...filter.Filter) {
	t.Helper()
	c, err := filter.NewChain(filters)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chain = c
}

// newRoom starts an engine. At the test's end all of it must have been given
// back: chains, memory.
func newRoom(t testing.TB, limits Limits, filters ...filter.Filter) *room {
	t.Helper()
	return newRoomOf(t, 256<<20, limits, filters...)
}

// newRoomOf is one with that much memory.
func newRoomOf(t testing.TB, budget int64, limits Limits, filters ...filter.Filter) *room {
	t.Helper()
	r := &room{settings: NewSettings(limits), meter: netio.NewMeter("l", "s", 2), refs: map[*filter.Chain]int{}, targets: map[string]string{}}
	r.setChain(t, filters...)
	e, err := netio.New(netio.Config{Handler: r, Log: slog.New(slog.NewTextHandler(t.Output(),
		&slog.HandlerOptions{Level: slog.LevelWarn})), Loops: 2, MemoryBudget: budget})
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = e
	t.Cleanup(func() {
		e.SetListeners(nil)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = e.Drain(ctx, time.Millisecond)
		var s netio.Stats // its numbers are read one after the other
		if !testkit.Poll(testkit.Patience, func() bool { s = e.Stats(); return s.BudgetUsed == 0 || s.Connections > 0 }) {
			t.Errorf("%d bytes of memory are still charged", s.BudgetUsed)
		}
		e.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		for c, n := range r.refs {
			if n != 0 {
				t.Errorf("chain %p is held %d times", c, n)
			}
		}
	})
	return r
}

// serve returns an address that leads to a broker.
func (r *room) serve(t testing.TB, name, to string) string {
	t.Helper()
	r.mu.Lock()
	r.targets[name] = to
	spec := netio.Listener{Name: name, Network: "tcp", Address: "127.0.0.1:0"}
	if config := r.tls; config != nil {
		spec.Mode = netio.ModeTerminate
		spec.TLSConfig = func(*clienthello.Hello) (*tls.Config, netio.Reason) { return config, netio.OK }
	}
	r.listeners = append(r.listeners, spec)
	list := append([]netio.Listener(nil), r.listeners...)
	r.mu.Unlock()
	r.SetListeners(list)
	for _, s := range r.Listeners() {
		if s.Name == name && s.Err == nil {
			return s.Address
		}
	}
	t.Fatalf("%s does not listen", name)
	return ""
}

// cluster is an embedded Kafka behind a room: what the client dials leads to
// the proxy, whatever address it was told.
type cluster struct {
	*kfake.Cluster
	room  *room
	front map[string]string // broker -> proxy
}

func newCluster(t testing.TB, limits Limits, filters []filter.Filter, opts ...kfake.Opt) *cluster {
	t.Helper()
	return newClusterTLS(t, nil, limits, filters, opts...)
}

// newClusterTLS is one that is behind TLS, and in front of which there is TLS.
func newClusterTLS(t testing.TB, config *tls.Config, limits Limits, filters []filter.Filter, opts ...kfake.Opt) *cluster {
	t.Helper()
	k, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	c := &cluster{Cluster: k, room: newRoom(t, limits, filters...), front: map[string]string{}}
	c.room.tls = config
	for _, addr := range k.ListenAddrs() {
		c.front[addr] = c.room.serve(t, addr, addr)
	}
	return c
}

func (c *cluster) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	dial := func(ctx context.Context, network, host string) (net.Conn, error) {
		var d net.Dialer
		if c.room.tls != nil {
			return (&tls.Dialer{Config: c.room.tls}).DialContext(ctx, network, c.front[host])
		}
		return d.DialContext(ctx, network, c.front[host])
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(dial)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// tlsConfig has a certificate for the loopback address, and trusts it.
func tlsConfig() *tls.Config {
	own := certs.SelfSigned("localhost", "127.0.0.1")
	return &tls.Config{
		Certificates: []tls.Certificate{own.TLS}, RootCAs: own.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12,
	}
}
