package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
)

// benchServer serves echo and count over TLS, and returns a node's client.
func benchServer(b *testing.B) (addr string, authority *certs.CA, s *Server) {
	b.Helper()
	s = NewServer(Config{})
	Handle(s, "echo", api.RoleReader, func(_ context.Context, r *echo) (*echo, error) { return r, nil })
	Handle(s, "answer", api.RoleReader, func(_ context.Context, r *echo) (*echo, error) { return &echo{Text: strings.Repeat("x", r.N)}, nil })
	HandleStream(s, "count", api.RoleReader, func(_ context.Context, r *echo, send func(*echo) error) error {
		for i := range r.N {
			if err := send(&echo{N: i}); err != nil {
				return err
			}
		}
		return nil
	})
	authority = certs.NewCA("ca")
	b.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(ctx)
	})
	return serveTLS(b, s, authority.Server("n1", "node")), authority, s
}

func benchClient(b *testing.B) *Client {
	b.Helper()
	addr, authority, _ := benchServer(b)
	c, err := DialConfig{TLS: authority.Client("node", "n2")}.Dial(b.Context(), addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// measureCPU reports the cost per operation to the process: user and kernel CPU
// time, which other load disturbs less than wall time, and writes to sockets.
// It covers client and server.
func measureCPU(b *testing.B) (report func()) {
	b.Helper()
	cpu, writes := cpuTime(b), written(b)
	return func() {
		b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N)/1e3, "cpu-us/op")
		b.ReportMetric(float64(written(b)-writes)/float64(b.N), "writes/op")
	}
}

func cpuTime(b *testing.B) (ns int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func written(b *testing.B) (calls int64) {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		testkit.NotTested(b, "bytes written are unknown: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "syscw: "); ok {
			calls, _ = strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return calls
}

func mustEcho(b *testing.B, c *Client, method string, r echo) {
	b.Helper()
	if _, err := Call[echo](b.Context(), c, method, r); err != nil {
		b.Error(err)
	}
}

func BenchmarkCall(b *testing.B) {
	c := benchClient(b)
	b.ReportAllocs()
	defer measureCPU(b)()
	for b.Loop() {
		mustEcho(b, c, "echo", echo{Text: "x"})
	}
}

func Benchmark32Callers(b *testing.B) {
	c := benchClient(b)
	b.ReportAllocs()
	defer measureCPU(b)()
	b.SetParallelism(32 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mustEcho(b, c, "echo", echo{Text: "x"})
		}
	})
}

// BenchmarkItems measures one item of a stream.
func BenchmarkItems(b *testing.B) {
	c := benchClient(b)
	b.ReportAllocs()
	defer measureCPU(b)()
	const items = 1000
	for i := 0; i < b.N; i += items {
		if err := Stream(b.Context(), c, "count", echo{N: items}, func(*echo) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequestOf8MiB(b *testing.B) {
	c := benchClient(b)
	text := strings.Repeat("x", 8<<20)
	b.SetBytes(2 * 8 << 20)
	for b.Loop() {
		mustEcho(b, c, "echo", echo{Text: text})
	}
}

func BenchmarkResponseOf8MiB(b *testing.B) {
	c := benchClient(b)
	b.SetBytes(8 << 20)
	for b.Loop() {
		mustEcho(b, c, "answer", echo{N: 8 << 20})
	}
}

// BenchmarkDial measures a whole command: connect, call, close.
func BenchmarkDial(b *testing.B) {
	addr, authority, _ := benchServer(b)
	d := DialConfig{TLS: authority.Client("node", "n2")}
	for b.Loop() {
		c, err := d.Dial(b.Context(), addr)
		if err != nil {
			b.Fatal(err)
		}
		mustEcho(b, c, "echo", echo{Text: "x"})
		c.Close()
	}
}

// BenchmarkInProcess measures what /v1 does for each request: a pipe to the
// server.
func BenchmarkInProcess(b *testing.B) {
	_, _, s := benchServer(b)
	defer measureCPU(b)()
	for b.Loop() {
		near, far := net.Pipe()
		go s.ServeConn(far, admin)
		c, err := Connect(b.Context(), "this node", near)
		if err != nil {
			b.Fatal(err)
		}
		mustEcho(b, c, "echo", echo{Text: "x"})
		c.Close()
	}
}

// BenchmarkUnauthenticated measures the server's cost of an unauthenticated
// connection that sends only its preamble.
func BenchmarkUnauthenticated(b *testing.B) {
	addr, authority, s := benchServer(b)
	const held = 200
	for b.Loop() {
		conns := make([]*tls.Conn, held)
		for i := range conns {
			c, err := tls.Dial("tcp", addr, authority.Client("node"))
			if err != nil {
				b.Fatal(err)
			}
			conns[i] = c
		}
		testkit.WaitFor(b, "the handshakes", func() bool { return s.Stats().Unauthenticated == held })
		before, routines := inUse(), runtime.NumGoroutine()
		for _, c := range conns {
			c.Write(preamble())
			c.Read(make([]byte, 8))
		}
		if n := s.Stats().Unauthenticated; n != held {
			b.Fatalf("%d are held", n)
		}
		b.ReportMetric((inUse()-before)/held/1024, "KiB/conn")
		b.ReportMetric(float64(runtime.NumGoroutine()-routines)/held, "goroutines/conn")
		for _, c := range conns {
			c.Close()
		}
		testkit.WaitFor(b, "the connections to go", func() bool { return s.Stats().Unauthenticated == 0 })
	}
}

// inUse returns the bytes of heap and stacks in use.
func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}

func preamble() []byte { return clientPreamble(minVersion, maxVersion) }
