package reactor

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// The benchmarks relay between a load process (this test binary again, with
// loadEnv set: clients and an echoing server on a loop of its own) and report
// what the relaying process alone spends.

const loadEnv = "REACTOR_TEST_LOAD"

func init() {
	if os.Getenv(loadEnv) != "" {
		if err := load(); err != nil {
			fmt.Fprintln(os.Stderr, "load:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// relay is the smallest relay: two sockets in one allocation.
type relay struct {
	client, upstream end
}

type end struct {
	Socket
	to *end
}

func newRelay(l *Loop, fd int, from, to netip.AddrPort) *relay {
	r := &relay{}
	r.client.to, r.upstream.to = &r.upstream, &r.client
	r.client.Init(l, &r.client)
	r.upstream.Init(l, &r.upstream)
	r.client.Adopt(fd, from)
	r.upstream.Dial(to, TCPOptions{})
	r.client.PipeTo(&r.upstream.Socket)
	r.upstream.PipeTo(&r.client.Socket)
	r.client.SetReading(true)
	r.upstream.SetReading(true)
	return r
}

func (e *end) Connected() {}
func (e *end) Received(p []byte) {
	if e.to.Send(p) > 0 {
		e.SetReading(false)
	}
}
func (e *end) Moved(int) {}
func (e *end) Sent()     { e.to.SetReading(true) }
func (e *end) Ended() {
	if e.to.flags&ended == 0 {
		e.to.CloseWrite()
		return
	}
	e.to.Close() // sends the end as well: one call less than CloseWrite before it
	e.Close()
}
func (e *end) Failed(error) { e.to.Abort() }

// cpu is what this process has used.
func cpu() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// loader is the load process.
type loader struct {
	in  *bufio.Writer
	out *bufio.Scanner
}

func startLoad(b *testing.B, kind string, conns int) *loader {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), loadEnv+"="+kind, fmt.Sprint("CONNS=", conns))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ld := &loader{bufio.NewWriter(in), bufio.NewScanner(out)}
	l := runLoop(b, Config{})
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	to := netip.MustParseAddrPort(ld.line(b))
	ld.say(serve(b, l, func(fd int, from netip.AddrPort) { newRelay(l, fd, from, to) }))
	ld.line(b) // connected
	return ld
}

func (ld *loader) say(v any) {
	fmt.Fprintln(ld.in, v)
	_ = ld.in.Flush()
}

func (ld *loader) line(b *testing.B) string {
	if !ld.out.Scan() {
		b.Fatal("the load process ended")
	}
	return ld.out.Text()
}

// measure has n units done and reports the processor time of each.
func (ld *loader) measure(b *testing.B, unit string, per float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used := cpu()
	b.ResetTimer()
	ld.say(b.N)
	ld.line(b)
	b.StopTimer()
	used = cpu() - used
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)*per, unit)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "mallocs/op")
}

func BenchmarkRoundTrip256(b *testing.B) {
	for _, conns := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprint(conns, "-connections"), func(b *testing.B) {
			startLoad(b, "roundtrip", conns).measure(b, "cpu-us/op", 1e-3)
		})
	}
}

// BenchmarkBulk moves a MiB to the server and back per operation.
func BenchmarkBulk(b *testing.B) {
	b.SetBytes(2 << 20)
	startLoad(b, "bulk", 2).measure(b, "cpu-s/GB", 1.0/(2<<20))
}

// BenchmarkStream moves a MiB to the server per operation, without a pause.
func BenchmarkStream(b *testing.B) {
	b.SetBytes(1 << 20)
	startLoad(b, "stream", 2).measure(b, "cpu-s/GB", 1.0/(1<<20))
}

func BenchmarkConnect(b *testing.B) {
	startLoad(b, "connect", 32).measure(b, "cpu-us/op", 1e-3)
}

// load is the other process: it tells its server's address, reads that of the
// relay, and then numbers of units to do.
func load() error {
	var conns int
	fmt.Sscan(os.Getenv("CONNS"), &conns)
	l, err := NewLoop(Config{Budget: 128 << 10})
	if err != nil {
		return err
	}
	fd, addr, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{})
	if err != nil {
		return err
	}
	if _, err := l.Listen(fd, acceptFuncs{accepted: func(fd int, from netip.AddrPort) { serveLoad(l, fd, from) }}); err != nil {
		return err
	}
	fmt.Println(addr)
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return nil
	}
	g := &generator{l: l, to: netip.MustParseAddrPort(in.Text()), kind: os.Getenv(loadEnv), conns: conns}
	go func() {
		for in.Scan() {
			var n int
			fmt.Sscan(in.Text(), &n)
			l.Post(func() { g.start(n) })
		}
		os.Exit(0)
	}()
	l.Post(g.connect)
	return l.Run()
}

// serveLoad echoes, or answers each MiB with a byte.
func serveLoad(l *Loop, fd int, from netip.AddrPort) {
	p := &peer{}
	p.onReceived = func(b []byte) {
		if p.Send(b) > 0 {
			p.SetReading(false)
		}
	}
	if os.Getenv(loadEnv) == "stream" {
		total := 0
		p.onReceived = func(b []byte) {
			before := total >> 20
			total += len(b)
			p.Send(message[:total>>20-before])
		}
	}
	p.onSent = func() { p.SetReading(true) }
	p.onEnded = p.Close
	p.Init(l, p)
	p.Adopt(fd, from)
	p.SetReading(true)
}

// generator is the clients.
type generator struct {
	l         *Loop
	to        netip.AddrPort
	kind      string
	conns     int
	connected int
	clients   []*client
	todo      int // units not begun
	running   int
}

type client struct {
	peer
	toSend, toGet int
}

var message = make([]byte, 64<<10)

func (g *generator) connect() {
	if g.kind == "connect" {
		fmt.Println("ready")
		return
	}
	for range g.conns {
		c := g.dial()
		c.onConnected = func() {
			if g.connected++; g.connected == g.conns {
				fmt.Println("ready")
			}
		}
		g.clients = append(g.clients, c)
	}
}

func (g *generator) dial() *client {
	c := &client{}
	c.Init(g.l, c)
	c.onReceived = func(b []byte) {
		if g.kind == "stream" {
			if g.todo -= len(b); g.todo == 0 {
				fmt.Println("done")
			}
			return
		}
		if c.toGet -= len(b); c.toGet == 0 {
			g.running--
			g.next(c)
		}
	}
	c.onSent = c.push
	c.onFailed = func(err error) { fmt.Fprintln(os.Stderr, "client:", err); os.Exit(1) }
	c.Dial(g.to, TCPOptions{})
	c.SetReading(true)
	return c
}

func (c *client) push() {
	for c.toSend > 0 {
		n := min(c.toSend, len(message))
		c.toSend -= n
		if c.Send(message[:n]) > 0 {
			return
		}
	}
}

func (g *generator) start(n int) {
	g.todo = n
	if g.kind == "connect" {
		for range g.conns {
			g.next(nil)
		}
	}
	for i, c := range g.clients {
		if g.kind == "stream" {
			c.stream(n/g.conns + min(max(n%g.conns-i, 0), 1))
		} else {
			g.next(c)
		}
	}
}

// stream sends that many units at once.
func (c *client) stream(units int) {
	c.toSend += units << 20
	c.push()
}

// next begins the next unit, or tells that all are done.
func (g *generator) next(c *client) {
	if g.kind == "connect" && c != nil {
		c.Close()
	}
	if g.todo == 0 {
		if g.running == 0 {
			fmt.Println("done")
		}
		return
	}
	g.todo--
	g.running++
	if g.kind == "connect" {
		c = g.dial()
	}
	size := 256
	if g.kind == "bulk" {
		size = 1 << 20
	}
	c.toSend, c.toGet = size, size
	c.push()
}
