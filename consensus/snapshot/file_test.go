package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"penstock/consensus/store"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden file of the format")

func fileOf(t testing.TB, v store.Snapshot) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := Write(&file, v); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func fromFile(t testing.TB, file []byte, l store.Limits) store.Snapshot {
	t.Helper()
	v, err := Read(iotest.HalfReader(bytes.NewReader(file)), l)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFilesRoundTrip(t *testing.T) {
	random := make([]byte, 3*store.BlockSize)
	rand.NewChaCha8([32]byte{}).Read(random)
	large := mustApply(t, largeSnapshot(t, 8), 1000, &store.Batch{Ops: []store.Op{put("Name", "large", string(random))}})
	for name, v := range map[string]store.Snapshot{"nothing": {}, "everything": sampleSnapshot(t), "large": large} {
		file := fileOf(t, v)
		got := fromFile(t, file, store.Limits{})
		if !bytes.Equal(contentOf(t, got), contentOf(t, v)) {
			t.Errorf("%s: the read snapshot has other content", name)
		}
		if again := fileOf(t, got); !bytes.Equal(again, file) {
			t.Errorf("%s: writing the read snapshot gives a different file", name)
		}
	}
}

func TestDamagedSnapshotFilesAreRejected(t *testing.T) {
	file := fileOf(t, sampleSnapshot(t))
	for n := range file {
		if _, err := Read(bytes.NewReader(file[:n]), store.Limits{}); !errors.Is(err, store.ErrDamaged) ||
			!strings.Contains(err.Error(), "truncated") {
			t.Fatalf("%d of %d bytes: %v", n, len(file), err)
		}
	}
	for i := range file {
		for _, bit := range []byte{1, 0x10, 0x80} {
			flipped := bytes.Clone(file)
			flipped[i] ^= bit
			_, err := Read(bytes.NewReader(flipped), store.Limits{})
			want := store.ErrDamaged
			if i < len(magic)+2 {
				want = store.ErrFormat
			}
			if !errors.Is(err, want) && !errors.Is(err, store.ErrTooLarge) {
				t.Fatalf("bit %#x of byte %d flipped: %v", bit, i, err)
			}
		}
	}
	for name, c := range map[string]struct {
		file []byte
		want error
		says string
	}{
		"longer":         {append(bytes.Clone(file), 0), store.ErrDamaged, "data after its end"},
		"two files":      {append(bytes.Clone(file), file...), store.ErrDamaged, "data after its end"},
		"a value":        {bytes.Replace(file, []byte("ada"), []byte("bob"), 1), store.ErrChecksum, "checksum"},
		"a later format": {bytes.Replace(file, []byte("VIEW\x00\x01"), []byte("VIEW\x00\x02"), 1), store.ErrFormat, "format 2, this build supports 1"},
		"another file":   {[]byte("kind: Listener"), store.ErrFormat, `"kind: Li"`},
	} {
		if _, err := Read(bytes.NewReader(c.file), store.Limits{}); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %v with %q", name, err, c.want, c.says)
		}
	}
	broken := errors.New("broken disk")
	if _, err := Read(io.MultiReader(bytes.NewReader(file[:50]), iotest.ErrReader(broken)), store.Limits{}); !errors.Is(err, broken) {
		t.Errorf("a failing disk: %v", err)
	}
	for n := range 5 {
		if err := Write(&failing{n, broken}, sampleSnapshot(t)); n < 4 != errors.Is(err, broken) {
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
	for name, l := range map[string]store.Limits{
		"entry":     {Entry: 100},
		"total":     {Total: 500},
		"internal":  {Internal: 5},
		"revisions": {Revisions: 1},
		"past":      {Past: 600},
	} {
		if _, err := Read(bytes.NewReader(file), l); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	claims := append([]byte(magic), 0, 1, 0, 0x10, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	if cost := allocated(func() {
		if _, err := Read(bytes.NewReader(claims), store.Limits{}); !errors.Is(err, store.ErrTooLarge) {
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
	if *rewrite {
		if err := os.WriteFile("testdata/snapshot.1", now, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile("testdata/snapshot.1")
	if err != nil {
		t.Fatal(err)
	}
	if got := fromFile(t, was, store.Limits{}); got.Index() != v.Index() || !bytes.Equal(contentOf(t, got), contentOf(t, v)) {
		t.Error("the snapshot that an earlier build wrote has other content")
	}
	if !bytes.Equal(was, now) {
		t.Error("the snapshot would be encoded differently now")
	}
}

func FuzzReadSnapshot(f *testing.F) {
	for _, v := range []store.Snapshot{{}, sampleSnapshot(f)} {
		file := fileOf(f, v)
		f.Add(file[:len(file)-8])
	}
	limits := store.Limits{Entry: 1 << 16, Total: 1 << 20, Internal: 1 << 20, Past: 1 << 20}
	f.Fuzz(func(t *testing.T, file []byte) { // without the checksum, which would reject nearly all inputs
		file = binary.BigEndian.AppendUint64(file, crc64.Checksum(file, crc))
		v, err := Read(bytes.NewReader(file), limits)
		if err != nil {
			return
		}
		if again := fromFile(t, fileOf(t, v), limits); !bytes.Equal(contentOf(t, again), contentOf(t, v)) {
			t.Error("the snapshot changes when written and read")
		}
	})
}

func BenchmarkSnapshotWrite100000(b *testing.B) {
	v := largeSnapshot(b, 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshotRead100000(b *testing.B) {
	file := fileOf(b, largeSnapshot(b, 100))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(bytes.NewReader(file), store.Limits{}); err != nil {
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
	var v store.Snapshot
	took := allocated(func() { v = fromFile(t, file, store.Limits{}) })
	kept := inUse() - before
	if v.Len() != 20_000 || took > 3*kept {
		t.Errorf("%d entries that take %d MiB took %d MiB to read", v.Len(), kept>>20, took>>20)
	}
	runtime.KeepAlive(v)
}
