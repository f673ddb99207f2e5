package web

import (
	"errors"
	"net/http/httptest"
	"testing"
)

// What a client of HTTP/2 has taken is what went out to it, whatever net/http says
// of the write during which it left.
func TestWhatALeavingClientTook(t *testing.T) {
	t.Parallel()
	left := errors.New("client disconnected")
	for name, c := range map[string]struct {
		n      int
		err    error
		sent   uint64
		frames *frames
		took   bool
	}{
		"HTTP/2, all of it":        {0, left, frameHeader + 100, new(frames), true},
		"HTTP/2, nothing":          {0, left, 0, new(frames), false},
		"HTTP/2, a part":           {0, left, frameHeader + 90, new(frames), false},
		"HTTP/2, and it stayed":    {100, nil, frameHeader + 100, new(frames), false},
		"HTTP/1, which says it":    {90, left, 100, nil, false},
		"HTTP/1, and all was gone": {100, left, 100, nil, true},
	} {
		q := &request{conn: &serverConn{frames: c.frames}, length: 100}
		q.wrote(100, c.n, c.err, c.sent)
		if took := q.took(httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)); took != c.took {
			t.Errorf("%s: took it: %v, want %v", name, took, c.took)
		}
	}
}
