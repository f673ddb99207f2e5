// Package wire is Kafka's protocol as bytes: frames, headers, which versions
// are flexible, walks and edits in place. It has no I/O and keeps nothing
// that it is given. Lengths are checked before they are believed.
//
// It decides nothing: caps of frames, which API a client may use now and what
// an address becomes are its callers'. It decodes no records.
//
//	h, need, err := wire.PeekRequest(p)   // p begins with the frame's size
//	if err != nil || int64(h.Size) > limit { ... wire.Guess(p) tells the log what it may be }
//	if need > len(p) { ... wait for that many bytes }
//	var w wire.Walker
//	w.Init(wire.Request, h.Key, h.Version, h.BodyLen(), &edits)
//	// see Walker for how the body then streams
//
// The protocol: https://kafka.apache.org/protocol. Versions and flexibility
// come from kmsg, which is generated from the broker's own schemas.
package wire

import "errors"

// Errors of messages; each is wrapped with what was seen.
var (
	// ErrMalformed says that bytes are not what their header says.
	ErrMalformed = errors.New("malformed message")
	// ErrTooLarge says that a part of a message that must be seen at once is
	// larger than a message of its kind has reason to be.
	ErrTooLarge = errors.New("larger than allowed")
)

// Direction is where a message goes. Its values are those of filter.Direction.
type Direction uint8

// The directions.
const (
	Request  Direction = iota // from the client to the broker
	Response                  // from the broker to the client
)
