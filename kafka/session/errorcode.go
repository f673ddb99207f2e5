package session

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/wire"
)

// errorOffsets tells where a response has the error that stands for all of it:
// the offset in its body plus one, 0 where there is none. It is found out by
// encoding one of each, so that it cannot differ from the schemas.
var errorOffsets = sync.OnceValue(func() (t [wire.MaxKey + 1][]uint8) {
	const mark = 0x5A6B
	for key := range t {
		_, highest, ok := wire.Known(int16(key))
		for v := int16(0); ok && v <= highest; v++ {
			r := kmsg.ResponseForKey(int16(key))
			r.SetVersion(v)
			at := 0
			if f := reflect.ValueOf(r).Elem().FieldByName("ErrorCode"); f.IsValid() && f.Kind() == reflect.Int16 {
				f.SetInt(mark)
				at = bytes.Index(r.AppendTo(nil), []byte{mark >> 8, mark & 0xff}) + 1
				// What comes before it is of a fixed length: nothing, or
				// the throttle time.
				if at != 1 && at != 5 {
					at = 0
				}
			}
			t[key] = append(t[key], uint8(at))
		}
	}
	return t
})

// errorCode finds the error in a response, of which body may be the beginning
// only: that of all of it, or of Produce the first of a partition.
func errorCode(key, version int16, body []byte) int16 {
	if key == keyProduce {
		return produceError(version, body)
	}
	t := errorOffsets()
	if key < 0 || int(key) >= len(t) || version < 0 || int(version) >= len(t[key]) {
		return 0
	}
	at := int(t[key][version]) - 1
	if at < 0 || len(body) < at+2 {
		return 0
	}
	return int16(binary.BigEndian.Uint16(body[at:]))
}

func produceError(version int16, body []byte) int16 {
	r := wire.NewReader(body, wire.Flexible(keyProduce, version))
	for range r.Array() {
		if version >= 13 {
			r.Span(16)
		} else {
			r.String()
		}
		for range r.Array() {
			r.Int32() // partition
			code := r.Int16()
			if r.Err() != nil {
				return 0
			}
			if code != 0 {
				return code
			}
			skipProduced(&r, version)
		}
		r.Tags()
		if r.Err() != nil {
			return 0
		}
	}
	return 0
}

// skipProduced passes over what follows a partition's error.
func skipProduced(r *wire.Reader, version int16) {
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
			if r.Err() != nil {
				return
			}
		}
		r.String()
	}
	r.Tags()
}
