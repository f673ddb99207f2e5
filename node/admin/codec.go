package admin

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"
)

// The types that travel carry json tags, and msgpack follows them: what a
// command prints with -o json has the names of what it was sent.

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.SetCustomStructTag("json")
	enc.UseCompactInts(true)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func decode(b []byte, v any) error {
	dec := msgpack.NewDecoder(bytes.NewReader(b))
	dec.SetCustomStructTag("json")
	return dec.Decode(v)
}
