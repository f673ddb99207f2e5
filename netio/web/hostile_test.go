package web_test

import (
	"runtime"
	"testing"
	"time"

	"penstock/netio/web"
)

// Whoever announces a large frame of HTTP/2 does not get its memory for that.
func TestAFrameThatIsAnnouncedCostsNothing(t *testing.T) {
	r := newRig(t, &web.Profile{}, upstream(t, describe))
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	before := held()
	const conns = 64
	var last *rawHTTP2
	for range conns {
		last = newRawHTTP2(t, r.addr)
		if err := last.pong(); err != nil {
			t.Fatal(err)
		}
		// The header of the largest frame that is allowed, of a type that nobody
		// knows.
		n := last.frame
		_, _ = last.Write([]byte{byte(n >> 16), byte(n >> 8), byte(n), 0xfa, 0, 0, 0, 0, 0})
	}
	_ = last.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // it waits, and says nothing
	if status, err := last.answer(1); err == nil {
		t.Errorf("a frame that is allowed is answered by %q", status)
	}
	if each := (held() - before) / conns; each > 256<<10 {
		t.Errorf("%d KiB for each connection that has sent 42 bytes", each>>10)
	}
}
