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
	// failDelay is how long a failed attempt waits for its answer.
	failDelay = 250 * time.Millisecond
	// failBurst failures of one source are looked at; then one in each such time.
	failBurst = 10
	failEvery = 2 * time.Second
	// maxSources bounds the sources whose failures are remembered.
	maxSources = 1024
)

// authenticate answers MethodAuth: it makes a connection without a name the
// token's. A connection that has a name already keeps it.
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

// tokenRefusal is what is said of a token that was not taken; never the token.
func tokenRefusal(err error, token string) *Error {
	var e *Error
	if !errors.As(err, &e) || strings.Contains(err.Error(), token) {
		e = Errorf(Unauthenticated, "this node does not take the token: it is unknown, expired or revoked")
	}
	return e
}

// isWrong tells a token that is wrong from one that cannot be known now.
func isWrong(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == Unauthenticated
}

// limited refuses a stranger whose address has failed too often: whatever
// they ask for begins with a token, shown or proven.
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

// punish counts a stranger's token that was not taken, and lets the answer
// wait. That a node cannot know the token yet is no failure.
func (c *serverConn) punish(ctx context.Context, err error) {
	if !isWrong(err) {
		return
	}
	c.s.authFailed.Add(1)
	c.s.failures.failed(c.source, time.Now())
	linger(ctx)
}

// linger is how long the answer to a wrong token waits.
func linger(ctx context.Context) {
	t := time.NewTimer(failDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// ended says why the caller of a token's connection is nobody any more; nil:
// it is somebody. Whoever passes a request on has asked this already.
func (s *Server) ended(p Principal) *Error {
	if p.TokenID == "" || p.Via != "" || s.cfg.Check == nil {
		return nil
	}
	if err := s.cfg.Check(p); err != nil {
		return Errorf(Unauthenticated, "%v", err)
	}
	return nil
}

// Recheck ends the connections of tokens that Check does not take any more,
// streams among them, and tells their callers why. It does not wait for them.
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

// become gives the connection its name and another's place: it is no stranger
// any more.
func (c *serverConn) become(p Principal) (*Principal, error) {
	if p.Role == RoleNone || p.Role == RoleNode {
		return nil, fmt.Errorf("a token of the role %q", p.Role) // a fault in Authenticate
	}
	leave, ok := take(c.s.known)
	if !ok {
		return nil, Errorf(Busy, "the node has %d connections; try again, or ask another", cap(c.s.known))
	}
	c.mu.Lock()
	if c.principal.Role != RoleNone { // two at once: the first holds
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

// failures remembers who showed wrong tokens lately, each source as the time
// at which its failures will be forgotten.
type failures struct {
	every  time.Duration // after which one is forgotten; not changed while in use
	mu     sync.Mutex
	clears map[netip.Addr]time.Time
}

// allow tells whether a token of the source is looked at.
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

// forget makes room: of all that are over, or else of the one soonest over.
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
