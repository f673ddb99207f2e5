package session

import (
	"penstock/mysql/wire"
	"penstock/netio"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// Pending returns how many bytes are kept for a side.
func Pending(s *Session, to relay.Side) int { return s.streams[to].Send(nil) }

// Holding returns how many bytes a session holds.
func Holding(s *Session) int { return s.holding() }

// NewOpen returns a session that is open, on the connection of another one.
func NewOpen(h Host, c *netio.Conn, client, server stream.Stream, caps wire.Capabilities) *Session {
	s := New(h)
	s.conn, s.streams, s.phase, s.caps = c, [2]stream.Stream{client, server}, open, caps
	return s
}

// Closed reports whether a session has ended.
func Closed(s *Session) bool { return s.phase == closed }
