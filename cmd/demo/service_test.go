package demo

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// Connections in the queue of a stopping endpoint are served, even if the
// accept loop is late.
func TestStoppingServiceServesItsQueue(t *testing.T) {
	t.Parallel()
	l, err := listenPlain("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var waiting []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		waiting = append(waiting, c)
	}
	s := &service{name: "queue", l: l, open: map[net.Conn]struct{}{}}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if err := l.SetDeadline(time.Now()); err != nil { // the accept loop is late
		t.Fatal(err)
	}
	s.accept(l)
	for _, c := range waiting {
		if got, err := exchange(c, bufio.NewReader(c), "hello"); err != nil || got != "queue" {
			t.Errorf("%q, %v", got, err)
		}
	}
	s.close()
}
