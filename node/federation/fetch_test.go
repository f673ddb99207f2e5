package federation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	gofederation "github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/trust"
	"penstock/routing/resource"
)

// outside starts an endpoint with a certificate.
func outside(t *testing.T, cert tls.Certificate, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// svid signs a certificate with a SPIFFE ID.
func svid(t *testing.T, ca *certs.CA, id string) tls.Certificate {
	t.Helper()
	u, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	return ca.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "endpoint"}, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, URIs: []*url.URL{u},
	}).TLS
}

// published returns the handler of go-spiffe for a trust domain.
func published(t *testing.T, domain string, ca *certs.CA) http.Handler {
	t.Helper()
	td := spiffeid.RequireTrustDomainFromString(domain)
	b := spiffebundle.FromX509Authorities(td, bundle(ca, 0, 0).Authorities)
	b.SetSequenceNumber(42)
	b.SetRefreshHint(10 * time.Minute)
	h, err := gofederation.NewHandler(td, b)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// try fetches a bundle; held are those of the trust domains that are known.
func try(t *testing.T, e resource.BundleEndpoint, held ...*trust.Bundle) (*resource.Bundle, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	return fetch(ctx, &resource.TrustBundle{TrustDomain: "partner.example", Endpoint: &e}, func(domain string) *trust.Bundle {
		for _, b := range held {
			if b.TrustDomain == domain {
				return b
			}
		}
		return nil
	})
}

// The endpoint of go-spiffe is fetched by both profiles.
func TestOutsideEndpointIsFetched(t *testing.T) {
	t.Parallel()
	web, partner, other := certs.NewCA("web"), certs.NewCA("partner"), certs.NewCA("other")
	handler := published(t, "partner.example", partner)
	byName := outside(t, web.Issue("127.0.0.1").TLS, handler)
	const id = "spiffe://partner.example/bundle"
	byID := outside(t, svid(t, partner, id), handler)
	elsewhere := outside(t, svid(t, other, "spiffe://other.example/bundles"), handler)
	forged := outside(t, svid(t, other, id), handler)
	known := []*trust.Bundle{
		trust.NewBundle("partner.example", bundle(partner, 0, 0).Authorities), trust.NewBundle("other.example", bundle(other, 0, 0).Authorities),
	}
	spiffe := func(s *httptest.Server, id string) resource.BundleEndpoint {
		return resource.BundleEndpoint{URL: s.URL, Profile: resource.ProfileSPIFFE, SPIFFEID: id}
	}
	for _, c := range []struct {
		what  string
		e     resource.BundleEndpoint
		known []*trust.Bundle
		why   string // "": fetched
	}{
		{"https_web", resource.BundleEndpoint{URL: byName.URL, Profile: resource.ProfileWeb, CA: web.PEM}, nil, ""},
		{"another CA", resource.BundleEndpoint{URL: byName.URL, Profile: resource.ProfileWeb, CA: other.PEM}, nil, "unknown authority"},
		{"the system's CAs", resource.BundleEndpoint{URL: byName.URL, Profile: resource.ProfileWeb}, nil, "unknown authority"},
		{"an SVID for https_web", resource.BundleEndpoint{URL: byID.URL, Profile: resource.ProfileWeb, CA: partner.PEM}, nil, "cannot validate"},
		{"https_spiffe", spiffe(byID, id), known, ""},
		{"of another trust domain", spiffe(elsewhere, "spiffe://other.example/bundles"), known, ""},
		{"another ID", spiffe(byID, "spiffe://partner.example/other"), known, "want spiffe://partner.example/other"},
		{"an ID that another trust domain signed", spiffe(forged, id), known, "unknown authority"},
		{"a host's certificate for https_spiffe", spiffe(byName, id), known, "no SPIFFE ID"},
		{"without the bundle", spiffe(byID, id), nil, "no bundle of its trust domain"},
	} {
		b, err := try(t, c.e, c.known...)
		switch {
		case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
			t.Errorf("%s: %v, want %q", c.what, err, c.why)
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.why == "" && (len(b.Authorities) != 1 || b.Sequence == nil || *b.Sequence != 42 || b.RefreshHint != 10*time.Minute):
			t.Errorf("%s: %+v", c.what, b)
		}
	}
}

// An answer that is no bundle, or too much, is refused.
func TestAnswerOfAnEndpointIsChecked(t *testing.T) {
	t.Parallel()
	web := certs.NewCA("web")
	mux := http.NewServeMux()
	s := outside(t, web.Issue("127.0.0.1").TLS, mux)
	good := fmt.Sprintf(`{"keys": [{"kty": "EC", "use": "x509-svid", "x5c": [%q]}, {"kty": "oct", "use": "new"}, {"kty": "EC", "use": "jwt-svid"}]}`,
		base64.StdEncoding.EncodeToString(bundle(web, 0, 0).Authorities[0].Raw))
	leaf := fmt.Sprintf(`{"keys": [{"kty": "EC", "use": "x509-svid", "x5c": [%q]}]}`,
		base64.StdEncoding.EncodeToString(web.Issue("a").TLS.Certificate[0]))
	to := func(target string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) }
	}
	text := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	another := outside(t, certs.NewCA("another").Issue("127.0.0.1").TLS, text(good))
	answers := map[string]struct {
		handler http.HandlerFunc
		why     string
	}{
		"good":        {text(good), ""},
		"empty":       {text(`{"keys": []}`), ""},
		"redirect":    {to("/good"), ""},
		"loop":        {to("/loop"), "more than 3 times"},
		"to-http":     {to("http://127.0.0.1/"), "must be an https URL"},
		"with-user":   {to("https://a:b@127.0.0.1/"), "no user"},
		"to-another":  {to(another.URL), "unknown authority"},
		"missing":     {http.NotFound, "answers 404"},
		"pem":         {text(web.PEM), "not a SPIFFE bundle"},
		"html":        {text("<html>"), "not a SPIFFE bundle"},
		"no-keys":     {text(`{"keys": null}`), "has no keys"},
		"truncated":   {text(good[:len(good)-1]), "not a SPIFFE bundle"},
		"no-ca":       {text(leaf), "not a CA"},
		"long":        {text("{" + strings.Repeat(" ", resource.MaxBundle)), "must have at most"},
		"negative":    {text(`{"keys": [], "spiffe_refresh_hint": -1}`), "negative"},
		"a-fraction":  {text(`{"keys": [], "spiffe_sequence": 1.5}`), "not a SPIFFE bundle"},
		"two-in-x5c":  {text(`{"keys": [{"kty": "EC", "use": "x509-svid", "x5c": ["AA==", "AA=="]}]}`), "has 2 certificates"},
		"not-base64":  {text(`{"keys": [{"kty": "EC", "use": "x509-svid", "x5c": ["!"]}]}`), "not base64"},
		"not-der":     {text(`{"keys": [{"kty": "EC", "use": "x509-svid", "x5c": ["AA=="]}]}`), "cannot be read"},
		"many-header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 2*maxHeaders)) }, "header"},
	}
	for path, c := range answers {
		mux.HandleFunc("/"+path, c.handler)
	}
	for path, c := range answers {
		_, err := try(t, resource.BundleEndpoint{URL: s.URL + "/" + path, Profile: resource.ProfileWeb, CA: web.PEM})
		if (c.why == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %q", path, err, c.why)
		}
	}
}

// go-spiffe fetches what is served, and sees each change.
func TestOwnBundleIsServed(t *testing.T) {
	t.Parallel()
	web, own := certs.NewCA("web"), certs.NewCA("own")
	sequence := uint64(7)
	e := &Endpoint{Log: slog.New(slog.DiscardHandler), Bundle: func() ([][]byte, uint64, error) {
		return [][]byte{bundle(own, 0, 0).Authorities[0].Raw}, sequence, nil
	}}
	td := spiffeid.RequireTrustDomainFromString("ours.example")
	const id = "spiffe://ours.example/penstock/bundle"
	byName, byID := outside(t, web.Issue("127.0.0.1").TLS, e), outside(t, svid(t, own, id), e)
	known := x509bundle.FromX509Authorities(td, bundle(own, 0, 0).Authorities)
	for _, want := range []uint64{7, 8} {
		sequence = want
		for what, option := range map[string]gofederation.FetchOption{
			byName.URL: gofederation.WithWebPKIRoots(web.Pool),
			byID.URL:   gofederation.WithSPIFFEAuth(known, spiffeid.RequireFromString(id)),
		} {
			b, err := gofederation.FetchBundle(t.Context(), td, what, option)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := b.SequenceNumber()
			hint, _ := b.RefreshHint()
			if got != want || hint != trust.BundleRefresh || !b.HasX509Authority(bundle(own, 0, 0).Authorities[0]) || len(b.JWTAuthorities()) > 0 {
				t.Errorf("sequence %d, hint %v", got, hint)
			}
		}
	}
	if e.Served() != 4 {
		t.Errorf("%d were served", e.Served())
	}
}
