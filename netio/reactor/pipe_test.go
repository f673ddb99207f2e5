package reactor

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
)

// relayed gives a client and a server with a relay in between, and the relay.
func relayed(t testing.TB, l *Loop) (client, server *net.TCPConn, r *relay) {
	t.Helper()
	backend, accepted := listenTCP(t)
	relays := make(chan *relay, 1)
	front := serve(t, l, func(fd int, from netip.AddrPort) { relays <- newRelay(l, fd, from, backend) })
	client = dialTCP(t, front)
	server = accepted()
	return client, server, <-relays
}

func (p *pipePool) idle() (n int) {
	for c := p.free; c != nil; c = c.next {
		n++
	}
	return n
}

// made is how many pipes there are, given out or not.
func (l *Loop) made() int { return max(l.cfg.MaxPipes, 0) - l.pipes.left }

func exchange(t *testing.T, from, to *net.TCPConn, size int) {
	t.Helper()
	data := randomBytes(size)
	want := sha256.Sum256(data)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := from.Write(data); err != nil {
			t.Error(err)
		}
	})
	h := sha256.New()
	if _, err := io.CopyN(h, to, int64(size)); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if !bytes.Equal(h.Sum(nil), want[:]) {
		t.Errorf("%d bytes came out different", size)
	}
}

func TestBulkIsExactBothWays(t *testing.T) {
	for name, c := range map[string]Config{
		"spliced":         {},
		"small budget":    {Budget: 1, ReadBuffer: 4 << 10},
		"small pipes":     {PipeSize: 4 << 10, ReadBuffer: 4 << 10},
		"without pipes":   {MaxPipes: -1},
		"with a lone one": {MaxPipes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := runLoop(t, c)
			client, server, r := relayed(t, l)
			var wg sync.WaitGroup
			wg.Go(func() { exchange(t, client, server, 20<<20) })
			wg.Go(func() { exchange(t, server, client, 21<<20+1) })
			wg.Wait()
			// The same once more, then a message each way: bulk, idle, bulk.
			exchange(t, client, server, 9<<20)
			exchange(t, server, client, 3)
			exchange(t, client, server, 5)
			until(t, l, "no pipe is held", func() bool {
				return r.client.pipe == nil && r.upstream.pipe == nil && l.pipes.idle() == l.made()
			})
			do(t, l, func() {
				if used := l.made(); (used > 0) != (c.MaxPipes >= 0) || used > 2 {
					t.Errorf("%d pipes were made", used)
				}
				if l.Pending() != 0 {
					t.Errorf("%d bytes pending", l.Pending())
				}
			})
			_ = client.CloseWrite()
			if got, err := io.ReadAll(server); len(got) != 0 || err != nil {
				t.Errorf("after the end: %d bytes, %v", len(got), err)
			}
			_ = server.CloseWrite()
			if got, err := io.ReadAll(client); len(got) != 0 || err != nil {
				t.Errorf("after the end: %d bytes, %v", len(got), err)
			}
			until(t, l, "closed", func() bool { return !r.client.isOpen() && !r.upstream.isOpen() })
		})
	}
}

// stalled is a relay in which the server sends and the client does not read,
// until bytes are stuck in the pipe. Where the client's side is full before the
// splicing has begun, the client reads a little: head is what it has read.
// wrote brings the error of the server's write.
func stalled(t *testing.T, data []byte) (l *Loop, client, server *net.TCPConn, r *relay, head []byte, wrote chan error) {
	t.Helper()
	l = runLoop(t, Config{ReadBuffer: 4 << 10})
	client, server, r = relayed(t, l)
	wrote = make(chan error, 1)
	go func() {
		_, err := server.Write(data)
		_ = server.CloseWrite()
		wrote <- err
	}()
	buf := make([]byte, 64<<10)
	until(t, l, "the pipe is stuck", func() bool {
		if r.client.out != nil && r.client.flags&writable == 0 {
			n, _ := client.Read(buf)
			head = append(head, buf[:n]...)
		}
		return r.upstream.pipe != nil && r.upstream.pipe.n > 0 && r.client.flags&writable == 0
	})
	return l, client, server, r, head, wrote
}

// rule 7, rule 8: a stalled reader keeps one pipe and no heap; then the rest
// and the end reach it in order.
func TestAStalledReaderKeepsOnePipe(t *testing.T) {
	data := randomBytes(16 << 20)
	l, client, _, _, head, wrote := stalled(t, data)
	do(t, l, func() {
		if l.Pending() != 0 || l.made() != 1 {
			t.Errorf("%d bytes pending, %d pipes", l.Pending(), l.made())
		}
	})
	got, err := io.ReadAll(client)
	got = append(head, got...)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestResetsWhileSplicing(t *testing.T) {
	released := func(t *testing.T, l *Loop, r *relay) {
		t.Helper()
		until(t, l, "both closed, the pipe gone", func() bool {
			return !r.client.isOpen() && !r.upstream.isOpen() && l.made() == l.pipes.idle()
		})
	}
	t.Run("of the reader", func(t *testing.T) {
		l, client, _, r, _, wrote := stalled(t, make([]byte, 48<<20))
		abort(client)
		released(t, l, r)
		if err := <-wrote; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the other side got %v", err)
		}
	})
	t.Run("of the source", func(t *testing.T) {
		l, client, server, r, _, wrote := stalled(t, make([]byte, 48<<20))
		abort(server)
		<-wrote
		until(t, l, "the reset", func() bool { return r.upstream.flags&hungUp != 0 })
		if _, err := io.Copy(io.Discard, client); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the other side got %v", err)
		}
		released(t, l, r)
	})
}

func TestSendAndCloseWriteComeAfterThePipe(t *testing.T) {
	l, client, _, r, _, _ := stalled(t, make([]byte, 24<<20))
	inPipe := 0
	do(t, l, func() {
		inPipe = r.upstream.pipe.n
		r.upstream.SetReading(false)
		r.client.to = &end{} // Sent resumes nothing
		if r.client.Send([]byte("trailer")) != 7 {
			t.Error("not kept")
		}
		r.client.CloseWrite()
	})
	got, err := io.ReadAll(client)
	if err != nil || !bytes.HasSuffix(got, []byte("trailer")) || bytes.IndexByte(got, 't') != len(got)-7 || len(got) < inPipe+7 {
		t.Errorf("%d bytes with %d in the pipe, %v", len(got), inPipe, err)
	}
	do(t, l, func() { r.client.Abort(); r.upstream.Abort() })
}

func TestPipeToRefusesWhatItCannot(t *testing.T) {
	l, other := runLoop(t, Config{}), runLoop(t, Config{})
	a, _ := pair(t, l)
	b, _ := pair(t, l)
	c, _ := pair(t, l)
	far, _ := pair(t, other)
	do(t, l, func() {
		var closed Socket
		closed.Init(l, a)
		for name, refused := range map[string]bool{
			"itself":       a.PipeTo(&a.Socket),
			"nil":          a.PipeTo(nil),
			"a closed one": a.PipeTo(&closed),
			"another loop": a.PipeTo(&far.Socket),
		} {
			if refused {
				t.Errorf("piped to %s", name)
			}
		}
		first := a.PipeTo(&b.Socket)
		if again := a.PipeTo(&b.Socket); !first || !again || !b.PipeTo(&a.Socket) {
			t.Error("refused an open socket of the loop")
		}
		if c.PipeTo(&b.Socket) {
			t.Error("two sources for one socket")
		}
		if !a.PipeTo(&c.Socket) || b.src != nil || c.src != &a.Socket {
			t.Error("not turned to another")
		}
		c.Abort()
		if a.dst != nil {
			t.Error("leads to a closed socket")
		}
	})
}

// TestAnAllowanceIsKeptTo lets a number of bytes go by unseen, of which those
// that are read count as well, and not one more.
func TestAnAllowanceIsKeptTo(t *testing.T) {
	const size, more = 3<<20 + 123, 1000
	for name, c := range map[string]Config{
		"spliced": {}, "small pipes": {PipeSize: 4 << 10, ReadBuffer: 4 << 10}, "without pipes": {MaxPipes: -1},
	} {
		t.Run(name, func(t *testing.T) {
			l := runLoop(t, c)
			client, server, r := relayed(t, l)
			exchange(t, client, server, 1)
			tail := &counted{end: &r.client}
			do(t, l, func() {
				r.client.SetOwner(tail)
				if !r.client.PipeUpTo(&r.upstream.Socket, size) {
					t.Error("refused")
				}
			})
			exchange(t, client, server, size)
			exchange(t, client, server, more)
			do(t, l, func() {
				if tail.moved > size || tail.moved+tail.seen != size+more || c.MaxPipes >= 0 && tail.moved < size/2 {
					t.Errorf("%d bytes moved, %d seen", tail.moved, tail.seen)
				}
				if r.client.room != 0 || r.client.pipe != nil || r.client.pipes() {
					t.Errorf("room for %d more", r.client.room)
				}
			})
		})
	}
}

// counted counts what it is told.
type counted struct {
	*end
	moved, seen int
}

func (c *counted) Moved(n int) { c.moved += n }
func (c *counted) Received(p []byte) {
	c.seen += len(p)
	c.end.Received(p)
}
