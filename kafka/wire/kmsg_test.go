package wire

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// message is the common interface of kmsg's requests and responses.
type message interface {
	SetVersion(int16)
	GetVersion() int16
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

func newMessage(t testing.TB, d Direction, key, version int16) message {
	t.Helper()
	var m message
	if d == Request {
		m = kmsg.RequestForKey(key)
	} else {
		m = kmsg.ResponseForKey(key)
	}
	m.SetVersion(version)
	return m
}

func decode(t testing.TB, d Direction, key, version int16, body []byte) message {
	t.Helper()
	m := newMessage(t, d, key, version)
	if err := m.ReadFrom(body); err != nil {
		t.Fatalf("%s v%d: kmsg cannot read %x: %v", Name(key), version, body, err)
	}
	plain(reflect.ValueOf(m).Elem())
	return m
}

// randomMessage returns a message with every field of its version set, and its bytes.
func randomMessage(t testing.TB, rnd *rand.Rand, d Direction, key, version int16) (message, []byte) {
	t.Helper()
	m := newMessage(t, d, key, version)
	fill(rnd, reflect.ValueOf(m).Elem(), 0)
	m.SetVersion(version)
	body := m.AppendTo(nil)
	return decode(t, d, key, version, body), body
}

// fill sets every field to a random value.
func fill(rnd *rand.Rand, v reflect.Value, depth int) {
	if v.Type() == reflect.TypeFor[kmsg.Tags]() {
		if rnd.IntN(3) == 0 {
			tags := v.Addr().Interface().(*kmsg.Tags)
			for range 1 + rnd.IntN(2) {
				tags.Set(40+uint32(rnd.IntN(40)), randomBytes(rnd, rnd.IntN(200)))
			}
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(rnd, v.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		if rnd.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rnd, v.Elem(), depth)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if rnd.IntN(4) > 0 {
				v.SetBytes(randomBytes(rnd, rnd.IntN(1<<rnd.IntN(14))))
			}
			return
		}
		n := rnd.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if d, ok := v.Index(i).Addr().Interface().(interface{ Default() }); ok {
				d.Default()
			}
			fill(rnd, v.Index(i), depth+1)
		}
	case reflect.Array:
		reflect.Copy(v, reflect.ValueOf(randomBytes(rnd, v.Len())))
	case reflect.String:
		v.SetString(randomName(rnd))
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(int8(rnd.Uint32())))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(uint64(uint8(rnd.Uint32())))
	}
}

func randomName(rnd *rand.Rand) string {
	return strings.Repeat("a", rnd.IntN(3)*rnd.IntN(80)) + strings.Repeat("b", rnd.IntN(10))
}

func randomBytes(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// plain removes differences that encodings do not preserve: nil or empty, and
// padding tags.
func plain(v reflect.Value) {
	if v.Type() == reflect.TypeFor[kmsg.Tags]() {
		tags := v.Addr().Interface().(*kmsg.Tags)
		var kept kmsg.Tags
		tags.Each(func(id uint32, value []byte) {
			if id != padTag {
				kept.Set(id, append([]byte{}, value...))
			}
		})
		*tags = kept
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				plain(v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			plain(v.Elem())
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := range v.Len() {
			plain(v.Index(i))
		}
	}
}
