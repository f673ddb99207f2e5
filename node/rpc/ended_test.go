package rpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/node/api"
)

// TestProofsAreLimitedLikeTokens: the proofs of unauthenticated callers are
// limited like tokens, and do not flood the audit log.
func TestProofsAreLimitedLikeTokens(t *testing.T) {
	var looked, audited atomic.Int64
	s, authority, addr := newCluster(t, Config{Audit: func(Event) { audited.Add(1) }}, func(s *Server) {
		Handle(s, "prove", api.RoleNone, func(context.Context, *api.Empty) (*api.Empty, error) {
			looked.Add(1)
			return nil, api.Errorf(api.Unauthenticated, "no such token")
		}, Changing())
		s.failures.interval = time.Hour // no failure expires during the test
	})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node")}, addr)
	var wg sync.WaitGroup
	for range unauthRequests { // the limit per connection
		wg.Go(func() {
			for range failBurst {
				_, _ = Call[api.Empty](t.Context(), c, "prove", api.Empty{})
			}
		})
	}
	wg.Wait()
	if _, err := Call[api.Empty](t.Context(), c, "prove", api.Empty{}); !isCode(err, api.Busy) {
		t.Errorf("after so many wrong proofs: %v", err)
	}
	const most = failBurst + unauthRequests
	if n := looked.Load(); n < failBurst || n > most || audited.Load() != n || s.Stats().AuthFailed != uint64(n) {
		t.Errorf("%d were looked at, %d audited: want %d to %d; %+v", n, audited.Load(), failBurst, most, s.Stats())
	}
	// The limit does not apply to a node.
	if _, err := Call[api.Empty](t.Context(), mustDialAs(t, DialConfig{TLS: authority.Client("node", "n2")}, addr),
		"prove", api.Empty{}); !isCode(err, api.Unauthenticated) {
		t.Errorf("a node from the same address: %v", err)
	}
}

// TestStreamsEndWithTheirToken: a stream ends at its next item, or by Recheck.
func TestStreamsEndWithTheirToken(t *testing.T) {
	var revoked atomic.Bool
	more := make(chan struct{})
	s, authority, addr := newCluster(t, Config{Check: func(api.Principal) error {
		if revoked.Load() {
			return errors.New("the token was revoked")
		}
		return nil
	}}, func(s *Server) {
		HandleStream(s, "ticks", api.RoleReader, func(ctx context.Context, _ *api.Empty, send func(*echo) error) error {
			for {
				if err := send(&echo{}); err != nil {
					return err
				}
				select {
				case <-more:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	})
	d := DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}
	stream := func() (began chan struct{}, ended chan error) {
		began, ended = make(chan struct{}, 8), make(chan error, 1)
		c := mustDialAs(t, d, addr)
		go func() {
			ended <- Stream(t.Context(), c, "ticks", api.Empty{}, func(*echo) error {
				began <- struct{}{}
				return nil
			})
		}()
		<-began
		return began, ended
	}
	for name, end := range map[string]func(){"the next item": func() { more <- struct{}{} }, "a look": s.Recheck} {
		revoked.Store(false)
		began, ended := stream()
		revoked.Store(true)
		end()
		if err := <-ended; !isCode(err, api.Unauthenticated) || err.Error() != "the token was revoked" {
			t.Errorf("%s: %v", name, err)
		}
		if len(began) > 0 {
			t.Errorf("%s: an item came after the token had ended", name)
		}
	}
}

// TestDroppingDoesNotWaitForRequests: both take the locks of the server and of
// connections.
func TestDroppingDoesNotWaitForRequests(t *testing.T) {
	s, authority, addr := newCluster(t, Config{})
	c := mustDialAs(t, DialConfig{TLS: authority.Client("node", "n2")}, addr)
	over := make(chan struct{})
	var dropping sync.WaitGroup
	for range 2 {
		dropping.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					s.Drop(func(api.Principal) bool { return false })
					s.Recheck()
				}
			}
		})
	}
	// The two loops use all of a small machine, where 2000 requests could take
	// minutes.
	begun := time.Now()
	for i := 0; i < 2000 && (i < 50 || time.Since(begun) < 3*time.Second); i++ {
		if _, err := Call[api.Empty](t.Context(), c, "for-node", api.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	dropping.Wait()
}
