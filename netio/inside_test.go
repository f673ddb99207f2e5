package netio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/pipe"
)

// newInside returns a rig that serves its connections in this process.
func newInside(t testing.TB, serve func(*pipe.Conn), p Profile) *rig {
	t.Helper()
	r := newRig(t, Config{}, "", p)
	p.Meter = r.meter
	r.route = func(*Conn) (Plan, Reason) {
		return &plan{targets: []Target{{Serve: serve, Profile: &p}}}, OK
	}
	return r
}

func TestServedInside(t *testing.T) {
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait) // goleak is not enough: the engine must have ended them
	ends := make(chan error, 1)
	r := newInside(t, func(c *pipe.Conn) {
		serving.Go(func() {
			_, err := io.Copy(c, c)
			_ = c.Close()
			ends <- err
		})
	}, Profile{})
	addr := r.serve(t, Listener{})
	t.Run("round trips and a clean end", func(t *testing.T) {
		c := dial(t, addr)
		for range 3 {
			roundTrip(t, c, "hello")
		}
		c.CloseWrite()
		mustEnd(t, c, "")
		if err := <-ends; err != nil {
			t.Error(err)
		}
		if e := r.wantEnd(t, ClientFIN); e.in != 15 || e.out != 15 || !e.routed {
			t.Errorf("ending %+v, want 15 bytes each way", e)
		}
	})
	t.Run("a reset", func(t *testing.T) {
		c := dial(t, addr)
		roundTrip(t, c, "x")
		reset(t, c)
		if err := <-ends; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the end inside saw %v", err)
		}
		if e := r.waitEndings(t, 2)[1]; e.why != ClientReset {
			t.Errorf("ended with %q", e.why)
		}
	})
	t.Run("much, to a slow reader", func(t *testing.T) {
		c := dial(t, addr)
		want := bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16)
		go func() { _, _ = c.Write(want); _ = c.CloseWrite() }()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
		}
		if err := <-ends; err != nil {
			t.Error(err)
		}
	})
	t.Run("addresses", func(t *testing.T) {
		c := dial(t, addr)
		roundTrip(t, c, "x")
		r.onConns(func(conn *Conn) {
			if conn.Client().String() != c.LocalAddr().String() {
				t.Errorf("client %v", conn.Client())
			}
		})
	})
}

// A pipe whose reader never reads costs a bounded number of bytes.
func TestInsideThatNeverReads(t *testing.T) {
	kept := make(chan *pipe.Conn, 1)
	r := newInside(t, func(c *pipe.Conn) { kept <- c }, Profile{})
	c := dial(t, r.serve(t, Listener{}))
	go func() {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}()
	inside := <-kept
	defer inside.Close()
	last, still := uint64(0), 0
	testkit.WaitFor(t, "the client to stand still", func() bool {
		now := r.meter.Counts().BytesIn
		if still++; now != last || now == 0 {
			still = 0
		}
		last = now
		return still > 50
	})
	if last > 256<<10 {
		t.Errorf("%d bytes were taken for somebody who reads nothing", last)
	}
}

// Owed reports bytes that were sent to a client and that it did not take.
func TestWhatAClientIsOwed(t *testing.T) {
	for _, much := range []bool{false, true} {
		t.Run(fmt.Sprint("much ", much), func(t *testing.T) {
			stuck := make(chan *pipe.Conn, 1)
			r := newInside(t, func(c *pipe.Conn) {
				go func() {
					_, _ = c.Write(make([]byte, trifle))
					for err := error(nil); much && err == nil; { // until the writer blocks
						_ = c.SetWriteDeadline(time.Now().Add(time.Second))
						_, err = c.Write(make([]byte, 64<<10))
					}
					stuck <- c
				}()
			}, Profile{})
			c := dial(t, r.serve(t, Listener{}))
			if _, err := io.ReadFull(c, make([]byte, trifle)); err != nil {
				t.Fatal(err)
			}
			inside := <-stuck
			defer inside.Close()
			reset(t, c)
			if e := r.wantEnd(t, ClientReset); e.owed != much {
				t.Errorf("owed %v, want %v", e.owed, much)
			}
		})
	}
}

func TestInsideIdleTimeoutAndDrain(t *testing.T) {
	t.Parallel()
	r := newInside(t, func(c *pipe.Conn) {
		go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
	}, Profile{IdleTimeout: 2 * time.Second})
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "x")
	mustEnd(t, c, "")
	r.wantEnd(t, IdleTimeout)
}

// The main use: net/http behind a listener of the engine.
func TestHTTPServedInside(t *testing.T) {
	conns := &pipe.Listener{}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		fmt.Fprintf(w, "%s %s %d from %s", q.Method, q.URL.Path, len(body), strings.Split(q.RemoteAddr, ":")[0])
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(conns) })
	t.Cleanup(func() { _ = server.Close(); serving.Wait() })
	r := newInside(t, func(c *pipe.Conn) { conns.Hand(c) }, Profile{})
	addr := r.serve(t, Listener{})
	client := &http.Client{Transport: &http.Transport{}, Timeout: testkit.Patience}
	defer client.CloseIdleConnections()
	for i := range 10 {
		resp, err := client.Post("http://"+addr+"/some/path", "text/plain", bytes.NewReader(make([]byte, i<<17)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf("POST /some/path %d from 127.0.0.1", i<<17); err != nil || string(body) != want {
			t.Errorf("%q, %v, want %q", body, err, want)
		}
	}
	if n := r.meter.Counts().Connections; n != 1 {
		t.Errorf("%d connections, want one that is kept alive", n)
	}
}
