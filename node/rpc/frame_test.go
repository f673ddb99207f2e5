package rpc

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"penstock/node/api"
)

var testLimits = frameLimits{bytes: 1 << 20, elements: 10_000}

func TestNegotiationTakesTheHighestCommonVersion(t *testing.T) {
	for _, c := range []struct {
		lo, hi, want byte
		err          error
	}{
		{1, 1, 1, nil},
		{0, 9, maxVersion, nil},
		{maxVersion + 1, 9, 0, ErrVersion},
		{0, 0, 0, ErrVersion},
	} {
		got, err := negotiate([preambleSize]byte(clientPreamble(c.lo, c.hi)))
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("versions %d-%d: %d, %v; want %d, %v", c.lo, c.hi, got, err, c.want, c.err)
		}
	}
	if _, err := negotiate([preambleSize]byte([]byte("GET / HT"))); !errors.Is(err, ErrPreamble) {
		t.Errorf("an HTTP client: %v, want ErrPreamble", err)
	}
}

func TestFrameRoundTrip(t *testing.T) {
	body, err := encode(api.ApplyRequest{Documents: [][]byte{bytes.Repeat([]byte("x"), 300_000)}})
	if err != nil {
		t.Fatal(err)
	}
	sent := frame{kind: frameRequest, id: math.MaxUint64 - 1, body: body}
	got, err := readFrame(bytes.NewReader(appendFrame(nil, sent)), testLimits)
	if err != nil || got.kind != sent.kind || got.id != sent.id || !bytes.Equal(got.body, sent.body) {
		t.Errorf("sent %d bytes, got %v %d, %d bytes, %v", len(body), got.kind, got.id, len(got.body), err)
	}
}

// TestBadFramesAreRejected: each is an error of its kind before any of it is
// decoded.
func TestBadFramesAreRejected(t *testing.T) {
	nested := append(bytes.Repeat([]byte{0x91}, 1000), 0xc0)
	many := append([]byte{0xdd, 0, 0, 0x27, 0x11}, bytes.Repeat([]byte{0xc0}, 10_001)...)
	for name, c := range map[string]struct {
		wire []byte
		want error
	}{
		"length below its header": {[]byte{0, 0, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0, 0}, ErrFrame},
		"unknown type":            {appendFrame(nil, frame{kind: 99, body: []byte{0xc0}}), ErrFrame},
		"4 GiB announced":         {append([]byte{0xff, 0xff, 0xff, 0xff, 1}, make([]byte, 8)...), ErrFrameSize},
		"cut":                     {appendFrame(nil, frame{kind: frameItem, body: []byte{0xc0, 0xc0}})[:14], io.ErrUnexpectedEOF},
		"empty body":              {appendFrame(nil, frame{kind: frameItem}), ErrFrame},
		"two values":              {appendFrame(nil, frame{kind: frameItem, body: []byte{0xc0, 0xc0}}), ErrFrame},
		"nesting bomb":            {appendFrame(nil, frame{kind: frameItem, body: nested}), ErrFrame},
		"array of 4G":             {appendFrame(nil, frame{kind: frameItem, body: []byte{0xdd, 0xff, 0xff, 0xff, 0xff}}), ErrFrame},
		"map of 4G":               {appendFrame(nil, frame{kind: frameItem, body: []byte{0xdf, 0xff, 0xff, 0xff, 0xff}}), ErrFrame},
		"string of 4G":            {appendFrame(nil, frame{kind: frameItem, body: []byte{0xdb, 0xff, 0xff, 0xff, 0xff}}), ErrFrame},
		"never used code":         {appendFrame(nil, frame{kind: frameItem, body: []byte{0xc1}}), ErrFrame},
		"too many elements":       {appendFrame(nil, frame{kind: frameItem, body: many}), ErrFrameSize},
	} {
		if _, err := readFrame(bytes.NewReader(c.wire), testLimits); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestMemoryGrowsWithReceivedBytes: a frame that announces 1 MiB and sends 10
// bytes is charged one step.
func TestMemoryGrowsWithReceivedBytes(t *testing.T) {
	charged := 0
	l := testLimits
	l.charge = func(n int) bool { charged += n; return true }
	wire := appendFrame(nil, frame{kind: frameRequest, body: make([]byte, 1<<20)})[:frameHeader+10]
	if _, err := readFrame(bytes.NewReader(wire), l); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut frame: %v", err)
	}
	if charged > readStep {
		t.Errorf("charged %d bytes for 10, at most %d are due", charged, readStep)
	}
	l.charge = func(int) bool { return false }
	if _, err := readFrame(bytes.NewReader(wire), l); !errors.Is(err, ErrOverBudget) {
		t.Errorf("without budget: %v", err)
	}
}

func TestElementsAreCounted(t *testing.T) {
	for _, c := range []struct {
		value any
		want  int
	}{
		{nil, 1}, {1 << 40, 1}, {strings.Repeat("s", 70_000), 1}, {[]int{1, 2, 3}, 4},
		{map[string][]string{"a": {"b"}}, 4}, {make([]bool, 70_000), 70_001},
	} {
		b, err := msgpack.Marshal(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := checkValue(b, 100_000); n != c.want || err != nil {
			t.Errorf("%.20v: %d elements, %v; want %d", c.value, n, err, c.want)
		}
	}
}

// FuzzReadFrame tests that no input panics, and that accepted input is one
// value that the decoder can walk to its end.
func FuzzReadFrame(f *testing.F) {
	body, _ := encode(api.ApplyRequest{Documents: [][]byte{[]byte("{}")}})
	f.Add(appendFrame(nil, frame{kind: frameRequest, id: 1, body: body}))
	f.Add(appendFrame(nil, frame{kind: frameCancel, id: 1}))
	f.Add(appendFrame(nil, frame{kind: frameItem, id: 1, body: []byte{0x82, 0xa1, 'a', 0xd4, 1, 2, 0xc7, 0, 1, 0xdc, 0, 0}}))
	f.Fuzz(func(t *testing.T, wire []byte) {
		got, err := readFrame(bytes.NewReader(wire), testLimits)
		if err != nil || got.kind == frameCancel {
			return
		}
		r := bytes.NewReader(got.body)
		if err := msgpack.NewDecoder(r).Skip(); err != nil || r.Len() != 0 {
			t.Errorf("%x passed the check; the decoder says %v with %d bytes left", got.body, err, r.Len())
		}
		var e envelope
		if decode(got.body, &e) == nil {
			var req api.ApplyRequest
			decode(e.Params, &req)
		}
	})
}
