package admin

import (
	"runtime"
	"sync"
	"time"
)

// writeCoalescer batches the frames that a connection sends. A sender that
// finds no writer becomes the writer: it writes its own frame, and then in one
// batch whatever frames were added meanwhile.
type writeCoalescer struct {
	mu      sync.Mutex
	writing bool
	frames  []byte        // frames for the next write
	answers int           // last frames of requests among them, whose senders do not wait
	written chan struct{} // closed after the next write, whose error is in err; nil: no sender waits
	spare   []byte        // buffer of the last write, for reuse
	err     error         // of a failed write, after which there are no more
}

// send writes one frame and returns when it is written. If that fails, it has
// closed the connection, so that most callers can ignore the error. A peer that
// does not read in time is disconnected: it delays only its own connection.
func (c *serverConn) send(kind frameType, id uint64, body any) error {
	b, kind, err := c.encoded(kind, body)
	if err != nil {
		return err
	}
	return c.write(frame{kind, id, b}, false)
}

// answer sends the last frame of a request, which another sender may write for
// it, and records when it is written.
func (c *serverConn) answer(kind frameType, id uint64, body any) {
	b, kind, err := c.encoded(kind, body)
	if err != nil {
		c.taken(1)
		return
	}
	_ = c.write(frame{kind, id, b}, true)
}

// encoded returns the body of a frame, or of an error in its place.
func (c *serverConn) encoded(kind frameType, body any) ([]byte, frameType, error) {
	b, isRaw := body.(raw)
	if !isRaw {
		var err error
		if b, err = encode(body); err != nil {
			return c.encoded(frameError, Errorf(Internal, "%v", err))
		}
	}
	if len(b) > c.s.cfg.MaxAnswer {
		if kind == frameError {
			return nil, kind, ErrFrameSize
		}
		return c.encoded(frameError, Errorf(TooLarge, "the answer has %d bytes, the limit is %d: ask for less", len(b), c.s.cfg.MaxAnswer))
	}
	return b, kind, nil
}

// write appends a frame to the batch, and flushes the batch if there is no
// writer. The sender of an answer does not wait for another writer.
func (c *serverConn) write(f frame, answer bool) error {
	o := &c.out
	o.mu.Lock()
	if err := o.err; err != nil {
		o.mu.Unlock()
		if answer {
			c.taken(1)
		}
		return err
	}
	o.frames = appendFrame(o.frames, f)
	if answer {
		o.answers++
	}
	if !o.writing {
		o.writing = true
		o.mu.Unlock()
		return c.flush()
	}
	if answer && len(o.frames) <= writeTogether {
		o.mu.Unlock()
		return nil
	}
	if o.written == nil {
		o.written = make(chan struct{})
	}
	written := o.written
	o.mu.Unlock()
	<-written
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// flush writes batches until there are no more frames.
func (c *serverConn) flush() error {
	o := &c.out
	for {
		runtime.Gosched() // other goroutines woken at the same time may add frames
		o.mu.Lock()
		frames, answers, written := o.frames, o.answers, o.written
		o.frames, o.answers, o.written = o.spare[:0], 0, nil
		o.spare = nil
		if len(frames) == 0 {
			o.spare, o.frames = frames, nil
			o.writing = false
			o.mu.Unlock()
			return nil
		}
		o.mu.Unlock()
		_ = c.conn.SetWriteDeadline(time.Now().Add(c.s.cfg.WriteTimeout))
		_, err := c.conn.Write(frames)
		if answers > 0 {
			c.taken(answers)
		}
		o.mu.Lock()
		if cap(frames) <= writeTogether {
			o.spare = frames
		}
		if o.err = err; err != nil {
			answers, o.answers, o.writing = o.answers, 0, false
			o.frames, o.spare = nil, nil
			if o.written != nil {
				close(o.written)
				o.written = nil
			}
		}
		o.mu.Unlock()
		if written != nil {
			close(written)
		}
		if err != nil {
			c.taken(answers)
			c.conn.Close()
			return err
		}
	}
}
