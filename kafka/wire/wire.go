// Package wire reads and edits Kafka's protocol as bytes: frames, headers, API
// versions, and edits in place. It does no I/O and keeps none of its arguments.
// It checks every length before it believes it.
//
// A file that is named for an API key (00_produce.go, 03_metadata.go) tells
// what happens to the messages of that API, in which versions, and declares it.
// All other files are machinery: Walker edits messages that stream,
// addressEditor those that are whole, Check validates messages before they are
// decoded.
//
// Callers decide the limits of frames, which API a client may use, and what an
// address becomes. Records are never decoded.
//
//	h, need, err := wire.PeekRequest(p)   // p begins with the size of the frame
//	if err != nil || int64(h.Size) > limit { ... wire.Guess(p) says what it may be, for the log }
//	if need > len(p) { ... wait for that many bytes }
//	var w wire.Walker
//	w.Init(wire.Request, h.Key, h.Version, h.BodyLen(), &edits)
//	// Walker tells how the body then streams
//
// The protocol: https://kafka.apache.org/protocol. Versions and flexibility
// come from kmsg, which is generated from the brokers' schemas.
package wire

import "errors"

// Errors of messages; each is wrapped with what was seen.
var (
	// ErrMalformed means that bytes are not what their header says.
	ErrMalformed = errors.New("malformed message")
	// ErrTooLarge means that a part of a message that must be seen at once is
	// larger than such a message has reason to be.
	ErrTooLarge = errors.New("larger than allowed")
)

// Direction is where a message goes. Its values are those of filter.Direction.
type Direction uint8

// The directions.
const (
	Request  Direction = iota // from the client to the broker
	Response                  // from the broker to the client
)
