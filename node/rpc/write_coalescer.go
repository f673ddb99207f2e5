package rpc

import (
	"runtime"
	"sync"
	"time"

	"penstock/node/api"
)

// writeCoalescer batches the frames that a connection sends. A sender that
// finds no writer becomes the writer: it writes its own frame, and then in one
// batch whatever frames were added meanwhile.
type writeCoalescer struct {
	mu         sync.Mutex
	writing    bool
	frames     []byte        // frames for the next write
	lastFrames int           // last frames of requests among them, whose senders do not wait
	written    chan struct{} // closed after the next write, whose error is in err; nil: no sender waits
	spare      []byte        // buffer of the last write, for reuse
	err        error         // of a failed write, after which there are no more
}

// send writes one frame and returns when it is written. If that fails, it has
// closed the connection, so that most callers can ignore the error. A peer that
// does not read in time is disconnected: it delays only its own connection.
func (c *serverConn) send(kind frameType, id uint64, body any) error {
	b, kind, err := c.encodeBody(kind, body)
	if err != nil {
		return err
	}
	return c.write(frame{kind, id, b}, false)
}

// sendLast sends the last frame of a request, which another sender may write
// for it, and records when it is written.
func (c *serverConn) sendLast(kind frameType, id uint64, body any) {
	b, kind, err := c.encodeBody(kind, body)
	if err != nil {
		c.answered(1)
		return
	}
	_ = c.write(frame{kind, id, b}, true)
}

// encodeBody returns the body of a frame, or of an error in its place.
func (c *serverConn) encodeBody(kind frameType, body any) ([]byte, frameType, error) {
	b, isRaw := body.(raw)
	if !isRaw {
		var err error
		if b, err = encode(body); err != nil {
			return c.encodeBody(frameError, api.Errorf(api.Internal, "%v", err))
		}
	}
	if len(b) > c.s.cfg.MaxAnswer {
		if kind == frameError {
			return nil, kind, ErrFrameSize
		}
		return c.encodeBody(frameError, api.Errorf(api.TooLarge, "the response has %d bytes, the limit is %d: request less", len(b), c.s.cfg.MaxAnswer))
	}
	return b, kind, nil
}

// write appends a frame to the batch, and flushes the batch if there is no
// writer. The sender of a last frame does not wait for another writer.
func (c *serverConn) write(f frame, last bool) error {
	o := &c.out
	o.mu.Lock()
	if err := o.err; err != nil {
		o.mu.Unlock()
		if last {
			c.answered(1)
		}
		return err
	}
	o.frames = appendFrame(o.frames, f)
	if last {
		o.lastFrames++
	}
	if !o.writing {
		o.writing = true
		o.mu.Unlock()
		return c.flush()
	}
	if last && len(o.frames) <= writeBatchSize {
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
		frames, lastFrames, written := o.frames, o.lastFrames, o.written
		o.frames, o.lastFrames, o.written = o.spare[:0], 0, nil
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
		if lastFrames > 0 {
			c.answered(lastFrames)
		}
		o.mu.Lock()
		if cap(frames) <= writeBatchSize {
			o.spare = frames
		}
		if o.err = err; err != nil {
			lastFrames, o.lastFrames, o.writing = o.lastFrames, 0, false
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
			c.answered(lastFrames)
			c.conn.Close()
			return err
		}
	}
}
