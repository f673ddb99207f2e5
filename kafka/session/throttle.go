package session

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// throttleFirst tells which responses begin with the time by which the broker
// slows the client down. It is found out by encoding one of each, so that it
// cannot differ from the schemas.
var throttleFirst = sync.OnceValue(func() (t [wire.MaxKey + 1][]bool) {
	const mark = 0x5A6B7C1D
	for key := range t {
		_, highest, ok := wire.Known(int16(key))
		for v := int16(0); ok && v <= highest; v++ {
			r := kmsg.ResponseForKey(int16(key))
			r.SetVersion(v)
			f := reflect.ValueOf(r).Elem().FieldByName("ThrottleMillis")
			first := f.IsValid() && f.Kind() == reflect.Int32
			if first {
				f.SetInt(mark)
				first = bytes.HasPrefix(r.AppendTo(nil), binary.BigEndian.AppendUint32(nil, mark))
			}
			t[key] = append(t[key], first)
		}
	}
	return t
})

// throttled tells whether a response, of which body may be the beginning only,
// slows its client down. Of Produce, which says so at its end, all is needed.
func throttled(key, version int16, body []byte) bool {
	if key == keyProduce {
		return produceThrottled(version, body)
	}
	t := throttleFirst()
	if key < 0 || int(key) >= len(t) || version < 0 || int(version) >= len(t[key]) || !t[key][version] || len(body) < 4 {
		return false
	}
	return int32(binary.BigEndian.Uint32(body)) > 0
}

func produceThrottled(version int16, body []byte) bool {
	if version < 1 {
		return false
	}
	r := wire.NewReader(body, wire.Flexible(keyProduce, version))
	for range r.Array() {
		if version >= 13 {
			r.Span(16)
		} else {
			r.String()
		}
		for range r.Array() {
			r.Span(4 + 2) // partition, error
			skipProduced(&r, version)
			if r.Err() != nil {
				return false
			}
		}
		r.Tags()
	}
	return r.Int32() > 0 && r.Err() == nil
}
