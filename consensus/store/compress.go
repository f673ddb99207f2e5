package store

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// compressAbove is the size up to which compressing gains little.
	compressAbove = 64 << 10
	// maxRatio bounds the compression ratio. Data that would compress better is
	// stored uncompressed: a few bytes never expand to megabytes, and a size that
	// claims so is rejected before memory is allocated.
	maxRatio = 1024
)

// zstdEncoder and zstdDecoder are safe for concurrent use; without a stream
// they hold no goroutines. They are created at first use.
var (
	zstdEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	})
	zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	})
)

// Compress appends raw to dst, compressed. It returns false if compression does
// not help.
func Compress(dst, raw []byte) ([]byte, bool) {
	encoder, err := zstdEncoder()
	if err != nil || len(raw) <= compressAbove {
		return dst, false
	}
	n := len(dst)
	dst = encoder.EncodeAll(raw, dst)
	size := len(dst) - n
	return dst, size < len(raw)-len(raw)/16 && len(raw) <= size*maxRatio
}

// Expand decompresses the output of Compress, of that size, into buf's array if
// that is large enough.
func Expand(buf, compressed []byte, size uint64, limit int) ([]byte, error) {
	if size > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrDamaged, size, limit)
	}
	if size > uint64(len(compressed))*maxRatio {
		return nil, fmt.Errorf("%w: %d bytes from %d compressed ones, the limit is %d times", ErrDamaged, size, len(compressed), maxRatio)
	}
	decoder, err := zstdDecoder()
	if err != nil {
		return nil, err
	}
	if uint64(cap(buf)) < size {
		buf = make([]byte, 0, size)
	}
	raw, err := decoder.DecodeAll(compressed, buf[:0:size])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if uint64(len(raw)) != size {
		return nil, fmt.Errorf("%w: %d bytes, not %d", ErrDamaged, len(raw), size)
	}
	return raw, nil
}
