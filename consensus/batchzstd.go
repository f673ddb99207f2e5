package consensus

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxRatio is how many times larger than compressed a thing may be. What would
// compress better is stored as it is: so a few bytes never stand for
// megabytes, and who claims that is refused before memory is taken.
const maxRatio = 1024

// zstdEncoder and zstdDecoder may be used from anywhere; without a stream they
// hold no goroutines. They are made when first needed.
var (
	zstdEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	})
	zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	})
)

// compress appends raw to dst, compressed. It returns false when that is of no
// use.
func compress(dst, raw []byte) ([]byte, bool) {
	encoder, err := zstdEncoder()
	if err != nil {
		return nil, false
	}
	n := len(dst)
	dst = encoder.EncodeAll(raw, dst)
	size := len(dst) - n
	return dst, size < len(raw)-len(raw)/16 && len(raw) <= size*maxRatio
}

// expand reads what compress wrote, which is size bytes, into the array of buf
// where it is large enough.
func expand(buf, compressed []byte, size uint64, limit int) ([]byte, error) {
	if size > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrDamaged, size, limit)
	}
	if size > uint64(len(compressed))*maxRatio {
		return nil, fmt.Errorf("%w: %d bytes out of %d, the limit is %d times", ErrDamaged, size, len(compressed), maxRatio)
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
