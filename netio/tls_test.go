package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/clienthello"
	"penstock/netio/proxyproto"
)

// terminating returns a listener with a certificate for the name.
func terminating(t testing.TB, name string) (Listener, *tls.Config) {
	own := certs.SelfSigned(name)
	server := &tls.Config{Certificates: []tls.Certificate{own.TLS}, NextProtos: []string{"h2", "echo"}}
	spec := Listener{Mode: ModeTerminate, TLSConfig: func(h *clienthello.Hello) (*tls.Config, Reason) {
		if h.ServerName != name {
			return nil, "no_certificate"
		}
		return server, OK
	}}
	return spec, &tls.Config{ServerName: name, RootCAs: own.Pool(), NextProtos: []string{"echo"}}
}

func TestTerminatedTLS(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{IdleTimeout: time.Minute})
	routed := r.watch()
	spec, config := terminating(t, "api.example.com")
	raw := dial(t, r.serve(t, spec))
	c := tls.Client(raw, config)
	roundTrip(t, c, "hello")
	s := <-routed
	if s.name != "api.example.com" || s.state == nil || s.state.NegotiatedProtocol != "echo" || !s.state.HandshakeComplete {
		t.Errorf("routed by %+v", s)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, c, "")
	if e := r.wantEnd(t, ClientFIN); e.in != 5 || e.out != 5 {
		t.Errorf("ending %+v, want the plain bytes", e)
	}
	testkit.WaitFor(t, "no bytes to be charged", func() bool { st := r.Stats(); return st.BudgetUsed == 0 && st.Handshakes == 0 })
}

// rule 7: a TLS stream that ends without close_notify was truncated, and is
// forwarded as a reset.
func TestTruncatedTLSIsAReset(t *testing.T) {
	end := make(chan error, 1)
	r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
		_, err := io.Copy(c, c)
		end <- err
	}), Profile{})
	spec, config := terminating(t, "api.example.com")
	raw := dial(t, r.serve(t, spec))
	roundTrip(t, tls.Client(raw, config), "half of it")
	raw.CloseWrite()
	if err := <-end; err == nil {
		t.Error("the endpoint saw a clean end")
	}
	r.wantEnd(t, ClientReset)
}

// rule 2: a name without a certificate gets none, not a default one.
func TestTerminatedTLSWithoutCertificate(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	routed := r.watch()
	spec, config := terminating(t, "api.example.com")
	config.ServerName = "other.example.com"
	err := tls.Client(dial(t, r.serve(t, spec)), config).Handshake()
	if err == nil || err.Error() != "remote error: tls: unrecognized name" {
		t.Errorf("the client saw %v", err)
	}
	if r.wantEnd(t, "no_certificate"); len(routed) != 0 {
		t.Error("it was routed")
	}
}

// A listener may close without an alert, for some or all reasons.
func TestRefusalWithoutAnAlert(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	spec, config := terminating(t, "api.example.com")
	spec.Alert = func(why Reason) bool { return why != "no_certificate" }
	config.ServerName = "other.example.com"
	if err := tls.Client(dial(t, r.serve(t, spec)), config).Handshake(); !errors.Is(err, io.EOF) {
		t.Errorf("the client saw %v, want a FIN", err)
	}
	r.wantEnd(t, "no_certificate")
	spec.Alert = func(why Reason) bool { return why == "no_certificate" }
	if err := tls.Client(dial(t, r.serve(t, spec)), config).Handshake(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the client saw %v, want an alert", err)
	}
}

func TestHandshakesThatFail(t *testing.T) {
	spec, config := terminating(t, "api.example.com")
	hello := string(clientHello(t, "api.example.com"))
	for name, test := range map[string]struct {
		client func(*net.TCPConn)
		why    Reason
	}{
		"the client trusts nobody": {func(c *net.TCPConn) {
			_ = tls.Client(c, &tls.Config{ServerName: "api.example.com"}).Handshake()
		}, HandshakeRefused},
		"the client asks for what there is not": {func(c *net.TCPConn) {
			_ = tls.Client(c, &tls.Config{ServerName: "api.example.com", RootCAs: config.RootCAs, NextProtos: []string{"smtp"}}).Handshake()
		}, HandshakeFailed},
		"the client leaves":       {func(c *net.TCPConn) { _, _ = io.WriteString(c, hello); c.CloseWrite() }, HandshakeFailed},
		"the client says no more": {func(c *net.TCPConn) { _, _ = io.WriteString(c, hello) }, HandshakeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			spec := spec
			if test.why == HandshakeTimeout {
				spec.HandshakeTimeout = 150 * time.Millisecond
			}
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			c := dial(t, r.serve(t, spec))
			test.client(c)
			r.wantEnd(t, test.why)
			testkit.WaitFor(t, "the handshake to be over", func() bool { return r.Stats().Handshakes == 0 })
		})
	}
}

// The number of concurrent handshakes is bounded; excess ones are refused.
func TestTooManyHandshakes(t *testing.T) {
	r := newRig(t, Config{MaxHandshakes: 1}, testkit.Serve(t, echo), Profile{})
	spec, config := terminating(t, "api.example.com")
	addr := r.serve(t, spec)
	slow := dial(t, addr)
	mustWrite(t, slow, string(clientHello(t, "api.example.com")))
	testkit.WaitFor(t, "the slow one to begin", func() bool { return r.Stats().Handshakes == 1 })
	if err := tls.Client(dial(t, addr), config).Handshake(); err == nil {
		t.Error("a second handshake was let in")
	}
	r.wantEnd(t, LimitHandshakes)
	if n := r.Stats().Refused[LimitHandshakes]; n != 1 {
		t.Errorf("%d counted", n)
	}
	slow.Close()
	r.waitEndings(t, 2)
	testkit.WaitFor(t, "the place to be free", func() bool { return r.Stats().Handshakes == 0 })
	roundTrip(t, tls.Client(dial(t, addr), config), "now")
}

// Stalled handshakes from one address, up to the limit, do not block other
// addresses.
func TestHandshakesOfOneAddressKeepNobodyOut(t *testing.T) {
	r := newRig(t, Config{MaxHandshakes: 16}, testkit.Serve(t, echo), Profile{})
	spec, config := terminating(t, "api.example.com")
	spec.HandshakeTimeout = time.Hour
	addr := r.serve(t, spec)
	hello := string(clientHello(t, "api.example.com"))
	for range 14 {
		mustWrite(t, dialFrom(t, "127.0.0.9", addr), hello)
	}
	testkit.WaitFor(t, "them to begin", func() bool { return r.Stats().Handshakes == 14 })
	for range 20 {
		c := tls.Client(dialFrom(t, "127.0.0.10", addr), config)
		roundTrip(t, c, "x")
		c.Close()
	}
	if n := r.Stats().EvictedHandshakes["l"]; n != 1 {
		t.Errorf("%d evictions are counted", n)
	}
}

// TLS to the endpoint, for both kinds of client connections.
func TestTLSTowardsTheEndpoint(t *testing.T) {
	own := certs.SelfSigned("db.example.com")
	headers := make(chan string, 10)
	to := testkit.Serve(t, func(c *net.TCPConn) {
		header := make([]byte, len("PROXY TCP4 127.0.0.1 127.0.0.1 "))
		if _, err := io.ReadFull(c, header); err != nil {
			return
		}
		for b := make([]byte, 1); b[0] != '\n'; {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
		headers <- string(header)
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{own.TLS}})
		_, _ = io.Copy(s, s)
		_ = s.CloseWrite()
	})
	config := &tls.Config{ServerName: "db.example.com", RootCAs: own.Pool()}
	profile := Profile{TLS: config, SendProxy: proxyproto.V1}
	t.Run("from plain", func(t *testing.T) {
		r := newRig(t, Config{}, to, profile)
		c := dial(t, r.serve(t, Listener{}))
		roundTrip(t, c, "hello")
		if h := <-headers; h != "PROXY TCP4 127.0.0.1 127.0.0.1 " {
			t.Errorf("header %q", h)
		}
		c.CloseWrite()
		mustEnd(t, c, "")
		if e := r.wantEnd(t, ClientFIN); e.in != 5 || e.out != 5 {
			t.Errorf("ending %+v", e)
		}
	})
	t.Run("from TLS", func(t *testing.T) {
		r := newRig(t, Config{}, to, profile)
		spec, client := terminating(t, "api.example.com")
		c := tls.Client(dial(t, r.serve(t, spec)), client)
		roundTrip(t, c, "hello")
		<-headers
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		mustEnd(t, c, "")
		r.wantEnd(t, ClientFIN)
	})
	t.Run("not the one that is expected", func(t *testing.T) {
		r := newRig(t, Config{}, to, Profile{TLS: &tls.Config{ServerName: "other.example.com", RootCAs: own.Pool()}, SendProxy: proxyproto.V1})
		mustBeTurnedAway(t, r.serve(t, Listener{}))
		<-headers
		r.wantEnd(t, UpstreamTLS)
	})
}

// rule 12: what the header says about TLS terminated here.
func TestProxyHeaderTellsOfTLS(t *testing.T) {
	headers := make(chan proxyproto.Header, 1)
	to := testkit.Serve(t, func(c *net.TCPConn) {
		var b []byte
		for one := make([]byte, 1); ; {
			if _, err := c.Read(one); err != nil {
				return
			}
			b = append(b, one...)
			h, _, err := proxyproto.Parse(b)
			if !errors.Is(err, proxyproto.ErrMore) {
				headers <- h
				echo(c)
				return
			}
		}
	})
	r := newRig(t, Config{}, to, Profile{SendProxy: proxyproto.V2})
	spec, config := terminating(t, "api.example.com")
	c := tls.Client(dial(t, r.serve(t, spec)), config)
	roundTrip(t, c, "hello")
	h := <-headers
	want := proxyproto.SSL{Version: "TLSv1.3", Cipher: tls.CipherSuiteName(c.ConnectionState().CipherSuite)}
	if h.SSL == nil || *h.SSL != want || h.ALPN != "echo" || h.Authority != "api.example.com" {
		t.Errorf("header %+v, SSL %+v", h, h.SSL)
	}
}

// TLS termination works behind a PROXY header.
func TestTerminatedTLSBehindAProxyHeader(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	routed := r.watch()
	spec, config := terminating(t, "api.example.com")
	spec.ProxyFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	raw := dial(t, r.serve(t, spec))
	mustWrite(t, raw, "PROXY TCP4 198.51.100.7 203.0.113.1 4711 443\r\n")
	roundTrip(t, tls.Client(raw, config), "hello")
	if s := <-routed; s.client != mustAddr("198.51.100.7:4711") {
		t.Errorf("routed by %+v", s)
	}
}
