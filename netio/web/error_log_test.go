package web_test

import (
	"bufio"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/netio/web"
)

// What an endpoint sends though nobody has asked is told without its bytes.
func TestWhatEndpointsSayIsNotLogged(t *testing.T) {
	more := make(chan struct{})
	to := testkit.Serve(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		<-more
		_, _ = io.WriteString(c, "Set-Cookie: session=SECRET")
		_, _ = io.Copy(io.Discard, c)
	})
	out := &testkit.Log{}
	flags := log.Flags()
	log.SetFlags(0)
	log.SetOutput(web.ErrorLogWriter(slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	defer func() { log.SetOutput(os.Stderr); log.SetFlags(flags) }()
	p := &web.Profile{}
	r := newRig(t, p, to)
	if resp, _ := r.do("GET", "/", ""); resp.status != http.StatusOK {
		t.Error(resp.status)
	}
	close(more)
	testkit.WaitFor(t, "a line", func() bool { return strings.Contains(out.String(), "Unsolicited response") })
	if got := out.String(); strings.Contains(got, "SECRET") || !strings.Contains(got, "level=DEBUG") || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %s", got)
	}
}
