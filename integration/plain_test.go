package integration

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
)

func TestNetcatThroughAPlainListener(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo"))
	host, port, _ := net.SplitHostPort(n.addr("plain"))
	text := strings.Repeat("one line of many\n", 50_000)
	if r := peer(t, text, "nc", "-N", host, port); r.out != text {
		t.Errorf("nc got %d bytes, want %d: %s", len(r.out), len(text), r.err)
	}
	// The node counts bytes after it sends them; nc may have read them already.
	testkit.WaitFor(t, "the bytes to be counted", func() bool { return n.metric("bytes_total", `service="echo"`) >= float64(2*len(text)) })
	for _, a := range n.accesses() {
		if a.Msg == "connection closed" && (a.Reason != "client_fin" || a.In != uint64(len(text)) || a.Out != uint64(len(text))) {
			t.Errorf("access log: %+v", a)
		}
	}
	if v := n.metric("bytes_total", `service="echo"`); v != float64(2*len(text)) {
		t.Errorf("bytes_total is %v, want %d", v, 2*len(text))
	}
}

// rule 6: protocols in which the server speaks first work on a tcp listener; on
// a sniffing listener they wait until its deadline.
func TestServerFirstProtocols(t *testing.T) {
	t.Parallel()
	smtp := testkit.Serve(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "220 mail.example.com ESMTP\r\n")
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			switch {
			case err != nil:
				return
			case strings.HasPrefix(line, "QUIT"):
				fmt.Fprint(c, "221 bye\r\n")
				return
			}
			fmt.Fprint(c, "250 ok\r\n")
		}
	})
	// A PostgreSQL server without TLS answers the SSLRequest with an N.
	postgres := testkit.Serve(t, func(c *net.TCPConn) {
		request := make([]byte, 8)
		if _, err := io.ReadFull(c, request); err == nil && string(request) == "\x00\x00\x00\x08\x04\xd2\x16\x2f" {
			fmt.Fprint(c, "N")
			echo(c)
		}
	})
	n := startNode(t, service("smtp", []string{smtp})+service("postgres", []string{postgres})+
		listener("mail", "service: smtp")+listener("db", "service: postgres")+
		listener("sniffing", "protocol: tls", "service: smtp")+
		listener("hasty", "protocol: tls", "service: smtp", "timeouts: {hello: 200ms}"))

	c := dial(t, n.addr("mail"))
	mustRead(t, c, "220 mail.example.com ESMTP\r\n")
	mustWrite(t, c, "HELO me\r\n")
	mustRead(t, c, "250 ok\r\n")
	mustWrite(t, c, "QUIT\r\n")
	mustRead(t, c, "221 bye\r\n")
	mustEnd(t, c)
	c.Close()
	n.wantEnd(c, "upstream_fin")

	c = dial(t, n.addr("db"))
	mustWrite(t, c, "\x00\x00\x00\x08\x04\xd2\x16\x2f")
	mustRead(t, c, "N")
	roundTrip(t, c, "startup message")

	c = dial(t, n.addr("hasty"))
	mustClose(t, c)
	n.wantEnd(c, "hello_timeout")
	c = dial(t, n.addr("sniffing"))
	mustWrite(t, c, "\x00\x00\x00\x08\x04\xd2\x16\x2f")
	mustClose(t, c)
	n.wantEnd(c, "bad_hello")
}

const bulk = 24 << 20

// noise writes n pseudo-random bytes and returns their digest.
func noise(w io.Writer, seed byte, n int64) (digest string, err error) {
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(w, h), io.LimitReader(rand.NewChaCha8([32]byte{seed}), n))
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

func digest(r io.Reader) (string, int64, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return fmt.Sprintf("%x", h.Sum(nil)), n, err
}

// rule 7: an end of stream is forwarded after all bytes before it, and the
// other direction continues, whichever side ends first.
func TestHalfCloseCarriesEverything(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()})+listener("plain", "service: upstream"))
	for _, first := range []string{"client", "endpoint"} {
		client := dial(t, n.addr("plain"))
		endpoint := upstream.accept()
		a, b := client, endpoint
		if first == "endpoint" {
			a, b = endpoint, client
		}
		send := func(from, to *net.TCPConn, seed byte) {
			var sent string
			var wg sync.WaitGroup
			wg.Go(func() {
				var err error
				if sent, err = noise(from, seed, bulk); err != nil {
					t.Errorf("%s first: write: %v", first, err)
				}
				closeWrite(from)
			})
			got, size, err := digest(to)
			wg.Wait()
			if err != nil || size != bulk || got != sent {
				t.Fatalf("%s first: %d of %d bytes, %v; the same: %v", first, size, bulk, err, got == sent)
			}
		}
		send(a, b, 1) // up to and including the end of stream
		send(b, a, 2) // the other direction is closed
		client.Close()
		endpoint.Close()
		a1 := n.wantEnd(client, map[string]string{"client": "client_fin", "endpoint": "upstream_fin"}[first])
		if a1.In != bulk || a1.Out != bulk {
			t.Errorf("%s first: the access log has %d bytes in, %d out", first, a1.In, a1.Out)
		}
	}
}

// rule 7: a reset is forwarded as a reset, never as a clean end.
func TestResetStaysReset(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()})+listener("plain", "service: upstream"))

	client := dial(t, n.addr("plain"))
	endpoint := upstream.accept()
	mustWrite(t, client, "x")
	mustRead(t, endpoint, "x")
	abort(t, client)
	mustReset(t, endpoint)
	n.wantEnd(client, "client_reset")

	client = dial(t, n.addr("plain"))
	endpoint = upstream.accept()
	mustWrite(t, client, "x")
	mustRead(t, endpoint, "x")
	abort(t, endpoint)
	mustReset(t, client)
	n.wantEnd(client, "upstream_reset")

	// Also if the other direction is already closed.
	client = dial(t, n.addr("plain"))
	endpoint = upstream.accept()
	closeWrite(client)
	mustEnd(t, endpoint)
	mustWrite(t, endpoint, "half an answer")
	mustRead(t, client, "half an answer")
	abort(t, endpoint)
	mustReset(t, client)
	n.wantEnd(client, "upstream_reset")
}

// rule 8: a slow reader costs the node a bounded number of bytes. 40 clients do
// not read what 40 servers send endlessly.
//
// The kernel keeps some 8 MB for each of them. Over its limit for TCP
// (net.ipv4.tcp_mem, a tenth of the memory of a small machine), it drops what comes
// and resets connections that were closed after their last bytes, of any process:
// 200 clients came to that limit, and tests of other packages failed. So there are
// few, and no test of this package runs beside.
func TestClientsThatNeverRead(t *testing.T) {
	const readers = 40
	// One read each, three times that before a garbage collection, and the
	// variance of the Go runtime: 40 cost 19 to 23 MiB here, as 120 do. Without
	// back-pressure the byte count would not stop, and memory would reach gigabytes.
	const bound = 3*readers*(64<<10) + 24<<20
	chunk := make([]byte, 64<<10)
	source := testkit.Serve(t, func(c *net.TCPConn) {
		_ = c.SetWriteBuffer(64 << 10)
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	})
	n := startNode(t, service("source", []string{source})+listener("plain", "service: source"))
	before := n.settledMemory()
	addr := n.addr("plain")
	for range readers {
		c := dial(t, addr)
		_ = c.SetReadBuffer(4 << 10)
	}
	testkit.WaitFor(t, "everyone to be relayed", func() bool { return n.metric("connections", `listener="plain"`) == readers })
	// Until the byte count stops growing.
	last, still := 0.0, 0
	testkit.WaitFor(t, "the bytes to stand still", func() bool {
		now := n.metric("bytes_total")
		if still++; now != last {
			last, still = now, 0
		}
		return still > 20
	})
	grown := n.settledMemory() - before
	t.Logf("%d readers cost %d KiB of memory", readers, grown>>10)
	if grown > bound {
		t.Errorf("%d readers cost %d MiB of memory, more than %d", readers, grown>>20, bound>>20)
	}
	// pending_bytes is at most one read per connection.
	if v := n.metric("pending_bytes"); v > readers*(64<<10) {
		t.Errorf("pending_bytes is %v", v)
	}
}

// rule 9: keepalive detects a dead client from the start. Towards the endpoint
// it begins when a connection is a minute old; netio's TestSocketOptions covers
// that with a shorter time.
func TestClientKeepalive(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()})+listener("plain", "service: upstream"))
	client := dial(t, n.addr("plain"))
	upstream.accept()
	const keepalive = "02"
	// The node's socket is the one whose peer is this client.
	testkit.WaitFor(t, "the keepalive timer", func() bool { return tcpTimer(t, client.LocalAddr()) == keepalive })
}

// tcpTimer returns the kind of timer, as in /proc/net/tcp, of the socket with
// this peer address.
func tcpTimer(t *testing.T, far net.Addr) string {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	a := far.(*net.TCPAddr)
	ip := a.IP.To4()
	want := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st queues tr:when ...
		if f := strings.Fields(line); len(f) > 5 && f[2] == want && f[3] == "01" {
			kind, _, _ := strings.Cut(f[5], ":")
			return kind
		}
	}
	return ""
}

// rule 9: idle connections are closed, half-closed ones sooner, and all at
// their maximum age.
func TestConnectionTimeouts(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	at := []string{upstream.addr()}
	n := startNode(t, service("idle", at, "idleTimeout: 300ms")+listener("idle", "service: idle")+
		service("half", at, "halfClosedTimeout: 300ms")+listener("half", "service: half")+
		service("both", at, "idleTimeout: 300ms")+listener("both", "service: both")+
		service("aged", at, "maxAge: 500ms")+listener("aged", "service: aged"))

	silent := dial(t, n.addr("idle"))
	mustClose(t, silent)
	n.wantEnd(silent, "idle_timeout")
	upstream.accept()

	half := dial(t, n.addr("half"))
	endpoint := upstream.accept()
	closeWrite(half)
	mustEnd(t, endpoint)
	mustClose(t, half)
	n.wantEnd(half, "half_closed_timeout")

	// An unset timeout does not delay a set one. On a busy machine a connection
	// may reach the idle timeout before its client ends it.
	both := n.addr("both")
	testkit.WaitFor(t, "a connection to end by what is set, half-closed", func() bool {
		half := dial(t, both)
		upstream.accept()
		closeWrite(half)
		mustClose(t, half)
		reason := n.end(half.LocalAddr()).Reason
		if reason != "half_closed_timeout" && reason != "idle_timeout" {
			t.Fatalf("it ended with %q", reason)
		}
		return reason == "half_closed_timeout"
	})

	busy := dial(t, n.addr("aged"))
	go echo(upstream.accept())
	for {
		if _, err := io.WriteString(busy, "x"); err != nil {
			break
		}
		if _, err := io.ReadFull(busy, make([]byte, 1)); err != nil {
			break
		}
	}
	n.wantEnd(busy, "max_age")
}

func TestEveryKindOfAddress(t *testing.T) {
	t.Parallel()
	sock := func(name string) string { return filepath.Join(shortDir(t), name) }
	in, out := sock("in"), sock("out")
	l := testkit.ListenOn(t, "unix", out)
	testkit.ServeOn(t, l, echoAny)
	resources := service("unix", []string{"unix:" + out}) + listenerAt("unix", "unix:"+in, "service: unix") +
		service("tcp", []string{testkit.Serve(t, echo)}) + listenerAt("wildcard", "0.0.0.0:0", "service: tcp") +
		listenerAt("unix-to-tcp", "unix:"+in+"2", "service: tcp") + listenerAt("bind", ":0", "service: unix")
	six, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		testkit.ServeOn(t, six, echoAny)
		resources += service("six", []string{six.Addr().String()}) + listenerAt("six", "[::1]:0", "service: six") +
			listenerAt("wildcard-six", "[::]:0", "service: six")
	}
	n := startNode(t, resources, "--bind", "127.0.0.5")
	check := func(network, address string) {
		t.Helper()
		c, err := net.DialTimeout(network, address, testkit.Patience)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testkit.Patience))
		roundTrip(t, c, "hello")
		closeWrite(c)
		mustEnd(t, c)
	}
	check("unix", in)
	check("unix", in+"2")
	_, port, _ := net.SplitHostPort(n.addr("wildcard"))
	check("tcp", "127.0.0.9:"+port)
	if host, _, _ := net.SplitHostPort(n.addr("bind")); host != "127.0.0.5" {
		t.Errorf(`":0" listens at %s, want the --bind address`, n.addr("bind"))
	}
	check("tcp", n.addr("bind"))
	if six != nil {
		check("tcp", n.addr("six"))
		_, port, _ := net.SplitHostPort(n.addr("wildcard-six"))
		check("tcp", "[::1]:"+port)
	}
	n.apply(listenerAt("unix", "127.0.0.1:0", "service: unix"))
	testkit.WaitFor(t, "the socket's file to go", func() bool {
		_, err := os.Lstat(in)
		return errors.Is(err, os.ErrNotExist)
	})
}

// shortDir returns a folder whose path leaves room in a unix socket's 107
// bytes.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A node ends with as many descriptors and connections as it started with.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo")+
		listener("sni", "protocol: tls", "service: echo"))
	plain, sni := n.addr("plain"), n.addr("sni")
	// The first connections create what is made once, such as a loop's pipes.
	for range 2 {
		var clients sync.WaitGroup
		for i := range 40 {
			clients.Go(func() {
				c, err := net.Dial("tcp", []string{plain, sni}[i%2])
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_, _ = io.WriteString(c, "neither a hello nor much else")
				_ = c.SetDeadline(time.Now().Add(testkit.Patience))
				if _, err = c.Read(make([]byte, 8)); err != nil && i%2 == 0 {
					t.Error(err)
				}
				if i%4 == 0 {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			})
		}
		clients.Wait()
		testkit.WaitFor(t, "all connections to end", func() bool { return n.metric("accepted_connections") == 0 })
	}
	before := n.proc.Descriptors()
	for range 50 {
		c := dial(t, plain)
		roundTrip(t, c, "x")
		if errors.Is(c.Close(), syscall.EBADF) {
			t.Fatal("closed twice")
		}
	}
	testkit.WaitFor(t, "the descriptors to be given back", func() bool { return n.proc.Descriptors() <= before })
	if v := n.metric("memory_budget_used_bytes"); v != 0 {
		t.Errorf("%v bytes of the budget are still in use", v)
	}
	if v := n.metric("pending_bytes"); v != 0 {
		t.Errorf("%v bytes are still pending", v)
	}
}
