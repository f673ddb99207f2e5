package session

import (
	"errors"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
	"penstock/netio"
)

// The reasons with which a session ends its connection, besides those of netio.
// netio.Conn.Failure has the error behind each.
const (
	// NotKafka: the first bytes of the client are another protocol, such as TLS
	// on a port without TLS, HTTP or SSH.
	NotKafka netio.Reason = "kafka_not_kafka"
	// BadFrame: a frame or message of either side does not match its length or
	// header.
	BadFrame netio.Reason = "kafka_bad_frame"
	// FrameTooLarge: a frame exceeds the limit for all frames, or one of the
	// lower limits for clients that have not authenticated.
	FrameTooLarge netio.Reason = "kafka_frame_too_large"
	// FrameTimeout: a frame was not complete in time.
	FrameTimeout netio.Reason = "kafka_frame_timeout"
	// AskTimeout: the broker did not answer in time a request of a filter, on
	// which a message depends.
	AskTimeout netio.Reason = "kafka_ask_timeout"
	// UnknownAPI: a request with an unknown key, of an API between brokers, or
	// of an API that a filter hides.
	UnknownAPI netio.Reason = "kafka_unknown_api"
	// UnsupportedVersion: a request of a version that was not offered. The
	// session answers such an ApiVersions instead.
	UnsupportedVersion netio.Reason = "kafka_unsupported_version"
	// Correlation: the broker's response does not belong to the oldest request
	// in flight: it has another correlation id, or there is no request.
	Correlation netio.Reason = "kafka_correlation"
	// UnmappedBroker: a response names a broker without a virtual address, and
	// unmappedBrokers is fail.
	UnmappedBroker netio.Reason = "kafka_unmapped_broker"
	// Denied: a filter refuses a request for which the protocol has no error
	// response.
	Denied netio.Reason = "kafka_denied"
	// FilterFailed: a filter failed, so its message was not forwarded.
	FilterFailed netio.Reason = "kafka_filter_failed"
)

// Reasons lists them, for counting by reason.
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

// reasonOf returns the reason for an error of a chain or a walker.
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
