package web_test

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"penstock/netio/web"
)

// lines is a buffer for several goroutines.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// What an endpoint sends though nobody has asked is told without its bytes.
func TestWhatEndpointsSayIsNotLogged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	more, served := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-served })
	go func() {
		defer close(served)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		<-more
		_, _ = io.WriteString(c, "Set-Cookie: session=SECRET")
		_, _ = io.Copy(io.Discard, c)
	}()
	out := &lines{}
	flags := log.Flags()
	log.SetFlags(0)
	log.SetOutput(web.ErrorLogWriter(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	defer func() { log.SetOutput(os.Stderr); log.SetFlags(flags) }()
	p := &web.Profile{}
	r := newRig(t, p, l.Addr().String())
	if resp, _ := r.do("GET", "/", ""); resp.status != http.StatusOK {
		t.Error(resp.status)
	}
	close(more)
	waitFor(t, "a line", func() bool { return strings.Contains(out.String(), "Unsolicited response") })
	if got := out.String(); strings.Contains(got, "SECRET") || !strings.Contains(got, "level=DEBUG") || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %s", got)
	}
}
