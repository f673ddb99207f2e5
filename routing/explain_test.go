package routing

import (
	"strings"
	"testing"

	"penstock/routing/resource"
)

// If the listener terminates TLS, a name without a certificate is refused
// before it is routed, and explain must not show an endpoint.
func TestExplainShowsCertificate(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "s", service(1)),
		put("Certificate", "one", certificate("a.example", "*.apps.example")),
		put("Certificate", "two", certificate("a.example")),
		put("Listener", "ends", &resource.Listener{Protocol: "tls", Service: "s",
			TLS: &resource.ListenerTLS{Mode: "terminate", CertificateRefs: []string{"one", "two"}}}),
		put("Listener", "passes", &resource.Listener{Protocol: "tls", Service: "s"}))
	for _, test := range []struct {
		listener, name string
		reason         Reason
		step           string
	}{
		{"ends", "a.example", OK, `certificate  "a.example": one, two`},
		{"ends", "x.apps.example", OK, `certificate  "x.apps.example": one`},
		{"ends", "b.example", NoCertificate, `certificate  "b.example": no certificate of the listener covers it: closed (no_certificate)`},
		{"ends", "a.example.", BadServerName, "closed (bad_sni)"},
		{"passes", "b.example", OK, "outcome"},
	} {
		in := &Input{Listener: test.listener, ServerName: test.name, HasServerName: true}
		e := r.Explain(in, t0)
		if e.Reason != test.reason || !strings.Contains(e.Text(), test.step) {
			t.Errorf("%s %s: %q, want %q and %q:\n%s", test.listener, test.name, e.Reason, test.reason, test.step, e.Text())
		}
		if (e.Endpoint == "") != (test.reason != OK) {
			t.Errorf("%s %s: endpoint %q", test.listener, test.name, e.Endpoint)
		}
		if strings.Contains(e.Text(), "certificate ") != (test.listener == "ends" && test.reason != BadServerName) {
			t.Errorf("%s %s: certificate step:\n%s", test.listener, test.name, e.Text())
		}
	}
}
