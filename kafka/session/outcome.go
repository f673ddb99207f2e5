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

// place is where the responses of each API and version have a field of their
// own: the offset in the body plus one; 0 where it has no fixed one.
type place [wire.MaxKey + 1][]uint8

// find gives the size bytes of the field, nil where a body, which may be the
// beginning of one, does not have them.
func (t *place) find(key, version int16, body []byte, size int) []byte {
	if key < 0 || int(key) >= len(t) || version < 0 || int(version) >= len(t[key]) {
		return nil
	}
	at := int(t[key][version]) - 1
	if at < 0 || len(body) < at+size {
		return nil
	}
	return body[at : at+size]
}

// placeOf finds out the offsets of a field, of those that it may have, by
// encoding one of each response with a mark in it: so they cannot differ from
// the schemas.
func placeOf(field string, mark []byte, may ...int) (t place) {
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

// places are those of the error that stands for all of a response, and of the
// time by which the broker slows the client down. Before the error there is
// nothing or that time, so that the beginning of a response tells.
var places = sync.OnceValue(func() *struct{ failed, throttle place } {
	return &struct{ failed, throttle place }{
		placeOf("ErrorCode", []byte{0x5A, 0x6B}, 0, 4),
		placeOf("ThrottleMillis", []byte{0x5A, 0x6B, 0x7C, 0x1D}, 0),
	}
})

// outcome finds in a response, of which body may be the beginning only, the
// error for all of it, or of Produce the first of a partition; and whether the
// broker slows the client down, which Produce says at its end.
func outcome(key, version int16, body []byte) (failed int16, throttled bool) {
	if key == keyProduce {
		return wire.ProduceOutcome(version, body)
	}
	p := places()
	if b := p.failed.find(key, version, body, 2); b != nil {
		failed = int16(binary.BigEndian.Uint16(b))
	}
	if b := p.throttle.find(key, version, body, 4); b != nil {
		throttled = int32(binary.BigEndian.Uint32(b)) > 0
	}
	return failed, throttled
}
