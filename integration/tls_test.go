package integration

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

func TestPassthroughKeepsTheEndpointsTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "endpoints")
	config := func(names ...string) *tls.Config {
		c := ca.issue(names...).server()
		c.NextProtos = []string{"h2", "http/1.1"}
		return c
	}
	n := startNode(t, service("api", []string{tlsNamed(t, "api", config("api.example.com"))})+
		service("apps", []string{tlsNamed(t, "apps", config("*.apps.example.com", "x.y.apps.example.com"))})+
		service("deep", []string{tlsNamed(t, "deep", config("a.deep.apps.example.com"))})+
		listener("edge", "protocol: tls", "hosts:",
			"- {names: [api.example.com], service: api}",
			`- {names: ["*.apps.example.com"], service: apps}`,
			`- {names: ["*.deep.apps.example.com"], service: deep}`))
	addr := n.addr("edge")
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		r := sClient(t, addr, "api", version, "-servername", "api.example.com", "-alpn", "h2", "-CAfile", ca.file, "-verify_return_error")
		for _, want := range []string{"subject=CN = api.example.com", "ALPN protocol: h2", "Verification: OK"} {
			if !strings.Contains(r, want) {
				t.Errorf("%s: s_client does not say %q:\n%s", version, want, r)
			}
		}
	}
	// rule 4: exact first, then the wildcard with most labels, which may match
	// several labels.
	for name, want := range map[string]string{
		"api.example.com": "api", "x.apps.example.com": "apps", "x.y.apps.example.com": "apps", "a.deep.apps.example.com": "deep",
	} {
		mustRead(t, dialTLS(t, addr, ca.Client(name)), want+"\n")
	}
	// rule 4: never the apex, which then has no match.
	for _, name := range []string{"apps.example.com", "example.com", "other.test"} {
		c := dial(t, addr)
		if err := tls.Client(c, ca.Client(name)).Handshake(); err == nil {
			t.Errorf("%s: somebody answered", name)
		}
		n.wantEnd(c, "no_route")
	}
}

// rule 1: hellos larger than a segment. Go's own uses ML-KEM; for openssl, ALPN
// protocols pad the hello.
func TestLargeHellos(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	p := ca.issue("big.example.com")
	n := startNode(t, certificate("big", p)+service("pass", []string{tlsNamed(t, "pass", p.server())})+
		service("end", []string{named(t, "end")})+
		listener("pass", "protocol: tls", "service: pass")+
		listener("end", "protocol: tls", "tls: {mode: terminate, certificateRefs: [big]}", "service: end"))
	for _, name := range []string{"pass", "end"} {
		config := ca.Client("big.example.com")
		config.CurvePreferences = []tls.CurveID{tls.X25519MLKEM768}
		c := dialTLS(t, n.addr(name), config)
		mustRead(t, c, name+"\n")
		if got := c.ConnectionState().CurveID; got != tls.X25519MLKEM768 {
			t.Errorf("%s: the handshake used %v", name, got)
		}
		roundTrip(t, c, "hello")

		protocols := strings.Repeat(strings.Repeat("x", 249)+",", 55) + "h2" // 13.75 KB
		r := sClient(t, n.addr(name), name, "-servername", "big.example.com", "-alpn", protocols, "-CAfile", ca.file, "-verify_return_error")
		if !strings.Contains(r, "Verification: OK") || !strings.Contains(r, name+"\n") {
			t.Errorf("%s: a hello of 14 KB:\n%s", name, r)
		}
		protocols = strings.Repeat(strings.Repeat("x", 249)+",", 70) + "h2" // 17.5 KB
		before := n.metric("connections_total", `result="hello_too_long"`)
		if r := sClient(t, n.addr(name), "", "-servername", "big.example.com", "-alpn", protocols); strings.Contains(r, "BEGIN CERTIFICATE") {
			t.Errorf("%s: a hello of 17 KB was taken:\n%s", name, r)
		}
		testkit.WaitFor(t, "the refusal to be counted", func() bool {
			return n.metric("connections_total", `result="hello_too_long"`) == before+1
		})
	}
}

// rule 5: a HelloRetryRequest leads to a second hello. X448 is first in the
// client's list, so its key share is not supported by Go's servers.
func TestHelloRetry(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	p := ca.issue("a.example.com")
	n := startNode(t, certificate("a", p)+service("pass", []string{tlsNamed(t, "pass", p.server())})+
		service("end", []string{named(t, "end")})+
		listener("pass", "protocol: tls", "hosts: [{names: [a.example.com], service: pass}]")+
		listener("end", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]}", "hosts: [{names: [a.example.com], service: end}]"))
	for _, name := range []string{"pass", "end"} {
		r := sClient(t, n.addr(name), name,
			"-tls1_3", "-groups", "X448:X25519", "-servername", "a.example.com", "-CAfile", ca.file, "-verify_return_error", "-msg")
		if strings.Count(r, "ClientHello") != 2 || !strings.Contains(r, name+"\n") {
			t.Errorf("%s:\n%s", name, r)
		}
	}
}

// rule 3: one matcher selects both route and certificate.
func TestTerminatedListenerShowsTheCertificateOfTheName(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	n := startNode(t, certificate("exact", ca.issue("a.example.com"))+certificate("wild", ca.issue("*.example.com"))+
		service("one", []string{named(t, "endpoint-1")})+service("two", []string{named(t, "endpoint-2")})+
		listener("edge", "protocol: tls", "tls: {mode: terminate, certificateRefs: [wild, exact], alpn: [h2, http/1.1]}",
			`hosts: [{names: [a.example.com], service: one}, {names: ["*.example.com"], service: two}]`, "service: two")+
		listener("modern", "protocol: tls", `tls: {mode: terminate, certificateRefs: [wild], minVersion: "1.3"}`, "service: two"))
	addr := n.addr("edge")
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		for name, want := range map[string][2]string{
			"a.example.com": {"endpoint-1", "subject=CN = a.example.com"},
			"b.example.com": {"endpoint-2", "subject=CN = *.example.com"},
		} {
			r := sClient(t, addr, want[0], version, "-servername", name,
				"-alpn", "http/1.1", "-CAfile", ca.file, "-verify_return_error", "-verify_hostname", name)
			for _, w := range []string{want[1], want[0] + "\n", "Verification: OK", "ALPN protocol: http/1.1"} {
				if !strings.Contains(r, w) {
					t.Errorf("%s %s: s_client does not say %q:\n%s", version, name, w, r)
				}
			}
		}
	}
	// rule 2: a name without a certificate gets none rather than another name's.
	c := dial(t, addr)
	if err := tls.Client(c, &tls.Config{ServerName: "other.test", InsecureSkipVerify: true}).Handshake(); err == nil {
		t.Error("a certificate was shown to a client that asked for another name")
	}
	n.wantEnd(c, "no_certificate")

	before := n.metric("connections_total", `result="handshake_failed"`)
	if r := sClient(t, n.addr("modern"), "", "-tls1_2", "-servername", "b.example.com"); !strings.Contains(r, "alert protocol version") {
		t.Errorf("TLS 1.2 where 1.3 is the least:\n%s", r)
	}
	testkit.WaitFor(t, "the refusal to be counted", func() bool {
		return n.metric("connections_total", `result="handshake_failed"`) == before+1
	})
	if r := sClient(t, n.addr("modern"), "endpoint-2", "-tls1_3", "-servername", "b.example.com"); !strings.Contains(r, "endpoint-2\n") {
		t.Errorf("TLS 1.3:\n%s", r)
	}
}

func TestCurlThroughATerminatedListener(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	n := startNode(t, certificate("web", ca.issue("web.example.com"))+service("web", []string{webServer(t, "web")})+
		listener("edge", "protocol: tls", "tls: {mode: terminate, certificateRefs: [web], alpn: [http/1.1]}", "service: web"))
	_, port, _ := net.SplitHostPort(n.addr("edge"))
	url := "https://web.example.com:" + port
	r := peer(t, "", "curl", "-sS", "--fail", "--cacert", ca.file, "--resolve", "web.example.com:"+port+":127.0.0.1", url+"/one", url+"/two")
	if r.code != 0 || r.out != "web /one\nweb /two\n" {
		t.Errorf("curl: exit code %d, %q\n%s", r.code, r.out, r.err)
	}
}

// Sessions resume across replaced certificates and changed listeners, but never
// on listeners with other client authentication.
func TestSessionsAreResumed(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	edge := func(more string) string {
		return listener("edge", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]"+more+"}", "service: one")
	}
	n := startNode(t, certificate("a", ca.issue("a.example.com"))+service("one", []string{named(t, "endpoint-1")})+edge("")+
		listener("strict", "protocol: tls", fmt.Sprintf("tls: {mode: terminate, certificateRefs: [a], "+
			"clientAuth: {mode: request, ca: %q}}", ca.file), "service: one"))
	session := filepath.Join(t.TempDir(), "session")
	connect := func(listener, version, flag string) string {
		t.Helper()
		// With TLS 1.3 the tickets arrive before the endpoint's first byte.
		r := sClient(t, n.addr(listener), "endpoint-1", version, "-servername", "a.example.com", flag, session)
		switch {
		case strings.Contains(r, "\nReused, "):
			return "resumed"
		case strings.Contains(r, "\nNew, "):
			return "full"
		}
		t.Fatalf("s_client says neither:\n%s", r)
		return ""
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: the handshake was %s, want %s", what, got, want)
		}
	}
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		want(version+" the first", connect("edge", version, "-sess_out"), "full")
		if text, err := os.ReadFile(session); err != nil || len(text) == 0 {
			t.Fatalf("%s: no session was given: %v", version, err)
		}
		want(version+" the second", connect("edge", version, "-sess_in"), "resumed")
		n.apply(certificate("a", ca.issue("a.example.com")))
		want(version+" with another certificate", connect("edge", version, "-sess_in"), "resumed")
		n.apply(edge(", alpn: [http/1.1]") + service("two", []string{named(t, "endpoint-2")}))
		want(version+" with a changed listener", connect("edge", version, "-sess_in"), "resumed")
		want(version+" where clients are asked for certificates", connect("strict", version, "-sess_in"), "full")
		n.apply(edge(""))
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "somebody else")
	good, bad := ca.issue("client"), other.issue("client")
	auth := func(mode string) string {
		return fmt.Sprintf("tls: {mode: terminate, certificateRefs: [a], clientAuth: {mode: %s, ca: %q}}", mode, ca.file)
	}
	n := startNode(t, certificate("a", ca.issue("a.example.com"))+service("one", []string{named(t, "endpoint-1")})+
		listener("require", "protocol: tls", auth("require"), "service: one")+
		listener("request", "protocol: tls", auth("request"), "service: one"))
	for _, c := range []struct {
		listener string
		show     *pair
		taken    bool
	}{
		{"require", &good, true}, {"require", &bad, false}, {"require", nil, false},
		{"request", &good, true}, {"request", &bad, false}, {"request", nil, true},
	} {
		for _, version := range []string{"-tls1_2", "-tls1_3"} {
			args := []string{version, "-servername", "a.example.com", "-CAfile", ca.file}
			if c.show != nil {
				args = append(args, "-cert", c.show.certFile, "-key", c.show.keyFile)
			}
			reason := `result="handshake_bad_certificate"`
			if c.show == nil {
				reason = `result="handshake_no_certificate"`
			}
			failed := n.metric("connections_total", reason)
			r := sClient(t, n.addr(c.listener), "endpoint-1", args...)
			if taken := strings.Contains(r, "endpoint-1\n"); taken != c.taken {
				t.Errorf("%s %s, certificate %v: taken is %v:\n%s", c.listener, version, c.show != nil, taken, r)
			}
			if !c.taken {
				testkit.WaitFor(t, "the refusal to be counted", func() bool {
					return n.metric("connections_total", reason) == failed+1
				})
			}
		}
	}
}

// rule 7: TLS that ends without close_notify is truncated, and is forwarded as
// such.
func TestTruncatedTLSStaysTruncated(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	p := ca.issue("a.example.com")
	upstream := newManualServer(t)
	n := startNode(t, certificate("a", p)+service("plain", []string{upstream.addr()})+
		service("secure", []string{upstream.addr()}, fmt.Sprintf("tls: {ca: %q, serverName: a.example.com}", ca.file))+
		listener("end", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]}", "service: plain")+
		listener("plain", "service: secure"))

	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config := ca.Client("a.example.com")
		config.MaxVersion = version
		// The client sends a record and then a FIN without close_notify.
		raw := dial(t, n.addr("end"))
		client := tls.Client(raw, config)
		mustWrite(t, client, "half a message")
		endpoint := upstream.accept()
		mustRead(t, endpoint, "half a message")
		closeWrite(raw)
		mustReset(t, endpoint)
		n.wantEnd(raw, "client_reset")

		// With close_notify it is an end of stream, and the answer still arrives.
		raw = dial(t, n.addr("end"))
		client = tls.Client(raw, config)
		mustWrite(t, client, "a message")
		endpoint = upstream.accept()
		mustRead(t, endpoint, "a message")
		closeWrite(client)
		mustEnd(t, endpoint)
		mustWrite(t, endpoint, "the answer")
		endpoint.Close()
		if got, err := io.ReadAll(client); err != nil || string(got) != "the answer" {
			t.Errorf("after close_notify the client reads %q, %v", got, err)
		}
		n.wantEnd(raw, "client_fin")

		// An endpoint with TLS whose stream is truncated.
		raw = dial(t, n.addr("plain"))
		endpoint = upstream.accept()
		server := p.server()
		server.MaxVersion = version
		mustWrite(t, tls.Server(endpoint, server), "half an answer")
		mustRead(t, raw, "half an answer")
		closeWrite(endpoint)
		mustReset(t, raw)
		n.wantEnd(raw, "upstream_reset")
	}
}

func TestUpstreamTLS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "somebody else")
	config := ca.issue("endpoint.example.com").server()
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool
	to := []string{tlsNamed(t, "secure", config)}
	towards := func(ca *authority, name, more string) string {
		return fmt.Sprintf("tls: {ca: %q, serverName: %s%s}", ca.file, name, more)
	}
	n := startNode(t, certificate("client", ca.issue("penstock"))+
		service("good", to, towards(ca, "endpoint.example.com", ", certificateRef: client"))+listener("good", "service: good")+
		service("other-ca", to, towards(other, "endpoint.example.com", ", certificateRef: client"))+listener("other-ca", "service: other-ca")+
		service("other-name", to, towards(ca, "other.example.com", ", certificateRef: client"))+listener("other-name", "service: other-name")+
		service("unverified", to, "tls: {insecureSkipVerify: true, certificateRef: client}")+listener("unverified", "service: unverified")+
		service("plain", []string{named(t, "plain")}, towards(ca, "endpoint.example.com", ""))+listener("plain", "service: plain"))
	for _, name := range []string{"good", "unverified"} {
		c := dial(t, n.addr(name))
		mustRead(t, c, "secure\n")
		roundTrip(t, c, "hello")
	}
	for _, name := range []string{"other-ca", "other-name", "plain"} {
		n.wantRefused(name, "upstream_tls")
	}
}

func TestLargeTransfersThroughTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	p := ca.issue("a.example.com")
	l := tls.NewListener(testkit.Listen(t), p.server())
	testkit.ServeOn(t, l, echoAny)
	n := startNode(t, certificate("a", p)+
		service("secure", []string{l.Addr().String()}, fmt.Sprintf("tls: {ca: %q, serverName: a.example.com}", ca.file))+
		listener("both", "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]}", "service: secure"))
	c := dialTLS(t, n.addr("both"), ca.Client("a.example.com"))
	sent := make(chan string, 1)
	go func() {
		d, err := noise(c, 3, bulk)
		if err == nil {
			err = c.CloseWrite()
		}
		sent <- fmt.Sprint(d, err)
	}()
	got, size, err := digest(c)
	if want := <-sent; size != bulk || want != fmt.Sprint(got, error(nil)) || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("%d of %d bytes came back, %v", size, bulk, err)
	}
}
