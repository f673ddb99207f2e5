package netio

import (
	"crypto/tls"
	"errors"
	"fmt"

	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
	"penstock/netio/tlsstream"
)

// A Standby is a connection of a session to another endpoint, beside the present
// one. It ends with Abort, with Failed to its owner, or by becoming the upstream.
// Whatever happens to it before that, the session's connection goes on.
type Standby struct {
	conn    *Conn
	socket  reactor.Socket
	tls     *tlsstream.Stream // on socket; nil: in the clear
	over    adopted           // the stream of it, and what Conn.above gets
	paced   *pacedSide        // what the session gets where there is a Pacer; nil: over.Stream
	profile *Profile
	owner   stream.Owner // until Adopt the caller's, then the connection
	timer   reactor.Timer
	phase   standbyPhase
}

type standbyPhase uint8

const (
	standbyDialing standbyPhase = iota
	standbyReady                // connected, and not within a handshake
	standbyShaking              // a TLS handshake is under way
	standbyAdopted
	standbyOver // aborted, or failed
)

// adopted stands in Conn.above once a standby is the upstream.
type adopted struct {
	stream.Stream
	of *Standby
}

// DialStandby connects to another endpoint beside the present one. ConnectTimeout
// and SendProxy of to.Profile apply, the header is sent before Connected is told;
// TLS does not. owner gets the events, on the loop, until Adopt; what Failed gets is
// what Plan.Next gets of an attempt. The session aborts its standby in Closed.
func (c *Conn) DialStandby(to Target, owner stream.Owner) *Standby {
	if to.Profile == nil || to.Serve != nil || to.Wait != 0 {
		panic("netio: a standby needs an address and a profile")
	}
	s := &Standby{conn: c, profile: to.Profile, owner: owner}
	s.timer.Init(s)
	s.socket.Init(c.loop.Loop, (*standbySide)(s))
	s.over = adopted{&s.socket, s}
	if p := c.pacing(); p != nil {
		s.paced = &pacedSide{Stream: &s.socket, conn: c, from: relay.Upstream}
		s.paced.timer.Init(s.paced)
	}
	c.loop.Arm(&s.timer, to.Profile.connectTimeout())
	if to.Unix != "" {
		s.socket.DialUnix(to.Unix)
	} else {
		s.socket.Dial(to.Addr, reactor.TCPOptions{})
	}
	return s
}

// Stream returns the standby's stream, which is not read until SetReading.
func (s *Standby) Stream() stream.Stream {
	if s.paced != nil {
		return s.paced
	}
	return s.over.Stream
}

// StartTLS puts TLS on a standby that is connected, and returns the stream that
// replaces its own. early is what has arrived of TLS already. The owner's Connected
// follows again, or Failed. The handshake has the profile's ConnectTimeout; that of
// an adopted standby has none, and Secured follows as with Conn.StartTLS.
func (s *Standby) StartTLS(config *tls.Config, early []byte) stream.Stream {
	if s.tls != nil || s.phase != standbyReady && s.phase != standbyAdopted {
		panic("netio: StartTLS on a standby that is not connected, or has TLS")
	}
	s.tls = s.conn.loop.local.Client(&s.socket, config, (*standbySide)(s))
	s.over.Stream = s.tls
	if s.paced != nil {
		s.paced.Stream, s.paced.wants = s.tls, false
	}
	if s.phase == standbyReady {
		s.phase = standbyShaking
		s.conn.loop.Arm(&s.timer, s.profile.connectTimeout())
	}
	startClient(&s.socket, s.tls, early)
	return s.Stream()
}

// Abort resets the standby. Its owner hears nothing more. It does nothing once the
// standby has failed or was adopted.
func (s *Standby) Abort() {
	if s.phase < standbyAdopted {
		s.end()
	}
}

func (s *Standby) end() {
	s.phase = standbyOver
	s.conn.loop.Disarm(&s.timer)
	s.over.Abort()
}

// Adopt makes a connected standby the upstream: its events come to the session as
// relay.Upstream from now on, and connections and bytes count with its profile. The
// old upstream is closed after its pending bytes. MayMove works with it as before if
// neither side has TLS. Nothing may be under way unseen (MayMove) in either
// direction: the old upstream would take it along.
func (c *Conn) Adopt(s *Standby) {
	switch old := c.upstreamSocket(); {
	case c.phase != phaseRelaying || s.conn != c || s.phase != standbyReady:
		panic("netio: Adopt of a standby that is not connected, or without an upstream")
	case c.client.Piping() || old.Piping():
		panic("netio: Adopt while bytes are under way unseen")
	}
	c.upstreamStream().Close()
	s.phase, s.owner = standbyAdopted, (*upstreamSide)(c)
	c.above = &s.over
	c.relay.Renew(relay.Upstream)
	c.setProfile(s.profile)
	if p := c.pacing(); p != nil {
		c.loop.Disarm(&p.sides[relay.Upstream].timer)
		s.paced.paced = p.pacer.Paces(relay.Upstream)
		p.sides[relay.Upstream] = s.paced
	}
	c.flags &^= probing
	c.setExpiry()
	c.loop.Arm(&c.timer, 0) // the new profile's times; they must not end a session in its own call
}

// standbySide is a standby as the owner of its stream.
type standbySide Standby

func (o *standbySide) Connected() {
	s := (*Standby)(o)
	c := s.conn
	switch s.phase {
	case standbyDialing:
		if header := c.appendProxyHeader(c.loop.scratch[:0], s.profile); len(header) > 0 {
			s.socket.Send(header)
			c.loop.scratch = header
		}
		fallthrough
	case standbyShaking:
		s.phase = standbyReady
		c.loop.Disarm(&s.timer)
	}
	c.must(s.owner.Connected)
}

func (o *standbySide) Received(p []byte) { o.owner.Received(p) }
func (o *standbySide) Moved(n int)       { o.owner.Moved(n) }
func (o *standbySide) Sent()             { o.owner.Sent() }
func (o *standbySide) Ended()            { o.owner.Ended() }

func (o *standbySide) Failed(err error) {
	s := (*Standby)(o)
	if errors.Is(err, reactor.ErrPanic) && s.phase != standbyAdopted {
		s.end()
		s.conn.abort(Internal)
		return
	}
	s.fail(err)
}

// Expired implements reactor.Expirer: the endpoint takes too long.
func (s *Standby) Expired(*reactor.Timer) { s.fail(ErrConnectTimeout) }

// fail ends the standby and tells its owner.
func (s *Standby) fail(err error) {
	if s.tls != nil && isShaking(s.tls) {
		err = fmt.Errorf("%w: %w", ErrUpstreamTLS, err)
	}
	s.end()
	s.conn.must(func() { s.owner.Failed(err) })
}

// TLS returns the Profile.TLS of the standby's target.
func (s *Standby) TLS() *tls.Config { return s.profile.TLS }

// Secured reports whether TLS that StartTLS began stands.
func (s *Standby) Secured() bool {
	return s.tls != nil && (s.phase == standbyReady || s.phase == standbyAdopted)
}
