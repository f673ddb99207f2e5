package ops

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"penstock/node/api"
)

// Idle HTTP connections are bounded, and the newest connection is served.
func TestHTTPClosesOldestConnectionAtLimit(t *testing.T) {
	var gate Gate
	gate.Set(http.HandlerFunc(ServeAlive))
	s := httptest.NewUnstartedServer(nil)
	s.Config = NewServer(&gate, slog.New(slog.DiscardHandler))
	s.Start()
	defer s.Close()
	var all []net.Conn
	for range maxHTTPSource + 1 {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
	}
	// The server's own timeout would end an idle connection as well:
	// TestConnLimiterClosesOldest distinguishes the two.
	if err := all[0].SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := all[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest stays: %v", err)
	}
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		t.Fatalf("the newest: %v", err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(text) != "ok\n" {
		t.Errorf("the newest: %d %q, %v", resp.StatusCode, text, err)
	}
}

// A new connection evicts only the oldest, at a server without timeouts.
func TestConnLimiterClosesOldest(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = newConnLimit(10, 3).state
	s.Start()
	defer s.Close()
	var all []net.Conn
	for range 4 {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	if _, err := all[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest stays: %v", err)
	}
	for _, conn := range all[1:] {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Error(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("a snapshot that is not the oldest: %v", err)
		}
	}
}

// A connection that is excepted from the limit is not closed for being the oldest.
func TestExceptedConnectionIsNotEvicted(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keep" {
			KeepConn(r)
		}
	}))
	limit := newConnLimit(10, 2)
	s.Config.ConnState, s.Config.ConnContext = limit.state, limit.context
	s.Start()
	defer s.Close()
	ask := func(conn net.Conn, path string) error {
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	var all []net.Conn
	for i := range 4 {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
		if err := ask(conn, map[bool]string{true: "/keep", false: "/"}[i == 0]); err != nil {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	for i, alive := range []bool{true, false, true, true} {
		if err := ask(all[i], "/"); (err == nil) != alive || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %v, want it alive: %v", i, err, alive)
		}
	}
}

// Snapshots can be uploaded concurrently, and abandoned uploads free their slot and
// their disk space.
func TestIdleUploadsAreDropped(t *testing.T) {
	c := &changes{uploads: uploads{dir: t.TempDir(), open: map[string]*upload{}}}
	part := func(name byte, i int64) error {
		_, err := c.restoreSnapshot(t.Context(), &api.UploadRequest{
			Upload: bytes.Repeat([]byte{name}, 16), Offset: i * 4, Data: []byte("part"),
		})
		return err
	}
	var sending sync.WaitGroup
	for name := range byte(maxUploads) {
		sending.Go(func() {
			for i := range int64(100) {
				if err := part(name, i); err != nil {
					t.Errorf("upload %d, part %d: %v", name, i, err)
				}
			}
		})
	}
	for range 100 {
		c.uploads.sweep(time.Now())
	}
	sending.Wait()
	file := c.uploads.open[string(make([]byte, 16))].file
	if err := part(9, 0); err == nil {
		t.Error("one above the limit is accepted")
	}
	c.uploads.sweep(time.Now().Add(2 * uploadIdle))
	if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) || len(c.uploads.open) > 0 {
		t.Errorf("%d are kept; the file: %v", len(c.uploads.open), err)
	}
	if err := part(9, 0); err != nil {
		t.Errorf("another one: %v", err)
	}
	c.uploads.drop(bytes.Repeat([]byte{9}, 16))
}
