package session

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// fieldOffsets is the offset, plus one, of a field in the responses of each API and
// version; 0 where it has no fixed offset.
type fieldOffsets [wire.MaxKey + 1][]uint8

// find returns the size bytes of the field, or nil if body, which may be the
// beginning of one, does not have them.
func (t *fieldOffsets) find(key, version int16, body []byte, size int) []byte {
	if key < 0 || int(key) >= len(t) || version < 0 || int(version) >= len(t[key]) {
		return nil
	}
	at := int(t[key][version]) - 1
	if at < 0 || len(body) < at+size {
		return nil
	}
	return body[at : at+size]
}

// has reports whether the field has a fixed offset.
func (t *fieldOffsets) has(key, version int16) bool {
	return key >= 0 && int(key) < len(t) && version >= 0 && int(version) < len(t[key]) && t[key][version] > 0
}

// findOffsets finds the offsets of a field, among those in may, by encoding each
// response with a mark in it, so they match the schemas.
func findOffsets(field string, mark []byte, may ...int) (t fieldOffsets) {
	value := int64(0)
	for _, b := range mark {
		value = value<<8 | int64(b)
	}
	for key := range t {
		_, highest, ok := wire.Known(int16(key))
		for v := int16(0); ok && v <= highest; v++ {
			r := kmsg.ResponseForKey(int16(key))
			r.SetVersion(v)
			at := -1
			if f := reflect.ValueOf(r).Elem().FieldByName(field); f.IsValid() && f.CanInt() && int(f.Type().Size()) == len(mark) {
				f.SetInt(value)
				at = bytes.Index(r.AppendTo(nil), mark)
			}
			if !slices.Contains(may, at) {
				at = -1
			}
			t[key] = append(t[key], uint8(at+1))
		}
	}
	return t
}

// offsets are the offsets of the error for a whole response and of the throttle
// time. Before the error there is nothing or that time, so the beginning of a
// response is enough.
var offsets = sync.OnceValue(func() *struct{ failed, throttle fieldOffsets } {
	return &struct{ failed, throttle fieldOffsets }{
		findOffsets("ErrorCode", []byte{0x5A, 0x6B}, 0, 4),
		findOffsets("ThrottleMillis", []byte{0x5A, 0x6B, 0x7C, 0x1D}, 0),
	}
})

// outcome finds the error for the whole response, or of Produce the first error
// of a partition, and whether the broker throttles the client. body may be the
// beginning only; Produce has the throttle time at its end.
func outcome(key, version int16, body []byte) (failed int16, throttled bool) {
	if key == keyProduce {
		return wire.ProduceOutcome(version, body)
	}
	p := offsets()
	if b := p.failed.find(key, version, body, 2); b != nil {
		failed = int16(binary.BigEndian.Uint16(b))
	}
	if b := p.throttle.find(key, version, body, 4); b != nil {
		throttled = int32(binary.BigEndian.Uint32(b)) > 0
	}
	return failed, throttled
}
