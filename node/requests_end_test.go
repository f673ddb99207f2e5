package node

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
)

// A client that leaves in the middle of its request is named in its
// connection's line, however it leaves; an endpoint that cuts its answer off is
// still the one that is named.
func TestWhoEndedAConnectionOfHTTP(t *testing.T) {
	const upload = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"
	closed := regexp.MustCompile(`msg="connection closed" .*reason=(\S+)`)
	for name, c := range map[string]struct {
		send   string
		leave  func(*net.TCPConn)
		answer http.HandlerFunc
		want   string
	}{
		"an upload that ends in a FIN": {upload, func(c *net.TCPConn) { _ = c.Close() }, nil, "client_reset"},
		"chunks that end in a FIN":     {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", func(c *net.TCPConn) { _ = c.CloseWrite() }, nil, "client_reset"},
		"an upload that ends in a reset": {upload, func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		}, nil, "client_reset"},
		"an answer that is cut off": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", nil, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "upstream_reset"},
		"all is well": {"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", nil, func(http.ResponseWriter, *http.Request) {}, "upstream_fin"},
	} {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{}, 1)
			end := webServer(t, func(w http.ResponseWriter, r *http.Request) {
				began <- struct{}{}
				if c.answer != nil {
					c.answer(w, r)
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			n := startNode(t, webListener+webService("shop", "", end)+webRoute(rule("/", "")))
			conn, err := net.Dial("tcp", n.at(t, "web"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, c.send)
			<-began
			if c.leave != nil {
				c.leave(conn.(*net.TCPConn))
			} else {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}
			var got []string
			waitFor(t, "the connection's line", func() bool {
				got = closed.FindStringSubmatch(n.lines.String())
				return got != nil
			})
			if got[1] != c.want {
				t.Errorf("%s, want %s:\n%s", got[1], c.want, n.lines.String())
			}
		})
	}
}
