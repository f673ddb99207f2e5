package rpc

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"
)

// Messages use their json tags for msgpack as well, so that the output of a
// command with -o json has the field names of the protocol.

// maxPooledInput is the size of input, in bytes, up to which the decoder
// returns to its pool.
const maxPooledInput = 16 << 10

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
	if len(b) <= maxPooledInput { // it retains a buffer of its input
		defer msgpack.PutDecoder(dec)
	}
	dec.Reset(bytes.NewReader(b))
	dec.SetCustomStructTag("json")
	return dec.Decode(v)
}
