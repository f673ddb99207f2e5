//go:build !race

package tlsstream

import (
	"crypto/tls"
	"io"
	"runtime"
	"testing"
)

// perConnection is what one idle connection holds after 64 KiB went through it
// in each direction, its Stream and all of crypto/tls's included.
func perConnection(t *testing.T, version uint16, r role) int {
	const n = 60
	server, client := configs(t, version)
	l := newFakeLoop(t)
	local := NewLocal(l, NewPool(10))
	loop := make([]*Stream, 0, n)
	var before, after runtime.MemStats
	heap := func(m *runtime.MemStats) {
		l.do(func() {})
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(m)
	}
	for i := range n + 5 {
		if i == 5 { // the first ones warm up what is shared
			loop = loop[:0]
			heap(&before)
		}
		under, far := newMemPair(l)
		c := newConn(far)
		o := &owner{}
		peer := tls.Client(c, client)
		var s *Stream
		l.do(func() {
			if r == asServer {
				s = local.Server(under, server, nil, o)
			} else {
				peer = tls.Server(c, server)
				s = local.Client(under, client, o)
			}
			under.owner = s
			s.SetReading(true)
			s.Connected()
			o.onData = func(p []byte) { s.Send(p) }
		})
		buf := make([]byte, 64<<10)
		go peer.Write(buf)
		if _, err := io.ReadFull(peer, buf); err != nil {
			t.Fatal(err)
		}
		// What is left is the Stream alone.
		l.do(func() {
			*under = memStream{loop: l, peer: &memStream{loop: l, dead: true}}
			far.dead, far.owner, far.peer = true, nil, nil
			o.onData = nil
		})
		c.Failed(io.EOF)
		loop = append(loop, s)
	}
	heap(&after)
	runtime.KeepAlive(loop)
	const test = 600 // the memStreams and the owner
	return int(after.HeapAlloc-before.HeapAlloc)/n - test
}

func TestIdleConnectionIsSmall(t *testing.T) {
	eachKind(t, func(t *testing.T, version uint16, r role) {
		const limit = 5 << 10 // TLS 1.2 keeps the ClientHello, for exported keys
		if n := perConnection(t, version, r); n > limit {
			t.Errorf("an idle connection holds %d bytes, want at most %d", n, limit)
		} else {
			t.Logf("%d bytes", n)
		}
	})
}

// sink is a stream below that does nothing, and owner one that answers.
type sink struct{ *memStream }

func (sink) Send(p []byte) int { return 0 }
func (sink) SetReading(bool)   {}

// A round trip allocates nothing.
func TestRoundTripDoesNotAllocate(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			server, client := configs(t, version)
			e := connect(t, asServer, server, client)
			const trips = 1000
			e.loop.do(func() { e.far.SetReading(false); e.under.SetReading(false); e.far.record = true })
			for range trips + 1 {
				_, err := e.peer.Write(noise(256))
				must(t, err)
			}
			e.loop.do(func() {
				records := e.far.seen
				e.s.under = sink{e.under}
				e.own.keep = false
				e.own.onData = func(p []byte) { e.s.Send(p) }
				buf := make([]byte, 2048)
				allocs := testing.AllocsPerRun(trips, func() {
					size := e.s.size(records)
					copy(buf, records[:size])
					records = records[size:]
					e.s.Received(buf[:size])
				})
				if e.own.calls != trips+1 || e.own.failed != nil {
					t.Errorf("%d trips, failed %v", e.own.calls, e.own.failed)
				}
				if allocs != 0 {
					t.Errorf("%v allocations", allocs)
				}
			})
		})
	}
}
