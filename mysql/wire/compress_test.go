package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

var algorithms = map[string]Compression{"zlib": Zlib, "zstd": Zstd}

// unframe reads all frames of src in pieces, into a buffer of room bytes.
func unframe(r *CompressedReader, src []byte, piece, room int) (all []byte, err error) {
	buf := make([]byte, room)
	for len(src) > 0 {
		part := src[:min(piece, len(src))]
		src = src[len(part):]
		for {
			plain, taken, err := r.Read(buf, part)
			all, part = append(all, buf[:plain]...), part[taken:]
			if err != nil {
				return all, err
			}
			if plain == 0 && taken == 0 {
				break
			}
		}
	}
	return all, nil
}

func TestFramesRoundTrip(t *testing.T) {
	for name, a := range algorithms {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				level := byte(rapid.IntRange(0, 22).Draw(t, "level"))
				w, r := NewCompressedWriter(a, level), NewCompressedReader(a)
				w.Seq = byte(rapid.IntRange(0, 255).Draw(t, "seq"))
				r.Seq = w.Seq
				var src, want []byte
				for _, size := range rapid.SliceOfN(rapid.IntRange(0, 150_000), 1, 3).Draw(t, "sizes") {
					plain := text(uint64(size), size)
					if rapid.Bool().Draw(t, "random") {
						plain = random(uint64(size), size)
					}
					src, want = w.Append(src, plain), append(want, plain...)
				}
				piece, room := rapid.IntRange(1, 40_000).Draw(t, "piece"), rapid.IntRange(1, 40_000).Draw(t, "room")
				got, err := unframe(&r, src, piece, room)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("read %d of %d bytes: %v", len(got), len(want), err)
				}
				if !r.Between() || r.Held() != 0 || r.Seq != w.Seq {
					t.Fatalf("between %v, held %d, number %d of %d", r.Between(), r.Held(), r.Seq, w.Seq)
				}
			})
		})
	}
}

// Frames of the algorithms' own encoders are read, also of windows larger than
// their content.
func TestFramesOfOtherEncoders(t *testing.T) {
	plain := text(1, 3<<20)
	var z bytes.Buffer
	zw := zlib.NewWriter(&z)
	zw.Write(plain)
	zw.Close()
	frames := map[string][]byte{"zlib": frame(0, len(plain), z.Bytes())}
	for _, window := range []int{1 << 20, 8 << 20, 16 << 20} {
		var stream bytes.Buffer
		e, err := zstd.NewWriter(&stream, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		e.Write(plain[:1000])
		e.Flush() // from here on, the encoder cannot know how much follows
		e.Write(plain[1000:])
		e.Close()
		frames[fmt.Sprint("zstd ", window>>20)] = frame(0, len(plain), stream.Bytes())
	}
	for name, src := range frames {
		r := NewCompressedReader(algorithms[name[:4]])
		got, err := unframe(&r, src, 1000, 70_000)
		if name == "zstd 16" {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: a window of 16 MiB for 3 MiB was taken: %v", name, err)
			}
		} else if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: %d of %d bytes: %v", name, len(got), len(plain), err)
		}
	}
}

func TestFramesMalformed(t *testing.T) {
	body := text(7, 5000)
	for name, a := range algorithms {
		w := NewCompressedWriter(a, 0)
		good := w.Append(nil, body)[frameHeader:]
		damaged := slices.Clone(good)
		damaged[len(damaged)/2] ^= 0x55
		for _, c := range []struct {
			what string
			src  []byte
			want error
		}{
			{"announces less", frame(0, len(body)-1, good), ErrMalformed},
			{"announces more", frame(0, len(body)+1, good), ErrMalformed},
			{"announces the most", frame(0, MaxPayload, good), ErrMalformed},
			{"bytes follow", frame(0, len(body), append(slices.Clone(good), 0)), ErrMalformed},
			{"cut", frame(0, len(body), good[:len(good)-5]), ErrMalformed},
			{"empty", frame(0, len(body), nil), ErrMalformed},
			{"no compressed data", frame(0, 2, []byte{1, 2, 3}), ErrMalformed},
			{"damaged", frame(0, len(body), damaged), ErrMalformed},
			{"number skipped", frame(1, 0, body), ErrSequence},
			{"number repeated", append(frame(0, 0, body), frame(0, 0, body)...), ErrSequence},
		} {
			if a == Zstd && c.what == "damaged" {
				continue // frames of zstd have no checksum
			}
			r := NewCompressedReader(a)
			out, err := unframe(&r, c.src, len(c.src), 4000)
			if !errors.Is(err, c.want) {
				t.Errorf("%s, %s: %d bytes, %v", name, c.what, len(out), err)
			}
			r.Close()
			if r.Held() != 0 || !r.Between() {
				t.Errorf("%s, %s: still held after Close", name, c.what)
			}
		}
	}
}

// A bomb yields what its frame announces at most, a buffer at a time.
func TestFrameBomb(t *testing.T) {
	zeros := make([]byte, MaxPayload)
	for name, a := range algorithms {
		var packed []byte
		if a == Zlib {
			var z bytes.Buffer
			zw := zlib.NewWriter(&z)
			zw.Write(zeros)
			zw.Write(zeros)
			zw.Close()
			packed = z.Bytes()
		} else {
			e, err := zstd.NewWriter(nil, zstd.WithWindowSize(1<<20), zstd.WithSingleSegment(false))
			if err != nil {
				t.Fatal(err)
			}
			packed = e.EncodeAll(append(zeros, zeros...), nil)
		}
		r, buf := NewCompressedReader(a), make([]byte, 16<<10)
		src, total := frame(0, 100_000, packed), 0
		for {
			plain, taken, err := r.Read(buf, src)
			total, src = total+plain, src[taken:]
			if held := r.Held(); held > 2*len(packed)+1<<20 {
				t.Fatalf("%s: holds %d bytes", name, held)
			}
			if err != nil {
				break
			}
			if plain == 0 && taken == 0 {
				t.Fatalf("%s: the frame is taken", name)
			}
		}
		if total > 100_000 {
			t.Errorf("%s: %d bytes of a frame that announces 100000", name, total)
		}
		r.Close()
	}
}

func TestFramesKeepNothingIdle(t *testing.T) {
	if size := unsafe.Sizeof(CompressedReader{}) + unsafe.Sizeof(CompressedWriter{}); size > 100 {
		t.Errorf("reader and writer have %d bytes", size)
	}
}

func TestFrameNumbersOfServers(t *testing.T) {
	r := NewCompressedReader(Zlib)
	r.AnySeq, r.Seq = true, 9
	if out, err := unframe(&r, frame(3, 0, []byte("early")), 3, 10); err != nil || string(out) != "early" || r.Seq != 4 {
		t.Errorf("%q, next %d, %v", out, r.Seq, err)
	}
}

func FuzzCompressedReader(f *testing.F) {
	for _, a := range algorithms {
		w := NewCompressedWriter(a, 0)
		f.Add(byte(a), w.Append(w.Append(nil, text(1, 300)), []byte("x")), uint16(7), uint16(11))
	}
	f.Fuzz(func(t *testing.T, a byte, src []byte, piece, room uint16) {
		algorithm := Zlib + Compression(a%2)
		r := NewCompressedReader(algorithm)
		defer r.Close()
		out, err := unframe(&r, src, 1+int(piece), 1+int(room))
		r2 := NewCompressedReader(algorithm)
		defer r2.Close()
		whole, errWhole := unframe(&r2, src, 1+len(src), 1<<16)
		if (err == nil) != (errWhole == nil) {
			t.Fatalf("in pieces: %v; whole: %v", err, errWhole)
		}
		if err == nil && !bytes.Equal(out, whole) {
			t.Fatalf("in pieces %x, whole %x", out, whole)
		}
	})
}

func frame(seq byte, announced int, body []byte) []byte {
	dst := AppendHeader(nil, len(body), seq)
	dst = append(dst, byte(announced), byte(announced>>8), byte(announced>>16))
	return append(dst, body...)
}

func random(seed uint64, n int) []byte {
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(rnd.Uint32())
	}
	return p
}

// text returns n bytes that compress.
func text(seed uint64, n int) []byte {
	rnd := rand.New(rand.NewPCG(seed, 2))
	p := make([]byte, 0, n+20)
	for len(p) < n {
		p = fmt.Appendf(p, "row %d, ", rnd.IntN(1000))
	}
	return p[:n]
}
