package rpc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// blockedConn holds each write until the test releases it.
type blockedConn struct {
	net.Conn
	begun chan struct{} // receives at the start of each write
	take  chan error    // completes or fails one write

	mu     sync.Mutex
	writes [][]byte
	closed bool
}

func (c *blockedConn) Write(b []byte) (int, error) {
	c.begun <- struct{}{}
	if err := <-c.take; err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, bytes.Clone(b))
	return len(b), nil
}

func (c *blockedConn) SetWriteDeadline(time.Time) error { return nil }

func (c *blockedConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func newBlockedServerConn() (*serverConn, *blockedConn) {
	conn := &blockedConn{begun: make(chan struct{}, 100), take: make(chan error, 100)}
	return &serverConn{s: NewServer(Config{}), conn: conn}, conn
}

func (c *serverConn) unansweredNow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unanswered
}

func TestResponsesDuringAWriteAreBatched(t *testing.T) {
	c, conn := newBlockedServerConn()
	const n = 20
	c.unanswered = n
	first := make(chan struct{})
	go func() {
		c.sendLast(frameResult, 1, api.Empty{})
		close(first)
	}()
	<-conn.begun
	for i := 2; i <= n; i++ {
		c.sendLast(frameResult, uint64(i), api.Empty{}) // does not wait
	}
	if got := c.unansweredNow(); got != n {
		t.Errorf("%d answers are through before anything was taken", n-got)
	}
	conn.take <- nil
	conn.take <- nil
	<-first
	if len(conn.writes) != 2 || c.unansweredNow() != 0 {
		t.Fatalf("%d writes, %d answers untaken; want 2, 0", len(conn.writes), c.unansweredNow())
	}
	r := bytes.NewReader(bytes.Join(conn.writes, nil))
	for i := 1; i <= n; i++ {
		if f, err := readFrame(r, responseLimits); err != nil || f.id != uint64(i) {
			t.Fatalf("frame %d: %+v, %v", i, f, err)
		}
	}
	if _, err := readFrame(r, responseLimits); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestStreamItemsWaitUntilWritten(t *testing.T) {
	c, conn := newBlockedServerConn()
	done := make(chan error, 2)
	go func() { done <- c.send(frameItem, 1, api.Empty{}) }()
	<-conn.begun
	go func() { done <- c.send(frameItem, 1, api.Empty{}) }()
	testkit.WaitFor(t, "the second to wait", func() bool {
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

func TestFailedWriteEndsAllWaiters(t *testing.T) {
	c, conn := newBlockedServerConn()
	c.unanswered = 3
	done := make(chan error, 2)
	go func() {
		c.sendLast(frameResult, 1, api.Empty{})
		done <- nil
	}()
	<-conn.begun
	c.sendLast(frameResult, 2, api.Empty{})
	go func() { done <- c.send(frameItem, 3, api.Empty{}) }()
	testkit.WaitFor(t, "the item to wait", func() bool {
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
	c.sendLast(frameResult, 4, api.Empty{})
	if err := c.send(frameItem, 5, api.Empty{}); failed != 1 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%d of those who waited heard of it; later: %v", failed, err)
	}
	if !conn.closed || c.unansweredNow() != 0 || len(conn.begun) != 0 {
		t.Errorf("closed %v, %d untaken, %d more writes", conn.closed, c.unansweredNow(), len(conn.begun))
	}
}

func TestWorkersAreReused(t *testing.T) {
	s := NewServer(Config{})
	defer s.close()
	w := s.workers
	hold := make(chan struct{})
	var running sync.WaitGroup
	for range 3 * maxIdleWorkers {
		running.Add(1)
		w.run(func() {
			<-hold
			running.Done()
		})
	}
	close(hold)
	running.Wait()
	testkit.WaitFor(t, "as many to rest as may", func() bool { return len(w.idle) == maxIdleWorkers })
	ran := make(chan struct{})
	w.run(func() { close(ran) })
	<-ran
	// Idle goroutines retain nothing of their requests.
	gone := make(chan struct{})
	fresh := newWorkers(s.ctx)
	fresh.run(requestRetaining(gone))
	testkit.WaitFor(t, "what a request held to be let go", func() bool {
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

// requestRetaining returns a request that retains memory. gone is closed when
// the memory is unreachable.
func requestRetaining(gone chan struct{}) func() {
	large := new([1 << 20]byte)
	runtime.AddCleanup(large, func(gone chan struct{}) { close(gone) }, gone)
	return func() { large[0] = 1 }
}
