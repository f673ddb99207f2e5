package session

import (
	"errors"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio"
)

// The reasons that a session gives for the end of its connection, beside those
// of netio. The error that belongs to each is netio.Conn.Failure.
const (
	// NotKafka: what the client sent first is another protocol: TLS on a
	// port in the clear, HTTP, SSH.
	NotKafka netio.Reason = "kafka_not_kafka"
	// BadFrame: a frame or a message, of either side, that is not what its
	// length or its header says.
	BadFrame netio.Reason = "kafka_bad_frame"
	// FrameTooLarge: a frame beyond the cap: that for all, or one of the
	// lower ones for clients that have not authenticated.
	FrameTooLarge netio.Reason = "kafka_frame_too_large"
	// FrameTimeout: a frame that has begun did not come whole in time.
	FrameTimeout netio.Reason = "kafka_frame_timeout"
	// AskTimeout: the broker did not answer in time what a filter asked it,
	// for which a message of the client's or of its own waits.
	AskTimeout netio.Reason = "kafka_ask_timeout"
	// UnknownAPI: a request with a key that is not known, or of an API that
	// is none for clients, or that a filter hides.
	UnknownAPI netio.Reason = "kafka_unknown_api"
	// UnsupportedVersion: a request of a version that was not offered.
	// (ApiVersions is answered instead.)
	UnsupportedVersion netio.Reason = "kafka_unsupported_version"
	// Correlation: the broker's response is none to the request whose turn
	// it is: another correlation id, or nobody asked.
	Correlation netio.Reason = "kafka_correlation"
	// UnmappedBroker: an answer names a broker that has no address that
	// clients may see, and the setting says fail.
	UnmappedBroker netio.Reason = "kafka_unmapped_broker"
	// Denied: a filter does not allow what the client does, and no answer of
	// the protocol could say so.
	Denied netio.Reason = "kafka_denied"
	// FilterFailed: a filter failed. The frame did not go on.
	FilterFailed netio.Reason = "kafka_filter_failed"
)

// Reasons lists them, for those who count by reason.
var Reasons = []netio.Reason{
	NotKafka, BadFrame, FrameTooLarge, FrameTimeout, AskTimeout, UnknownAPI, UnsupportedVersion,
	Correlation, UnmappedBroker, Denied, FilterFailed,
}

// Errors behind the reasons, wrapped with what was seen.
var (
	errTooLarge    = errors.New("frame larger than allowed")
	errTimeout     = errors.New("frame not complete in time")
	errUnanswered  = errors.New("the broker did not answer a filter's request")
	errNotOffered  = errors.New("not offered")
	errCorrelation = errors.New("response out of order")
	errNotKafka    = errors.New("not a Kafka request")
	errMemory      = errors.New("not enough memory for a frame")
)

// reasonOf is the reason that an error of a chain, or of a walk, makes.
func reasonOf(err error) netio.Reason {
	switch {
	case errors.Is(err, filter.ErrMisuse):
		return FilterFailed
	case errors.Is(err, filter.ErrDenied):
		return Denied
	case errors.Is(err, filter.ErrUnmapped):
		return UnmappedBroker
	case errors.Is(err, filter.ErrMalformed), errors.Is(err, wire.ErrMalformed):
		return BadFrame
	case errors.Is(err, wire.ErrTooLarge), errors.Is(err, errTooLarge):
		return FrameTooLarge
	}
	return FilterFailed
}
