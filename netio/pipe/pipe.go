// Package pipe is a stream whose other end is a net.Conn in this process, for
// code that blocks, such as net/http. The relay joins a client to it as to any
// endpoint, so back-pressure, ends, resets, timers and drains work as
// elsewhere.
//
//	d, conn := pipe.New(loop, owner, local, remote)
//	d.SetReading(true)       // on the loop: stream.Stream
//	go server.serve(conn)    // anywhere: net.Conn
//
// Each direction holds at most room bytes plus those of one Send. A goroutine
// that writes more waits, and a client whose bytes are not consumed is not
// read. A pipe uses no descriptor and starts no goroutine. Abort the pipes of
// a loop before you end it, or their Conns wait for ever.
package pipe

import (
	"net"
	"sync"

	"penstock/netio/reactor"
	"penstock/netio/stream"
)

const (
	// room is what a direction holds before its writer has to wait, as a
	// socket's buffer in the kernel does.
	room = 64 << 10
	// spare is the largest buffer that an idle direction keeps.
	spare = 4 << 10
)

// Pipe is the end that lives on a loop. Only the loop's goroutine may call its
// methods.
type Pipe struct {
	loop  *reactor.Loop
	owner stream.Owner
	run   func() // the method, made once

	mu   sync.Mutex // guards all below
	move sync.Cond  // something of it has changed

	in    []byte // sent by the owner, not read yet
	read  int    // of in: what was
	owes  bool   // the owner waits for Sent
	inEnd bool   // the owner has ended its direction

	out     []byte // written, not shown to the owner yet
	back    []byte // the other buffer of out
	written uint64 // bytes in all
	outEnd  bool   // the Conn has ended its direction
	told    bool   // and the owner has heard of it

	reading bool  // the owner wants to be told of bytes
	posted  bool  // run is on its way
	holds   int   // of the Conn's user, who is in the middle of something
	silent  bool  // the owner hears nothing more
	deaf    bool  // the Conn is closed: nobody reads in
	failure error // to tell the owner
	dead    error // what the Conn's methods return from now on; nil: alive
}

var _ stream.Stream = (*Pipe)(nil)

// New returns both ends of a pipe. The owner gets no event before it calls
// SetReading or Send, and never Connected: there is nothing to wait for. local
// and remote are the addresses of the Conn.
func New(loop *reactor.Loop, owner stream.Owner, local, remote net.Addr) (*Pipe, *Conn) {
	d := &Pipe{loop: loop, owner: owner}
	d.run, d.move.L = d.notifyOwner, &d.mu
	return d, &Conn{pipe: d, local: local, remote: remote}
}

// Send implements stream.Stream.
func (d *Pipe) Send(p []byte) (pending int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.silent || d.dead != nil:
		return 0
	case d.deaf: // as a peer that has closed its socket resets
		d.fail(stream.ErrReset)
		return 0
	}
	if d.read > 0 && len(d.in)+len(p) > cap(d.in) {
		d.in = d.in[:copy(d.in, d.in[d.read:])]
		d.read = 0
	}
	d.in = append(d.in, p...)
	d.move.Broadcast()
	kept := len(d.in) - d.read
	if kept <= room {
		return 0
	}
	d.owes = true
	return kept
}

// SetReading implements stream.Stream.
func (d *Pipe) SetReading(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reading = on
	d.postWhatIsNew()
}

// PipeTo implements stream.Stream. It always returns false: the bytes are in
// this process.
func (d *Pipe) PipeTo(stream.Stream) bool { return false }

// CloseWrite implements stream.Stream.
func (d *Pipe) CloseWrite() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inEnd = true
	d.move.Broadcast()
}

// Close implements stream.Stream. The Conn can still read pending bytes until
// it is closed.
func (d *Pipe) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent, d.inEnd = true, true
	d.kill(errPeerClosed)
}

// Abort implements stream.Stream.
func (d *Pipe) Abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = true
	d.in, d.read = nil, 0
	d.kill(errPeerReset)
}

// Settled reports whether nothing is known to be under way in either
// direction.
func (d *Pipe) Settled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.read == len(d.in) && len(d.out) == 0 && d.holds == 0
}

// Unread returns the number of bytes that the Conn wrote and the owner has not
// received.
func (d *Pipe) Unread() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.out)
}

// kill ends the Conn's directions, for the first reason that there was. What
// it wrote and the owner has not seen is gone.
func (d *Pipe) kill(why error) {
	if d.dead == nil {
		d.dead = why
	}
	d.out, d.back = nil, nil
	d.move.Broadcast()
}

// fail has the owner told that the stream is dead.
func (d *Pipe) fail(why error) {
	if d.failure == nil {
		d.failure = why
	}
	d.kill(errPeerReset)
	d.post()
}

// postWhatIsNew has the owner told of what it is to be told while it reads.
func (d *Pipe) postWhatIsNew() {
	if d.reading && (len(d.out) > 0 || d.outEnd && !d.told) {
		d.post()
	}
}

// post has tell called on the loop.
func (d *Pipe) post() {
	if d.posted || d.silent {
		return
	}
	d.posted = d.loop.Post(d.run)
	if !d.posted { // the loop has ended, and with it the owner
		d.silent = true
		d.kill(errPeerReset)
	}
}

// notifyOwner runs on the loop and delivers the owner's events.
func (d *Pipe) notifyOwner() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.posted = false
	for more := true; more && !d.silent; {
		more = d.notifyNext()
	}
}

// notifyNext calls the owner once, without the lock, if there is something to
// tell. It returns whether to go on at once: bytes are shown one buffer a
// turn, so that others have theirs.
func (d *Pipe) notifyNext() bool {
	switch {
	case d.failure != nil:
		d.silent = true
		why := d.failure
		d.call(func() { d.owner.Failed(why) })
		return false
	case d.owes && len(d.in)-d.read <= room/2:
		d.owes = false
		d.call(d.owner.Sent)
		return true
	case d.reading && len(d.out) > 0:
		p := d.out
		d.out, d.back = d.back[:0], nil
		d.move.Broadcast()
		d.call(func() { d.owner.Received(p) })
		if cap(p) <= spare || len(d.out) > 0 {
			d.back = p
		}
		d.postWhatIsNew()
		return false
	case d.reading && d.outEnd && !d.told:
		d.told = true
		d.call(d.owner.Ended)
		return true
	}
	return false
}

// call calls the owner without the lock. Should it panic, it is told that the
// stream is dead, as the reactor does with its sockets.
func (d *Pipe) call(tell func()) {
	ok := false
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		if !ok {
			d.fail(reactor.ErrPanic)
		}
	}()
	tell()
	ok = true
}
