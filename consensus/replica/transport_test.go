package replica

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// connectedStreams returns both ends of a connection between streams, the
// accepted one second.
func connectedStreams(t *testing.T, stall time.Duration) (from, to *streams, dialled, accepted net.Conn) {
	t.Helper()
	n := newNetwork()
	open := func(id string) *streams {
		l, err := n.listen(id)
		if err != nil {
			t.Fatal(err)
		}
		s := newStreams(l, stall)
		t.Cleanup(func() { s.close() })
		return s
	}
	from, to = open("a"), open("b")
	got := make(chan net.Conn, 1)
	go func() {
		c, _ := to.Accept()
		got <- c
	}()
	dialled, err := from.Dial("b", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return from, to, dialled, <-got
}

// Raft reads snapshots without a deadline, and is blocked meanwhile.
func TestStalledSnapshotTransferTimesOut(t *testing.T) {
	_, to, dialled, accepted := connectedStreams(t, 50*time.Millisecond)
	read := make(chan error, 1)
	go func() { // between messages a peer may be silent
		_, err := accepted.Read(make([]byte, 1))
		read <- err
	}()
	select {
	case err := <-read:
		t.Fatalf("an idle connection: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := dialled.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if _, err := (snapshotReader{accepted, to}).Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("in a snapshot: %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

func TestLargeMessagesMayExceedTheTimeout(t *testing.T) {
	// Longer than a reader waits on a busy machine, shorter than the whole
	// transfer.
	const timeout, reads, pause = time.Second, 64, 50 * time.Millisecond
	_, _, dialled, accepted := connectedStreams(t, timeout)
	const size = 32 << 20 // the kernel's buffers may take 10 MiB of it at once
	if err := dialled.SetDeadline(time.Now().Add(timeout / 2)); err != nil {
		t.Fatal(err)
	}
	go func() { // 22 MiB in two seconds
		b := make([]byte, size/reads)
		next := time.NewTicker(pause)
		defer next.Stop()
		for {
			if _, err := accepted.Read(b); err != nil {
				return
			}
			<-next.C
		}
	}()
	began := time.Now()
	if n, err := dialled.Write(make([]byte, size)); n != size || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if took := time.Since(began); took < timeout/2 {
		t.Errorf("it took %v, less than the deadline of %v, so nothing was shown", took, timeout/2)
	}
	if _, err := dialled.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer that does not come: %v, want %v", err, os.ErrDeadlineExceeded)
	}
}

func TestClosedStreamsHaveNoConnections(t *testing.T) {
	from, to, dialled, accepted := connectedStreams(t, time.Minute)
	read := make(chan error, 2)
	for _, c := range []net.Conn{dialled, accepted} {
		go func() {
			_, err := c.Read(make([]byte, 1))
			read <- err
		}()
	}
	from.close()
	for range 2 {
		if err := <-read; err == nil {
			t.Error("something was read")
		}
	}
	if _, err := from.Dial("b", time.Second); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dialling: %v, want %v", err, net.ErrClosed)
	}
	to.close()
	if _, err := to.Accept(); err == nil {
		t.Error("something was accepted")
	}
}
