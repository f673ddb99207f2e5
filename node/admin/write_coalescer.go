package admin

import (
	"runtime"
	"sync"
	"time"
)

// writeCoalescer is what a connection of a server has to send. Whoever comes while
// nobody writes, writes: its own frame, and those that come meanwhile, all
// that there are at once. So what is answered together goes in one write.
type writeCoalescer struct {
	mu      sync.Mutex
	writing bool
	frames  []byte        // that wait for the next write
	answers int           // among frames, whose senders have gone
	written chan struct{} // closed when frames are through, or err says why not; nil: nobody waits
	spare   []byte        // of the last write, to be used again
	err     error         // of the write that failed; the last one
}

// send writes one frame, and returns when it is written. Where that fails it
// has closed the connection, which is all that there is to do: most callers
// ignore the error. A peer that does not take it in time is cut off: what it
// holds up is its own connection alone.
func (c *serverConn) send(kind frameType, id uint64, body any) error {
	b, kind, err := c.encoded(kind, body)
	if err != nil {
		return err
	}
	return c.write(frame{kind, id, b}, false)
}

// answer sends the last frame of a request, which it may leave to another
// sender, and notes when it is through.
func (c *serverConn) answer(kind frameType, id uint64, body any) {
	b, kind, err := c.encoded(kind, body)
	if err != nil {
		c.taken(1)
		return
	}
	_ = c.write(frame{kind, id, b}, true)
}

// encoded is the body of a frame, or of the error that goes in its place.
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

// write adds a frame to what is to be written, and writes that unless somebody
// does. The sender of an answer does not wait for others to write it.
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

// flush writes what there is until there is nothing more.
func (c *serverConn) flush() error {
	o := &c.out
	for {
		runtime.Gosched() // those who were woken together have answers as well
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
