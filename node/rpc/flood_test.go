package rpc

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// TestRefusedConnectionsDoNotFloodTheLog: connections refused in a loop share
// log lines.
func TestRefusedConnectionsDoNotFloodTheLog(t *testing.T) {
	lines := new(testkit.Log)
	_, addr := newServer(t, Config{MaxConns: 1, Logger: slog.New(slog.NewTextHandler(lines, nil))})
	first, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	start := time.Now()
	for range 200 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(conn, make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a connection over the limit stays open")
		}
		conn.Close()
	}
	allowed := 1 + int(time.Since(start)/refusalsEvery)
	if n := strings.Count(lines.String(), "too many connections"); n < 1 || n > allowed {
		t.Errorf("%d lines in %v, want 1 to %d", n, time.Since(start), allowed)
	}
}
