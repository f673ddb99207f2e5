package admin

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// heldConn holds each write until the test releases it.
type heldConn struct {
	net.Conn
	begun chan struct{} // receives at the start of each write
	take  chan error    // completes or fails one write

	mu     sync.Mutex
	writes [][]byte
	closed bool
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.begun <- struct{}{}
	if err := <-c.take; err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, bytes.Clone(b))
	return len(b), nil
}

func (c *heldConn) SetWriteDeadline(time.Time) error { return nil }

func (c *heldConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func heldServerConn() (*serverConn, *heldConn) {
	conn := &heldConn{begun: make(chan struct{}, 100), take: make(chan error, 100)}
	return &serverConn{s: NewServer(Config{}), conn: conn}, conn
}

func (c *serverConn) untakenNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.untaken
}

func TestAnswersThatComeDuringAWriteGoInTheNext(t *testing.T) {
	c, conn := heldServerConn()
	const n = 20
	c.untaken = n
	first := make(chan struct{})
	go func() {
		c.answer(frameResult, 1, Empty{})
		close(first)
	}()
	<-conn.begun
	for i := 2; i <= n; i++ {
		c.answer(frameResult, uint64(i), Empty{}) // does not wait
	}
	if got := c.untakenNow(); got != n {
		t.Errorf("%d answers are through before anything was taken", n-got)
	}
	conn.take <- nil
	conn.take <- nil
	<-first
	if len(conn.writes) != 2 || c.untakenNow() != 0 {
		t.Fatalf("%d writes, %d answers untaken; want 2, 0", len(conn.writes), c.untakenNow())
	}
	r := bytes.NewReader(bytes.Join(conn.writes, nil))
	for i := 1; i <= n; i++ {
		if f, err := readFrame(r, answerLimits); err != nil || f.id != uint64(i) {
			t.Fatalf("frame %d: %+v, %v", i, f, err)
		}
	}
	if _, err := readFrame(r, answerLimits); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestItemsOfStreamsWaitUntilTheyAreTaken(t *testing.T) {
	c, conn := heldServerConn()
	done := make(chan error, 2)
	go func() { done <- c.send(frameItem, 1, Empty{}) }()
	<-conn.begun
	go func() { done <- c.send(frameItem, 1, Empty{}) }()
	waitFor(t, "the second to wait", func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		return c.out.written != nil
	})
	conn.take <- nil
	<-conn.begun
	if len(done) > 1 {
		t.Error("an item was through before it was taken")
	}
	conn.take <- nil
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestAWriteThatFailsEndsAllThatWait(t *testing.T) {
	c, conn := heldServerConn()
	c.untaken = 3
	done := make(chan error, 2)
	go func() {
		c.answer(frameResult, 1, Empty{})
		done <- nil
	}()
	<-conn.begun
	c.answer(frameResult, 2, Empty{})
	go func() { done <- c.send(frameItem, 3, Empty{}) }()
	waitFor(t, "the item to wait", func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		return c.out.written != nil
	})
	conn.take <- io.ErrClosedPipe
	failed := 0
	for range 2 {
		if errors.Is(<-done, io.ErrClosedPipe) {
			failed++
		}
	}
	c.answer(frameResult, 4, Empty{})
	if err := c.send(frameItem, 5, Empty{}); failed != 1 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%d of those who waited heard of it; later: %v", failed, err)
	}
	if !conn.closed || c.untakenNow() != 0 || len(conn.begun) != 0 {
		t.Errorf("closed %v, %d untaken, %d more writes", conn.closed, c.untakenNow(), len(conn.begun))
	}
}

func TestWorkersAreKeptForTheNextRequest(t *testing.T) {
	s := NewServer(Config{})
	defer s.close()
	w := s.workers
	hold := make(chan struct{})
	var running sync.WaitGroup
	for range 3 * maxResting {
		running.Add(1)
		w.run(func() {
			<-hold
			running.Done()
		})
	}
	close(hold)
	running.Wait()
	waitFor(t, "as many to rest as may", func() bool { return len(w.rest) == maxResting })
	ran := make(chan struct{})
	w.run(func() { close(ran) })
	<-ran
	// Idle goroutines retain nothing of their requests.
	gone := make(chan struct{})
	fresh := newWorkers(s.ctx)
	fresh.run(holding(gone))
	waitFor(t, "what a request held to be let go", func() bool {
		runtime.GC()
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
	s.close()
	w.all.Wait()
	fresh.all.Wait()
}

// holding returns a request that retains memory. gone is closed when the memory
// is unreachable.
func holding(gone chan struct{}) func() {
	large := new([1 << 20]byte)
	runtime.AddCleanup(large, func(gone chan struct{}) { close(gone) }, gone)
	return func() { large[0] = 1 }
}
