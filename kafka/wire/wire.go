// Package wire reads and edits Kafka's protocol as bytes: frames, headers, API
// versions, and messages. It does no I/O and checks every length before using
// it.
//
// A file named for an API key (00_produce.go, 03_metadata.go) documents what
// happens to the messages of that API, by version, and declares its apiSpec. All
// other files are machinery: Walker edits messages while they stream,
// addressEditor edits whole messages, and Check validates messages before they
// are decoded.
//
// Callers choose the limits of frames, the APIs that a client may use, and the
// new addresses. Records are never decoded.
//
//	h, need, err := wire.PeekRequest(p)   // p begins with the size of the frame
//	if err != nil || int64(h.Size) > limit { ... wire.GuessProtocol(p) names the protocol, for the log }
//	if need > len(p) { ... wait for that many bytes }
//	var w wire.Walker
//	w.Init(wire.Request, h.Key, h.Version, h.BodyLen(), &edits)
//	// See Walker for how to stream the body.
//
// The protocol: https://kafka.apache.org/protocol. Versions and flexibility
// come from kmsg, which is generated from the brokers' schemas.
package wire

import "errors"

// Errors of messages; each is wrapped with the offending value.
var (
	// ErrMalformed means that a message does not match its header or schema.
	ErrMalformed = errors.New("malformed message")
	// ErrTooLarge means that a part of a message that must be held at once is
	// larger than such a message ever needs.
	ErrTooLarge = errors.New("larger than allowed")
)

// Direction is the direction of a message. Its values are those of filter.Direction.
type Direction uint8

// The directions.
const (
	Request  Direction = iota // from the client to the broker
	Response                  // from the broker to the client
)
