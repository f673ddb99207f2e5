//go:build !race

package session

import (
	"net"
	"runtime"
	"testing"

	"penstock/internal/testkit"
	"penstock/kafka/filter"
)

const raceEnabled = false

// TestIdleSessionMemory measures a session with its netio.Conn.
func TestIdleSessionMemory(t *testing.T) {
	const sessions = 1000
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	m := sent{keyOf("Metadata"), 1, 1, []byte{0, 0, 0, 0}}
	use := func(addr string) (perConn int) {
		var conns []net.Conn
		before := heap()
		for range sessions {
			c := dialRoom(t, addr)
			if _, err := c.Write(m.request()); err != nil {
				t.Fatal(err)
			}
			if _, err := readFrame(c); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		after := heap()
		runtime.KeepAlive(conns)
		return int(after-before) / sessions
	}
	direct := testkit.Serve(t, echoBroker)
	r := newRoom(t, Limits{}, eager{filter.Whole})
	proxied := r.serve(t, "l", direct)
	use(direct) // warm up
	without := use(direct)
	if n := use(proxied) - without; n > 4<<10 {
		t.Errorf("an idle session uses %d bytes", n)
	} else {
		t.Logf("an idle session uses %d bytes", n)
	}
}
