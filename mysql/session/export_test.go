package session

import "penstock/netio/relay"

// Pending returns how many bytes are kept for a side.
func Pending(s *Session, to relay.Side) int { return s.streams[to].Send(nil) }
