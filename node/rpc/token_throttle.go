package rpc

import (
	"context"
	"crypto/sha256"
	"net"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/mux"
)

const (
	// maxTokenChecks bounds the tokens being examined at once.
	maxTokenChecks = 16
	// validTokenTTL is how long a valid token bypasses the limit on wrong
	// tokens of its source.
	validTokenTTL = 10 * time.Minute
	// maxValidTokens bounds the tokens that are remembered for this.
	maxValidTokens = 1024
)

// ThrottleToken authenticates a token that came by another connection than the
// server's, such as HTTP. It limits the wrong tokens of one source as
// MethodAuth does, and counts both together. Beyond the limit it examines only
// tokens that were recently valid from that source: HTTP clients send the token
// with each request, and a script with an expired one must not lock out
// everything else on its machine.
func (s *Server) ThrottleToken(ctx context.Context, from net.Addr, token string) (api.Principal, error) {
	p, err := s.checkToken(ctx, from, token)
	if isTokenFailure(err) {
		delayFailure(ctx)
	}
	return p, err
}

func (s *Server) checkToken(ctx context.Context, from net.Addr, token string) (api.Principal, error) {
	source := mux.Source(from)
	if len(token) > maxToken {
		return api.Principal{}, api.Errorf(api.Unauthenticated, "invalid token")
	}
	if s.cfg.Authenticate == nil {
		return api.Principal{}, api.Errorf(api.Unauthenticated, "this node does not accept tokens")
	}
	name := sha256.Sum256(append([]byte(source.String()+" "), token...))
	known := s.validTokens.has(name, time.Now())
	if !known {
		select {
		case s.tokenChecks <- struct{}{}:
			defer func() { <-s.tokenChecks }()
		case <-ctx.Done():
			return api.Principal{}, ctx.Err()
		}
		if !s.failures.allow(source, time.Now()) {
			s.authLimited.Add(1)
			return api.Principal{}, s.tokenRateError()
		}
	}
	p, err := s.cfg.Authenticate(ctx, token)
	if err == nil {
		if !known {
			s.authenticated.Add(1)
		}
		s.validTokens.put(name, time.Now())
		return p, nil
	}
	refusal := tokenError(err, token)
	if isTokenFailure(refusal) {
		s.validTokens.drop(name)
		s.authFailed.Add(1)
		s.failures.record(source, time.Now())
	}
	return api.Principal{}, refusal
}

// validTokenCache holds recently valid tokens, by the digest of source and
// token.
type validTokenCache struct {
	mu        sync.Mutex
	lastValid map[[sha256.Size]byte]time.Time // when they were last valid
}

func (v *validTokenCache) has(name [sha256.Size]byte, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, ok := v.lastValid[name]
	return ok && now.Sub(at) < validTokenTTL
}

func (v *validTokenCache) put(name [sha256.Size]byte, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.lastValid[name]; !ok && len(v.lastValid) >= maxValidTokens {
		v.evictOldest()
	}
	v.lastValid[name] = now
}

// evictOldest deletes the token that has not been used for the longest time.
func (v *validTokenCache) evictOldest() {
	var oldest [sha256.Size]byte
	var when time.Time
	for name, at := range v.lastValid {
		if when.IsZero() || at.Before(when) {
			oldest, when = name, at
		}
	}
	delete(v.lastValid, oldest)
}

func (v *validTokenCache) drop(name [sha256.Size]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.lastValid, name)
}
