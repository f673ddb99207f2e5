package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/node/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// admin is the caller in most tests.
var admin = api.Principal{Name: "dev", Role: api.RoleAdmin}

type echo struct {
	Text string `json:"text"`
	N    int    `json:"n"`
}

// newServer serves the methods echo, count (a stream), block (until its
// context ends), fail and crash; it returns the address.
func newServer(t *testing.T, cfg Config, more ...func(*Server)) (*Server, string) {
	t.Helper()
	s := NewServer(cfg)
	for _, add := range more {
		add(s)
	}
	Handle(s, "echo", api.RoleReader, func(_ context.Context, r *echo) (*echo, error) { return r, nil })
	HandleStream(s, "count", api.RoleReader, func(_ context.Context, r *echo, send func(*echo) error) error {
		for i := range r.N {
			if err := send(&echo{N: i}); err != nil {
				return err
			}
		}
		return nil
	})
	Handle(s, "block", api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) { <-ctx.Done(); return nil, ctx.Err() })
	HandleStream(s, "watch", api.RoleReader, func(ctx context.Context, _ *api.Empty, send func(*api.Empty) error) error {
		send(&api.Empty{})
		<-ctx.Done()
		return ctx.Err()
	})
	Handle(s, "fail", api.RoleReader, func(context.Context, *api.Empty) (*api.Empty, error) {
		return nil, &api.Error{Code: api.Refused, Message: "in use", Details: []string{"by a", "by b"}}
	})
	Handle(s, "crash", api.RoleReader, func(context.Context, *api.Empty) (*api.Empty, error) { panic("oops") })
	ln := testkit.Listen(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln, admin) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a failed test does not wait for its requests
		s.Shutdown(ctx)
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, ln.Addr().String()
}

func mustDial(t *testing.T, addr string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

func isCode(err error, code api.Code) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == code
}

func TestRequestsRunConcurrently(t *testing.T) {
	_, addr := newServer(t, Config{})
	c := mustDial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	go func() {
		_, err := Call[api.Empty](ctx, c, "block", api.Empty{})
		blocked <- err
	}()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			text := strings.Repeat("x", i*10_000)
			got, err := Call[echo](t.Context(), c, "echo", echo{Text: text, N: i})
			if err != nil || got.N != i || got.Text != text {
				t.Errorf("call %d: %v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-blocked; !errors.Is(err, context.Canceled) {
		t.Errorf("the blocked call ended with %v", err)
	}
}

func TestStreamsKeepTheirOrderAndEnd(t *testing.T) {
	_, addr := newServer(t, Config{})
	c := mustDial(t, addr)
	n := 0
	err := Stream(t.Context(), c, "count", echo{N: 1000}, func(e *echo) error {
		if e.N != n {
			return fmt.Errorf("item %d came as number %d", e.N, n)
		}
		n++
		return nil
	})
	if err != nil || n != 1000 {
		t.Errorf("%d items, %v", n, err)
	}
	stop := errors.New("enough")
	if err := Stream(t.Context(), c, "count", echo{N: 1e6}, func(*echo) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a stream that its caller leaves ended with %v", err)
	}
	if _, err := Call[echo](t.Context(), c, "echo", echo{}); err != nil {
		t.Errorf("the connection after that: %v", err)
	}
}

func TestErrorsKeepTheirCodeAndTheConnection(t *testing.T) {
	_, addr := newServer(t, Config{MaxRequests: 1})
	c := mustDial(t, addr)
	_, err := Call[api.Empty](t.Context(), c, "fail", api.Empty{})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Refused || e.Message != "in use" || len(e.Details) != 2 {
		t.Errorf("fail: %#v", err)
	}
	if _, err := Call[api.Empty](t.Context(), c, "crash", api.Empty{}); !isCode(err, api.Internal) {
		t.Errorf("crash: %v", err)
	}
	if _, err := Call[api.Empty](t.Context(), c, "frobnicate", api.Empty{}); !isCode(err, api.Unknown) {
		t.Errorf("unknown method: %v", err)
	}
	if _, err := Call[api.Empty](t.Context(), c, "echo", "no echo"); !isCode(err, api.Invalid) {
		t.Errorf("params of another type: %v", err)
	}
	if _, err := Call[api.Empty](t.Context(), c, "echo", echo{Text: strings.Repeat("x", maxRequest)}); !isCode(err, api.TooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := Call[echo](t.Context(), c, "echo", echo{}); err != nil {
		t.Errorf("the connection after all that: %v", err)
	}
	_, addr = newServer(t, Config{MaxAnswer: 1000})
	c = mustDial(t, addr)
	if _, err := Call[echo](t.Context(), c, "echo", echo{Text: strings.Repeat("x", 2000)}); !isCode(err, api.TooLarge) {
		t.Errorf("an answer that is too large: %v", err)
	}
}

func TestDeadlinesReachTheHandler(t *testing.T) {
	ended := make(chan error, 1)
	_, addr := newServer(t, Config{}, func(s *Server) {
		Handle(s, "until", api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
	})
	c := mustDial(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // long enough to be sent
	defer cancel()
	if _, err := Call[api.Empty](ctx, c, "until", api.Empty{}); !errors.Is(err, context.DeadlineExceeded) && !isCode(err, api.Deadline) {
		t.Errorf("the caller got %v", err)
	}
	if err := testkit.Receive(t, "the handler to end", ended); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ended with %v", err)
	}
}

func TestConcurrentRequestsAreCapped(t *testing.T) {
	_, addr := newServer(t, Config{MaxRequests: 1})
	c := mustDial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan struct{})
	go Stream(ctx, c, "watch", api.Empty{}, func(*api.Empty) error { close(started); return nil })
	<-started
	if _, err := Call[echo](t.Context(), c, "echo", echo{}); !isCode(err, api.Busy) {
		t.Errorf("the second request at once: %v, want busy", err)
	}
}

// TestInvalidConnectionsAreClosed: none of these gets more than a preamble, and
// each connection is closed in time.
func TestInvalidConnectionsAreClosed(t *testing.T) {
	// Enough time for a busy machine to send all.
	_, addr := newServer(t, Config{FirstTimeout: 3 * time.Second, FrameTimeout: 3 * time.Second})
	greeting := string(serverPreamble(maxVersion))
	for name, c := range map[string]struct {
		send []byte
		want string
	}{
		"silent":            {nil, ""},
		"http":              {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ""},
		"half a preamble":   {clientPreamble(1, 1)[:3], ""},
		"no common version": {clientPreamble(200, 201), string(serverPreamble(0))},
		"preamble alone":    {clientPreamble(1, 1), greeting},
		"garbage frame":     {append(clientPreamble(1, 1), "\x00\x00\x00\x10garbagegarbage"...), greeting},
		"slow frame": {
			append(clientPreamble(1, 1), appendFrame(nil, frame{kind: frameRequest, body: make([]byte, 100)})[:50]...),
			greeting,
		},
		"server's frame": {append(clientPreamble(1, 1), appendFrame(nil, frame{kind: frameResult, body: []byte{0xc0}})...), greeting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dialRaw(t, addr)
			if _, err := conn.Write(c.send); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the connection is kept")
			}
			if !strings.HasPrefix(string(got), c.want) || len(got) > len(c.want) {
				t.Errorf("answered %q, want %q", got, c.want)
			}
		})
	}
}

func TestOversizeErrorIsSentBeforeTheClose(t *testing.T) {
	_, addr := newServer(t, Config{MaxFrame: 1000})
	c := mustDial(t, addr)
	if _, err := Call[echo](t.Context(), c, "echo", echo{Text: strings.Repeat("x", 100_000)}); !isCode(err, api.TooLarge) {
		t.Errorf("got %v, want too_large", err)
	}
	_, addr = newServer(t, Config{MaxInFlight: 100_000})
	c = mustDial(t, addr)
	if _, err := Call[echo](t.Context(), c, "echo", echo{Text: strings.Repeat("x", 300_000)}); !isCode(err, api.Busy) {
		t.Errorf("got %v, want busy", err)
	}
	c = mustDial(t, addr)
	for range 100 { // charged memory was released
		if _, err := Call[echo](t.Context(), c, "echo", echo{Text: strings.Repeat("x", 50_000)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConnectionsAreCapped(t *testing.T) {
	_, addr := newServer(t, Config{MaxConns: 2})
	first, second := mustDial(t, addr), mustDial(t, addr)
	if c, err := Dial(t.Context(), addr); err == nil {
		c.Close()
		t.Error("a third connection was taken")
	} else if !errors.Is(err, ErrUnreachable) {
		t.Errorf("the third connection: %v", err)
	}
	if _, err := Call[echo](t.Context(), first, "echo", echo{}); err != nil {
		t.Error(err)
	}
	second.Close()
	testkit.WaitFor(t, "a place to come free", func() bool {
		c, err := Dial(t.Context(), addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func TestIdleTimeoutAppliesOnlyWithoutRequests(t *testing.T) {
	t.Parallel()
	_, addr := newServer(t, Config{IdleTimeout: 3 * time.Second}) // enough for a busy machine to call
	busy := mustDial(t, addr)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan struct{})
	var ended atomic.Bool
	go func() {
		Stream(ctx, busy, "watch", api.Empty{}, func(*api.Empty) error { close(started); return nil })
		ended.Store(true)
	}()
	<-started
	idle := mustDial(t, addr)
	if _, err := Call[echo](t.Context(), idle, "echo", echo{}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the idle connection to be closed", func() bool {
		idle.mu.Lock()
		defer idle.mu.Unlock()
		return idle.err != nil
	})
	if _, err := Call[echo](t.Context(), busy, "echo", echo{}); err != nil || ended.Load() {
		t.Errorf("the connection with a stream: %v", err)
	}
}

func TestShutdownEndsStreamsAndWaitsForRequests(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{})
	s, addr := newServer(t, Config{}, func(s *Server) {
		Handle(s, "slow", api.RoleReader, func(context.Context, *api.Empty) (*api.Empty, error) {
			close(entered)
			<-release
			return &api.Empty{}, nil
		})
	})
	c := mustDial(t, addr)
	stream, slow := make(chan error, 1), make(chan error, 1)
	go func() {
		stream <- Stream(context.Background(), c, "watch", api.Empty{}, func(*api.Empty) error { return nil })
	}()
	go func() { _, err := Call[api.Empty](context.Background(), c, "slow", api.Empty{}); slow <- err }()
	<-entered
	down := make(chan error, 1)
	go func() { down <- s.Shutdown(context.Background()) }()
	if err := <-stream; err == nil {
		t.Error("the stream ended as if it were complete")
	}
	close(release)
	if err := <-slow; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := Dial(t.Context(), addr); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a dial afterwards: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	s, _ := newServer(t, Config{})
	path := filepath.Join(t.TempDir(), "a.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { s.Serve(ln, admin); close(done) }()
	t.Cleanup(func() { ln.Close(); <-done })
	c := mustDial(t, "unix:"+path)
	if got, err := Call[echo](t.Context(), c, "echo", echo{N: 7}); err != nil || got.N != 7 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestClientRejectsNonNodes(t *testing.T) {
	addr := testkit.Serve(t, func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	if _, err := Dial(t.Context(), addr); !errors.Is(err, ErrUnreachable) || !errors.Is(err, ErrPreamble) {
		t.Errorf("dial of an HTTP server: %v", err)
	}
}
