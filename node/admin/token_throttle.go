package admin

import (
	"context"
	"crypto/sha256"
	"net"
	"sync"
	"time"

	"penstock/node/mux"
)

const (
	// maxLooks bounds the tokens being examined at once.
	maxLooks = 16
	// goodFor is how long a valid token bypasses the limit on wrong tokens of its
	// source.
	goodFor = 10 * time.Minute
	// maxGoodTokens bounds the tokens that are remembered for this.
	maxGoodTokens = 1024
)

// ThrottleToken authenticates a token that came by another connection than the
// server's, such as HTTP. It limits the wrong tokens of one source as
// MethodAuth does, and counts both together. Beyond the limit it examines only
// tokens that were recently valid from that source: HTTP clients send the token
// with each request, and a script with an expired one must not lock out
// everything else on its machine.
func (s *Server) ThrottleToken(ctx context.Context, from net.Addr, token string) (Principal, error) {
	p, err := s.checkToken(ctx, from, token)
	if isWrong(err) {
		linger(ctx)
	}
	return p, err
}

func (s *Server) checkToken(ctx context.Context, from net.Addr, token string) (Principal, error) {
	source := mux.Source(from)
	if len(token) > maxToken {
		return Principal{}, Errorf(Unauthenticated, "not a token")
	}
	if s.cfg.Authenticate == nil {
		return Principal{}, Errorf(Unauthenticated, "this node takes no tokens")
	}
	name := sha256.Sum256(append([]byte(source.String()+" "), token...))
	known := s.goodTokens.has(name, time.Now())
	if !known {
		select {
		case s.looks <- struct{}{}:
			defer func() { <-s.looks }()
		case <-ctx.Done():
			return Principal{}, ctx.Err()
		}
		if !s.failures.allow(source, time.Now()) {
			s.authLimited.Add(1)
			return Principal{}, s.tooManyWrong()
		}
	}
	p, err := s.cfg.Authenticate(ctx, token)
	if err == nil {
		if !known {
			s.authenticated.Add(1)
		}
		s.goodTokens.put(name, time.Now())
		return p, nil
	}
	refusal := tokenRefusal(err, token)
	if isWrong(refusal) {
		s.goodTokens.drop(name)
		s.authFailed.Add(1)
		s.failures.failed(source, time.Now())
	}
	return Principal{}, refusal
}

// tokenThrottle holds recently valid tokens, by the digest of source and token.
type tokenThrottle struct {
	mu sync.Mutex
	at map[[sha256.Size]byte]time.Time // when they were last valid
}

func (v *tokenThrottle) has(name [sha256.Size]byte, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, ok := v.at[name]
	return ok && now.Sub(at) < goodFor
}

func (v *tokenThrottle) put(name [sha256.Size]byte, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.at[name]; !ok && len(v.at) >= maxGoodTokens {
		v.forget()
	}
	v.at[name] = now
}

// forget deletes the token that has not been used for the longest time.
func (v *tokenThrottle) forget() {
	var oldest [sha256.Size]byte
	var when time.Time
	for name, at := range v.at {
		if when.IsZero() || at.Before(when) {
			oldest, when = name, at
		}
	}
	delete(v.at, oldest)
}

func (v *tokenThrottle) drop(name [sha256.Size]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.at, name)
}
