package reactor

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"
)

// story is what one end of a relayed connection does, at random.
type story struct {
	size   int  // bytes to send
	resets bool // and then reset instead of ending
	slow   int  // reads this many bytes at a time, with pauses; 0: fast
}

func randomStory(rng *rand.Rand) story {
	s := story{size: rng.IntN(1 << rng.IntN(23)), resets: rng.IntN(8) == 0}
	if rng.IntN(4) == 0 {
		s.slow = 1 << (10 + rng.IntN(8))
	}
	return s
}

// outcome is what the other end of it saw.
type outcome struct {
	sent   int
	sum    [sha256.Size]byte // of the bytes sent
	got    int
	hash   hash.Hash // of the bytes received
	err    error     // nil: a clean end
	writer error
}

// play writes and reads at once, then closes or resets.
func (s story) play(c *net.TCPConn, rng *rand.Rand) *outcome {
	o := &outcome{hash: sha256.New()}
	data := randomBytes(s.size)
	cuts := rng.Uint64()
	var wg sync.WaitGroup
	wg.Go(func() {
		cut := rand.New(rand.NewPCG(cuts, 1))
		h := sha256.New()
		for len(data) > 0 && o.writer == nil {
			n := min(len(data), 1+cut.IntN(1<<cut.IntN(19)))
			n, o.writer = c.Write(data[:n])
			h.Write(data[:n])
			o.sent += n
			data = data[n:]
		}
		h.Sum(o.sum[:0])
		if s.resets {
			abort(c)
		} else {
			_ = c.CloseWrite()
		}
	})
	buf := make([]byte, 1<<17)
	if s.slow > 0 {
		buf = buf[:s.slow]
	}
	for o.err == nil {
		var n int
		n, o.err = c.Read(buf)
		o.hash.Write(buf[:n])
		o.got += n
		if s.slow > 0 && o.got < 1<<20 {
			<-time.After(50 * time.Microsecond) // being slow is the point
		}
	}
	if o.err == io.EOF {
		o.err = nil
	}
	wg.Wait()
	return o
}

// rule 7: whatever the two ends do, an end that is clean stands for all the
// bytes, and a reset never comes out as one.
func TestRandomRelaysKeepEveryByteAndEveryReset(t *testing.T) {
	conns := 150
	if testing.Short() {
		conns = 40
	}
	l := runLoop(t, Config{ReadBuffer: 16 << 10, Budget: 64 << 10, MaxPipes: 6})
	backend, accepted := listenTCP(t)
	var fronts sync.Mutex // pairs a dial with its accept
	front := serve(t, l, func(fd int, from netip.AddrPort) { newRelay(l, fd, from, backend) })

	seeds := rand.New(rand.NewPCG(3, uint64(conns)))
	seed := make([]uint64, conns)
	for i := range seed {
		seed[i] = seeds.Uint64()
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, seed := range seed {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			rng := rand.New(rand.NewPCG(seed, 0))
			fronts.Lock()
			client := dialTCP(t, front)
			server := accepted()
			fronts.Unlock()
			defer client.Close()
			defer server.Close()
			cs, ss := randomStory(rng), randomStory(rng)
			other := rand.New(rand.NewPCG(seed, 1))
			done := make(chan *outcome, 1)
			go func() { done <- ss.play(server, other) }()
			c := cs.play(client, rng)
			s := <-done
			check(t, seed, "client", cs, ss, c, s)
			check(t, seed, "server", ss, cs, s, c)
		})
	}
	wg.Wait()
	until(t, l, "all closed, no pipe held", func() bool {
		return len(l.free) == len(l.sockets) && l.pipes.idle() == l.made() && l.Pending() == 0
	})
}

// check compares what one side saw with what the other did.
func check(t *testing.T, seed uint64, who string, own, far story, saw, did *outcome) {
	t.Helper()
	if saw.got > did.sent+1<<19 {
		t.Errorf("seed %d: the %s got %d bytes of %d", seed, who, saw.got, did.sent)
	}
	if saw.err == nil && saw.writer == nil && (did.writer != nil || saw.got != did.sent || [sha256.Size]byte(saw.hash.Sum(nil)) != did.sum) {
		t.Errorf("seed %d: a clean end for the %s after %d bytes of %d (%v)", seed, who, saw.got, did.sent, did.writer)
	}
	if saw.err != nil && !own.resets && !far.resets {
		t.Errorf("seed %d: nobody reset, but the %s got %v", seed, who, saw.err)
	}
	// Who writes into a reset hears of it there, and reads an end then.
	if far.resets && !own.resets && saw.err == nil && saw.writer == nil {
		t.Errorf("seed %d: a reset came to the %s as a clean end", seed, who)
	}
	if saw.err != nil && !errors.Is(saw.err, syscall.ECONNRESET) && !errors.Is(saw.err, net.ErrClosed) {
		t.Errorf("seed %d: the %s got %v", seed, who, saw.err)
	}
}
