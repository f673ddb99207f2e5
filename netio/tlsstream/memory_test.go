package tlsstream

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"
)

// The layout that saves the memory is the one of this version of Go. Where
// this fails after an update, look at inside.go and at what changed in
// tls.Conn; until then everything works, with 20 KB more per connection.
func TestLayoutIsKnown(t *testing.T) {
	if !tlsLayout.known {
		t.Fatalf("tls.Conn of %s is laid out differently", runtime.Version())
	}
}

func TestOtherLayoutsAreLeftAlone(t *testing.T) {
	for _, other := range []any{
		struct{}{},
		struct {
			rawInput, hand bytes.Buffer
		}{},
		struct {
			rawInput, hand bytes.Buffer
			input          *bytes.Reader
		}{},
		struct {
			rawInput []byte
			hand     bytes.Buffer
			input    bytes.Reader
		}{},
	} {
		l := findLayout(reflect.TypeOf(other))
		if l.known || l.lend(nil, nil) {
			t.Errorf("%T passes for the known layout", other)
		}
		l.release(nil) // touches nothing
	}
}
