package testkit

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestPollGivesUpAfterItsLimit(t *testing.T) {
	calls := 0
	if Poll(20*time.Millisecond, func() bool { calls++; return false }) {
		t.Error("the condition never held")
	}
	if calls < 2 {
		t.Errorf("the condition was asked for %d times", calls)
	}
	if !Poll(0, func() bool { return true }) {
		t.Error("the condition held")
	}
}

func TestServeEndsItsConnectionsWithTheTest(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("server", func(t *testing.T) {
		addr := Serve(t, func(c net.Conn) { io.Copy(c, c) })
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		buf := make([]byte, 4)
		io.WriteString(conn, "ping")
		if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "ping" {
			t.Fatalf("%q, %v", buf, err)
		}
	})
}

func TestAFreeAddressRefusesUntilTheTestListens(t *testing.T) {
	addr := FreeAddress(t)
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v", err)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ServeOn(t, ln, func(net.Conn) {})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
