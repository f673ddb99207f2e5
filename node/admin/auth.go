package admin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	maxToken = 4 << 10 // bytes
	// failDelay delays the response to a wrong token.
	failDelay = 250 * time.Millisecond
	// A source may fail failBurst times at once; then one attempt in each
	// failEvery is examined.
	failBurst = 10
	failEvery = 2 * time.Second
	// maxSources bounds the sources whose failures are tracked.
	maxSources = 1024
)

// authenticate handles MethodAuth: it gives an unauthenticated connection the
// principal of its token. An authenticated connection keeps its principal.
func (c *serverConn) authenticate(ctx context.Context, params []byte) (*Principal, error) {
	if p := c.who(); p.Role != RoleNone {
		return &p, nil
	}
	var r AuthRequest
	if err := decode(params, &r); err != nil || len(r.Token) > maxToken {
		return nil, Errorf(Invalid, "%s: not a token", MethodAuth)
	}
	if c.s.cfg.Authenticate == nil {
		return nil, Errorf(Unauthenticated, "this node takes no tokens")
	}
	p, err := c.s.cfg.Authenticate(ctx, r.Token)
	if err == nil {
		p.Via, p.From = "", ""
		return c.become(p)
	}
	return nil, tokenRefusal(err, r.Token)
}

// tokenRefusal returns the error for a rejected token. It never contains the
// token.
func tokenRefusal(err error, token string) *Error {
	var e *Error
	if !errors.As(err, &e) || strings.Contains(err.Error(), token) {
		e = Errorf(Unauthenticated, "this node does not take the token: it is unknown, expired or revoked")
	}
	return e
}

// isWrong distinguishes a wrong token from one that cannot be verified now.
func isWrong(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == Unauthenticated
}

// limited refuses an unauthenticated caller whose address has failed too often:
// all that such a caller may request begins with a token or a proof of one.
func (c *serverConn) limited(caller Principal) *Error {
	if caller.Role != RoleNone || c.s.failures.allow(c.source, time.Now()) {
		return nil
	}
	c.s.authLimited.Add(1)
	return c.s.tooManyWrong()
}

func (s *Server) tooManyWrong() *Error {
	return Errorf(Busy, "too many tokens from your address were wrong: try again in %v", s.failures.every)
}

// punish counts a rejected token and delays the response. A token that the node
// cannot verify yet is not counted.
func (c *serverConn) punish(ctx context.Context, err error) {
	if !isWrong(err) {
		return
	}
	c.s.authFailed.Add(1)
	c.s.failures.failed(c.source, time.Now())
	linger(ctx)
}

// linger delays the response to a wrong token.
func linger(ctx context.Context) {
	t := time.NewTimer(failDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// ended returns an error if the token of the caller's connection is no longer
// valid. For a forwarded request the forwarding node has checked it.
func (s *Server) ended(p Principal) *Error {
	if p.TokenID == "" || p.Via != "" || s.cfg.Check == nil {
		return nil
	}
	if err := s.cfg.Check(p); err != nil {
		return Errorf(Unauthenticated, "%v", err)
	}
	return nil
}

// Recheck sends the reason to the connections, streams included, whose token no
// longer passes Check, and closes them. It does not wait for them.
func (s *Server) Recheck() {
	for _, c := range s.connections() {
		if why := s.ended(c.who()); why != nil {
			go func() {
				_ = c.sendError(0, why) // bounded by its timeout
				_ = c.conn.Close()
			}()
		}
	}
}

// become sets the connection's principal and moves the connection from the
// limit for unauthenticated ones to the limit for tokens.
func (c *serverConn) become(p Principal) (*Principal, error) {
	if p.Role == RoleNone || p.Role == RoleNode {
		return nil, fmt.Errorf("a token of the role %q", p.Role) // a bug in Authenticate
	}
	leave, ok := take(c.s.known)
	if !ok {
		return nil, Errorf(Busy, "the node has %d connections; try again, or ask another", cap(c.s.known))
	}
	c.mu.Lock()
	if c.principal.Role != RoleNone { // concurrent attempts: the first one wins
		p = c.principal
		c.mu.Unlock()
		leave()
		return &p, nil
	}
	c.principal = p
	old := c.leave
	c.leave = leave
	c.mu.Unlock()
	old()
	c.s.authenticated.Add(1)
	return &p, nil
}

// failures limits the rate of wrong tokens by source. It stores only the time
// at which the failures of a source expire.
type failures struct {
	every  time.Duration // after which one failure expires; immutable while in use
	mu     sync.Mutex
	clears map[netip.Addr]time.Time
}

// allow reports whether a token of the source may be examined.
func (f *failures) allow(source netip.Addr, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clears[source].Sub(now) <= (failBurst-1)*f.every
}

func (f *failures) failed(source netip.Addr, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	until, known := f.clears[source]
	if !known && len(f.clears) >= maxSources {
		f.forget(now)
	}
	if until.Before(now) {
		until = now
	}
	f.clears[source] = until.Add(f.every)
}

// forget deletes the expired entries, or else the one that expires first.
func (f *failures) forget(now time.Time) {
	var soonest netip.Addr
	var at time.Time
	for source, until := range f.clears {
		if until.Before(now) {
			delete(f.clears, source)
		} else if at.IsZero() || until.Before(at) {
			soonest, at = source, until
		}
	}
	if len(f.clears) >= maxSources {
		delete(f.clears, soonest)
	}
}
