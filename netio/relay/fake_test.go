package relay

import (
	"fmt"

	"penstock/netio/stream"
)

// fakeStream is a stream in front of a kernel that takes as many bytes as
// its room allows. It keeps what its peer would see and counts every breach
// of the contract in stream.Stream that a relay could commit.
type fakeStream struct {
	name string
	tell func(effect string) // nil: nobody listens

	room    int // bytes the kernel takes before it is full; negative: no limit
	wire    []byte
	pending []byte
	pipe    *fakeStream

	reading, ending, fin, closed, aborted bool

	pauses, resumes int
	breaches        []string
}

var _ stream.Stream = (*fakeStream)(nil)

func (f *fakeStream) effect(format string, args ...any) {
	if f.tell != nil {
		f.tell(f.name + " " + fmt.Sprintf(format, args...))
	}
}

func (f *fakeStream) require(ok bool, breach string) {
	if !ok {
		f.breaches = append(f.breaches, f.name+": "+breach)
	}
}

func (f *fakeStream) dead() bool { return f.closed || f.aborted }

func (f *fakeStream) Send(p []byte) int {
	f.require(!f.ending, "send after close-write")
	f.require(!f.dead(), "send after the end")
	f.pending = append(f.pending, p...)
	f.flush()
	if len(f.pending) > 0 {
		f.effect("send %q, %d pending", p, len(f.pending))
	} else {
		f.effect("send %q", p)
	}
	return len(f.pending)
}

// flush gives the kernel what it has room for, and the FIN behind the last byte.
func (f *fakeStream) flush() {
	n := len(f.pending)
	if f.room >= 0 {
		n = min(n, f.room)
		f.room -= n
	}
	f.wire = append(f.wire, f.pending[:n]...)
	f.pending = f.pending[n:]
	f.fin = f.fin || f.ending && len(f.pending) == 0
}

func (f *fakeStream) SetReading(on bool) {
	f.require(!f.dead(), "set reading after the end")
	f.require(f.reading != on, "set reading to what it is")
	f.reading = on
	if on {
		f.resumes++
		f.effect("read")
	} else {
		f.pauses++
		f.effect("pause")
	}
}

func (f *fakeStream) PipeTo(dst stream.Stream) bool {
	f.pipe = dst.(*fakeStream)
	f.effect("pipe to %s", f.pipe.name)
	return true
}

func (f *fakeStream) CloseWrite() {
	f.require(!f.ending, "close-write twice")
	f.require(!f.dead(), "close-write after the end")
	f.ending = true
	if len(f.pending) > 0 {
		f.effect("fin, behind %d pending", len(f.pending))
	} else {
		f.effect("fin")
	}
	f.flush()
}

func (f *fakeStream) Close() {
	f.require(!f.dead(), "close after the end")
	f.closed, f.ending = true, true
	if len(f.pending) > 0 {
		f.effect("close, behind %d pending", len(f.pending))
	} else {
		f.effect("close")
	}
	f.flush()
}

func (f *fakeStream) Abort() {
	f.require(!f.dead(), "abort after the end")
	f.aborted, f.pending = true, nil
	f.effect("reset")
}
