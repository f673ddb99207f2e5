package tlsstream

import (
	"crypto/tls"
	"io"
	"sync"
	"testing"
)

// Each benchmark reports the processor time of the server's process per unit.
// The one of "blocking" is what crypto/tls costs with a goroutine for each
// connection; to compare, look at the ratio.

func benchmarkKinds(b *testing.B, run func(b *testing.B, s *server)) {
	for _, kind := range []string{"loop", "blocking"} {
		b.Run(kind, func(b *testing.B) { run(b, startServer(b, kind)) })
	}
}

// measure runs f and reports the server's time per unit.
func measure(b *testing.B, s *server, units float64, name string, f func()) {
	b.Helper()
	before := s.ask("cpu")
	b.ResetTimer()
	f()
	b.StopTimer()
	b.ReportMetric(float64(s.ask("cpu")-before)/units, name)
}

// share has n units done by several clients.
func share(clients, n int, unit func(client int)) {
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := c; i < n; i += clients {
				unit(c)
			}
		})
	}
	wg.Wait()
}

func BenchmarkHandshake(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, s *server) {
		measure(b, s, float64(b.N), "cpu-ns/handshake", func() {
			share(4, b.N, func(int) {
				c := s.dial(wantEcho)
				c.Read(make([]byte, 0))
				c.Close()
			})
		})
	})
}

func BenchmarkResumedHandshake(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, s *server) {
		s.config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		visit := func(int) {
			c := s.dial(wantEcho)
			c.Write([]byte{1})
			c.Read(make([]byte, 1)) // with the ticket before it
			c.Close()
		}
		visit(0)
		measure(b, s, float64(b.N), "cpu-ns/handshake", func() { share(4, b.N, visit) })
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, s *server) {
		const clients = 64
		var conns [clients]*tls.Conn
		for i := range conns {
			conns[i] = s.dial(wantEcho)
			defer conns[i].Close()
		}
		var buffers [clients][256]byte
		trip := func(i int) {
			conns[i].Write(buffers[i][:])
			io.ReadFull(conns[i], buffers[i][:])
		}
		share(clients, clients, trip)
		measure(b, s, float64(b.N), "cpu-ns/trip", func() { share(clients, b.N, trip) })
	})
}

const megabyte = 1 << 20

// BenchmarkEncrypt and BenchmarkDecrypt move one MiB per unit; the time is per GB.
func BenchmarkEncrypt(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, s *server) {
		c := s.dial(wantSource)
		defer c.Close()
		buf := make([]byte, megabyte)
		io.ReadFull(c, buf)
		b.SetBytes(megabyte)
		measure(b, s, float64(b.N)*megabyte/1e9, "cpu-ns/GB", func() {
			for range b.N {
				io.ReadFull(c, buf)
			}
		})
	})
}

func BenchmarkDecrypt(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, s *server) {
		c := s.dial(wantSink)
		defer c.Close()
		buf := make([]byte, megabyte)
		c.Write(buf)
		b.SetBytes(megabyte)
		measure(b, s, float64(b.N)*megabyte/1e9, "cpu-ns/GB", func() {
			for range b.N {
				c.Write(buf)
			}
			c.CloseWrite()
			c.Read(make([]byte, 1))
		})
	})
}

// BenchmarkIdle reports the heap and stacks that an idle connection holds
// after 64 KiB went through it in both directions.
func BenchmarkIdle(b *testing.B) {
	benchmarkKinds(b, func(b *testing.B, s *server) {
		const conns = 500
		open := func() *tls.Conn {
			c := s.dial(wantEcho)
			buf := make([]byte, 64<<10)
			go c.Write(buf)
			io.ReadFull(c, buf)
			return c
		}
		open().Close()
		var total int64
		for range b.N {
			before := s.ask("memory")
			var all []*tls.Conn
			for range conns {
				all = append(all, open())
			}
			total += s.ask("memory") - before
			for _, c := range all {
				c.Close()
			}
			for s.ask("memory")-before > conns<<10 { // until they are gone
			}
		}
		b.ReportMetric(float64(total)/float64(b.N)/conns, "bytes/conn")
	})
}
