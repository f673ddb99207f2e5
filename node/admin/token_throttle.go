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
	// maxLooks bounds the tokens of requests that are being looked at.
	maxLooks = 16
	// goodFor is how long a token that was good is looked at from where it
	// was shown, whatever others there do.
	goodFor = 10 * time.Minute
	// maxGoodTokens bounds the tokens that are remembered so.
	maxGoodTokens = 1024
)

// ThrottleToken tells whose token a request shows that did not come by a connection
// of the server's, such as one of HTTP. It bounds wrong tokens of one source
// as MethodAuth does, the two together: beyond the bound none is looked at,
// but for those that were good from there a moment ago. For these come with
// each request, and a script with an old token must not keep out everything
// else on its machine.
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

// tokenThrottle are tokens that were good, by the digest of source and token.
type tokenThrottle struct {
	mu sync.Mutex
	at map[[sha256.Size]byte]time.Time // when they last were
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

// forget makes room: the one that was good longest ago goes.
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
