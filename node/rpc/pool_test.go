package rpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

func newPool(t *testing.T, cfg PoolConfig) *Pool {
	t.Helper()
	p := NewPool(cfg)
	t.Cleanup(p.Close)
	return p
}

func TestCallersShareOneDial(t *testing.T) {
	_, addr := newServer(t, Config{MaxRequests: 50})
	var dials atomic.Int64
	p := newPool(t, PoolConfig{Dial: func(ctx context.Context, _ string) (*Client, error) {
		dials.Add(1)
		return Dial(ctx, addr)
	}})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			c, err := p.Get(t.Context(), "n1")
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := Call[echo](t.Context(), c, "echo", echo{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if dials.Load() != 1 {
		t.Errorf("%d dials for 50 callers of one node", dials.Load())
	}
	if _, err := p.Get(t.Context(), "n2"); err != nil || dials.Load() != 2 {
		t.Errorf("another node: %d dials, %v", dials.Load(), err)
	}
}

func TestPoolRedialsAfterALoss(t *testing.T) {
	_, addr := newServer(t, Config{})
	p := newPool(t, PoolConfig{Dial: func(ctx context.Context, _ string) (*Client, error) { return Dial(ctx, addr) }})
	first, err := p.Get(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	first.conn.Close()
	<-first.Done()
	second, err := p.Get(t.Context(), "n1")
	if err != nil || second == first {
		t.Fatalf("after a loss: the same %v, %v", second == first, err)
	}
	p.Drop("n1")
	<-second.Done()
	if third, err := p.Get(t.Context(), "n1"); err != nil || third == second {
		t.Fatalf("after a drop: the same %v, %v", third == second, err)
	}
}

// TestDeadNodeFailsFast: an unreachable node costs one dial
// timeout, then nothing during the backoff, and never more than the caller's
// deadline.
func TestDeadNodeFailsFast(t *testing.T) {
	var dials atomic.Int64
	p := newPool(t, PoolConfig{
		DialTimeout: 50 * time.Millisecond, Backoff: time.Hour, MaxBackoff: time.Hour,
		Dial: func(ctx context.Context, _ string) (*Client, error) {
			dials.Add(1)
			<-ctx.Done() // no response
			return nil, ctx.Err()
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := p.Get(ctx, "n1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller in a hurry: %v", err)
	}
	for range 100 {
		if _, err := p.Get(t.Context(), "n1"); err == nil {
			t.Fatal("a dead node was reached")
		}
	}
	if dials.Load() != 1 {
		t.Errorf("%d dials within the backoff", dials.Load())
	}
}

func TestDeadNodeIsRetried(t *testing.T) {
	_, addr := newServer(t, Config{})
	var up atomic.Bool
	var dials atomic.Int64
	p := newPool(t, PoolConfig{
		Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
		Dial: func(ctx context.Context, _ string) (*Client, error) {
			if dials.Add(1); !up.Load() {
				return nil, errors.New("down")
			}
			return Dial(ctx, addr)
		},
	})
	testkit.WaitFor(t, "some dials", func() bool { p.Get(t.Context(), "n1"); return dials.Load() > 3 })
	up.Store(true)
	testkit.WaitFor(t, "the node to be reached", func() bool { _, err := p.Get(t.Context(), "n1"); return err == nil })
}

// TestIdleConnectionsAreClosed: but not those with a call in flight, however
// old.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	_, addr := newServer(t, Config{})
	p := newPool(t, PoolConfig{Idle: time.Second, Dial: func(ctx context.Context, _ string) (*Client, error) { return Dial(ctx, addr) }})
	busy, err := p.Get(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	go func() {
		_, err := Call[api.Empty](ctx, busy, "block", api.Empty{})
		blocked <- err
	}()
	testkit.WaitFor(t, "the call to be in flight", func() bool { _, ok := busy.idle(); return !ok })
	for range 3 { // the busy connection outlives each of these
		idle, err := p.Get(t.Context(), "idle")
		if err != nil {
			t.Fatal(err)
		}
		<-idle.Done()
	}
	select {
	case <-busy.Done():
		t.Error("a connection with a call in flight was closed")
	default:
	}
	cancel()
	if err := <-blocked; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-busy.Done()
}

// TestClosedPoolLeaksNothing: neither connections nor dials remain, and
// callers that wait for a dial fail.
func TestClosedPoolLeaksNothing(t *testing.T) {
	_, addr := newServer(t, Config{})
	dialling := make(chan struct{})
	p := newPool(t, PoolConfig{Dial: func(ctx context.Context, id string) (*Client, error) {
		if id == "dead" {
			close(dialling)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return Dial(ctx, addr)
	}})
	open, err := p.Get(t.Context(), "n1")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { _, err := p.Get(t.Context(), "dead"); waiting <- err }()
	<-dialling
	p.Close()
	<-open.Done()
	if err := <-waiting; err == nil {
		t.Error("who waited got a connection")
	}
	if _, err := p.Get(t.Context(), "n1"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a closed pool: %v", err)
	}
}

// TestStalledPeerDelaysNoCallerBeyondItsDeadline: the first large
// request fills the socket; the others time out as they should.
func TestStalledPeerDelaysNoCallerBeyondItsDeadline(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	addr := testkit.Serve(t, func(conn net.Conn) { conn.Write(serverPreamble(maxVersion)); <-stop })
	c := mustDial(t, addr)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := Call[api.Empty](ctx, c, "echo", echo{Text: string(make([]byte, 12<<20))})
			if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > time.Minute {
				t.Errorf("after %v: %v", took, err)
			}
		})
	}
	wg.Wait()
}
