package rpc

import (
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"penstock/node/api"
)

// envelope is the body of a request: an array of its fields. OnBehalf is only
// encoded in a forwarded request, so that nodes that do not support it accept
// all others.
type envelope struct {
	Method   string
	Timeout  int64 // milliseconds that the caller had left on sending; 0: no deadline
	Params   msgpack.RawMessage
	OnBehalf *api.Principal // the original caller; the receiver sets Via itself
}

const (
	envelopeFields = 3
	// maxMethod and maxName bound the names in an envelope, in bytes.
	maxMethod = 64
	maxName   = 256
)

var (
	_ msgpack.CustomEncoder = (*envelope)(nil)
	_ msgpack.CustomDecoder = (*envelope)(nil)
)

// EncodeMsgpack writes three elements, or four with OnBehalf.
func (e *envelope) EncodeMsgpack(enc *msgpack.Encoder) error {
	n := envelopeFields
	if e.OnBehalf != nil {
		n++
	}
	if err := enc.EncodeArrayLen(n); err != nil {
		return err
	}
	if err := enc.EncodeMulti(e.Method, e.Timeout, e.Params); err != nil || e.OnBehalf == nil {
		return err
	}
	return enc.Encode(e.OnBehalf)
}

// DecodeMsgpack reads three or four elements. It rejects more, since they may
// restrict what this build would grant.
func (e *envelope) DecodeMsgpack(dec *msgpack.Decoder) error {
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return err
	}
	if n < envelopeFields || n > envelopeFields+1 {
		return fmt.Errorf("the request has %d elements, want %d or %d", n, envelopeFields, envelopeFields+1)
	}
	if e.Method, err = dec.DecodeString(); err != nil {
		return err
	}
	if len(e.Method) > maxMethod {
		return fmt.Errorf("the method has %d bytes, the limit is %d", len(e.Method), maxMethod)
	}
	if e.Timeout, err = dec.DecodeInt64(); err != nil {
		return err
	}
	if e.Params, err = dec.DecodeRaw(); err != nil || n == envelopeFields {
		return err
	}
	e.OnBehalf = new(api.Principal)
	if err := dec.Decode(e.OnBehalf); err != nil {
		return err
	}
	if p := e.OnBehalf; max(len(p.Name), len(p.TokenID), len(p.From)) > maxName {
		return fmt.Errorf("a name in the principal exceeds %d bytes", maxName)
	}
	return nil
}

// readEnvelope reads the body of a request.
func readEnvelope(body []byte) (e envelope, err error) {
	err = decode(body, &e)
	if err == nil && e.Method == "" { // msgpack nil decodes as well
		err = errors.New("missing method")
	}
	if err != nil {
		return envelope{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return e, nil
}
