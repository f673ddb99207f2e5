package output

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	parsed "github.com/leodido/go-syslog/v4"
	"github.com/leodido/go-syslog/v4/octetcounting"
	"github.com/leodido/go-syslog/v4/rfc5424"
	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/accesslog"
)

func TestMain(m *testing.M) {
	// lumberjack's goroutine that removes old files lives as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func mustOpen(t testing.TB, text string) accesslog.Output {
	t.Helper()
	target, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	o, err := target.Open("node 1", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// logTo makes a log with one sink, which is closed with the test.
func logTo(t testing.TB, text string, queue int) *accesslog.Log {
	t.Helper()
	l := accesslog.New(accesslog.Config{})
	l.Add(accesslog.NewLines(accesslog.LinesConfig{Name: text, Output: mustOpen(t, text), Queue: queue}))
	t.Cleanup(sync.OnceFunc(l.Close))
	return l
}

func lines(texts ...string) (all []accesslog.Line) {
	for _, s := range texts {
		all = append(all, accesslog.Line{At: time.Unix(1700000000, 0).UTC(), Text: []byte(s)})
	}
	return all
}

func mustWrite(t testing.TB, o accesslog.Output, texts ...string) {
	t.Helper()
	if n, err := o.Write(t.Context(), lines(texts...)); err != nil || n != len(texts) {
		t.Fatalf("%d lines written: %v", n, err)
	}
}

func TestTargetsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "want stderr, file:PATH",
		"stdout":                      "want stderr, file:PATH",
		"file:access.log":             "want an absolute path",
		"unix:":                       "want an absolute path",
		"syslog+udp://logs":           "want a host and a port",
		"syslog+tcp://:514":           "want a host and a port",
		"syslog+tls://h:99999":        "want a host and a port",
		"syslog+sctp://h:1":           "want stderr, file:PATH",
		"syslog+stderr://h:1":         "want stderr, file:PATH",
		"file:/a?size=1KiB":           "size \"1KiB\": want 1MiB to 1024GiB",
		"file:/a?keep=0":              "keep \"0\": want 1 to 1000 files",
		"file:/a?facility=local0":     "option \"facility\": want each of format, size, keep",
		"file:/a?keep=1&keep=2":       "option \"keep\": want each of",
		"unix:/dev/log?facility=kern": "facility \"kern\": want one of auth,",
		"stderr?format=xml":           "format \"xml\": want one of text,",
		"syslog+tls://h:6514?cert=/c": "cert and key belong together",
		"syslog+udp://h:1?ca=/c":      "option \"ca\"",
		"stderr?%zz":                  "invalid URL escape",
		"file:/" + strings.Repeat("a", 5000) + "?x": "option \"x\"",
	} {
		_, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"file:/no/such/folder/a.log":                       "no such file",
		"file:/dev/null":                                   "is no regular file",
		"syslog+tls://h:6514?ca=/no/such.pem":              "ca: open /no/such.pem",
		"syslog+tls://h:6514?cert=/no/c.pem&key=/no/k.pem": "cert, key: open /no/c.pem",
	} {
		target, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, err = target.Open("n1", io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A file is rotated at its size, between lines, and the oldest ones go.
func TestFileIsRotated(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	o := mustOpen(t, "file:"+path+"?size=1MiB&keep=2")
	defer o.Close()
	line := strings.Repeat("x", 999)
	var many []string
	for range 1000 {
		many = append(many, line)
	}
	for range 5 { // 5 MB
		mustWrite(t, o, many...)
	}
	testkit.WaitFor(t, "the files beyond the number to go", func() bool {
		files, err := os.ReadDir(dir)
		return err == nil && len(files) == 3
	})
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if len(text) == 0 || len(text) > 1<<20 || len(text)%1000 != 0 {
			t.Errorf("%s has %d bytes", f.Name(), len(text))
		}
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f.Name(), info.Mode())
		}
	}
}

// A file that is removed, or moved by another program, is followed by a new one at the
// path: within a second, or at once after Reopen.
func TestFileThatIsRemovedOrMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	o := mustOpen(t, "file:"+path).(*file)
	defer o.Close()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	mustWrite(t, o, "one")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, o, "two") // within the second
	o.Reopen()
	mustWrite(t, o, "three")
	if old, now := read(path+".1"), read(path); old != "one\ntwo\n" || now != "three\n" {
		t.Errorf("moved: %q, %q", old, now)
	}
	o.Reopen()
	mustWrite(t, o, "to the same file")
	if err := os.Rename(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("made by another program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Reopen()
	mustWrite(t, o, "after it")
	if old, now := read(path+".2"), read(path); old != "three\nto the same file\n" || now != "made by another program\nafter it\n" {
		t.Errorf("replaced: %q, %q", old, now)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "a new file", func() bool {
		mustWrite(t, o, "four")
		return strings.HasPrefix(read(path), "four\n")
	})
}

// A full disk loses no line as long as the queue has room, and a line that was cut off
// does not run into the next one.
func TestFullDisk(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	// A limit of the process's file sizes: writes fail in the middle, as on a full disk.
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 5000, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before) }()
	path := filepath.Join(t.TempDir(), "access.log")
	l := logTo(t, "file:"+path, 0)
	const n = 100
	for i := range n {
		l.Write(accesslog.Record{Event: accesslog.Closed, At: time.Now(), ID: uint64(i), Listener: "edge", Reason: "client_fin"}) //nolint:gosec // not negative
	}
	testkit.WaitFor(t, "the disk to be full", func() bool { return l.Sinks()[0].Errors > 0 })
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the rest of the lines", func() bool { return l.Sinks()[0].Written == n })
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "time=") && strings.HasSuffix(line, "duration=0s\n") {
			whole++
		}
	}
	if s := l.Sinks()[0]; whole < n-1 || s.Dropped != 0 || s.Queued != 0 {
		t.Errorf("%d whole lines of %d: %+v\n%s", whole, n, s, text)
	}
}

// collector gathers messages that it can parse.
type collector struct {
	mu       sync.Mutex
	messages []*rfc5424.SyslogMessage
	faults   []string
}

func (c *collector) add(r *parsed.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Error != nil {
		if !errors.Is(r.Error, io.EOF) {
			c.faults = append(c.faults, r.Error.Error())
		}
		return
	}
	c.messages = append(c.messages, r.Message.(*rfc5424.SyslogMessage))
}

func (c *collector) wait(t *testing.T, n int) {
	t.Helper()
	testkit.WaitFor(t, fmt.Sprintf("%d messages", n), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.messages) >= n || len(c.faults) > 0
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) > 0 || len(c.messages) > n {
		t.Errorf("%d messages; faults: %q", len(c.messages), c.faults)
	}
}

// check checks message i, which is about a failure or not.
func (c *collector) check(t *testing.T, i int, severity uint8, text string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.messages[i]
	if *m.Facility != 17 || *m.Severity != severity || *m.Hostname != "node_1" || *m.Appname != "penstock" || *m.ProcID != fmt.Sprint(os.Getpid()) ||
		*m.MsgID != "access" || m.Timestamp.IsZero() || m.Message == nil || !strings.Contains(*m.Message, text) {
		t.Errorf("message %+v %v", m, m.Message)
	}
}

// frames reads octet-counted frames.
func (c *collector) frames(conn net.Conn) {
	p := octetcounting.NewParser(parsed.WithListener(c.add))
	p.Parse(conn)
}

// datagrams reads datagrams until the connection is closed.
func (c *collector) datagrams(conn net.PacketConn) {
	buffer := make([]byte, 64<<10)
	machine := rfc5424.NewParser()
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		m, err := machine.Parse(bytes.Clone(buffer[:n]))
		c.add(&parsed.Result{Message: m, Error: err})
	}
}

func writeBoth(l *accesslog.Log) {
	l.Write(accesslog.Record{Event: accesslog.Closed, At: time.Now(), ID: 1, Listener: "edge", Reason: "client_fin"})
	l.Write(accesslog.Record{Event: accesslog.Closed, At: time.Now(), ID: 2, Listener: "edge", SNI: "ü\n<1>1", Reason: "no_route"})
}

// Messages are those of RFC 5424 on each transport, by the parser of another project.
func TestSyslog(t *testing.T) {
	ca := certs.NewCA("logs")
	dir := t.TempDir()
	caFile := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, []byte(ca.PEM), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, listen := range map[string]func(t *testing.T, c *collector) (target string){
		"udp": func(t *testing.T, c *collector) string {
			conn, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			serve(t, conn, func() { c.datagrams(conn) })
			return "syslog+udp://" + conn.LocalAddr().String() + "?"
		},
		"unix datagram": func(t *testing.T, c *collector) string {
			path := filepath.Join(dir, "d")
			conn, err := net.ListenPacket("unixgram", path)
			if err != nil {
				t.Fatal(err)
			}
			serve(t, conn, func() { c.datagrams(conn) })
			return "unix:" + path + "?"
		},
		"unix stream": func(t *testing.T, c *collector) string {
			path := filepath.Join(dir, "s")
			testkit.ServeOn(t, testkit.ListenOn(t, "unix", path), c.frames)
			return "unix:" + path + "?"
		},
		"tcp": func(t *testing.T, c *collector) string {
			return "syslog+tcp://" + testkit.Serve(t, func(conn *net.TCPConn) { c.frames(conn) }) + "?"
		},
		"tls": func(t *testing.T, c *collector) string {
			ln := testkit.ListenOn(t, "tcp", "127.0.0.1:0")
			testkit.ServeOn(t, tls.NewListener(ln, ca.Server("localhost")), c.frames)
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			return "syslog+tls://localhost:" + port + "?ca=" + caFile + "&"
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c collector
			l := logTo(t, listen(t, &c)+"facility=local1", 0)
			writeBoth(l)
			c.wait(t, 2)
			c.check(t, 0, 6, "reason=client_fin")
			c.check(t, 1, 4, `sni="ü\n<1>1"`)
		})
	}
}

// serve runs a function until the connection is closed with the test.
func serve(t *testing.T, conn io.Closer, f func()) {
	t.Helper()
	var over sync.WaitGroup
	over.Go(f)
	t.Cleanup(func() {
		conn.Close()
		over.Wait()
	})
}

// A datagram is cut to what servers take.
func TestLongDatagramIsCut(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	o := mustOpen(t, "syslog+udp://"+conn.LocalAddr().String())
	defer o.Close()
	mustWrite(t, o, strings.Repeat("x", 100<<10))
	buffer := make([]byte, 128<<10)
	if n, _, err := conn.ReadFrom(buffer); err != nil || n != maxDatagram {
		t.Errorf("%d bytes: %v", n, err)
	}
}

// A server with another certificate gets nothing.
func TestSyslogServerIsVerified(t *testing.T) {
	ln := testkit.ListenOn(t, "tcp", "127.0.0.1:0")
	testkit.ServeOn(t, tls.NewListener(ln, certs.NewCA("other").Server("localhost")), func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, []byte(certs.NewCA("logs").PEM), 0o600); err != nil {
		t.Fatal(err)
	}
	o := mustOpen(t, "syslog+tls://localhost:"+port+"?ca="+caFile)
	defer o.Close()
	if n, err := o.Write(t.Context(), lines("secret")); n != 0 || err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("%d lines written: %v", n, err)
	}
}

// A server that is away at first, and goes away later, gets the lines that wait.
func TestSyslogServerComesAndGoes(t *testing.T) {
	address := testkit.FreeAddress(t)
	l := logTo(t, "syslog+tcp://"+address+"?facility=local1", 0)
	writeBoth(l)
	testkit.WaitFor(t, "a failed attempt", func() bool { return l.Sinks()[0].Errors > 0 })
	var c collector
	conns := make(chan net.Conn, 8)
	testkit.ServeOn(t, testkit.ListenOn(t, "tcp", address), func(conn net.Conn) {
		conns <- conn
		c.frames(conn)
	})
	c.wait(t, 2)
	testkit.Receive(t, "the connection", conns).Close()
	testkit.WaitFor(t, "a line after the server has closed", func() bool {
		writeBoth(l)
		select {
		case <-conns:
			return true
		default:
			return false
		}
	})
	testkit.WaitFor(t, "all lines to be sent", func() bool { return l.Sinks()[0].Queued == 0 })
	if s := l.Sinks()[0]; s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// When the server has closed, the connection is closed before a line is lost in it.
func TestClosedConnectionIsNoticed(t *testing.T) {
	conns := make(chan net.Conn, 2)
	over := make(chan struct{})
	defer close(over)
	address := testkit.Serve(t, func(conn *net.TCPConn) {
		conns <- conn
		<-over
	})
	o := mustOpen(t, "syslog+tcp://"+address).(*syslog)
	defer o.Close()
	mustWrite(t, o, "one")
	testkit.Receive(t, "the connection", conns).Close()
	testkit.WaitFor(t, "the connection to be closed", func() bool { return errors.Is(o.conn.SetDeadline(time.Time{}), net.ErrClosed) })
	if n, err := o.Write(t.Context(), lines("two")); n != 0 || err == nil {
		t.Errorf("%d lines are written: %v", n, err)
	}
	mustWrite(t, o, "two")
	testkit.Receive(t, "another connection", conns)
}

// A server that reads nothing costs the queue and no more, and does not hold up the end.
func TestStalledSyslogServer(t *testing.T) {
	stalled := make(chan struct{})
	defer close(stalled)
	address := testkit.Serve(t, func(*net.TCPConn) { <-stalled })
	l := accesslog.New(accesslog.Config{})
	const queue = 1 << 20
	l.Add(accesslog.NewLines(accesslog.LinesConfig{Name: "stalled", Output: mustOpen(t, "syslog+tcp://"+address), Queue: queue}))
	most := time.Duration(0)
	testkit.WaitFor(t, "dropped lines", func() bool {
		for range 5000 {
			before := time.Now()
			l.Write(accesslog.Record{Event: accesslog.Closed, At: before, Listener: "edge", SNI: strings.Repeat("s", 256), Reason: "client_fin"})
			most = max(most, time.Since(before))
		}
		s := l.Sinks()[0]
		if s.Queued > queue {
			t.Fatalf("%d bytes wait", s.Queued)
		}
		return s.Dropped > 0
	})
	ended := make(chan struct{})
	go func() { l.Close(); close(ended) }()
	testkit.Receive(t, "the end", ended)
	t.Logf("the slowest Write took %v", most)
}

func TestWriteEndsWithItsContext(t *testing.T) {
	stalled := make(chan struct{})
	defer close(stalled)
	o := mustOpen(t, "syslog+tcp://"+testkit.Serve(t, func(*net.TCPConn) { <-stalled }))
	defer o.Close()
	ctx, cancel := context.WithCancel(t.Context())
	mustWrite(t, o, "connected")
	cancel()
	var many []accesslog.Line
	for range 20_000 {
		many = append(many, lines(strings.Repeat("x", 1000))...)
	}
	before := time.Now()
	if n, err := o.Write(ctx, many); err == nil || n == len(many) {
		t.Errorf("%d of %d lines are written: %v", n, len(many), err)
	}
	if took := time.Since(before); took >= sendTimeout {
		t.Errorf("it took %v", took)
	}
}
