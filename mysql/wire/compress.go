package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// The compressed protocol: once a login with Compress or ZstdCompressionAlgorithm
// has succeeded, the stream of packets is cut into frames, anywhere. A frame has a
// header of 7 bytes: its length without the header (3 bytes), its sequence number
// (1), and the length of its plain bytes (3). If the latter is 0, the frame is
// stored: it holds the plain bytes as they are.
//
// Frames have sequence numbers of their own: 0 when a command begins, and the
// answer goes on with the number after the command's last. Peers set the number
// of the packets inside to that of the frame whenever the direction changes, so
// that of the numbers inside, only the frames' are worth checking.
//
// https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_compression.html
const (
	frameHeader = 7
	// minCompressed is the shortest piece that is compressed, as in MySQL.
	minCompressed = 50
	// maxPlain is the most plain bytes in a frame that is written: it bounds how
	// long a call computes.
	maxPlain = 64 << 10
	// maxWindow is the largest window of zstd that RFC 8878 asks decoders to take;
	// frames of a single segment have as large a one as their plain bytes.
	maxWindow = 8 << 20
	// zlibWindow is the window of RFC 1950.
	zlibWindow = 32 << 10
	// maxKept bounds the buffers and windows of what goes back to the pools.
	maxKept = 1 << 20
)

// ErrSequence means that a frame does not have the number that is due.
var ErrSequence = errors.New("frames out of order")

// Compression is an algorithm of the compressed protocol.
type Compression uint8

// The algorithms.
const (
	NoCompression Compression = iota
	Zlib
	Zstd
)

// Compression returns what a connection uses whose login has, and whose server
// offers, these capabilities. zlib goes first, as in servers.
func (c Capabilities) Compression() Compression {
	switch {
	case c&Compress != 0:
		return Zlib
	case c&ZstdCompressionAlgorithm != 0:
		return Zstd
	}
	return NoCompression
}

// CompressedReader turns frames into plain bytes. While it is between frames, it
// holds nothing but itself. It has no goroutine.
//
//	for {
//		plain, taken, err := r.Read(buf, src)
//		src = src[taken:]
//		... buf[:plain]; if a command ends in it, r.Seq = 0 before the next call ...
//		if err != nil || plain == 0 && taken == 0 { break } // more bytes have to arrive
//	}
type CompressedReader struct {
	Seq byte // the number of the next frame
	// AnySeq takes frames with any number. Servers need it: one that refuses a
	// command before it has read it whole answers with a lower number.
	AnySeq bool

	algorithm Compression
	have      uint8 // bytes of header
	header    [frameHeader]byte
	stored    bool
	due       int32     // bytes of the frame that have not arrived
	plain     int32     // plain bytes of a compressed frame that have not been handed out
	inflater  *inflater // holds a compressed frame; nil otherwise
}

// NewCompressedReader returns a reader of frames of algorithm, Zlib or Zstd.
func NewCompressedReader(algorithm Compression) CompressedReader {
	return CompressedReader{algorithm: algorithm}
}

// Read takes bytes of src and puts plain bytes into dst, and returns how many of
// each. It stops at the end of each frame, so that the caller can set Seq between
// two. dst must not be empty; it may be smaller than a frame. If both numbers are
// 0, all of src has been taken and all plain bytes handed out. An error
// ends the stream; the inflated bytes before it have been handed out.
func (r *CompressedReader) Read(dst, src []byte) (plain, taken int, err error) {
	if r.have < frameHeader {
		taken = copy(r.header[r.have:], src)
		if r.have += uint8(taken); r.have < frameHeader {
			return 0, taken, nil
		}
		if err := r.begin(); err != nil {
			return 0, taken, err
		}
	}
	switch {
	case r.stored:
		n := copy(dst[:min(len(dst), int(r.due))], src[taken:])
		plain, taken = n, taken+n
		r.due -= int32(n)
	case r.due > 0:
		n := min(len(src)-taken, int(r.due))
		r.inflater.frame = append(r.inflater.frame, src[taken:taken+n]...)
		taken += n
		if r.due -= int32(n); r.due > 0 {
			return 0, taken, nil
		}
		if err := r.inflater.start(r.algorithm, int(r.plain)); err != nil {
			return 0, taken, err
		}
		fallthrough
	default:
		if plain, err = r.inflate(dst); err != nil {
			return plain, taken, err
		}
	}
	if r.due == 0 && r.plain == 0 {
		r.Close()
	}
	return plain, taken, nil
}

// begin reads the header of a frame.
func (r *CompressedReader) begin() error {
	length, seq := ParseHeader(r.header[:])
	if seq != r.Seq && !r.AnySeq {
		return fmt.Errorf("%w: a compressed frame has number %d, due is %d", ErrSequence, seq, r.Seq)
	}
	r.Seq = seq + 1
	r.due = int32(length)
	r.plain = int32(r.header[4]) | int32(r.header[5])<<8 | int32(r.header[6])<<16
	if r.stored = r.plain == 0; r.stored {
		return nil
	}
	if length == 0 {
		return fmt.Errorf("%w: compressed frame: it is empty, but announces plain bytes", ErrMalformed)
	}
	r.inflater = inflaters[r.algorithm].Get().(*inflater)
	return nil
}

// inflate hands out plain bytes of a frame that has arrived. The bytes that the
// frame announces are checked to be all there is.
func (r *CompressedReader) inflate(dst []byte) (int, error) {
	n, err := io.ReadFull(r.inflater.plain(r.algorithm), dst[:min(len(dst), int(r.plain))])
	r.plain -= int32(n)
	if err == nil && r.plain == 0 {
		err = r.inflater.end(r.algorithm)
	}
	if err != nil {
		return n, fmt.Errorf("%w: compressed frame: its data is damaged: %w", ErrMalformed, err)
	}
	return n, nil
}

// Between reports whether the reader is between two frames.
func (r *CompressedReader) Between() bool { return r.have == 0 }

// Held returns how many bytes of memory the frame holds that is being read; 0
// between frames.
func (r *CompressedReader) Held() int {
	if r.inflater == nil {
		return 0
	}
	return cap(r.inflater.frame) + r.inflater.window
}

// Close drops the frame that is being read, if any.
func (r *CompressedReader) Close() {
	if r.inflater != nil {
		r.inflater.release(r.algorithm)
	}
	r.have, r.stored, r.due, r.plain, r.inflater = 0, false, 0, 0, nil
}

// inflater decompresses one frame after another.
type inflater struct {
	frame  []byte // as it arrived
	source bytes.Reader
	window int // bytes of history of the present frame
	zlib   io.ReadCloser
	zstd   *zstd.Decoder
}

var inflaters = [...]sync.Pool{
	Zlib: {New: func() any { return new(inflater) }},
	Zstd: {New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<24), zstd.WithDecodeBuffersBelow(0))
		if err != nil {
			panic(err) // the options are constants
		}
		return &inflater{zstd: d}
	}},
}

// start prepares to decompress a frame that announces plain bytes.
func (i *inflater) start(algorithm Compression, plain int) error {
	i.source.Reset(i.frame)
	var err error
	switch {
	case algorithm == Zstd:
		var h zstd.Header
		if err = h.Decode(i.frame); err == nil && h.WindowSize > maxWindow && h.WindowSize > uint64(plain) {
			err = fmt.Errorf("a window of %d bytes, %d are allowed", h.WindowSize, max(maxWindow, plain))
		}
		if err == nil {
			i.window = int(h.WindowSize)
			err = i.zstd.Reset(&i.source)
		}
	case i.zlib == nil:
		i.window = zlibWindow
		i.zlib, err = zlib.NewReader(&i.source)
	default:
		i.window = zlibWindow
		err = i.zlib.(zlib.Resetter).Reset(&i.source, nil)
	}
	if err != nil {
		return fmt.Errorf("%w: compressed frame: its beginning is damaged: %w", ErrMalformed, err)
	}
	return nil
}

// plain returns the reader of the plain bytes.
func (i *inflater) plain(algorithm Compression) io.Reader {
	if algorithm == Zstd {
		return i.zstd
	}
	return i.zlib
}

// end checks that the frame has no plain bytes left, its checksum, and that
// nothing follows it.
func (i *inflater) end(algorithm Compression) error {
	var one [1]byte
	switch n, err := io.ReadFull(i.plain(algorithm), one[:]); {
	case n > 0:
		return errors.New("it holds more than it announces")
	case err != io.EOF: //nolint:errorlint // readers return it unwrapped
		return err
	case i.source.Len() > 0:
		return errors.New("bytes follow its end")
	}
	return nil
}

// release returns i to its pool, without large buffers.
func (i *inflater) release(algorithm Compression) {
	if i.window > maxKept {
		return
	}
	if i.frame = i.frame[:0]; cap(i.frame) > maxKept {
		i.frame = nil
	}
	i.source.Reset(nil)
	if i.zstd != nil && i.zstd.Reset(nil) != nil {
		return
	}
	inflaters[algorithm].Put(i)
}

// CompressedWriter turns plain bytes into frames. It holds nothing but itself.
type CompressedWriter struct {
	Seq byte // the number of the next frame: 0 for a command, the reader's Seq for its answer

	algorithm Compression
	level     zstd.EncoderLevel
}

// NewCompressedWriter returns a writer of frames of algorithm, Zlib or Zstd.
// zstdLevel is 1 to 22, as in a login; 0 is MySQL's default, 3. The level of zlib is
// the fastest: rows get a tenth longer than with the usual one, in half the time.
func NewCompressedWriter(algorithm Compression, zstdLevel byte) CompressedWriter {
	if zstdLevel == 0 {
		zstdLevel = 3
	}
	return CompressedWriter{algorithm: algorithm, level: zstd.EncoderLevelFromZstd(int(zstdLevel))}
}

// Append appends the frames of all of plain to dst. A frame has 64 KiB of plain
// bytes at most; one that compression would not make smaller is stored.
func (w *CompressedWriter) Append(dst, plain []byte) []byte {
	for len(plain) > 0 {
		piece := plain[:min(len(plain), maxPlain)]
		plain = plain[len(piece):]
		at := len(dst)
		dst = append(dst, make([]byte, frameHeader)...)
		announced := len(piece)
		if len(piece) >= minCompressed {
			dst = w.deflate(dst, piece)
		}
		if n := len(dst) - at - frameHeader; n == 0 || n >= len(piece) {
			dst, announced = append(dst[:at+frameHeader], piece...), 0
		}
		header := AppendHeader(dst[at:at], len(dst)-at-frameHeader, w.Seq)
		_ = append(header, byte(announced), byte(announced>>8), byte(announced>>16))
		w.Seq++
	}
	return dst
}

// deflate appends piece, compressed.
func (w *CompressedWriter) deflate(dst, piece []byte) []byte {
	if w.algorithm == Zstd {
		pool := &zstdEncoders[w.level]
		e := pool.Get().(*zstd.Encoder)
		defer pool.Put(e)
		return e.EncodeAll(piece, dst)
	}
	d := deflaters.Get().(*deflater)
	defer deflaters.Put(d)
	d.to = dst
	d.zlib.Reset(d)
	_, err := d.zlib.Write(piece)
	if err == nil {
		err = d.zlib.Close()
	}
	out := d.to
	d.to = nil
	if err != nil {
		return dst // stored: writing to memory does not fail
	}
	return out
}

// deflater appends what its zlib.Writer writes.
type deflater struct {
	to   []byte
	zlib *zlib.Writer
}

// Write implements io.Writer.
func (d *deflater) Write(p []byte) (int, error) {
	d.to = append(d.to, p...)
	return len(p), nil
}

var (
	deflaters = sync.Pool{New: func() any {
		z, err := zlib.NewWriterLevel(nil, zlib.BestSpeed)
		if err != nil {
			panic(err) // the level is a constant
		}
		return &deflater{zlib: z}
	}}
	zstdEncoders = newEncoders()
)

// newEncoders returns a pool for each level. MySQL writes frames without checksums,
// and no window is larger than the pieces.
func newEncoders() *[zstd.SpeedBestCompression + 1]sync.Pool {
	var pools [zstd.SpeedBestCompression + 1]sync.Pool
	for level := zstd.SpeedFastest; level <= zstd.SpeedBestCompression; level++ {
		pools[level].New = func() any {
			e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
				zstd.WithWindowSize(maxPlain), zstd.WithSingleSegment(true))
			if err != nil {
				panic(err) // the options are constants
			}
			return e
		}
	}
	return &pools
}
