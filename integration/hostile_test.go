package integration

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// hello builds a ClientHello with these extensions, in one record. It suffices
// for routing, not for a handshake.
func hello(extensions ...[]byte) []byte {
	body := []byte("\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00")
	body = appendVector(body, bytes.Join(extensions, nil))
	message := append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return record(message)
}

func record(message []byte) []byte { return appendVector([]byte("\x16\x03\x01"), message) }

// appendVector appends b with a length prefix of two bytes.
func appendVector(dst, b []byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(b))), b...)
}

func extension(kind uint16, body []byte) []byte {
	return appendVector(binary.BigEndian.AppendUint16(nil, kind), body)
}

// sni returns a server_name extension with these names.
func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = appendVector(append(list, 0), []byte(n))
	}
	return extension(0, appendVector(nil, list))
}

// goHello returns a ClientHello of crypto/tls.
func goHello(t *testing.T, name string) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		near.Close()
	}()
	head := make([]byte, 5)
	if _, err := io.ReadFull(far, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(far, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

// mustRefuse waits for the connection to close; a TLS alert may come before.
func mustRefuse(t *testing.T, c net.Conn) {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) || len(got) > 0 && (len(got) != 7 || got[0] != 21) {
		t.Fatalf("read %x, %v; want the connection closed", got, err)
	}
}

// keepBusy exchanges data with an echoing endpoint, hundreds of times per
// second, until stop is called, which fails the test if an exchange failed.
func keepBusy(t *testing.T, c net.Conn) (stop func()) {
	_ = c.SetDeadline(time.Now().Add(10 * testkit.Patience))
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		p := []byte("are you still there?")
		for {
			select {
			case <-quit:
				done <- nil
				return
			case <-time.After(time.Millisecond): // leaves the CPU to the test
			}
			_, err := c.Write(p)
			if err == nil {
				_, err = io.ReadFull(c, p)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	return func() {
		t.Helper()
		close(quit)
		if err := <-done; err != nil {
			t.Errorf("an established connection was disturbed: %v", err)
		}
	}
}

// rule 2: an undecidable server name never falls through, neither to the
// default service nor to a certificate.
// rule 3: no trailing dots, addresses, empty or duplicate names.
// rule 20: each connection ends with a reason in access log and metrics.
func TestBadHellos(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	upstream := newManualServer(t)
	n := startNode(t, certificate("a", ca.issue("a.example.com"))+
		service("upstream", []string{upstream.addr()})+service("echo", []string{testkit.Serve(t, echo)})+
		listener("echo", "service: echo")+
		// Both have a destination for every decidable name.
		listener("pass", "protocol: tls", "hosts: [{names: [a.example.com], service: upstream}]", "service: upstream")+
		listener("end", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]}",
			"hosts: [{names: [a.example.com], service: upstream}]", "service: upstream")+
		listener("any", "protocol: tls", "service: upstream", "noServerName: service"))
	busy := keepBusy(t, dial(t, n.addr("echo")))
	long := append([]byte{1, 0, 0x3f, 0xfd}, make([]byte, 16<<10-3)...) // 16 KiB + 1 with the record header
	want := map[string]int{}
	for name, test := range map[string]struct {
		bytes  []byte
		reason string
	}{
		"HTTP":              {[]byte("GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n"), "bad_hello"},
		"zeros":             {make([]byte, 100), "bad_hello"},
		"an alert":          {[]byte("\x15\x03\x01\x00\x02\x02\x28"), "bad_hello"},
		"a ServerHello":     {record([]byte("\x02\x00\x00\x26\x03\x03" + strings.Repeat("r", 32) + "\x00\x13\x01\x00")), "bad_hello"},
		"an empty hello":    {record([]byte("\x01\x00\x00\x00")), "bad_hello"},
		"an empty record":   {[]byte("\x16\x03\x01\x00\x00"), "bad_hello"},
		"cut extensions":    {hello([]byte("\x00\x00\x00\xff")), "bad_hello"},
		"SSL 2":             {[]byte("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + strings.Repeat("x", 40)), "bad_hello"},
		"more than 16 KiB":  {append(record(long[:1<<14]), record(long[1<<14:])...), "hello_too_long"},
		"two names":         {hello(sni("a.example.com", "b.example.com")), "bad_"},
		"twice the name":    {hello(sni("a.example.com"), sni("a.example.com")), "bad_"},
		"an address":        {hello(sni("127.0.0.1")), "bad_sni"},
		"an IPv6 address":   {hello(sni("::1")), "bad_sni"},
		"a trailing dot":    {hello(sni("a.example.com.")), "bad_sni"},
		"an empty name":     {hello(sni("")), "bad_"},
		"an empty label":    {hello(sni("a..example.com")), "bad_sni"},
		"a zero byte":       {hello(sni("a.example.com\x00.evil.test")), "bad_"},
		"a blank":           {hello(sni("a example.com")), "bad_sni"},
		"a name of 300":     {hello(sni(strings.Repeat("a.", 150) + "com")), "bad_"},
		"no ASCII":          {hello(sni("b\xfccher.example")), "bad_"},
		"a wildcard":        {hello(sni("*.example.com")), "bad_sni"},
		"no name":           {hello(), "no_sni"},
		"no name, unknowns": {hello(extension(0x0a0a, nil), extension(0xfe99, []byte("x"))), "no_sni"},
	} {
		for _, listener := range []string{"pass", "end", "any"} {
			if listener == "any" && test.reason == "no_sni" {
				continue // allowed by noServerName
			}
			c := dial(t, n.addr(listener))
			_, _ = c.Write(test.bytes)
			mustRefuse(t, c)
			a := n.end(c.LocalAddr())
			if !strings.HasPrefix(a.Reason, test.reason) || a.Service != "" {
				t.Errorf("%s at %s: ended with %q at service %q, want %q", name, listener, a.Reason, a.Service, test.reason)
			}
			want[a.Reason]++
		}
	}
	for reason, count := range want {
		if got := n.metric("connections_total", fmt.Sprintf("result=%q", reason), `service=""`); got != float64(count) {
			t.Errorf("connections_total has %v for %s, want %d", got, reason, count)
		}
	}
	if len(upstream.accepted) > 0 {
		t.Errorf("%d connections reached the endpoint", len(upstream.accepted))
	}
	// A missing name is routed by noServerName; capital letters match.
	for _, b := range [][]byte{hello(), hello(sni("A.Example.COM"), extension(0x1a1a, nil))} {
		c := dial(t, n.addr("any"))
		mustWrite(t, c, string(b))
		mustRead(t, upstream.accept(), string(b))
	}
	busy()
}

// rule 1: a hello is reassembled from any segmentation, and has a deadline.
func TestHellosInPieces(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()})+service("echo", []string{testkit.Serve(t, echo)})+
		listener("echo", "service: echo")+
		listener("pass", "protocol: tls", "hosts: [{names: [a.example.com], service: upstream}]")+
		listener("hasty", "protocol: tls", "hosts: [{names: [a.example.com], service: upstream}]", "timeouts: {hello: 300ms}"))
	busy := keepBusy(t, dial(t, n.addr("echo")))
	pass, hasty := n.addr("pass"), n.addr("hasty")
	whole := goHello(t, "a.example.com")

	// In two segments, in two records, and byte by byte.
	for at := 1; at < len(whole); at += 1 + len(whole)/40 {
		c := dial(t, pass)
		mustWrite(t, c, string(whole[:at]))
		mustWrite(t, c, string(whole[at:]))
		mustRead(t, upstream.accept(), string(whole))
	}
	for at := 1; at < len(whole)-5; at += 1 + len(whole)/40 {
		c := dial(t, pass)
		two := string(record(whole[5:5+at])) + string(record(whole[5+at:]))
		mustWrite(t, c, two)
		mustRead(t, upstream.accept(), two)
	}
	c := dial(t, pass)
	for _, b := range whole {
		mustWrite(t, c, string([]byte{b}))
	}
	mustRead(t, upstream.accept(), string(whole))

	// Truncated by the client, and by the deadline.
	var waiting []net.Conn
	for at := 0; at < len(whole); at += 1 + len(whole)/40 {
		c := dial(t, pass)
		mustWrite(t, c, string(whole[:at]))
		closeWrite(c)
		mustClose(t, c)
		n.wantEnd(c, "client_gone")
		c = dial(t, hasty)
		mustWrite(t, c, string(whole[:at]))
		waiting = append(waiting, c)
	}
	for _, c := range waiting {
		mustClose(t, c)
		n.wantEnd(c, "hello_timeout")
	}

	// Single bytes do not extend the deadline.
	c = dial(t, hasty)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, b := range whole {
		if _, err := c.Write([]byte{b}); err != nil {
			break
		}
		<-tick.C
	}
	if a := n.end(c.LocalAddr()); a.Reason != "hello_timeout" {
		t.Errorf("a hello that trickles ended with %q", a.Reason)
	}
	if len(upstream.accepted) > 0 {
		t.Errorf("%d connections reached the endpoint", len(upstream.accepted))
	}
	busy()
}

// A handshake that stalls, and one that sends garbage after its hello.
func TestBadHandshakes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	n := startNode(t, certificate("a", ca.issue("a.example.com"))+service("echo", []string{testkit.Serve(t, echo)})+
		listener("end", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]}", "service: echo")+
		listener("hasty", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]}", "service: echo", "timeouts: {handshake: 300ms}"))
	addr := n.addr("end")
	busy := keepBusy(t, dialTLS(t, addr, ca.Client("a.example.com")))
	whole := goHello(t, "a.example.com")

	silent := dial(t, n.addr("hasty"))
	mustWrite(t, silent, string(whole))
	n.wantEnd(silent, "handshake_timeout")

	garbage := dial(t, addr)
	mustWrite(t, garbage, string(whole)+"this is no TLS, and it is long enough to be a record")
	n.wantEnd(garbage, "handshake_failed")

	old := dial(t, addr) // offers only TLS 1.2 with an unknown cipher
	mustWrite(t, old, string(hello(sni("a.example.com"))))
	n.wantEnd(old, "handshake_failed")

	gone := dial(t, addr)
	mustWrite(t, gone, string(whole))
	if _, err := gone.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	abort(t, gone)
	n.wantEnd(gone, "handshake_failed")
	busy()
}
