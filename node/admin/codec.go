package admin

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"
)

// The types that travel carry json tags, and msgpack follows them: what a
// command prints with -o json has the names of what it was sent.

// poolable bounds what is decoded by a decoder that is used again.
const poolable = 16 << 10

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(&b)
	enc.SetCustomStructTag("json")
	enc.UseCompactInts(true)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func decode(b []byte, v any) error {
	dec := msgpack.GetDecoder()
	if len(b) <= poolable { // it keeps a buffer of what it has read
		defer msgpack.PutDecoder(dec)
	}
	dec.Reset(bytes.NewReader(b))
	dec.SetCustomStructTag("json")
	return dec.Decode(v)
}
