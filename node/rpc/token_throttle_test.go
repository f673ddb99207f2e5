package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/node/api"
)

// code returns the code of an error; "": none.
func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestThrottleTokenBoundsWrongTokens: wrong tokens over HTTP are limited
// without a connection to count them by, whatever their concurrency.
func TestThrottleTokenBoundsWrongTokens(t *testing.T) {
	var looked atomic.Int32
	var revoked atomic.Bool
	s := NewServer(Config{Authenticate: func(_ context.Context, token string) (api.Principal, error) {
		switch {
		case token == "down":
			return api.Principal{}, api.Errorf(api.Unavailable, "the cluster has no leader")
		case token == "good" && !revoked.Load(), token == "late":
			return api.Principal{Name: token, Role: api.RoleReader}, nil
		}
		looked.Add(1)
		return api.Principal{}, api.Errorf(api.Unauthenticated, "this is %s", token)
	}})
	from := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	try := func(ip, token string) error {
		_, err := s.ThrottleToken(t.Context(), from(ip), token)
		return err
	}
	if err := try("10.0.0.1", "good"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 20 * failBurst {
		all.Go(func() { _ = try("10.0.0.1", "wrong") })
	}
	all.Wait()
	const most = failBurst + maxTokenChecks + 2 // the concurrent ones, and some that expired
	if n := looked.Load(); n < failBurst || n > most {
		t.Errorf("%d wrong tokens were looked at, want %d to %d", n, failBurst, most)
	}
	if got := s.Stats(); got.AuthFailed != uint64(looked.Load()) ||
		got.AuthLimited != uint64(20*failBurst)-got.AuthFailed || got.Authenticated != 1 {
		t.Errorf("counted: %+v, looked at %d", got, looked.Load())
	}
	if err := try("10.0.0.1", "late"); code(err) != api.Busy {
		t.Errorf("another token from there: %v, want %s", err, api.Busy)
	}
	if err := try("10.0.0.1", "good"); err != nil {
		t.Errorf("a token that was good from there: %v", err)
	}
	if err := try("10.0.0.2", "late"); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
	revoked.Store(true)
	if err := try("10.0.0.1", "good"); code(err) != api.Unauthenticated {
		t.Errorf("a token that was good and is not any more: %v", err)
	}
	if err := try("10.0.0.1", "good"); code(err) != api.Busy {
		t.Errorf("the same again: %v, want %s", err, api.Busy)
	}
}

// TestThrottleTokenDelaysWrongTokens: and errors that are not the token's
// fault are not counted.
func TestThrottleTokenDelaysWrongTokens(t *testing.T) {
	s := NewServer(Config{Authenticate: func(_ context.Context, token string) (api.Principal, error) {
		if token == "down" {
			return api.Principal{}, api.Errorf(api.Unavailable, "the cluster has no leader")
		}
		return api.Principal{}, errors.New("it is " + token)
	}})
	from := &net.TCPAddr{IP: net.ParseIP("10.0.0.1")}
	for range 2 * failBurst {
		if _, err := s.ThrottleToken(t.Context(), from, "down"); code(err) != api.Unavailable {
			t.Fatal(err)
		}
	}
	before := time.Now()
	_, err := s.ThrottleToken(t.Context(), from, "wrong")
	if took := time.Since(before); code(err) != api.Unauthenticated || took < failDelay {
		t.Errorf("after %v: %v", took, err)
	}
	if got := s.Stats(); got.AuthLimited != 0 || got.AuthFailed != 1 {
		t.Errorf("%+v", got)
	}
}

// TestValidTokenCacheIsBounded: the least recently used token is
// forgotten.
func TestValidTokenCacheIsBounded(t *testing.T) {
	v := validTokenCache{lastValid: map[[sha256.Size]byte]time.Time{}}
	name := func(i int) [sha256.Size]byte { return sha256.Sum256([]byte{byte(i >> 8), byte(i)}) }
	now := time.Unix(1_000_000, 0)
	for i := range maxValidTokens + 10 {
		v.put(name(i), now.Add(time.Duration(i)*time.Millisecond))
	}
	if len(v.lastValid) != maxValidTokens {
		t.Errorf("%d are remembered, the limit is %d", len(v.lastValid), maxValidTokens)
	}
	if now = now.Add(2 * time.Second); v.has(name(9), now) || !v.has(name(10), now) || !v.has(name(maxValidTokens+9), now) {
		t.Error("not the oldest went")
	}
	if v.has(name(500), now.Add(validTokenTTL)) {
		t.Error("it is remembered for longer than it should be")
	}
}
