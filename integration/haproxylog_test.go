package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// haproxyLogs has one frontend for TCP and one for HTTP, whose logs go to a socket.
const haproxyLogs = `
global
  log %[1]s format raw local0
defaults
  log global
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  retries 0
frontend edge
  mode tcp
  option tcplog
  bind 127.0.0.1:%%d
  default_backend apps
backend apps
  mode tcp
  server one %[2]s
frontend closed
  mode tcp
  option tcplog
  bind 127.0.0.1:%%d
  default_backend nobody
backend nobody
  mode tcp
  server one %[3]s
frontend web
  mode http
  option httplog
  bind 127.0.0.1:%%d
  default_backend shop
backend shop
  mode http
  server one %[4]s
`

const penstockLogs = `
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: apps}
---
kind: Listener
name: closed
spec: {address: "127.0.0.1:0", service: nobody}
---
kind: Listener
name: web
spec: {address: "127.0.0.1:0", service: shop, tags: {protocol: http}}
---
kind: Service
name: apps
spec: {endpoints: [{address: %q}]}
---
kind: Service
name: nobody
spec: {connect: {attempts: 1}, endpoints: [{address: %q}]}
---
kind: Service
name: shop
spec: {protocol: http, endpoints: [{address: %q}]}
---
kind: MeshHTTPRoute
name: shop
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      default: {backendRefs: [{kind: MeshService, name: shop}]}
`

// logTraffic sends the same through either proxy: a connection that the client ends, one
// that it resets, one to an endpoint that refuses, and requests. It returns the addresses
// of the clients, in order.
func logTraffic(t *testing.T, edge, closed, web string) (clients []string) {
	t.Helper()
	dial := func(address string) net.Conn {
		var conn net.Conn
		testkit.WaitFor(t, "a connection", func() (ok bool) { // a reset may come before Dial returns
			var err error
			conn, err = net.Dial("tcp", address)
			return err == nil
		})
		clients = append(clients, conn.LocalAddr().String())
		return conn
	}
	c := dial(edge)
	mustWrite(t, c, "hello")
	mustRead(t, c, "hello")
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.ReadAll(c)
	c.Close()
	c = dial(edge)
	mustWrite(t, c, "hey")
	mustRead(t, c, "hey")
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
	c = dial(closed)
	_, _ = io.ReadAll(c)
	c.Close()
	for _, r := range []struct{ method, path string }{{"GET", "/ok"}, {"POST", `/a%22b/%c3%bc`}, {"GET", "/missing"}} {
		c := dial(web)
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: shop.example.com\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", r.method, r.path)
		_, _ = io.ReadAll(c)
		c.Close()
	}
	return clients
}

// linesAbout returns the line about each client; nil: there is not one for each.
func linesAbout(clients, lines []string) (found []string) {
	for _, c := range clients {
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, c+" ") })
		if at < 0 {
			return nil
		}
		found = append(found, lines[at])
	}
	return found
}

// tcpLine and httpLine are the parts of a line that both know: without the ports, times, counts of
// connections and names of servers.
var (
	tcpLine  = regexp.MustCompile(`^127\.0\.0\.1:\d+ \[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d\.\d{3})\] (\S+) ([^/ ]+)/(\S+) (-?\d+)/(-?\d+)/(\d+) (\d+) (\S\S) \d+/\d+/\d+/\d+/(\d+) 0/0$`)
	httpLine = regexp.MustCompile(`^127\.0\.0\.1:\d+ \[(\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d\.\d{3})\] (\S+) ([^/ ]+)/(\S+) (-?\d+)/(-?\d+)/(-?\d+)/(-?\d+)/(\d+) (-?\d+) (\d+) (\S+) (\S+) (\S{4}) ` +
		`\d+/\d+/\d+/\d+/(\d+) 0/0 "([^"]*)"$`)
)

// parseLine returns what both proxies know of a connection, with times only as whether
// they are there.
func parseLine(t *testing.T, line string) string {
	t.Helper()
	there := func(ms string) string {
		if strings.HasPrefix(ms, "-") {
			return "-"
		}
		return "t"
	}
	at := func(text string) {
		when, err := time.ParseInLocation("02/Jan/2006:15:04:05.000", text, time.Local)
		if ago := time.Since(when); err != nil || ago < -time.Second || ago > 2*testkit.Patience {
			t.Errorf("accepted %v ago (%v): %s", ago, err, line)
		}
	}
	if m := tcpLine.FindStringSubmatch(line); m != nil {
		at(m[1])
		return fmt.Sprintf("%s %s waited %s connected %s bytes %s state %s retries %s", m[2], m[3], there(m[5]), there(m[6]), m[8], m[9], m[10])
	}
	if m := httpLine.FindStringSubmatch(line); m != nil {
		at(m[1])
		sent, err := strconv.Atoi(m[11])
		if err != nil || sent < 0 {
			t.Errorf("bytes: %s", line)
		}
		return fmt.Sprintf("%s %s waited %s connected %s answered %s status %s cookies %s %s state %s retries %s %q",
			m[2], m[3], there(m[6]), there(m[7]), there(m[8]), m[10], m[12], m[13], m[14], m[15], m[16])
	}
	t.Errorf("no line of HAProxy: %q", line)
	return ""
}

// The format haproxy has the lines that HAProxy itself writes about the same traffic.
func TestLinesAreThoseOfHAProxy(t *testing.T) {
	t.Parallel()
	echo := testkit.Serve(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	refuses := testkit.FreeAddress(t)
	shop := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
		}
	})
	dir := t.TempDir()
	socket := filepath.Join(dir, "log")
	logs, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	at := haproxy(t, fmt.Sprintf(haproxyLogs, socket, echo, refuses, shop))
	clients := logTraffic(t, at[0], at[1], at[2])
	var theirs, all []string
	_ = logs.SetReadDeadline(time.Now().Add(testkit.Patience))
	for buffer := make([]byte, 64<<10); theirs == nil; theirs = linesAbout(clients, all) {
		n, _, err := logs.ReadFrom(buffer)
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		all = append(all, strings.TrimSpace(string(buffer[:n])))
	}

	path := filepath.Join(dir, "access.log")
	n := startNode(t, fmt.Sprintf(penstockLogs, echo, refuses, shop), "--access-log", "closed", "--access-log-to", "file:"+path,
		"--access-log-format", "haproxy")
	clients = logTraffic(t, n.addr("edge"), n.addr("closed"), n.addr("web"))
	var ours []string
	testkit.WaitFor(t, "the lines", func() bool {
		text, err := os.ReadFile(path)
		all = strings.Split(strings.TrimSpace(string(text)), "\n")
		ours = linesAbout(clients, all)
		return err == nil && ours != nil
	})
	if text := strings.Join(all, "\n"); strings.Count(text, "] web ") != 3 {
		t.Errorf("want three lines of web:\n%s", text)
	}
	for i := range theirs {
		if a, b := parseLine(t, theirs[i]), parseLine(t, ours[i]); a != b {
			t.Errorf("line %d:\nHAProxy  %s\n         %s\nPenstock %s\n         %s", i, a, theirs[i], b, ours[i])
		}
	}
}
