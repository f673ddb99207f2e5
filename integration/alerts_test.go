package integration

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// A failed TLS handshake with a client is reported with its reason in the
// metrics and the access log, and with the error in the log. The clients are
// OpenSSL and Go, with TLS 1.2 and 1.3.
func TestTLSCloseReasons(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "somebody else")
	wrong, expired := other.issue("client"), ca.issueUntil(-time.Hour, "client")
	n := startNode(t, certificate("a", ca.issue("a.example.com"))+
		service("one", []string{named(t, "endpoint-1")})+
		listener("edge", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a], alpn: [h2, http/1.1]}", "service: one")+
		listener("modern", "protocol: tls", `tls: {mode: terminate, certificateRefs: [a], minVersion: "1.3"}`, "service: one")+
		listener("auth", "protocol: tls",
			fmt.Sprintf("tls: {mode: terminate, certificateRefs: [a], clientAuth: {mode: require, ca: %q}}", ca.file), "service: one"))
	show := func(p pair) []string { return []string{"-cert", p.certFile, "-key", p.keyFile} }
	trusting := []string{"-CAfile", ca.file, "-verify_return_error"}
	for _, c := range []struct {
		what, listener, name string
		args                 []string         // of s_client
		change               func(*tlsClient) // for the Go client, which trusts ca
		version              uint16           // 0: both
		reason, text         string           // text: part of the logged error
	}{
		{"a client that trusts another CA", "edge", "a.example.com", []string{"-CAfile", other.file, "-verify_return_error"},
			func(c *tlsClient) { c.RootCAs = other.Pool }, 0, "handshake_refused", "remote error: tls: "},
		{"a certificate for another name", "edge", "a.example.com", append(trusting, "-verify_hostname", "b.example.com"),
			func(c *tlsClient) { c.verify = "b.example.com" }, 0, "handshake_refused", "bad certificate"},
		{"no version in common", "modern", "a.example.com", trusting,
			func(*tlsClient) {}, tls.VersionTLS12, "handshake_failed", "nothing in common"},
		{"no cipher suite in common", "edge", "a.example.com", append(trusting, "-cipher", "AES256-SHA256"),
			nil, tls.VersionTLS12, "handshake_failed", "nothing in common"},
		{"no protocol in common", "edge", "a.example.com", append(trusting, "-alpn", "smtp"),
			func(c *tlsClient) { c.NextProtos = []string{"smtp"} }, 0, "handshake_failed", "nothing in common"},
		{"a name without a certificate", "edge", "b.example.com", trusting, func(*tlsClient) {}, 0, "no_certificate", ""},
		{"no name", "edge", "", append(trusting, "-noservername"), func(c *tlsClient) { c.InsecureSkipVerify = true }, 0, "no_sni", ""},
		{"no client certificate", "auth", "a.example.com", trusting, func(*tlsClient) {}, 0, "handshake_no_certificate", "showed no certificate"},
		{"a client certificate of another CA", "auth", "a.example.com", append(show(wrong), trusting...),
			func(c *tlsClient) { c.presentCertificate(wrong.TLS) }, 0, "handshake_bad_certificate", "unknown authority"},
		{"a client certificate that has expired", "auth", "a.example.com", append(show(expired), trusting...),
			func(c *tlsClient) { c.presentCertificate(expired.TLS) }, 0, "handshake_bad_certificate", "expired"},
	} {
		addr := n.addr(c.listener)
		for version, flag := range map[uint16]string{tls.VersionTLS12: "-tls1_2", tls.VersionTLS13: "-tls1_3"} {
			if c.version != 0 && c.version != version {
				continue
			}
			what := fmt.Sprintf("%s, %s", c.what, flag)
			args := append([]string{flag}, c.args...)
			if c.name != "" {
				args = append(args, "-servername", c.name)
			}
			seen := len(n.accesses())
			_ = sClient(t, addr, "", args...)
			n.wantCloseLine(what+", s_client", seen, c.reason, c.text)
			if c.change == nil {
				continue
			}
			conn := &tlsClient{Config: ca.Client(c.name)}
			conn.MinVersion, conn.MaxVersion = version, version
			c.change(conn)
			seen = len(n.accesses())
			conn.handshake(t, addr)
			n.wantCloseLine(what+", Go", seen, c.reason, c.text)
		}
	}
	whole := string(goHello(t, "a.example.com"))
	for what, c := range map[string][3]string{
		"HTTP in the clear":                   {"GET / HTTP/1.1\r\nHost: a.example.com\r\n\r\n", "bad_hello", ""},
		"an alert instead of a hello":         {"\x15\x03\x01\x00\x02\x01\x00", "bad_hello", ""},
		"close_notify in the middle of TLS":   {whole + "\x15\x03\x03\x00\x02\x01\x00", "handshake_failed", "closed by the peer"},
		"an alert in the clear, keys or no":   {whole + "\x15\x03\x03\x00\x02\x02\x2e", "handshake_refused", "unknown certificate"},
		"bytes that are no TLS in its middle": {whole + "GET / HTTP/1.1\r\n\r\n", "handshake_failed", "protocol violation"},
	} {
		seen := len(n.accesses())
		conn := dial(t, n.addr("edge"))
		if _, err := conn.Write([]byte(c[0])); err != nil {
			t.Fatal(err)
		}
		n.wantCloseLine(what, seen, c[1], c[2])
		_ = conn.Close()
	}
}

// tlsClient is a Go TLS client.
type tlsClient struct {
	*tls.Config
	verify string // name to verify the certificate against; "": ServerName
}

// presentCertificate makes the client send a certificate, even of a CA that the
// server does not accept.
func (c *tlsClient) presentCertificate(cert tls.Certificate) {
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
}

// handshake performs a handshake and reads: in TLS 1.3 a refusal arrives only
// then.
func (c *tlsClient) handshake(t *testing.T, addr string) {
	t.Helper()
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(testkit.Patience))
	if c.verify != "" {
		c.VerifyConnection = func(s tls.ConnectionState) error { return s.PeerCertificates[0].VerifyHostname(c.verify) }
	}
	conn := tls.Client(raw, c.Config)
	if conn.Handshake() == nil {
		_, _ = conn.Read(make([]byte, 1))
	}
}

// wantCloseLine waits for an access log line after the first seen ones.
func (n *node) wantCloseLine(what string, seen int, reason, text string) {
	n.t.Helper()
	var a access
	testkit.WaitFor(n.t, "the line of "+what, func() bool {
		all := n.accesses()
		i := slices.IndexFunc(all[seen:], func(a access) bool { return a.Msg == "connection closed" })
		if i >= 0 {
			a = all[seen+i]
		}
		return i >= 0
	})
	if a.Reason != reason || !strings.Contains(a.Error, text) || strings.Contains(a.Error, "MAC") {
		n.t.Errorf("%s: %s %q, want %s with %q", what, a.Reason, a.Error, reason, text)
	}
}
