package tlsstream

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/netio/reactor"
)

// The benchmarks compare servers that run in a process of their own, which is
// this test binary again with serverEnv set: on a loop, or with crypto/tls and
// a goroutine per connection. Only what the server's process spends counts.

const serverEnv = "TLSSTREAM_TEST_SERVER"

// The first byte on a connection says what it is for.
const (
	wantEcho   = 'e' // everything comes back
	wantSource = 'd' // one sourceChunk after the other, until the client ends
	wantSink   = 's' // nothing comes back but one byte at the end
)

const sourceChunk = 64 << 10

// serve is the server's process. It prints its address, then answers lines on
// its standard input with a figure each.
func serve(kind string) error {
	certificate, err := tls.X509KeyPair([]byte(os.Getenv("TLSSTREAM_TEST_CERT")), []byte(os.Getenv("TLSSTREAM_TEST_KEY")))
	if err != nil {
		return err
	}
	config := Defaults(&tls.Config{Certificates: []tls.Certificate{certificate}})
	start := serveBlocking
	if kind == "loop" {
		start = serveLoop
	}
	addr, err := start(config)
	if err != nil {
		return err
	}
	fmt.Println(addr)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "cpu":
			var r syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
				return err
			}
			fmt.Println(r.Utime.Nano() + r.Stime.Nano())
		case "memory":
			debug.FreeOSMemory()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Println(m.HeapAlloc + m.StackInuse)
		}
	}
	return nil
}

func serveBlocking(config *tls.Config) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go blockingConn(tls.Server(c, config))
		}
	}()
	return l.Addr().String(), nil
}

func blockingConn(c *tls.Conn) {
	defer c.Close()
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return
	}
	switch first[0] {
	case wantEcho:
		io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 64<<10))
	case wantSource:
		chunk := make([]byte, sourceChunk)
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	case wantSink:
		io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 64<<10))
		c.Write([]byte{'.'})
	}
}

type loopServer struct {
	loop   *reactor.Loop
	local  *Local
	config *tls.Config
	chunk  []byte
}

func serveLoop(config *tls.Config) (string, error) {
	loop, err := reactor.NewLoop(reactor.Config{})
	if err != nil {
		return "", err
	}
	go loop.Run()
	_, addr, err := listenOn(loop, config)
	return addr, err
}

// listenOn has a running loop serve.
func listenOn(loop *reactor.Loop, config *tls.Config) (*loopServer, string, error) {
	fd, addr, err := reactor.ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), reactor.TCPOptions{})
	if err != nil {
		return nil, "", err
	}
	a := &loopServer{loop, NewLocal(loop, NewPool(10000)), config, make([]byte, sourceChunk)}
	done := make(chan error, 1)
	loop.Post(func() {
		_, err := loop.Listen(fd, a)
		done <- err
	})
	return a, addr.String(), <-done
}

func (a *loopServer) Room() bool { return true }

func (a *loopServer) AcceptFailed(error, time.Duration) {}
func (a *loopServer) Accepted(fd int, peer netip.AddrPort) {
	c := &loopConn{server: a}
	c.sock.Init(a.loop, c)
	c.sock.Adopt(fd, peer)
	c.s = a.local.Server(&c.sock, a.config, nil, c)
	c.sock.SetOwner(c.s)
	c.s.SetReading(true)
}

type loopConn struct {
	server *loopServer
	sock   reactor.Socket
	s      *Stream
	want   byte
}

func (c *loopConn) Connected() {}
func (c *loopConn) Received(p []byte) {
	if c.want == 0 {
		if c.want, p = p[0], p[1:]; c.want == wantSource {
			c.source()
		}
	}
	if c.want == wantEcho && len(p) > 0 && c.s.Send(p) > 0 {
		c.s.SetReading(false)
	}
}
func (c *loopConn) source() {
	for range 8 {
		if c.s.Send(c.server.chunk) > 0 {
			return
		}
	}
	c.server.loop.Post(c.source)
}
func (c *loopConn) Moved(int) {}
func (c *loopConn) Sent() {
	if c.want == wantSource {
		c.source()
	} else {
		c.s.SetReading(true)
	}
}
func (c *loopConn) Ended() {
	if c.want == wantSink {
		c.s.Send([]byte{'.'})
	}
	c.s.Close()
	c.want = wantSink
}
func (c *loopConn) Failed(error) { c.want = wantSink }

// server is the process, as the benchmarks see it.
type server struct {
	tb     testing.TB
	addr   string
	config *tls.Config // for clients
	in     io.Writer
	out    *bufio.Reader
}

func startServer(tb testing.TB, kind string) *server {
	tb.Helper()
	ca := certs.NewCA("bench")
	own := ca.Issue(serverName)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+kind, "TLSSTREAM_TEST_CERT="+own.Cert, "TLSSTREAM_TEST_KEY="+own.Key)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(tb, err)
	out, err := cmd.StdoutPipe()
	must(tb, err)
	must(tb, cmd.Start())
	s := &server{tb: tb, in: in, out: bufio.NewReader(out)}
	tb.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	s.addr = s.line()
	s.config = &tls.Config{RootCAs: ca.Pool, ServerName: serverName,
		CurvePreferences: []tls.CurveID{tls.X25519}, DynamicRecordSizingDisabled: true}
	return s
}

func (s *server) line() string {
	s.tb.Helper()
	line, err := s.out.ReadString('\n')
	must(s.tb, err)
	return strings.TrimSpace(line)
}

func (s *server) ask(what string) (n int64) {
	s.tb.Helper()
	_, err := fmt.Fprintln(s.in, what)
	must(s.tb, err)
	_, err = fmt.Sscan(s.line(), &n)
	must(s.tb, err)
	return n
}

// dial connects and says what for; 0: nothing.
func (s *server) dial(want byte) *tls.Conn {
	s.tb.Helper()
	c, err := tls.Dial("tcp", s.addr, s.config)
	must(s.tb, err)
	if want != 0 {
		_, err = c.Write([]byte{want})
		must(s.tb, err)
	}
	return c
}
