package reactor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	gnet "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"github.com/panjf2000/gnet/v2/pkg/queue"
)

// pingEnv makes this test binary the clients: "ADDRESS CONNECTIONS TRIPS".
const pingEnv = "REACTOR_TEST_PING"

func init() {
	if task := os.Getenv(pingEnv); task != "" {
		if err := ping(task); err != nil {
			fmt.Fprintln(os.Stderr, "ping:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// ping makes round trips of 256 bytes, trips in all.
func ping(task string) error {
	var addr string
	var n, trips int
	if _, err := fmt.Sscan(task, &addr, &n, &trips); err != nil {
		return err
	}
	errs := make(chan error, n)
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		go func() {
			buf := make([]byte, 256)
			for range (trips + n - 1 - i) / n {
				if _, err := c.Write(buf); err != nil {
					errs <- err
					return
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkPollers holds this package's loop beside gnet's netpoll, which it
// took the place of: the same echo, by the same raw calls, on either. The
// clients are a process of their own; reported is what this one spends.
func BenchmarkPollers(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("gnet/%d", n), func(b *testing.B) { echoes(b, n, startGnet) })
		b.Run(fmt.Sprintf("own/%d", n), func(b *testing.B) { echoes(b, n, startOwn) })
	}
}

// echoes has b.N round trips made over n connections to a loop that start serves.
func echoes(b *testing.B, n int, start func(b *testing.B, fds []int) (stop func())) {
	at, _, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer closeFD(int32(at))
	if err := syscall.SetNonblock(at, false); err != nil {
		b.Fatal(err)
	}
	sa, err := syscall.Getsockname(at)
	if err != nil {
		b.Fatal(err)
	}
	load := exec.Command(os.Args[0])
	load.Env = append(os.Environ(), fmt.Sprintf("%s=127.0.0.1:%d %d %d", pingEnv, sa.(*syscall.SockaddrInet4).Port, n, b.N))
	load.Stderr = os.Stderr
	if err := load.Start(); err != nil {
		b.Fatal(err)
	}
	var fds []int
	for range n {
		fd, _, err := syscall.Accept4(at, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		if err != nil {
			b.Fatal(err)
		}
		fds = append(fds, fd)
	}
	before := cpu()
	b.ResetTimer()
	stop := start(b, fds)
	if err := load.Wait(); err != nil {
		b.Error(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
	stop()
}

func startGnet(b *testing.B, fds []int) func() {
	p, err := netpoll.OpenPoller()
	if err != nil {
		b.Fatal(err)
	}
	for _, fd := range fds {
		if err := p.AddReadWrite(&netpoll.PollAttachment{FD: fd}, true); err != nil {
			b.Fatal(err)
		}
	}
	done := make(chan error, 1)
	buf := make([]byte, 64<<10)
	go func() {
		done <- p.Polling(func(fd int, ev netpoll.IOEvent, _ netpoll.IOFlags) error {
			if ev&syscall.EPOLLIN != 0 {
				if n, e := recv(int32(fd), buf, 0); e == 0 && n > 0 {
					send(int32(fd), buf[:n], 0)
				}
			}
			return nil
		})
	}()
	return func() {
		if err := p.Trigger(queue.HighPriority, func(any) error { return gnet.ErrEngineShutdown }, nil); err != nil {
			b.Error(err)
		}
		if err := <-done; !errors.Is(err, gnet.ErrEngineShutdown) {
			b.Error(err)
		}
		for _, fd := range fds {
			closeFD(int32(fd))
		}
		p.Close()
	}
}

type echoer struct{ Socket }

func (e *echoer) Connected()        {}
func (e *echoer) Received(p []byte) { e.Send(p) }
func (e *echoer) Moved(int)         {}
func (e *echoer) Sent()             {}
func (e *echoer) Ended()            { e.Close() }
func (e *echoer) Failed(error)      {}

func startOwn(b *testing.B, fds []int) func() {
	l, err := NewLoop(Config{})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	l.Post(func() {
		for _, fd := range fds {
			e := &echoer{}
			e.Init(l, e)
			e.Adopt(fd, netip.MustParseAddrPort("127.0.0.1:1"))
			e.SetReading(true)
		}
	})
	return func() {
		l.Close()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}
