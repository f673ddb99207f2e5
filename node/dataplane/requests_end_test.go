package dataplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

// ended waits for the line of a connection's end. It returns the reasons of the
// connection and of its last request; "": none.
func (n *testPlane) ended(t *testing.T) (connection, request string) {
	t.Helper()
	closed := regexp.MustCompile(`msg="connection closed" .*reason=(\S+)`)
	asked := regexp.MustCompile(`msg=request .*reason=(\S+)`)
	testkit.WaitFor(t, "the connection's line", func() bool { return closed.MatchString(n.lines.String()) })
	text := n.lines.String()
	if m := asked.FindAllStringSubmatch(text, -1); m != nil {
		request = m[len(m)-1][1]
	}
	return closed.FindStringSubmatch(text)[1], request
}

// If a client leaves in the middle of its request, the reason of the connection
// names the client, however it leaves. If the endpoint cuts its answer off, the
// reason names the endpoint.
func TestHTTPConnectionReasonNamesTheSideThatEndedIt(t *testing.T) {
	const upload = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc"
	for name, c := range map[string]struct {
		send   string
		leave  func(*net.TCPConn)
		answer http.HandlerFunc
		want   string
	}{
		"an upload that ends in a FIN": {upload, func(c *net.TCPConn) { _ = c.Close() }, nil, "client_reset"},
		"chunks that end in a FIN": {
			"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
			func(c *net.TCPConn) { _ = c.CloseWrite() }, nil, "client_reset",
		},
		"an upload that ends in a reset": {upload, func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		}, nil, "client_reset"},
		"an answer that is cut off": {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", nil, func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "upstream_reset"},
		"all is well": {
			"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", nil,
			func(http.ResponseWriter, *http.Request) {}, "upstream_fin",
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{}, 1)
			end := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
				began <- struct{}{}
				if c.answer != nil {
					c.answer(w, r)
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end)+nodetest.WebRoute(nodetest.Rule("/", "")))
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
			got, _ := n.ended(t)
			if got != c.want {
				t.Errorf("%s, want %s:\n%s", got, c.want, n.lines.String())
			}
		})
	}
}

// idle reports whether no client of the listener has a request in flight.
func (n *testPlane) idle(listener string) bool {
	n.requests.mu.Lock()
	defer n.requests.mu.Unlock()
	for c := range n.requests.clients[listener] {
		c.requests.mu.Lock()
		busy := c.requests.n > 0
		c.requests.mu.Unlock()
		if busy {
			return false
		}
	}
	return true
}

// cutClient is an HTTP client with one connection, which the test can end.
type cutClient struct {
	*nodetest.WebClient
	mu   sync.Mutex
	conn *net.TCPConn
}

func newCutClient(t *testing.T, addr string, http2 bool) *cutClient {
	p := &http.Protocols{}
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	c := &cutClient{}
	c.WebClient = nodetest.ClientOf(t, "http://"+addr, &http.Transport{
		Protocols: p, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.conn = conn.(*net.TCPConn)
			}
			return conn, err
		},
	})
	return c
}

// leave ends the connection, with a FIN or a reset.
func (c *cutClient) leave(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reset {
		_ = c.conn.SetLinger(0)
	}
	_ = c.conn.Close()
}

// A client that has the last byte of an answer with a Content-Length may leave
// before the request has ended on the node: that is an orderly end.
func TestClientMayCloseAfterWholeResponse(t *testing.T) {
	const body = "all that was promised"
	for _, http2 := range []bool{false, true} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("http2 %v, reset %v", http2, reset), func(t *testing.T) {
				end := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Length", fmt.Sprint(len(body)))
					_, _ = io.WriteString(w, body)
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done() // no END_STREAM before
				})
				n := start(t, nodetest.WebListener+nodetest.WebService("shop", ", protocol: http2", end)+nodetest.WebRoute(nodetest.Rule("/", "")))
				c := newCutClient(t, n.at(t, "web"), http2)
				resp, err := c.HTTP.Get(c.Base)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if _, err := io.ReadFull(resp.Body, make([]byte, len(body))); err != nil {
					t.Fatal(err)
				}
				c.leave(reset)
				if connection, request := n.ended(t); connection != "client_fin" || request != "" {
					t.Errorf("the connection ended with %q, the request with %q:\n%s", connection, request, n.lines.String())
				}
			})
		}
	}
}

// The reason is client_reset if the client abandons its last request, however it
// leaves. It is an orderly end if another request followed the abandoned one.
func TestAbandonedRequestEndsWithClientReset(t *testing.T) {
	end := func(t *testing.T) string {
		return testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/stream") {
				_, _ = io.WriteString(w, "and so on, and so on")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		})
	}
	for _, http2 := range []bool{false, true} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("http2 %v, reset %v", http2, reset), func(t *testing.T) {
				n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end(t))+nodetest.WebRoute(nodetest.Rule("/", "")))
				c := newCutClient(t, n.at(t, "web"), http2)
				resp, err := c.HTTP.Get(c.Base + "/stream")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				c.leave(reset)
				if connection, request := n.ended(t); connection != "client_reset" || request != "client_reset" {
					t.Errorf("the connection ended with %q, the request with %q:\n%s", connection, request, n.lines.String())
				}
			})
		}
	}
	for again, want := range map[bool]string{false: "client_reset", true: "client_fin"} {
		t.Run(fmt.Sprint("by RST_STREAM, another request follows: ", again), func(t *testing.T) {
			n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end(t))+nodetest.WebRoute(nodetest.Rule("/", "")))
			c := newCutClient(t, n.at(t, "web"), true)
			resp, err := c.HTTP.Get(c.Base + "/stream")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if again {
				testkit.WaitFor(t, "the request to end", func() bool { return strings.Contains(n.lines.String(), "msg=request") && n.idle("web") })
				_ = c.Do("GET", "/", "")
			}
			c.leave(false)
			if connection, _ := n.ended(t); connection != want {
				t.Errorf("the connection ended with %q, want %q:\n%s", connection, want, n.lines.String())
			}
		})
	}
}
