package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/node/api"
)

// newForwarder starts a node that forwards requests over to, on which it is
// node n1. The leader has the methods of newCluster.
func newForwarder(t *testing.T, to *atomic.Pointer[Client], authority *certs.CA, cfg Config) (addr string) {
	t.Helper()
	cfg.Authenticate = tokens
	s, _ := newServer(t, cfg, func(s *Server) {
		Handle(s, "whoami", api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Principal, error) {
			return nil, Pass(ctx, to.Load())
		})
		Handle(s, "set", api.RoleAdmin, func(ctx context.Context, _ *api.DeleteRequest) (*api.Empty, error) {
			return nil, Pass(ctx, to.Load())
		}, Changing())
		Handle(s, "until", api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) {
			return nil, Pass(ctx, to.Load())
		})
		HandleStream(s, "many", api.RoleReader, func(ctx context.Context, _ *echo, _ func(*echo) error) error {
			return Pass(ctx, to.Load())
		})
	})
	return serveTLS(t, s, authority.Server("n1", "node"))
}

// newPair starts a leader and a node between; it returns the latter's address.
func newPair(t *testing.T, cfg Config, more ...func(*Server)) (authority *certs.CA, addr string) {
	t.Helper()
	_, authority, leader := newCluster(t, cfg, append(more, func(s *Server) {
		HandleStream(s, "many", api.RoleReader, func(_ context.Context, r *echo, send func(*echo) error) error {
			for i := range r.N {
				if err := send(&echo{N: i}); err != nil {
					return err
				}
			}
			return api.Errorf(api.Refused, "no more")
		})
	})...)
	var to atomic.Pointer[Client]
	to.Store(mustDialAs(t, DialConfig{TLS: authority.Client("node", "n1")}, leader))
	return authority, newForwarder(t, &to, authority, Config{})
}

// TestForwardingKeepsTheCaller: the leader sees the caller, its address and the
// forwarding node. It checks the role of the caller, not of that node.
func TestForwardingKeepsTheCaller(t *testing.T) {
	events := make(chan Event, 1)
	authority, addr := newPair(t, Config{Audit: func(e Event) { events <- e }})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: "admin-" + secret}, addr)
	p, err := Call[api.Principal](t.Context(), c, "whoami", api.Empty{})
	want := api.Principal{Name: "ci", Role: api.RoleAdmin, TokenID: "t1", Via: "n1", From: c.conn.LocalAddr().String()}
	if err != nil || *p != want {
		t.Errorf("the leader sees %+v, %v; want %+v", p, err, want)
	}
	if _, err := Call[api.Empty](t.Context(), c, "set", api.DeleteRequest{Kind: "Service", Name: "held"}); !isCode(err, api.Refused) ||
		err.Error() != "it is held" {
		t.Errorf("the leader's refusal: %v", err)
	}
	if e := <-events; e.Via != "n1" || e.Principal.Name != "ci" || e.Peer != want.From || e.Summary != "Service/held" {
		t.Errorf("audited: %+v", e)
	}
	n := 0
	err = Stream(t.Context(), c, "many", echo{N: 100}, func(e *echo) error {
		if e.N != n {
			t.Errorf("item %d came as number %d", e.N, n)
		}
		n++
		return nil
	})
	if n != 100 || !isCode(err, api.Refused) {
		t.Errorf("a stream: %d items, %v", n, err)
	}
}

func TestOnlyNodesActOnBehalfOfOthers(t *testing.T) {
	_, authority, addr := newCluster(t, Config{})
	on := func(c *Client, p api.Principal, method string) (f frame, err error) {
		e, err := newEnvelope(t.Context(), method, api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		e.OnBehalf = &p
		f, _, err = c.roundTrip(t.Context(), e)
		return f, err
	}
	admin := api.Principal{Name: "ci", Role: api.RoleAdmin}
	for _, token := range []string{"", "reader-" + secret, "admin-" + secret} {
		c := mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: token}, addr)
		if _, err := on(c, admin, "for-reader"); !isCode(err, api.Forbidden) {
			t.Errorf("with %.7q: %v, want forbidden", token, err)
		}
	}
	node := mustDialAs(t, DialConfig{TLS: authority.Client("node", "n2")}, addr)
	reader := api.Principal{Name: "ci", Role: api.RoleReader, Via: "n7"}
	if _, err := on(node, reader, "for-admin"); !isCode(err, api.Forbidden) {
		t.Errorf("a node for a reader: %v, want forbidden", err)
	}
	f, err := on(node, reader, "whoami")
	if err != nil {
		t.Fatal(err)
	}
	var p api.Principal
	if err := decode(f.body, &p); err != nil || p.Via != "n2" || p.Name != "ci" {
		t.Errorf("a node that names another as the one between is seen as %+v, %v", p, err)
	}
}

// TestRequestsAreForwardedOnlyOnce: of two nodes that take each other for the
// leader, the second responds with NotLeader.
func TestRequestsAreForwardedOnlyOnce(t *testing.T) {
	authority := certs.NewCA("ca")
	var toA, toB atomic.Pointer[Client]
	a, b := newForwarder(t, &toB, authority, Config{}), newForwarder(t, &toA, authority, Config{})
	node := DialConfig{TLS: authority.Client("node", "n1")}
	toA.Store(mustDialAs(t, node, a))
	toB.Store(mustDialAs(t, node, b))
	for name, d := range map[string]DialConfig{"a token": {TLS: authority.Client("node"), Token: "admin-" + secret}, "a node": node} {
		c := mustDialAs(t, d, a)
		if _, err := Call[api.Empty](t.Context(), c, "set", api.DeleteRequest{}); !isCode(err, api.NotLeader) {
			t.Errorf("%s: %v, want not_leader", name, err)
		}
	}
}

// TestDeadlinesAreForwardedWithAMargin: the last node times out first, so that
// its response still arrives.
func TestDeadlinesAreForwardedWithAMargin(t *testing.T) {
	left := make(chan time.Duration, 1)
	authority, addr := newPair(t, Config{}, func(s *Server) {
		Handle(s, "until", api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) {
			end, _ := ctx.Deadline()
			left <- time.Until(end)
			return &api.Empty{}, nil
		})
	})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}, addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Call[api.Empty](ctx, c, "until", api.Empty{}); err != nil {
		t.Fatal(err)
	}
	if d := <-left; d > time.Minute-maxMargin || d < 30*time.Second {
		t.Errorf("%v are left at the end, of a minute", d)
	}
}

// TestLostNodeLeavesTheOutcomeUnknown: only a change that was sent has an
// unknown outcome. A request that was not sent, or changes nothing, can be
// retried.
func TestLostNodeLeavesTheOutcomeUnknown(t *testing.T) {
	authority := certs.NewCA("ca")
	config := authority.Server("n2", "node")
	hangUp := make(chan struct{})
	broken := listenTLS(t, config, func(conn net.Conn) {
		conn.Write(serverPreamble(maxVersion))
		io.ReadFull(conn, make([]byte, preambleSize+frameHeader))
		<-hangUp
	})
	var to atomic.Pointer[Client]
	addr := newForwarder(t, &to, authority, Config{})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: "admin-" + secret}, addr)
	ask := func(method string) chan error {
		to.Store(mustDialAs(t, DialConfig{TLS: authority.Client("node", "n1")}, broken))
		answer := make(chan error, 1)
		go func() {
			_, err := Call[api.Empty](t.Context(), c, method, api.DeleteRequest{})
			answer <- err
		}()
		return answer
	}
	set := ask("set")
	hangUp <- struct{}{}
	if err := <-set; !isCode(err, api.UnknownOutcome) {
		t.Errorf("a change: %v, want unknown_outcome", err)
	}
	read := ask("whoami")
	hangUp <- struct{}{}
	if err := <-read; !isCode(err, api.Unavailable) {
		t.Errorf("a read: %v, want unavailable", err)
	}
	<-to.Load().Done()
	if _, err := Call[api.Empty](t.Context(), c, "set", api.DeleteRequest{}); !isCode(err, api.Unavailable) {
		t.Errorf("a change that was not sent: %v, want unavailable", err)
	}
	_, err := Call[api.Empty](t.Context(), to.Load(), "set", api.DeleteRequest{})
	if !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrLost) {
		t.Errorf("a call on a connection that has ended: %v", err)
	}
}

// TestSlowReaderDoesNotDelayOthers: a forwarded stream has its own connection.
func TestSlowReaderDoesNotDelayOthers(t *testing.T) {
	_, authority, leader := newCluster(t, Config{}, func(s *Server) {
		HandleStream(s, "many", api.RoleReader, func(_ context.Context, _ *echo, send func(*echo) error) error {
			for text := strings.Repeat("x", 64<<10); ; {
				if err := send(&echo{Text: text}); err != nil {
					return err
				}
			}
		})
	})
	pool := NewPool(PoolConfig{Dial: func(ctx context.Context, _ string) (*Client, error) {
		return DialConfig{TLS: authority.Client("node", "n1")}.Dial(ctx, leader)
	}})
	t.Cleanup(pool.Close)
	shared, err := pool.Get(t.Context(), "n2")
	if err != nil {
		t.Fatal(err)
	}
	var to atomic.Pointer[Client]
	to.Store(shared)
	addr := newForwarder(t, &to, authority, Config{})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}, addr)
	other := mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}, addr)
	started, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		n := 0
		Stream(t.Context(), c, "many", echo{}, func(*echo) error {
			if n++; n == 1 {
				close(started)
			}
			<-release
			return io.EOF
		})
	}()
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 10 {
		if _, err := Call[api.Principal](ctx, other, "whoami", api.Empty{}); err != nil {
			t.Fatalf("beside the slow reader: %v", err)
		}
	}
	close(release)
	<-ended
}
