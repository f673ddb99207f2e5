package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/clienthello"
)

// A hello that the node answers itself gets a whole handshake and a clean end,
// whatever the listener does with others, which it does all the same.
func TestInterceptedHellosAreAnsweredHere(t *testing.T) {
	own, theirs := certs.SelfSigned("api.example.com"), certs.SelfSigned("api.example.com")
	answer := &tls.Config{Certificates: []tls.Certificate{own.TLS}, NextProtos: []string{"check"}}
	intercept := func(h *clienthello.Hello) *tls.Config {
		if len(h.ALPN) == 1 && h.ALPN[0] == "check" {
			return answer
		}
		return nil
	}
	endpoint := testkit.Serve(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, tls.Server(c, &tls.Config{Certificates: []tls.Certificate{theirs.TLS}}))
	})
	for name, spec := range map[string]Listener{
		"passthrough": {Mode: ModeHello},
		"terminate": {Mode: ModeTerminate, TLSConfig: func(*clienthello.Hello) (*tls.Config, Reason) {
			return &tls.Config{Certificates: []tls.Certificate{theirs.TLS}}, OK
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, endpoint, Profile{})
			next := r.route
			r.route = func(c *Conn) (Plan, Reason) {
				if s := c.TLS(); s != nil && s.NegotiatedProtocol == "check" {
					return nil, "checked"
				}
				return next(c)
			}
			spec.Intercept = intercept
			addr := r.serve(t, spec)
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				raw := dial(t, addr)
				c := tls.Client(raw, &tls.Config{
					ServerName: "api.example.com", RootCAs: own.Pool(), NextProtos: []string{"check"}, MaxVersion: version,
				})
				if err := c.Handshake(); err != nil {
					t.Fatalf("the check is not answered: %v", err)
				}
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("the check ends with %v, want a clean end", err)
				}
				raw.Close()
			}
			for _, e := range r.waitEndings(t, 2) {
				if e.why != "checked" {
					t.Errorf("a check ends with %s", e.why)
				}
			}
			c := tls.Client(dial(t, addr), &tls.Config{ServerName: "api.example.com", RootCAs: theirs.Pool()})
			if err := c.Handshake(); err != nil {
				t.Errorf("another hello does not go its usual way: %v", err)
			}
		})
	}
}
