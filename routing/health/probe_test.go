package health

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/routing/endpoint"
)

// ask runs one probe of an address (a path if it begins with /) and returns the
// error's text, "" for success.
func ask(t *testing.T, configured, address string, check Check) string {
	t.Helper()
	e := &endpoint.Endpoint{Address: configured}
	if strings.HasPrefix(address, "/") {
		e.Unix = address
	} else {
		e.Addr = netip.MustParseAddrPort(address)
	}
	if check.Timeout == 0 {
		check.Timeout = 5 * time.Second
	}
	target := Target{Endpoint: e, Check: &check}
	err := newProbe(keyOf(target, check.key()), target).run(t.Context(), new(net.Dialer).DialContext)
	if err == nil {
		return ""
	}
	return ErrorText(err)
}

// short is for probes that are to time out after they have connected.
const short = 500 * time.Millisecond

// Active checks: rule 16 of integration/rules_test.go.
func TestProbesOfTCP(t *testing.T) {
	for name, tc := range map[string]struct {
		handle func(net.Conn)
		check  Check
		want   string
	}{
		"a connection is enough":           {silent, Check{}, ""},
		"also where its side ends at once": {halfCloses, Check{}, ""},
		"the expected greeting":            {says("220 ready\r\n"), Check{Expect: "220 "}, ""},
		"the expected greeting in pieces":  {saysSlowly("220 ready\r\n"), Check{Expect: "220 ready"}, ""},
		"another greeting": {says("554 busy, come again\r\n"), Check{Expect: "220 "},
			"expect: unexpected response"},
		"another one after a good start": {says("221"), Check{Expect: "220 "}, "expect: unexpected response"},
		"a question and its answer":      {answers("PING\r\n", "+PONG\r\n"), Check{Send: "PING\r\n", Expect: "+PONG"}, ""},
		"a question not understood": {answers("PING\r\n", "+PONG\r\n"), Check{Send: "HELO\r\n", Expect: "+PONG"},
			"expect: unexpected response"},
		"silence where an answer is due": {silent, Check{Expect: "220 ", Timeout: short}, "expect: timeout after 500ms"},
		"a reset where an answer is due": {resets, Check{Send: "x", Expect: "220 "}, "expect: connection reset by peer"},
		"an end where an answer is due":  {halfCloses, Check{Expect: "220 "}, "expect: connection closed before the full response"},
		"an end in the middle of it": {func(c net.Conn) { io.WriteString(c, "22") }, Check{Expect: "220 "},
			"expect: connection closed before the full response"},
		"a preface comes first": {afterPreface("PROXY UNKNOWN\r\n", says("220 ")),
			Check{Preface: "PROXY UNKNOWN\r\n", Expect: "220 "}, ""},
		"without it there is no answer": {afterPreface("PROXY UNKNOWN\r\n", says("220 ")),
			Check{Send: "something that is long enough", Expect: "220 "}, "expect: "},
		"TLS is not used for a check of TCP": {says("220 "), Check{Expect: "220 ", TLS: &tls.Config{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := testkit.Serve(t, tc.handle)
			if got := ask(t, address, address, tc.check); got != tc.want && (tc.want != "expect: " || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRefusedConnectFailsProbe(t *testing.T) {
	address := testkit.FreeAddress(t)
	if got := ask(t, address, address, Check{}); got != "connect: connection refused" {
		t.Errorf("got %q", got)
	}
	if got := ask(t, "unix:/nowhere", "/nowhere/at/all", Check{}); got != "connect: no such file or directory" {
		t.Errorf("got %q", got)
	}
}

func TestProbesOfUnixSockets(t *testing.T) {
	path := serveUnix(t, answers("PING", "PONG"))
	if got := ask(t, "unix:"+path, path, Check{Send: "PING", Expect: "PONG"}); got != "" {
		t.Errorf("tcp: %s", got)
	}
	path = serveUnix(t, web(func(r *http.Request) string {
		if r.Host != "localhost" {
			return "HTTP/1.1 400 No\r\n\r\n"
		}
		return "HTTP/1.1 200 OK\r\n\r\n"
	}))
	if got := ask(t, "unix:"+path, path, Check{Type: HTTP}); got != "" {
		t.Errorf("http: %s", got)
	}
}

// Active checks: rule 16 of integration/rules_test.go.
func TestProbesOfTLS(t *testing.T) {
	good, trusted := certFor("db.example.com", "127.0.0.1")
	other, otherPool := certFor("other.example.com")
	needsHTTP := good.Clone()
	needsHTTP.NextProtos = []string{"postgresql"}
	asks := &tls.Config{ // a server that only accepts its own name
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.ServerName != "db.example.com" {
				return nil, io.ErrUnexpectedEOF
			}
			return good, nil
		},
	}
	for name, tc := range map[string]struct {
		handle     func(net.Conn)
		configured string // "" for the address itself
		check      Check
		want       string // the beginning
	}{
		"any certificate without a configuration": {overTLS(other, silent), "", Check{}, ""},
		"the name to ask for without one":         {overTLS(asks, silent), "", Check{Host: "db.example.com"}, ""},
		"another name":                            {overTLS(asks, silent), "", Check{Host: "x.example.com"}, "handshake: remote error: tls: "},
		"verified by server name": {overTLS(good, silent), "",
			Check{TLS: &tls.Config{RootCAs: trusted, ServerName: "db.example.com"}}, ""},
		"verified by the configured host": {overTLS(good, silent), "db.example.com:5432", Check{TLS: &tls.Config{RootCAs: trusted}}, ""},
		"verified by the address":         {overTLS(good, silent), "", Check{TLS: &tls.Config{RootCAs: trusted}}, ""},
		"the wrong name": {overTLS(other, silent), "db.example.com:5432", Check{TLS: &tls.Config{RootCAs: otherPool}},
			"handshake: tls: failed to verify certificate: x509: certificate is valid for other.example.com, not db.example.com"},
		"an unknown authority": {overTLS(other, silent), "other.example.com:1", Check{TLS: &tls.Config{RootCAs: trusted}},
			"handshake: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		"the wrong name unverified": {overTLS(other, silent), "db.example.com:5432", Check{TLS: &tls.Config{InsecureSkipVerify: true}}, ""},
		"no TLS at all":             {says("220 hello\r\n"), "", Check{}, "handshake: tls: first record does not look like a TLS handshake"},
		"silence":                   {silent, "", Check{Timeout: short}, "handshake: timeout after 500ms"},
		"a reset in the handshake":  {resets, "", Check{}, "handshake: connection reset by peer"},
		"a question and its answer": {overTLS(good, answers("PING", "PONG")), "", Check{Send: "PING", Expect: "PONG"}, ""},
		"a wrong answer":            {overTLS(good, says("nothing")), "", Check{Expect: "PONG"}, "expect: unexpected response"},
		"a preface before the TLS":  {afterPreface("PROXY UNKNOWN\r\n", overTLS(good, silent)), "", Check{Preface: "PROXY UNKNOWN\r\n"}, ""},
		"the ALPN that is configured": {overTLS(needsHTTP, silent), "",
			Check{TLS: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"postgresql"}}}, ""},
		"no ALPN in common": {overTLS(needsHTTP, silent), "",
			Check{TLS: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}},
			"handshake: remote error: tls: no application protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			address := testkit.Serve(t, tc.handle)
			tc.check.Type = TLS
			configured := tc.configured
			if configured == "" {
				configured = address
			}
			got := ask(t, configured, address, tc.check)
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// web responds to a request with raw bytes.
func web(answer func(r *http.Request) string) func(net.Conn) {
	return func(conn net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		io.WriteString(conn, answer(r))
	}
}

func status(line string) func(*http.Request) string {
	return func(*http.Request) string { return "HTTP/1.1 " + line + "\r\n\r\n" }
}

// Active checks: rule 16 of integration/rules_test.go.
func TestProbesOfHTTP(t *testing.T) {
	asked := func(method, host, uri string) func(*http.Request) string {
		return func(r *http.Request) string {
			if r.Method != method || r.Host != host || r.RequestURI != uri || !r.Close {
				return "HTTP/1.1 418 " + r.Method + " " + r.Host + " " + r.RequestURI + "\r\n\r\n"
			}
			return "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nthe body never comes"
		}
	}
	certificate, pool := certFor("web.example.com")
	certificate.NextProtos = []string{"http/1.1"}
	for name, tc := range map[string]struct {
		handle func(net.Conn)
		check  Check
		want   string
	}{
		"200":                          {web(status("200 OK")), Check{}, ""},
		"a redirect passes unfollowed": {web(status("302 Found\r\nLocation: http://127.0.0.1:1/")), Check{}, ""},
		"503":                          {web(status("503 Busy")), Check{}, "http: status not accepted (503)"},
		"503 where it is expected":     {web(status("503 Busy")), Check{Status: []int{404, 503}}, ""},
		"200 where it is not":          {web(status("200 OK")), Check{Status: []int{204}}, "http: status not accepted (200)"},
		"hints first":                  {web(status("103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK")), Check{}, ""},
		"path and host": {web(asked("GET", "web.example.com", "/up?full=1")),
			Check{Path: "/up?full=1", Host: "web.example.com"}, ""},
		"the default path and host": {web(asked("GET", "web.example.com:8080", "/")), Check{}, ""},
		"over TLS": {overTLS(certificate, web(asked("GET", "web.example.com:8080", "/"))),
			Check{TLS: &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}}}, ""},
		"a path that is none":   {web(status("200 OK")), Check{Path: "/%zz"}, `http: parse "/%zz": invalid URL escape "%zz"`},
		"no HTTP":               {says("220 smtp.example.com\r\n\r\n"), Check{}, "http: invalid HTTP response"},
		"silence":               {silent, Check{Timeout: short}, "http: timeout after 500ms"},
		"half a status line":    {func(c net.Conn) { bufio.NewReader(c).ReadString('\n'); io.WriteString(c, "HTTP/1.1 20") }, Check{}, "http: "},
		"another protocol":      {says("HTTP/2.0 200 OK\r\n"), Check{}, "http: invalid HTTP response"},
		"no number":             {says("HTTP/1.1 2OO OK\r\n"), Check{}, "http: invalid HTTP response"},
		"an end without answer": {func(c net.Conn) { bufio.NewReader(c).ReadString('\n') }, Check{}, "http: "},
		"an endless head":       {endlessHead, Check{}, "http: connection closed before the full response"},
	} {
		t.Run(name, func(t *testing.T) {
			address := testkit.Serve(t, tc.handle)
			tc.check.Type = HTTP
			got := ask(t, "web.example.com:8080", address, tc.check)
			if got != tc.want && (tc.want != "http: " || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func endlessHead(conn net.Conn) {
	io.WriteString(conn, "HTTP/1.1 100 Continue\r\nX: ")
	for filler := strings.Repeat("x", 1<<12); ; {
		if _, err := io.WriteString(conn, filler); err != nil {
			return
		}
	}
}

func TestErrorsAreShortAndHideTheResponse(t *testing.T) {
	address := testkit.Serve(t, says("password=hunter2\r\n"))
	for _, check := range []Check{{Expect: "220 secret"}, {Type: HTTP}} {
		got := ask(t, address, address, check)
		if got == "" || strings.Contains(got, "hunter2") || strings.Contains(got, "secret") {
			t.Errorf("got %q", got)
		}
	}
	long := ErrorText(&net.DNSError{Err: strings.Repeat("ä", 300), Name: "x"})
	if len(long) > maxErr+3 || !strings.HasSuffix(long, "ä...") {
		t.Errorf("%d bytes: %q", len(long), long)
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	heard := make(chan struct{})
	address := testkit.Serve(t, func(conn net.Conn) { close(heard); silent(conn) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-heard; cancel() }()
	check := Check{Expect: "x", Timeout: time.Hour}
	target := Target{Endpoint: &endpoint.Endpoint{Addr: netip.MustParseAddrPort(address)}, Check: &check}
	if err := newProbe(keyOf(target, ""), target).run(ctx, new(net.Dialer).DialContext); err == nil {
		t.Error("it succeeded")
	}
}

func TestStatusLines(t *testing.T) {
	for line, want := range map[string]int{
		"HTTP/1.1 200 OK": 200, "HTTP/1.0 404 Not Found": 404, "HTTP/1.1 204": 204, "HTTP/1.1 599 ": 599,
		"": 0, "HTTP/1.1": 0, "HTTP/1.1 ": 0, "HTTP/1.1 20": 0, "HTTP/1.1 2000": 0, "HTTP/1.1 -20": 0,
		"HTTP/1.1 099": 0, "HTTP/1.1  200 OK": 0, "http/1.1 200 OK": 0, "HTTP/1.2 200 OK": 0, "ICY 200 OK": 0,
	} {
		status, ok := statusOf(line)
		if ok != (want != 0) || ok && status != want {
			t.Errorf("%q: %d %v, want %d", line, status, ok, want)
		}
	}
}

func FuzzReadStatus(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n",
		"HTTP/1.0 100\n\nHTTP/1.0 101\n", "HTTP/1.1 100 Continue\r\nbad header\r\n\r\n", "220 smtp", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		status, err := readStatus(bytes.NewReader(answer))
		if err != nil {
			return
		}
		if status < 200 && status != http.StatusSwitchingProtocols || status > 999 {
			t.Errorf("status %d of %q", status, answer)
		}
		if !bytes.Contains(answer, []byte(fmt.Sprint(" ", status))) {
			t.Errorf("status %d is nowhere in %q", status, answer)
		}
	})
}

func BenchmarkProbeTCP(b *testing.B) {
	addr := netip.MustParseAddrPort(testkit.Serve(b, func(net.Conn) {}))
	target := Target{Endpoint: &endpoint.Endpoint{Addr: addr}, Check: &Check{Timeout: time.Second}}
	p := newProbe(keyOf(target, ""), target)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.run(b.Context(), new(net.Dialer).DialContext); err != nil {
			b.Fatal(err)
		}
	}
}
