package session

import "penstock/netio/relay"

// Pending returns how many bytes are kept for a side.
func Pending(s *Session, to relay.Side) int { return s.streams[to].Send(nil) }

// Holding returns how many bytes a session holds.
func Holding(s *Session) int { return s.holding() }
