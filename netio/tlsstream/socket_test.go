package tlsstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"penstock/internal/testkit"
	"penstock/netio/reactor"
)

// listen runs a loop whose accepted connections echo, over real sockets.
func listen(t *testing.T, config *tls.Config) (addr string, accepted *loopServer) {
	t.Helper()
	loop, err := reactor.NewLoop(reactor.Config{})
	must(t, err)
	ended := make(chan error, 1)
	go func() { ended <- loop.Run() }()
	t.Cleanup(func() {
		loop.Close()
		must(t, <-ended)
	})
	a, addr, err := listenOn(loop, config)
	must(t, err)
	return addr, a
}

func TestOverSockets(t *testing.T) {
	for name, version := range versions {
		t.Run(name, func(t *testing.T) {
			server, client := configs(t, version)
			addr, _ := listen(t, server)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					c, err := tls.Dial("tcp", addr, client)
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					want := noise(100<<10 + i)
					go func() {
						c.Write([]byte{wantEcho})
						c.Write(want)
						c.CloseWrite()
					}()
					if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes of %d came back, %v", len(got), len(want), err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// A client over sockets: the Stream's own dial.
func TestClientOverSockets(t *testing.T) {
	server, client := configs(t, 0)
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	must(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(struct{ io.Writer }{c}, c)
			c.Close()
		}
	}()
	_, a := listen(t, server)
	own := &owner{keep: true}
	done := make(chan struct{})
	want := noise(100 << 10)
	a.loop.Post(func() {
		var sock reactor.Socket
		sock.Init(a.loop, own)
		s := a.local.Client(&sock, client, own)
		sock.SetOwner(s)
		own.onUp = func() {
			s.SetReading(true)
			s.Send(want)
			s.CloseWrite()
		}
		own.onData = func([]byte) {
			if len(own.got) == len(want) {
				close(done)
			}
		}
		sock.Dial(netip.MustParseAddrPort(l.Addr().String()), reactor.TCPOptions{})
	})
	testkit.Receive(t, "the echo", done)
	if !bytes.Equal(own.got, want) {
		t.Fatal("bytes differ")
	}
}

// openssl runs as the peer, step by step: what it is given, and then what is
// to be in a line of its output.
func openssl(t *testing.T, steps [][2]string, args ...string) {
	t.Helper()
	path, err := exec.LookPath("openssl")
	if err != nil {
		testkit.NotTested(t, "openssl is missing; make setup installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	in, err := cmd.StdinPipe()
	must(t, err)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	must(t, cmd.Start())
	go func() { w.CloseWithError(cmd.Wait()) }()
	out := bufio.NewScanner(r)
	var all strings.Builder
	for _, step := range steps {
		_, _ = io.WriteString(in, step[0])
		found := false
		for !found && out.Scan() {
			all.WriteString(out.Text() + "\n")
			found = strings.Contains(out.Text(), step[1])
		}
		if !found {
			t.Errorf("no %q after %q:\n%s", step[1], step[0], all.String())
			break
		}
	}
	in.Close()
	_, _ = io.Copy(io.Discard, r)
}

func TestOpenSSLClient(t *testing.T) {
	server, _ := configs(t, 0)
	addr, _ := listen(t, server)
	for _, c := range []struct {
		name, version string
		steps         [][2]string
	}{
		{"TLS 1.2", "-tls1_2", [][2]string{{"ehello\n", "hello"}, {"again\n", "again"}}},
		{"TLS 1.3", "-tls1_3", [][2]string{{"ehello\n", "hello"}, {"again\n", "again"}}},
		{"key update", "-tls1_3", [][2]string{{"ehello\n", "hello"}, {"K\n", "KEYUPDATE"}, {"again\n", "again"}}},
		{"renegotiation", "-tls1_2", [][2]string{{"ehello\n", "hello"}, {"R\n", "unexpected message"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			openssl(t, c.steps, "s_client", "-connect", addr, c.version, "-servername", serverName)
		})
	}
}
