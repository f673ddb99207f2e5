package web

import (
	"encoding/binary"
	"time"
)

// blocks follows the frames of a client's HTTP/2 (RFC 9113, section 4.1), so that
// a header that is not finished has its time: net/http waits for the rest of it,
// and keeps what there is decoded, for as long as the connection lives. It is for
// whoever reads the connection.
type blocks struct {
	skip  int // bytes until the next frame's header
	head  []byte
	open  bool // between the first byte of a HEADERS frame and END_HEADERS
	last  bool // the frame whose content is skipped ends it
	timer *time.Timer
}

const (
	prefaceSize     = 24
	frameHeader     = 9
	typeHeaders     = 1
	typeContinues   = 9
	flagEndsHeaders = 4
)

func newBlocks() *blocks { return &blocks{skip: prefaceSize, head: make([]byte, 0, frameHeader)} }

// feed takes what was read. end is called, on a goroutine of its own, when a
// header is not whole after that time.
func (b *blocks) feed(p []byte, limit time.Duration, end func()) {
	for len(p) > 0 {
		n := min(b.skip, len(p))
		b.skip -= n
		if p = p[n:]; b.skip > 0 {
			break
		}
		if b.last {
			b.close()
		}
		n = min(frameHeader-len(b.head), len(p))
		b.head = append(b.head, p[:n]...)
		if p = p[n:]; len(b.head) == frameHeader {
			b.frame()
		}
	}
	if b.open && b.timer == nil {
		b.timer = time.AfterFunc(limit, end)
	}
}

// frame begins the frame whose header is there.
func (b *blocks) frame() {
	b.skip = int(binary.BigEndian.Uint32(b.head) >> 8)
	if kind := b.head[3]; kind == typeHeaders || kind == typeContinues {
		b.open, b.last = true, b.head[4]&flagEndsHeaders != 0
	}
	b.head = b.head[:0]
	if b.skip == 0 && b.last {
		b.close()
	}
}

// close ends a header.
func (b *blocks) close() {
	b.open, b.last = false, false
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}
