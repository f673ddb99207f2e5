package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

// rawServer is an HTTP/1.1 endpoint that records each request that it gets.
type rawServer struct {
	addr string
	got  chan string
	l    net.Listener
	open sync.WaitGroup // the accept loop and the open connections
}

func newRawServer(t *testing.T) *rawServer {
	t.Helper()
	l := testkit.Listen(t)
	s := &rawServer{addr: l.Addr().String(), got: make(chan string, 100), l: l}
	s.open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.open.Go(func() { s.serve(c) })
		}
	})
	return s
}

// all waits for all clients to end, ends the endpoint and returns what it got.
func (s *rawServer) all(t *testing.T) (got []string) {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c) // accepted after all earlier connections
	s.l.Close()
	s.open.Wait()
	for {
		select {
		case g := <-s.got:
			got = append(got, g)
		default:
			return got
		}
	}
}

// serve records and answers each request: its line, Host and body. It records
// bytes that are not a request as BROKEN.
func (s *rawServer) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var raw strings.Builder
	in := bufio.NewReader(io.TeeReader(c, &raw))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			if raw.Len() > 0 && err != io.EOF {
				s.got <- "BROKEN " + raw.String()
			}
			return
		}
		body, _ := io.ReadAll(r.Body)
		s.got <- fmt.Sprintf("%s %s host %s body %q", r.Method, r.RequestURI, r.Host, body)
		raw.Reset()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

// send writes text on a new connection and reads the answers, until there are that
// many. Then it waits for the end of the connection, or 100 ms if ends is false.
func send(t *testing.T, addr, text string, answers int, ends bool) (got string, ended bool) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, text)
	var all strings.Builder
	for buf := make([]byte, 4096); ; {
		wait := time.Minute
		if strings.Count(all.String(), "HTTP/1.1 ") >= answers && !ends {
			wait = 100 * time.Millisecond
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		n, err := c.Read(buf)
		all.Write(buf[:n])
		if err != nil {
			timeout, ok := err.(net.Error)
			return all.String(), !ok || !timeout.Timeout()
		}
	}
}

// Ambiguous requests are refused or forwarded in an unambiguous form: an endpoint
// never finds a request in the body of another.
func TestNoRequestIsSmuggled(t *testing.T) {
	const smuggled = "GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, c := range map[string]struct {
		send   string
		status []string // the status of each answer
		got    []string // the requests that the endpoint gets
		ends   bool     // the connection ends
	}{
		"chunks and a length": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			status: []string{"400"}, ends: true,
		},
		"a length that is shorter than the chunks": {
			send: "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" +
				fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled),
			status: []string{"400"}, ends: true,
		},
		"two codings": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a coding that only looks like chunks": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a coding with a space before its colon": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a coding in HTTP/1.0": {
			send:   "POST /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"two lengths": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a length in a list": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 30\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a length with a sign": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a bare CR in a value": {
			send:   "GET /a HTTP/1.1\r\nHost: x\r\nA: b\rContent-Length: 30\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a bare LF for a line's end": {
			send:   "GET /a HTTP/1.1\nHost: x\nA: b\n\n",
			status: []string{"400"}, ends: true,
		},
		"a chunk's size that ends with a bare LF": {
			send:   "POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n" + smuggled,
			status: []string{"400"}, ends: true,
		},
		"a NUL in a value": {
			send:   "GET /a HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
			status: []string{"400"}, ends: true,
		},
		"two hosts": {
			send:   "GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
			status: []string{"400"}, ends: true,
		},
		"no host": {
			send:   "GET /a HTTP/1.1\r\n\r\n",
			status: []string{"400"}, ends: true,
		},
		"a host that is none": {
			send:   "GET /a HTTP/1.1\r\nHost: x/y@z\r\n\r\n",
			status: []string{"400"}, ends: true,
		},
		"a host beside that of the target": {
			send:   "GET http://y/a HTTP/1.1\r\nHost: x\r\n\r\n",
			status: []string{"200"}, got: []string{`GET /a host y body ""`},
		},
		"a line that is folded": {
			send:   "GET /a HTTP/1.1\r\nHost: x\r\nA: b\r\n Content-Length: 30\r\n\r\n",
			status: []string{"400"}, ends: true,
		},
		"a tunnel": {
			send:   "CONNECT y:1 HTTP/1.1\r\nHost: y:1\r\n\r\n",
			status: []string{"405"},
		},
		"a path with blanks": {
			send:   "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
			status: []string{"400"}, ends: true,
		},
		"two requests at once": {
			send:   "GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: y\r\n\r\n",
			status: []string{"200", "200"}, got: []string{`GET /a host x body ""`, `GET /b host y body ""`},
		},
		"a body of GET": {
			send:   "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: " + fmt.Sprint(len(smuggled)) + "\r\n\r\n" + smuggled,
			status: []string{"200"}, got: []string{fmt.Sprintf("GET /a host x body %q", smuggled)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Each case has its own endpoint: a request that is refused late may
			// reach the endpoint late.
			end := newRawServer(t)
			n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end.addr)+nodetest.WebRoute(nodetest.Rule("/", "")))
			answers, ended := send(t, n.at(t, "web"), c.send, len(c.status), c.ends)
			var status []string
			for line := range strings.Lines(answers) {
				if i := strings.Index(line, "HTTP/1."); i >= 0 && len(line) > i+12 {
					status = append(status, line[i+9:i+12])
				}
			}
			if fmt.Sprint(status) != fmt.Sprint(c.status) || ended != c.ends {
				t.Errorf("answered %v, ended %v; want %v, %v\n%s", status, ended, c.status, c.ends, answers)
			}
			n.halt()
			var got []string
			for _, g := range end.all(t) {
				if g != `POST /a host x body ""` || c.status[0] == "200" { // the header was forwarded before the body broke
					got = append(got, g)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.got) {
				t.Errorf("the endpoint got %q, want %q", got, c.got)
			}
		})
	}
}

// A client that is idle between requests is closed after the service's
// idleTimeout, and no state of it is kept.
func TestSilentClientsAreClosed(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", ", idleTimeout: 200ms", nodetest.NamedServer(t, "shop"))+
		nodetest.WebRoute(nodetest.Rule("/", "")))
	answers, ended := send(t, n.at(t, "web"), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1, true)
	if !strings.HasPrefix(answers, "HTTP/1.1 200") || !ended {
		t.Errorf("ended %v after %q", ended, answers)
	}
	testkit.WaitFor(t, "the reason", func() bool {
		return n.metric(t, `penstock_connections_total{listener="web",result="idle_timeout",service="shop"}`) == "1"
	})
	testkit.WaitFor(t, "the client to be forgotten", func() bool {
		n.requests.mu.Lock()
		defer n.requests.mu.Unlock()
		return len(n.requests.clients) == 0
	})
}
