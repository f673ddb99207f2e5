package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
)

const secret = "pst1.c2VjcmV0LXNlY3JldC1zZWNyZXQ"

// tokens accepts the token "ROLE-"+secret for each role.
func tokens(_ context.Context, token string) (api.Principal, error) {
	role, rest, ok := strings.Cut(token, "-")
	if !ok || rest != secret {
		return api.Principal{}, errors.New("no such token: " + token) // must not reach the client
	}
	return api.Principal{Name: "ci", Role: api.Role(role), TokenID: "t1"}, nil
}

// newCluster serves over TLS: a method for each role, whoami, and set, which is
// Changing.
func newCluster(t *testing.T, cfg Config, more ...func(*Server)) (*Server, *certs.CA, string) {
	t.Helper()
	if cfg.Authenticate == nil {
		cfg.Authenticate = tokens
	}
	s, _ := newServer(t, cfg, func(s *Server) {
		for _, role := range []api.Role{api.RoleNone, api.RoleJoin, api.RoleReader, api.RoleOperator, api.RoleAdmin, api.RoleNode} {
			Handle(s, "for-"+string(role), role, func(context.Context, *api.Empty) (*api.Empty, error) { return &api.Empty{}, nil })
		}
		Handle(s, "whoami", api.RoleNone, func(ctx context.Context, _ *api.Empty) (*api.Principal, error) {
			return new(Caller(ctx)), nil
		})
		Handle(s, "set", api.RoleAdmin, func(_ context.Context, r *api.DeleteRequest) (*api.Empty, error) {
			if r.Name == "held" {
				return nil, api.Errorf(api.Refused, "it is held")
			}
			return &api.Empty{}, nil
		}, Changing())
		for _, add := range more {
			add(s)
		}
	})
	authority := certs.NewCA("ca")
	return s, authority, serveTLS(t, s, authority.Server("n1", "node"))
}

func mustDialAs(t *testing.T, d DialConfig, addr string) *Client {
	t.Helper()
	c, err := d.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRolesPermitTheirMethods tests every caller against every method.
func TestRolesPermitTheirMethods(t *testing.T) {
	_, authority, addr := newCluster(t, Config{})
	for who, may := range map[string]string{
		"nobody":   " ",
		"join":     " join ",
		"reader":   " reader ",
		"operator": " reader operator ",
		"admin":    " reader operator admin ",
		"node":     " reader operator admin node ",
	} {
		t.Run(who, func(t *testing.T) {
			d := DialConfig{TLS: authority.Client("node")}
			switch who {
			case "nobody":
			case "node":
				d.TLS = authority.Client("node", "n2")
			default:
				d.Token = who + "-" + secret
			}
			c := mustDialAs(t, d, addr)
			if d.Token != "" && (c.Principal().Name != "ci" || c.Principal().Role != api.Role(who)) {
				t.Errorf("the token is of %+v", c.Principal())
			}
			for _, role := range []api.Role{api.RoleNone, api.RoleJoin, api.RoleReader, api.RoleOperator, api.RoleAdmin, api.RoleNode} {
				_, err := Call[api.Empty](t.Context(), c, "for-"+string(role), api.Empty{})
				granted := role == api.RoleNone || strings.Contains(may, " "+string(role)+" ")
				want := api.Forbidden
				if who == "nobody" {
					want = api.Unauthenticated
				}
				if granted && err != nil || !granted && !isCode(err, want) {
					t.Errorf("for-%s: %v; granted is to be %v", role, err, granted)
				}
			}
		})
	}
}

func TestRefusalsNameTheRoles(t *testing.T) {
	_, authority, addr := newCluster(t, Config{})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}, addr)
	_, err := Call[api.Empty](t.Context(), c, "for-operator", api.Empty{})
	if want := `for-operator requires role operator, the token "ci" has role reader`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	c = mustDialAs(t, DialConfig{TLS: authority.Client("node")}, addr)
	_, err = Call[api.Empty](t.Context(), c, "for-reader", api.Empty{})
	if want := "a token is required: use --token, PENSTOCK_TOKEN or the node's own socket"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Call[api.Empty](t.Context(), c, "no such method", api.Empty{}); !isCode(err, api.Unauthenticated) {
		t.Errorf("a stranger asks which methods there are: %v", err)
	}
}

// TestHandlersSeeTheirCaller also tests the TLS state that proofs are bound
// to.
func TestHandlersSeeTheirCaller(t *testing.T) {
	exported := make(chan []byte, 1)
	_, authority, addr := newCluster(t, Config{}, func(s *Server) {
		Handle(s, "proof", api.RoleNone, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) {
			key, err := TLS(ctx).ExportKeyingMaterial("test", nil, 32)
			exported <- key
			return &api.Empty{}, err
		})
	})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node", "n2")}, addr)
	p, err := Call[api.Principal](t.Context(), c, "whoami", api.Empty{})
	if err != nil || *p != (api.Principal{Name: "n2", Role: api.RoleNode, Node: "n2"}) {
		t.Errorf("a node is %+v, %v", p, err)
	}
	if _, err := Call[api.Empty](t.Context(), c, "proof", api.Empty{}); err != nil {
		t.Fatal(err)
	}
	own, err := c.TLS().ExportKeyingMaterial("test", nil, 32)
	if theirs := <-exported; err != nil || string(own) != string(theirs) {
		t.Errorf("the sides export %x and %x, %v", own, theirs, err)
	}
	_, plain := newServer(t, Config{})
	if mustDial(t, plain).TLS() != nil {
		t.Error("a plain connection has TLS")
	}
}

// TestWrongTokensAreRejectedSlowlyAndNeverEchoed tests that the delayed error
// never contains the token.
func TestWrongTokensAreRejectedSlowlyAndNeverEchoed(t *testing.T) {
	s, authority, addr := newCluster(t, Config{})
	wrong := "pst1.d3JvbmctdG9rZW4"
	start := time.Now()
	_, err := DialConfig{TLS: authority.Client("node"), Token: wrong}.Dial(t.Context(), addr)
	if !isCode(err, api.Unauthenticated) || strings.Contains(err.Error(), wrong) {
		t.Errorf("a wrong token: %v", err)
	}
	if took := time.Since(start); took < failDelay {
		t.Errorf("the answer came after %v, want %v at least", took, failDelay)
	}
	if n := s.Stats().AuthFailed; n != 1 {
		t.Errorf("%d failures counted", n)
	}
	_, err = DialConfig{TLS: authority.Client("node"), Token: strings.Repeat("x", maxToken+1)}.Dial(t.Context(), addr)
	if !isCode(err, api.Invalid) || len(err.Error()) > 100 {
		t.Errorf("a huge token: %.200v", err)
	}
}

func TestErrorsNeverEchoTokens(t *testing.T) {
	_, authority, addr := newCluster(t, Config{Authenticate: func(_ context.Context, token string) (api.Principal, error) {
		return api.Principal{}, api.Errorf(api.Unavailable, "cannot look up %s", token)
	}})
	if _, err := (DialConfig{TLS: authority.Client("node"), Token: "pst1.x"}).Dial(t.Context(), addr); err == nil ||
		strings.Contains(err.Error(), "pst1.x") {
		t.Errorf("a check that repeats the token: %v", err)
	}
}

func TestTokenGuessingIsLimitedPerSource(t *testing.T) {
	var looked atomic.Int64
	s, authority, addr := newCluster(t, Config{MaxPerSource: 64, Authenticate: func(context.Context, string) (api.Principal, error) {
		looked.Add(1)
		return api.Principal{}, api.Errorf(api.Unauthenticated, "the token expired")
	}}, func(s *Server) { s.failures.interval = time.Hour }) // no failure expires during the test
	var wg sync.WaitGroup
	var told atomic.Int64
	for range 40 {
		wg.Go(func() {
			_, err := DialConfig{TLS: authority.Client("node"), Token: "pst1.x"}.Dial(t.Context(), addr)
			if isCode(err, api.Unauthenticated) && err.Error() == "the token expired" {
				told.Add(1)
			}
		})
	}
	wg.Wait()
	// All may run at once, so a first wave passes. Later ones must not.
	before := looked.Load()
	for range 5 {
		if _, err := (DialConfig{TLS: authority.Client("node"), Token: "pst1.x"}).Dial(t.Context(), addr); !isCode(err, api.Busy) {
			t.Errorf("after %d failures: %v, want busy", before, err)
		}
	}
	if looked.Load() != before || told.Load() != before || s.Stats().AuthLimited < 5 {
		t.Errorf("looked at %d, then %d; %d told; %+v", before, looked.Load(), told.Load(), s.Stats())
	}
}

func TestFailuresExpireAndAreBounded(t *testing.T) {
	f := failures{interval: failEvery, expires: map[netip.Addr]time.Time{}}
	now := time.Now()
	a := netip.MustParseAddr("192.0.2.1")
	for i := range failBurst {
		if !f.allow(a, now) {
			t.Fatalf("failure %d is not looked at", i+1)
		}
		f.record(a, now)
	}
	if f.allow(a, now) {
		t.Error("one more is looked at")
	}
	if !f.allow(a, now.Add(failEvery)) || !f.allow(netip.MustParseAddr("192.0.2.2"), now) {
		t.Error("time, or another source, is not looked at")
	}
	for i := range 2 * maxSources {
		f.record(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), now)
	}
	if len(f.expires) > maxSources {
		t.Errorf("%d sources are remembered", len(f.expires))
	}
	if f.allow(a, now) {
		t.Error("the worst source was forgotten for others")
	}
}

// TestUnverifiableTokenIsNotCounted: that a node cannot verify a token yet is
// not counted as a failure.
func TestUnverifiableTokenIsNotCounted(t *testing.T) {
	s, authority, addr := newCluster(t, Config{Authenticate: func(context.Context, string) (api.Principal, error) {
		return api.Principal{}, api.Errorf(api.Unavailable, "the node is starting")
	}})
	for range 2 * failBurst {
		if _, err := (DialConfig{TLS: authority.Client("node"), Token: "pst1.x"}).Dial(t.Context(), addr); !isCode(err, api.Unavailable) {
			t.Fatal(err)
		}
	}
	if n := s.Stats().AuthFailed; n != 0 {
		t.Errorf("%d failures counted", n)
	}
}

func TestRevokedTokensEndAtTheNextRequestAndByDrop(t *testing.T) {
	var revoked atomic.Bool
	s, authority, addr := newCluster(t, Config{Check: func(p api.Principal) error {
		if revoked.Load() && p.TokenID == "t1" {
			return errors.New("the token was revoked")
		}
		return nil
	}})
	d := DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}
	c := mustDialAs(t, d, addr)
	node := mustDialAs(t, DialConfig{TLS: authority.Client("node", "n2")}, addr)
	if _, err := Call[echo](t.Context(), c, "echo", echo{}); err != nil {
		t.Fatal(err)
	}
	revoked.Store(true)
	if _, err := Call[echo](t.Context(), c, "echo", echo{}); !isCode(err, api.Unauthenticated) || err.Error() != "the token was revoked" {
		t.Errorf("with a revoked token: %v", err)
	}
	if _, err := Call[echo](t.Context(), node, "echo", echo{}); err != nil {
		t.Errorf("a node: %v", err)
	}
	s.Drop(func(p api.Principal) bool { return p.TokenID == "t1" })
	<-c.Done()
	if _, err := Call[echo](t.Context(), node, "echo", echo{}); err != nil {
		t.Errorf("a node after the drop: %v", err)
	}
}

// TestUnauthenticatedConnectionsDoNotBlockOthers: unauthenticated connections
// have their own limit, at which the oldest is closed. Nodes, tokens and the
// node's own socket have others.
func TestUnauthenticatedConnectionsDoNotBlockOthers(t *testing.T) {
	s, authority, addr := newCluster(t, Config{MaxUnauthenticated: 8, MaxPerSource: 8, MaxConns: 2, MaxNodes: 1, FirstTimeout: time.Minute})
	for range 20 {
		conn, err := tls.Dial("tcp", addr, authority.Client("node"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	testkit.WaitFor(t, "the oldest to go", func() bool { st := s.Stats(); return st.Unauthenticated == 8 && st.OverLimit >= 12 })
	token := DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}
	first := mustDialAs(t, token, addr)
	second := mustDialAs(t, token, addr)
	node := mustDialAs(t, DialConfig{TLS: authority.Client("node", "n2")}, addr)
	for _, c := range []*Client{first, second, node} {
		if _, err := Call[echo](t.Context(), c, "echo", echo{}); err != nil {
			t.Error(err)
		}
	}
	if st := s.Stats(); st.Unauthenticated > 7 || st.Authenticated != 2 { // authenticated ones are not counted
		t.Errorf("with two tokens shown: %+v", st)
	}
	if _, err := token.Dial(t.Context(), addr); !isCode(err, api.Busy) {
		t.Errorf("a third token's connection: %v, want busy", err)
	}
	if c, err := (DialConfig{TLS: authority.Client("node", "n2")}).Dial(t.Context(), addr); err == nil {
		c.Close()
		t.Error("a second node's connection was taken")
	}
	second.Close()
	testkit.WaitFor(t, "a place to come free", func() bool {
		c, err := token.Dial(t.Context(), addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestUnauthenticatedRequestsAreLimited tests the limits on size and number of
// requests without authentication.
func TestUnauthenticatedRequestsAreLimited(t *testing.T) {
	entered := make(chan struct{}, 10)
	_, authority, addr := newCluster(t, Config{}, func(s *Server) {
		Handle(s, "join", api.RoleNone, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node")}, addr)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range unauthRequests {
		go Call[api.Empty](ctx, c, "join", api.Empty{})
		<-entered
	}
	if _, err := Call[api.Empty](t.Context(), c, "join", api.Empty{}); !isCode(err, api.Busy) {
		t.Errorf("one more at once: %v, want busy", err)
	}
	if _, err := Call[api.Empty](t.Context(), c, "join", echo{Text: strings.Repeat("x", unauthFrameSize)}); !isCode(err, api.TooLarge) {
		t.Errorf("a large request: %v, want too_large", err)
	}
}

func TestAuditRecordsEveryChange(t *testing.T) {
	events := make(chan Event, 10)
	_, authority, addr := newCluster(t, Config{Audit: func(e Event) { events <- e }})
	as := func(role string) *Client {
		return mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: role + "-" + secret}, addr)
	}
	Call[api.Empty](t.Context(), as("admin"), "set", api.DeleteRequest{Kind: "Service", Name: "a"})
	Call[api.Empty](t.Context(), as("admin"), "set", api.DeleteRequest{Kind: "Service", Name: "held"})
	Call[api.Empty](t.Context(), as("reader"), "set", api.DeleteRequest{Kind: "Service", Name: "b"})
	Call[echo](t.Context(), as("admin"), "echo", echo{})
	close(events)
	var got []string
	for e := range events {
		line := e.Principal.Name + " " + string(e.Principal.Role) + " " + e.Method + " " + e.Summary
		if e.Err != nil {
			line += ": " + e.Err.Error()
		}
		if host, _, err := net.SplitHostPort(e.Peer); err != nil || host != "127.0.0.1" || time.Since(e.At) > time.Minute {
			t.Errorf("from %s at %v", e.Peer, e.At)
		}
		got = append(got, line)
	}
	want := []string{
		"ci admin set Service/a", "ci admin set Service/held: it is held",
		`ci reader set : set requires role admin, the token "ci" has role reader`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("audited:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDialErrorsSayWhatToDo: each error says what to do.
func TestDialErrorsSayWhatToDo(t *testing.T) {
	_, authority, addr := newCluster(t, Config{})
	_, plain := newServer(t, Config{})
	other := certs.NewCA("ca")
	asTLSPort := testkit.Serve(t, func(conn net.Conn) { // a TLS server's response to a plain client
		io.ReadFull(conn, make([]byte, preambleSize))
		conn.Write([]byte{alertType, 3, 1, 0, 2, 2, 70})
	})
	http := testkit.Serve(t, func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	future := testkit.Serve(t, func(conn net.Conn) { conn.Write([]byte{'A', 'P', 'S', 'K', 0, 7, 9, 0}); io.ReadAll(conn) })
	token := "reader-" + secret
	for name, c := range map[string]struct {
		d    DialConfig
		addr string
		is   error
		say  string
	}{
		"plain to TLS": {DialConfig{}, asTLSPort, ErrWantsTLS, "a token is required: use --token, PENSTOCK_TOKEN or the node's own socket"},
		"TLS to --dev": {
			DialConfig{TLS: authority.Client("node"), Token: token}, plain, ErrWantsPlain,
			"it runs with --dev: omit --token and PENSTOCK_TOKEN",
		},
		"another cluster": {
			DialConfig{TLS: other.Client("node"), Token: token}, addr, ErrForeign, "is not in the cluster that issued this token",
		},
		"another node": {DialConfig{TLS: other.Client("node", "n2")}, addr, ErrForeign, "is not the expected node"},
		"a foreign node": {
			DialConfig{TLS: splitConfig(authority.Client("node"), other.Client("node", "n2"))}, addr, nil,
			"rejected the TLS connection",
		},
		"HTTP":         {DialConfig{}, http, ErrPreamble, "is not a Penstock node"},
		"TLS to HTTP":  {DialConfig{TLS: authority.Client("node")}, http, nil, "is not the cluster port of a Penstock node"},
		"a later node": {DialConfig{}, future, ErrVersion, "the node 7 to 9"},
		"nobody":       {DialConfig{}, "127.0.0.1:1", nil, "connection refused"},
		"no socket":    {DialConfig{}, "unix:/nonexistent/penstock.sock", nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := c.d.Dial(t.Context(), c.addr)
			if err == nil {
				client.Close()
				t.Fatal("it was taken")
			}
			if !errors.Is(err, ErrUnreachable) || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v\nwant %q", err, c.say)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("it shows the token: %v", err)
			}
		})
	}
}

// splitConfig has the roots of trusts and the certificate of shows.
func splitConfig(trusts, shows *tls.Config) *tls.Config {
	trusts.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shows.Certificates[0], nil }
	return trusts
}
