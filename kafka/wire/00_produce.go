package wire

import (
	"encoding/binary"
	"fmt"
)

// Produce (API key 0) appends records to partitions.
//
//	request   v0+    acks is read from the beginning of the body: with 0 there
//	                 is no response (ProduceAcks)
//	          v3+    whether it is transactional is read for draining
//	                 (ProduceTransactional)
//	          v0+    walked: topic names (v0-12) or ids (v13+, KIP-516), and the
//	                 transactional id (v3+, KIP-98); records are never decoded
//	response  v0+    walked or rewritten: topic names or ids
//	          v10+   node endpoints, tag 0 of the body (KIP-951), get virtual
//	                 addresses or are left out
//	          v0+    the first error and the throttle time are read for metrics
//	                 and logs (ProduceOutcome); a limit of Penstock raises the latter
//	                 (ProduceThrottle)
//
// It is offered from v0 where the broker offers that, see 18_api_versions.go.
// MultiTenant puts its prefix before names and transactional ids and checks
// topic ids (filter/multitenant/produce.go); TopicMetrics counts bytes.
//
// A walk with Edits.Node treats tag 0 as node endpoints from v9 on, the first
// version with tags: Kafka gives it no other meaning.
var produce = apiSpec{
	key:           keyProduce,
	walkRequest:   walkProduceRequest,
	walkResponse:  walkProduceResponse,
	addressesFrom: 10,
}

func walkProduceRequest(b *builder, v int16) {
	if v >= 3 {
		b.add(opTxnID, 0)
	}
	b.fixed(2+4, true) // acks, timeout
	b.topics(v <= 12, func() {
		b.fixed(4, true)
		b.add(opBytes, 0)
	})
	b.messageTags(false)
}

func walkProduceResponse(b *builder, v int16) {
	b.topics(v <= 12, func() {
		b.fixed(4+2+8, true) // partition, error, base offset
		b.fixed(8, v >= 2)   // append time
		b.fixed(8, v >= 5)   // log start offset
		if v >= 8 {
			b.array(opArray, func() {
				b.fixed(4, true)
				b.add(opString, 0)
			})
			b.add(opString, 0)
		}
	})
	b.fixed(4, v >= 1) // throttle
	b.messageTags(true)
}

// ProduceAcks reads the acks of a Produce request from the beginning of its
// body. need is as in PeekRequest, counted in the body. With acks 0 the broker
// does not respond.
func ProduceAcks(version int16, body []byte) (acks int16, need int, err error) {
	at := 0
	switch {
	case version >= 9: // a compact transactional id comes first
		u, n, err := uvarint(body)
		if err != nil {
			return 0, 0, err
		}
		if n == 0 {
			return 0, len(body) + 1, nil
		}
		if u > MaxHeader {
			return 0, 0, fmt.Errorf("transactional id of %d bytes: %w", u-1, ErrTooLarge)
		}
		at = n + max(int(u)-1, 0)
	case version >= 3:
		if len(body) < 2 {
			return 0, 2, nil
		}
		n := int16(binary.BigEndian.Uint16(body))
		if n < -1 {
			return 0, 0, fmt.Errorf("%w: transactional id of %d bytes", ErrMalformed, n)
		}
		at = 2 + max(int(n), 0)
	}
	if len(body) < at+2 {
		return 0, at + 2, nil
	}
	return int16(binary.BigEndian.Uint16(body[at:])), 0, nil
}

// ProduceTransactional reports, from the beginning of its body, whether a
// Produce request has a transactional id.
func ProduceTransactional(version int16, body []byte) bool {
	switch {
	case version >= 9:
		return len(body) > 0 && body[0] > 1
	case version >= 3:
		return len(body) > 1 && body[0] < 0x80 && body[0]|body[1] != 0
	}
	return false
}

// ProduceOutcome returns the first error of a partition in a response, and
// whether the broker throttles the client. body may be only a beginning;
// throttled is false without the throttle time, which is at the end.
func ProduceOutcome(version int16, body []byte) (failed int16, throttled bool) {
	failed, field := walkProduced(version, body)
	return failed, field != nil && int32(binary.BigEndian.Uint32(field)) > 0
}

// ProduceThrottle returns the throttle time in the whole body of a response, 4 bytes of
// it, or nil if there is none.
func ProduceThrottle(version int16, body []byte) []byte {
	_, field := walkProduced(version, body)
	return field
}

// walkProduced returns the first error of a partition, and the bytes of the throttle time;
// nil: body does not have them.
func walkProduced(version int16, body []byte) (failed int16, throttle []byte) {
	r := NewReader(body, Flexible(keyProduce, version))
	for range r.Array() {
		if version >= 13 {
			r.Span(16)
		} else {
			r.String()
		}
		for range r.Array() {
			r.Int32() // partition
			code := r.Int16()
			if r.err != nil {
				return failed, nil
			}
			if failed == 0 {
				failed = code
			}
			skipProduced(&r, version)
		}
		r.Tags()
		if r.err != nil {
			return failed, nil
		}
	}
	if version < 1 {
		return failed, nil
	}
	if throttle = r.Span(4); r.err != nil {
		return failed, nil
	}
	return failed, throttle
}

// skipProduced skips the fields behind a partition's error.
func skipProduced(r *Reader, version int16) {
	r.Int64() // offset
	if version >= 2 {
		r.Int64() // time
	}
	if version >= 5 {
		r.Int64() // log start
	}
	if version >= 8 {
		for range r.Array() {
			r.Int32()
			r.String()
			r.Tags()
			if r.err != nil {
				return
			}
		}
		r.String()
	}
	r.Tags()
}
