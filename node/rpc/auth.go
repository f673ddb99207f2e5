package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"penstock/node/api"
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
func (c *serverConn) authenticate(ctx context.Context, params []byte) (*api.Principal, error) {
	if p := c.currentPrincipal(); p.Role != api.RoleNone {
		return &p, nil
	}
	var r api.AuthRequest
	if err := decode(params, &r); err != nil || len(r.Token) > maxToken {
		return nil, api.Errorf(api.Invalid, "%s: invalid token", api.MethodAuth)
	}
	if c.s.cfg.Authenticate == nil {
		return nil, api.Errorf(api.Unauthenticated, "this node does not accept tokens")
	}
	p, err := c.s.cfg.Authenticate(ctx, r.Token)
	if err == nil {
		p.Via, p.From = "", ""
		return c.setPrincipal(p)
	}
	return nil, tokenError(err, r.Token)
}

// tokenError returns the error for a rejected token. It never contains the
// token.
func tokenError(err error, token string) *api.Error {
	var e *api.Error
	if !errors.As(err, &e) || strings.Contains(err.Error(), token) {
		e = api.Errorf(api.Unauthenticated, "the token was rejected: it is unknown, expired or revoked")
	}
	return e
}

// isTokenFailure distinguishes a wrong token from one that cannot be verified
// now.
func isTokenFailure(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && e.Code == api.Unauthenticated
}

// checkTokenRate refuses an unauthenticated caller whose address has failed too
// often: all that such a caller may request begins with a token or a proof of
// one.
func (c *serverConn) checkTokenRate(caller api.Principal) *api.Error {
	if caller.Role != api.RoleNone || c.s.failures.allow(c.source, time.Now()) {
		return nil
	}
	c.s.authLimited.Add(1)
	return c.s.tokenRateError()
}

func (s *Server) tokenRateError() *api.Error {
	return api.Errorf(api.Busy, "too many invalid tokens from your address: try again in %v", s.failures.interval)
}

// recordTokenFailure counts a rejected token and delays the response. A token
// that the node cannot verify yet is not counted.
func (c *serverConn) recordTokenFailure(ctx context.Context, err error) {
	if !isTokenFailure(err) {
		return
	}
	c.s.authFailed.Add(1)
	c.s.failures.record(c.source, time.Now())
	delayFailure(ctx)
}

// delayFailure delays the response to a wrong token.
func delayFailure(ctx context.Context) {
	t := time.NewTimer(failDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// checkStillValid returns an error if the token of the caller's connection is
// no longer valid. For a forwarded request the forwarding node has checked it.
func (s *Server) checkStillValid(p api.Principal) *api.Error {
	if p.TokenID == "" || p.Via != "" || s.cfg.Check == nil {
		return nil
	}
	if err := s.cfg.Check(p); err != nil {
		return api.Errorf(api.Unauthenticated, "%v", err)
	}
	return nil
}

// Recheck sends the reason to the connections, streams included, whose token no
// longer passes Check, and closes them. It does not wait for them.
func (s *Server) Recheck() {
	for _, c := range s.connections() {
		if why := s.checkStillValid(c.currentPrincipal()); why != nil {
			go func() {
				_ = c.sendError(0, why) // bounded by its timeout
				_ = c.conn.Close()
			}()
		}
	}
}

// setPrincipal sets the connection's principal and moves the connection from
// the limit for unauthenticated ones to the limit for tokens.
func (c *serverConn) setPrincipal(p api.Principal) (*api.Principal, error) {
	if p.Role == api.RoleNone || p.Role == api.RoleNode {
		return nil, fmt.Errorf("a token with the role %q", p.Role) // a bug in Authenticate
	}
	release, ok := takeSlot(c.s.tokenSlots)
	if !ok {
		return nil, api.Errorf(api.Busy, "the node has %d connections; try again, or use another node", cap(c.s.tokenSlots))
	}
	c.mu.Lock()
	if c.principal.Role != api.RoleNone { // concurrent attempts: the first one wins
		p = c.principal
		c.mu.Unlock()
		release()
		return &p, nil
	}
	c.principal = p
	old := c.releaseSlot
	c.releaseSlot = release
	c.mu.Unlock()
	old()
	c.s.authenticated.Add(1)
	return &p, nil
}

// failures limits the rate of wrong tokens by source. It stores only the time
// at which the failures of a source expire.
type failures struct {
	interval time.Duration // after which one failure expires; immutable while in use
	mu       sync.Mutex
	expires  map[netip.Addr]time.Time
}

// allow reports whether a token of the source may be examined.
func (f *failures) allow(source netip.Addr, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.expires[source].Sub(now) <= (failBurst-1)*f.interval
}

func (f *failures) record(source netip.Addr, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	until, known := f.expires[source]
	if !known && len(f.expires) >= maxSources {
		f.evict(now)
	}
	if until.Before(now) {
		until = now
	}
	f.expires[source] = until.Add(f.interval)
}

// evict deletes the expired entries, or else the one that expires first.
func (f *failures) evict(now time.Time) {
	var soonest netip.Addr
	var at time.Time
	for source, until := range f.expires {
		if until.Before(now) {
			delete(f.expires, source)
		} else if at.IsZero() || until.Before(at) {
			soonest, at = source, until
		}
	}
	if len(f.expires) >= maxSources {
		delete(f.expires, soonest)
	}
}
