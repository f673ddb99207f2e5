package rpc

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"penstock/node/api"
)

// TestEnvelopesOfBothSizes: an envelope without a principal has the three
// elements of the first release, byte for byte.
func TestEnvelopesOfBothSizes(t *testing.T) {
	params, _ := encode(api.GetRequest{Kind: "Service"})
	plain := envelope{Method: "get", Timeout: 5000, Params: params}
	first, err := msgpack.Marshal([]any{"get", 5000, msgpack.RawMessage(params)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := encode(&plain)
	if err != nil || len(b) == 0 || b[0] != 0x93 || !bytes.Equal(b, first) {
		t.Errorf("three elements are %x, want %x, %v", b, first, err)
	}
	passed := plain
	passed.OnBehalf = &api.Principal{Name: "ci", Role: api.RoleOperator, TokenID: "t1", From: "192.0.2.1:5"}
	for _, e := range []envelope{plain, passed} {
		b, err := encode(&e)
		if err != nil {
			t.Fatal(err)
		}
		var got envelope
		if err := decode(b, &got); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("sent %+v, got %+v, %v", e, got, err)
		}
	}
}

func TestBadEnvelopesAreRejected(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for name, v := range map[string]any{
		"two elements":  []any{"get", 0},
		"five elements": []any{"get", 0, nil, nil, "restricted"},
		"a map":         map[string]any{"Method": "get"},
		"a long method": []any{long, 0, nil},
		"a long name":   []any{"get", 0, nil, api.Principal{Name: long}},
		"no principal":  []any{"get", 0, nil, 7},
		"method 7":      []any{7, 0, nil},
		"a string":      "get",
		"nothing":       nil,
		"no method":     []any{"", 0, nil},
	} {
		b, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := readEnvelope(b); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: taken as %+v", name, e)
		}
	}
}

// FuzzEnvelope tests that an accepted envelope survives a round trip.
func FuzzEnvelope(f *testing.F) {
	for _, e := range []envelope{
		{Method: "get", Params: []byte{0xc0}},
		{Method: "apply", Timeout: 1 << 40, Params: []byte{0x93, 1, 2, 3}, OnBehalf: &api.Principal{Name: "ci", Role: api.RoleAdmin, Node: "n"}},
	} {
		b, _ := encode(&e)
		f.Add(b)
	}
	f.Add([]byte{0x94, 0xa1, 'x', 0xff, 0xc0, 0xc0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := checkValue(b, 10_000); err != nil {
			return
		}
		e, err := readEnvelope(b)
		if err != nil {
			return
		}
		again, err := encode(&e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readEnvelope(again); err != nil || got.Method != e.Method || got.Timeout != e.Timeout ||
			!bytes.Equal(got.Params, e.Params) || !reflect.DeepEqual(got.OnBehalf, e.OnBehalf) {
			t.Errorf("%x: %+v became %+v, %v", b, e, got, err)
		}
	})
}
