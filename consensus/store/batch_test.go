package store

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files of the formats")

func ref(n uint64) *uint64 { return &n }

// sampleBatch returns a batch with every field set.
func sampleBatch() *Batch {
	return &Batch{
		ID: ID{1, 2, 3, 15: 255},
		Ops: []Op{
			{Key: Key{"Service", "apps"}, Value: []byte(`{"endpoints":[]}`), IfVersion: ref(0)},
			{Key: Key{"Service", "gone"}, IfVersion: ref(math.MaxUint64)},
			{Key: Key{"_node", strings.Repeat("n", 300)}, Value: bytes.Repeat([]byte("0123456789"), 7000)},
			{Key: Key{"Flag", "empty"}, Value: []byte{}},
		},
		Note:       Note{Who: "ada", What: "rollback to 12", At: time.Date(2026, 11, 21, 19, 0, 0, 123456789, time.UTC)},
		IfSequence: ref(70_000), Sequence: 1 << 60,
	}
}

func drawBatch(t *rapid.T) *Batch {
	number := rapid.Custom(func(t *rapid.T) *uint64 {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return ref(rapid.Uint64().Draw(t, "number"))
	})
	op := rapid.Custom(func(t *rapid.T) Op {
		return Op{
			Key:       Key{rapid.StringN(0, 40, 80).Draw(t, "kind"), rapid.StringN(0, 300, 600).Draw(t, "name")},
			Value:     rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300)).Draw(t, "value"),
			IfVersion: number.Draw(t, "version"),
		}
	})
	b := &Batch{
		Ops:        rapid.SliceOfN(op, 0, 30).Draw(t, "ops"),
		IfSequence: number.Draw(t, "sequence"),
		Sequence:   rapid.Uint64().Draw(t, "next"),
	}
	copy(b.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	b.Note = Note{
		Who:  rapid.StringN(0, 60, 120).Draw(t, "who"),
		What: rapid.StringN(0, 60, 120).Draw(t, "what"),
		At:   time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "at"), rapid.Int64Range(0, 999_999_999).Draw(t, "nano")).UTC(),
	}
	return b
}

func TestBatchesRoundTrip(t *testing.T) {
	check := func(b *Batch) error {
		data, err := EncodeBatch(b)
		if err != nil {
			return err
		}
		got, err := DecodeBatch(data)
		if err != nil {
			return err
		}
		if len(b.Ops) == 0 {
			got.Ops = b.Ops // nil and empty are equivalent
		}
		if !reflect.DeepEqual(got, b) {
			return fmt.Errorf("%+v became %+v", b, got)
		}
		var foreign []any // another MessagePack decoder accepts it
		if data[1] == 0 {
			return msgpack.Unmarshal(data[2:], &foreign)
		}
		return nil
	}
	for _, b := range []*Batch{sampleBatch(), {}} {
		if err := check(b); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if err := check(drawBatch(t)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLargeBatchesAreCompressedWhereItHelps(t *testing.T) {
	of := func(value []byte) []byte {
		data, err := EncodeBatch(&Batch{Ops: []Op{{Key: Key{"A", "x"}, Value: value}}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := DecodeBatch(data)
		if err != nil || !bytes.Equal(b.Ops[0].Value, value) {
			t.Fatalf("%d bytes came back as others: %v", len(value), err)
		}
		return data
	}
	var varied []byte
	for i := range 20_000 {
		varied = fmt.Appendf(varied, "endpoint %d;", i)
	}
	random := make([]byte, 1<<20)
	for i, x := 0, uint64(1); i < len(random); i++ {
		x = x*6364136223846793005 + 1442695040888963407
		random[i] = byte(x >> 56)
	}
	for name, c := range map[string]struct {
		value      []byte
		compressed bool
	}{
		"small":           {varied[:1000], false},
		"text":            {varied, true},
		"noise":           {random, false},
		"beyond the rate": {make([]byte, 8<<20), false},
	} {
		data := of(c.value)
		if got := data[1] == batchCompressed; got != c.compressed || (got && len(data) > len(c.value)/2) {
			t.Errorf("%s: %d bytes became %d, compressed %v", name, len(c.value), len(data), got)
		}
	}
}

func TestInvalidBatchesAreRejected(t *testing.T) {
	data, err := EncodeBatch(sampleBatch())
	if err != nil {
		t.Fatal(err)
	}
	small, err := EncodeBatch(&Batch{Ops: []Op{put("A", "x", "1")}})
	if err != nil {
		t.Fatal(err)
	}
	bomb, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zeros := bomb.EncodeAll(make([]byte, maxPacked+1), nil)
	with := func(b []byte, at int, to byte) []byte { b = bytes.Clone(b); b[at] = to; return b }
	for name, c := range map[string]struct {
		data []byte
		want error
		says string
	}{
		"nothing":          {nil, ErrDamaged, "0 bytes"},
		"a later format":   {with(small, 0, 2), ErrFormat, "format 2, this build supports 1"},
		"a later flag":     {with(small, 1, 2), ErrFormat, "flags 0x2, this build supports 0x1"},
		"truncated":        {small[:len(small)-1], ErrDamaged, "left"},
		"longer":           {append(bytes.Clone(small), 0), ErrDamaged, "1 bytes after its end"},
		"compressed, cut":  {data[:len(data)-1], ErrDamaged, ""},
		"of another size":  {with(data, 2, data[2]^1), ErrDamaged, ""},
		"no size":          {[]byte{1, 1}, ErrDamaged, "no size"},
		"over the bound":   {append([]byte{1, 1, 0x81, 0x88, 0x80, 0x20}, zeros...), ErrDamaged, fmt.Sprint("the limit is ", maxPacked)},
		"a bomb":           {append([]byte{1, 1, 0x80, 0x80, 0x80, 0x20}, zeros...), ErrDamaged, "the limit is 1024 times"},
		"a bomb in hiding": {append([]byte{1, 1, 0x80, 0x40}, zeros...), ErrDamaged, ""},
		"many operations":  {append(with(small[:len(small)-10], 1, 0), 0xdd, 0xff, 0xff, 0xff, 0xff), ErrDamaged, "an array"},
	} {
		cost := allocated(func() {
			_, err := DecodeBatch(c.data)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v; want %v with %q", name, err, c.want, c.says)
			}
		})
		if cost > 2<<20 {
			t.Errorf("%s: %d bytes were allocated", name, cost)
		}
	}
	if _, err := EncodeBatch(&Batch{Ops: []Op{{Key: Key{"A", "x"}, Value: make([]byte, maxBatch)}}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a batch over the bound: %v", err)
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// golden returns a file written by earlier builds; -rewrite overwrites it.
func golden(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The logs of existing clusters must stay readable. A change here needs a new
// format number, and this file must remain readable.
func TestBatchFormat1(t *testing.T) {
	plain := sampleBatch()
	plain.Ops[2].Value = plain.Ops[2].Value[:500]
	for name, b := range map[string]*Batch{"batch.1": plain, "batch-zstd.1": sampleBatch()} {
		now, err := EncodeBatch(b)
		if err != nil {
			t.Fatal(err)
		}
		was := golden(t, name, now)
		if got, err := DecodeBatch(was); err != nil || !reflect.DeepEqual(got, b) {
			t.Errorf("%s is read as %+v, %v", name, got, err)
		}
		// zstd's output may change with its version; the content may not.
		if b == plain && !bytes.Equal(was, now) {
			t.Errorf("%s would be encoded differently now", name)
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, b := range []*Batch{{}, sampleBatch(), {Ops: []Op{put("A", "x", "1"), del("A", "y").at(7)}}} {
		data, err := EncodeBatch(b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodeBatch(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrDamaged) {
				t.Errorf("%v is not a sentinel error", err)
			}
			return
		}
		again, err := EncodeBatch(b)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeBatch(again); err != nil || !reflect.DeepEqual(got, b) {
			t.Errorf("%+v became %+v, %v", b, got, err)
		}
	})
}

func BenchmarkDecodeBatch(b *testing.B) {
	data, err := EncodeBatch(&Batch{ID: ID{1}, Ops: []Op{put("Name", "www.example.org", strings.Repeat("v", 300))}, Note: sampleBatch().Note})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBatch(data); err != nil {
			b.Fatal(err)
		}
	}
}
