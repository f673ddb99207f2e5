package rpc

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// pipeline sends requests on a connection and reads no responses.
func pipeline(t *testing.T, c *Client, method string, n int) {
	t.Helper()
	body, err := encode(&envelope{Method: method, Params: []byte{0xc0}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { // may block until the connection ends
		for i := range n {
			if _, err := c.conn.Write(appendFrame(nil, frame{frameRequest, uint64(1000 + i), body})); err != nil {
				return
			}
		}
	}()
}

// dialUnread returns a client that reads nothing from now on: its reader is
// blocked by a call without a receiver.
func dialUnread(t *testing.T, d DialConfig, addr string) *Client {
	t.Helper()
	c := mustDialAs(t, d, addr)
	gone := make(chan struct{})
	c.mu.Lock()
	for i := range 1000 {
		c.calls[uint64(1000+i)] = &call{frames: make(chan frame), abandoned: gone}
	}
	c.mu.Unlock()
	t.Cleanup(func() { close(gone) })
	return c
}

// TestUnreadLargeResponsesAreLimited: unread large responses are bounded,
// and those to readers do not delay admins.
func TestUnreadLargeResponsesAreLimited(t *testing.T) {
	const size = 8 << 20
	text := strings.Repeat("x", size)
	var made atomic.Int64
	_, authority, addr := newCluster(t, Config{WriteTimeout: time.Minute}, func(s *Server) {
		Handle(s, "all", api.RoleReader, func(ctx context.Context, _ *api.Empty) (*echo, error) {
			if err := LargeResponse(ctx); err != nil {
				return nil, err
			}
			made.Add(1)
			return &echo{Text: text}, nil
		})
		HandleStream(s, "more", api.RoleReader, func(ctx context.Context, _ *api.Empty, send func(*echo) error) error {
			for {
				if err := LargeResponse(ctx); err != nil {
					return err
				}
				made.Add(1)
				if err := send(&echo{Text: text}); err != nil {
					return err
				}
			}
		})
	})
	reader := DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}
	var silent []*Client
	for _, method := range []string{"all", "more"} {
		c := dialUnread(t, reader, addr)
		pipeline(t, c, method, 30)
		silent = append(silent, c)
	}
	const most = maxUnwritten/size + maxBuilding + 2 // each connection has one in the socket buffers
	testkit.WaitFor(t, "as many answers as there is room for", func() bool { return made.Load() >= maxUnwritten/size })
	if _, err := Call[echo](t.Context(), mustDialAs(t, DialConfig{TLS: authority.Client("node"), Token: "admin-" + secret}, addr),
		"all", api.Empty{}); err != nil {
		t.Errorf("an admin meanwhile: %v", err)
	}
	if n := made.Load(); n > most+1 {
		t.Errorf("%d answers of %d bytes were made, nobody takes them; want %d at most", n, size, most)
	}
	for _, c := range silent {
		c.Close()
	}
	if _, err := Call[echo](t.Context(), mustDialAs(t, reader, addr), "all", api.Empty{}); err != nil {
		t.Errorf("another reader afterwards: %v", err)
	}
}

// TestUnreadResponsesStopReading: a connection with too many unread
// responses is not read.
func TestUnreadResponsesStopReading(t *testing.T) {
	text := strings.Repeat("x", 256<<10) // socket buffers hold a few of them
	var made atomic.Int64
	_, authority, addr := newCluster(t, Config{WriteTimeout: time.Minute}, func(s *Server) {
		Handle(s, "some", api.RoleReader, func(context.Context, *api.Empty) (*echo, error) {
			made.Add(1)
			return &echo{Text: text}, nil
		})
	})
	c := dialUnread(t, DialConfig{TLS: authority.Client("node"), Token: "reader-" + secret}, addr)
	const most = 2 * 32 // and those in socket buffers
	body, err := encode(&envelope{Method: "some", Params: []byte{0xc0}})
	if err != nil {
		t.Fatal(err)
	}
	// Sequentially, so that few handlers run at once.
	for i := range 4 * most {
		if _, err := c.conn.Write(appendFrame(nil, frame{frameRequest, uint64(1000 + i), body})); err != nil {
			t.Fatal(err)
		}
		over := time.After(time.Second) // stopping early on a busy machine can only hide faults
		for made.Load() <= int64(i) {
			select {
			case <-over:
				if i > 2*most {
					t.Errorf("%d answers wait to be taken", i)
				}
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
	t.Errorf("%d answers wait to be taken", made.Load())
}
