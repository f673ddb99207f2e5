package consensus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// fataler is implemented by testing.TB and rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func fileOf(t fataler, v Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := WriteSnapshot(&file, v); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func fromFile(t fataler, file []byte, l Limits) Snapshot {
	t.Helper()
	v, err := ReadSnapshot(iotest.HalfReader(bytes.NewReader(file)), l)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// mustApply returns the snapshot after the batch.
func mustApply(t testing.TB, v Snapshot, index uint64, b *Batch) Snapshot {
	t.Helper()
	next, _, err := v.Apply(index, b, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// sampleSnapshot returns a small snapshot that uses every feature.
func sampleSnapshot(t testing.TB) Snapshot {
	note := Note{Who: "ada", What: "apply", At: time.Date(2026, 11, 21, 19, 0, 0, 1, time.UTC)}
	v := mustApply(t, Snapshot{}, 3, &Batch{ID: ID{1}, Note: note, Ops: []Op{put("A", "x", "1"), put("A", "y", "1"), put("A", "z", "1")}})
	v = mustApply(t, v, 5, &Batch{ID: ID{2}, IfSequence: ref(0), Ops: []Op{put("A", "x", "2"), del("A", "y"), put("_node", "n", "1")}})
	v = mustApply(t, v, 6, &Batch{Note: note, Ops: []Op{put("A", "x", ""), put("A", "y", "3"), put("_node", "n", "2")}})
	return mustApply(t, v, 9, &Batch{ID: ID{3}, Ops: []Op{del("A", "z"), put("B", strings.Repeat("n", 512), "v")}}).Skip(12)
}

func TestSnapshotFilesRoundTrip(t *testing.T) {
	large := Snapshot{}
	for i := range 12 {
		var ops []Op
		for j := range 1000 {
			ops = append(ops, put("Name", fmt.Sprint(i*700+j), strings.Repeat(fmt.Sprint(i, j), 40)))
		}
		large = mustApply(t, large, uint64(10*i+10), &Batch{ID: ID{byte(i), 1}, Ops: ops})
	}
	random := make([]byte, 3*blockSize)
	rand.NewChaCha8([32]byte{}).Read(random)
	large = mustApply(t, large, 1000, &Batch{Ops: []Op{{Key: Key{"Name", "large"}, Value: random}}})
	for name, v := range map[string]Snapshot{"nothing": {}, "everything": sampleSnapshot(t), "large": large} {
		file := fileOf(t, v)
		got := fromFile(t, file, Limits{})
		if err := sameSnapshot(got, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again := fileOf(t, got); !bytes.Equal(again, file) {
			t.Errorf("%s: writing the read snapshot gives a different file", name)
		}
		if _, known := got.Changed(v.Index() - 1); known && v.Index() > 0 {
			t.Errorf("%s: what changed before the file is known", name)
		}
		if keys, known := got.Changed(v.Index()); len(keys) > 0 || !known {
			t.Errorf("%s: after its index %v changed, known %v", name, keys, known)
		}
		next := mustApply(t, got, v.Index()+4, &Batch{Ops: []Op{put("C", "new", "1")}})
		if keys, known := next.Changed(v.Index()); !known || !slices.Equal(keys, []Key{{"C", "new"}}) {
			t.Errorf("%s: after the next batch %v changed, known %v", name, keys, known)
		}
	}
}

// sameSnapshot compares the whole content of two snapshots.
func sameSnapshot(got, want Snapshot) error {
	if got.index != want.index || got.sequence != want.sequence || got.bytes != want.bytes ||
		got.internal != want.internal || got.Len() != want.Len() {
		return fmt.Errorf("index %d, sequence %d, %d+%d bytes, %d entries; want %d, %d, %d+%d, %d",
			got.index, got.sequence, got.bytes, got.internal, got.Len(), want.index, want.sequence, want.bytes, want.internal, want.Len())
	}
	for e := range want.All() {
		if g, ok := got.Get(e.Key); !ok || !reflect.DeepEqual(g, e) {
			return fmt.Errorf("%v is %+v, want %+v", e.Key, g, e)
		}
	}
	if got.past.bytes != want.past.bytes {
		return fmt.Errorf("%d bytes of revisions, want %d", got.past.bytes, want.past.bytes)
	}
	for _, of := range [][2]Snapshot{{want, got}, {got, want}} {
		for path, revisions := range of[0].past.all() {
			if g := of[1].past.lookup(path); !reflect.DeepEqual(g, revisions) {
				return fmt.Errorf("revisions of %q: %+v here, %+v there", path, revisions, g)
			}
		}
	}
	if g, w := keysOf(got.past), keysOf(want.past); !slices.Equal(g, w) {
		return fmt.Errorf("the order of revisions is %q, want %q", g, w)
	}
	if g, w := got.seen.inOrder(), want.seen.inOrder(); !slices.Equal(g, w) || got.seen.count != want.seen.count {
		return fmt.Errorf("%d IDs of %d, want %d of %d", len(g), got.seen.count, len(w), want.seen.count)
	}
	return nil
}

// keysOf lists the keys of the order tree.
func keysOf(p past) (keys []string) {
	if p.order == nil {
		return nil
	}
	it := p.order.Root().Iterator()
	for k, _, ok := it.Next(); ok; k, _, ok = it.Next() {
		keys = append(keys, string(k))
	}
	return keys
}

func TestDamagedSnapshotFilesAreRejected(t *testing.T) {
	file := fileOf(t, sampleSnapshot(t))
	for n := range file {
		if _, err := ReadSnapshot(bytes.NewReader(file[:n]), Limits{}); !errors.Is(err, ErrDamaged) ||
			!strings.Contains(err.Error(), "truncated") {
			t.Fatalf("%d of %d bytes: %v", n, len(file), err)
		}
	}
	for i := range file {
		for _, bit := range []byte{1, 0x10, 0x80} {
			flipped := bytes.Clone(file)
			flipped[i] ^= bit
			_, err := ReadSnapshot(bytes.NewReader(flipped), Limits{})
			want := ErrDamaged
			if i < len(snapshotMagic)+2 {
				want = ErrFormat
			}
			if !errors.Is(err, want) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("bit %#x of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	for name, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"longer":         {append(bytes.Clone(file), 0), ErrDamaged, "data after its end"},
		"two files":      {append(bytes.Clone(file), file...), ErrDamaged, "data after its end"},
		"a value":        {bytes.Replace(file, []byte("ada"), []byte("bob"), 1), ErrChecksum, "checksum"},
		"a later format": {bytes.Replace(file, []byte("VIEW\x00\x01"), []byte("VIEW\x00\x02"), 1), ErrFormat, "format 2, this build supports 1"},
		"another file":   {[]byte("kind: Listener"), ErrFormat, `"kind: Li"`},
	} {
		if _, err := ReadSnapshot(bytes.NewReader(c.file), Limits{}); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %v with %q", name, err, c.want, c.says)
		}
	}
	broken := errors.New("broken disk")
	if _, err := ReadSnapshot(io.MultiReader(bytes.NewReader(file[:50]), iotest.ErrReader(broken)), Limits{}); !errors.Is(err, broken) {
		t.Errorf("a failing disk: %v", err)
	}
	for n := range 5 {
		if err := WriteSnapshot(&failing{n, broken}, sampleSnapshot(t)); n < 4 != errors.Is(err, broken) {
			t.Errorf("a disk failing at write %d: %v", n, err)
		}
	}
}

// failing is a writer that fails after some writes.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, f.err
	}
	return len(p), nil
}

func TestSnapshotFilesBeyondLimitsAreRejected(t *testing.T) {
	file := fileOf(t, sampleSnapshot(t))
	for name, l := range map[string]Limits{
		"entry":     {Entry: 100},
		"total":     {Total: 500},
		"internal":  {Internal: 5},
		"revisions": {Revisions: 1},
		"past":      {Past: 600},
	} {
		if _, err := ReadSnapshot(bytes.NewReader(file), l); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	claims := append([]byte(snapshotMagic), 0, 1, 0, 0x10, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	if cost := allocated(func() {
		if _, err := ReadSnapshot(bytes.NewReader(claims), Limits{}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a block of 2 GiB: %v", err)
		}
	}); cost > 1<<16 {
		t.Errorf("a block of 2 GiB cost %d bytes", cost)
	}
}

// The snapshots of existing clusters must stay readable. A change here needs a
// new format number, and this file must remain readable.
func TestSnapshotFormat1(t *testing.T) {
	v := sampleSnapshot(t)
	now := fileOf(t, v)
	was := golden(t, "snapshot.1", now)
	if err := sameSnapshot(fromFile(t, was, Limits{}), v); err != nil {
		t.Errorf("what an earlier build wrote: %v", err)
	}
	if !bytes.Equal(was, now) {
		t.Error("the snapshot would be encoded differently now")
	}
}

func FuzzReadSnapshot(f *testing.F) {
	for _, v := range []Snapshot{{}, sampleSnapshot(f)} {
		file := fileOf(f, v)
		f.Add(file[:len(file)-8])
	}
	limits := Limits{Entry: 1 << 16, Total: 1 << 20, Internal: 1 << 20, Past: 1 << 20}
	f.Fuzz(func(t *testing.T, file []byte) { // without the checksum, which would reject nearly all inputs
		file = binary.BigEndian.AppendUint64(file, crc64.Checksum(file, snapshotCRC))
		v, err := ReadSnapshot(bytes.NewReader(file), limits)
		if err != nil {
			return
		}
		again := fromFile(t, fileOf(t, v), limits)
		if err := sameSnapshot(again, v); err != nil {
			t.Error(err)
		}
		if _, _, err := v.Apply(
			v.Index()+1, &Batch{Ops: []Op{put("A", "x", "9"), del("A", "z")}}, limits,
		); v.Index()+1 > 0 && err != nil && !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
	})
}

// largeSnapshot returns a snapshot of n thousand entries of 300 bytes.
func largeSnapshot(b testing.TB, n int) Snapshot {
	var v Snapshot
	for i := range n {
		ops := make([]Op, 1000)
		for j := range ops {
			ops[j] = put("Name", fmt.Sprintf("www-%d.example.org", i*1000+j), fmt.Sprintf("%0300d", i*j))
		}
		v = mustApply(b, v, uint64(i+1), &Batch{ID: ID{byte(i), 1}, Ops: ops})
	}
	return v
}

func BenchmarkSnapshotWrite100000(b *testing.B) {
	v := largeSnapshot(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := WriteSnapshot(io.Discard, v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshotRead100000(b *testing.B) {
	file := fileOf(b, largeSnapshot(b, 100))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadSnapshot(bytes.NewReader(file), Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

// Beside the snapshot, reading uses a constant amount of memory, and frees it.
func TestReadSnapshotMemoryIsBounded(t *testing.T) {
	file := fileOf(t, largeSnapshot(t, 20))
	inUse := func() uint64 {
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return mem.HeapAlloc
	}
	before := inUse()
	var v Snapshot
	took := allocated(func() { v = fromFile(t, file, Limits{}) })
	kept := inUse() - before
	if v.Len() != 20_000 || took > 3*kept {
		t.Errorf("%d entries that take %d MiB took %d MiB to read", v.Len(), kept>>20, took>>20)
	}
	runtime.KeepAlive(v)
}
