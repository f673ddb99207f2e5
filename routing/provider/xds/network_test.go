package xds

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"penstock/routing/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// address is that of every server on a network: an IP address, so that nothing
// is looked up.
const address = "192.0.2.1:18000"

var (
	web  = provider.Query{Service: "web"}
	shop = provider.Query{Service: "shop"}
)

// network is a network in memory with one server on it, for virtual time.
type network struct {
	t        *testing.T
	mu       sync.Mutex
	listener *bufconn.Listener
	server   *grpc.Server
	dials    int
}

// newNetwork returns a network whose server is stopped when the test ends.
func newNetwork(t *testing.T) *network {
	n := &network{t: t}
	t.Cleanup(n.stop)
	return n
}

// start starts a server in place of the one before.
func (n *network) start(server *grpc.Server) {
	n.stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listener, n.server = bufconn.Listen(64<<10), server
	listener := n.listener
	go server.Serve(listener)
}

// stop ends the server, with its connections.
func (n *network) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		n.server.Stop()
		n.server, n.listener = nil, nil
	}
}

func (n *network) dial(ctx context.Context, _ string) (net.Conn, error) {
	n.mu.Lock()
	listener := n.listener
	n.dials++
	n.mu.Unlock()
	if listener == nil {
		return nil, errors.New("connection refused")
	}
	return listener.DialContext(ctx)
}

// source returns a source for the server.
func (n *network) source(change func(*Config)) *Source {
	n.t.Helper()
	cfg := Config{Server: address, Node: Node{ID: "edge-1", Cluster: "edge", Zone: "a", Metadata: map[string]any{"tier": "front"}}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	s.dialOptions = []grpc.DialOption{grpc.WithContextDialer(n.dial)}
	return s
}

// variants runs a test for each variant of the protocol, in virtual time.
func variants(t *testing.T, test func(t *testing.T, variant func(*Config))) {
	for _, delta := range []bool{false, true} {
		for _, separate := range []bool{false, true} {
			cfg := Config{Delta: delta, Separate: separate}
			t.Run(cfg.variant(), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T) {
					test(t, func(c *Config) { c.Delta, c.Separate = delta, separate })
				})
			})
		}
	}
}
