package expiry

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/routing/resource"
)

const day = 24 * time.Hour

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// made returns a certificate that is valid for a time from start.
func made(from, life time.Duration) string {
	return certs.Sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotBefore: start.Add(from), NotAfter: start.Add(from + life),
	}).Cert
}

func put(kind, name string, spec resource.Spec) resource.Change {
	return resource.Put(resource.Object{Key: resource.Key{Kind: kind, Name: name}, Spec: spec})
}

func certificate(chain ...string) resource.Change {
	return put("Certificate", "c", &resource.Certificate{Cert: strings.Join(chain, "")})
}

func listener(cas ...string) resource.Change {
	return put("Listener", "l", &resource.Listener{
		TLS: &resource.ListenerTLS{ClientAuth: &resource.ClientAuth{Mode: "require", CA: strings.Join(cas, "")}},
	})
}

// A certificate is in trouble when it has expired, is not valid yet, or has less than
// two weeks and less than a quarter of its life left.
func TestTroubleDependsOnTheLifeOfACertificate(t *testing.T) {
	year := made(0, 365*day)
	for what, c := range map[string]struct {
		change resource.Change
		at     time.Duration // since start
		want   Trouble
		until  time.Duration
	}{
		"a year, of which 15 days are left":             {certificate(year), 350 * day, None, 365 * day},
		"a year, of which 13 days are left":             {certificate(year), 352 * day, Soon, 365 * day},
		"a year that is over":                           {certificate(year), 366 * day, Expired, 365 * day},
		"before its first day":                          {certificate(year), -time.Hour, Early, 365 * day},
		"six days, at two thirds of them":               {certificate(made(0, 6*day)), 4 * day, None, 6 * day},
		"six days, of which one is left":                {certificate(made(0, 6*day)), 5 * day, Soon, 6 * day},
		"a chain with an intermediate that ends first":  {certificate(year, made(0, 30*day)), 29 * day, Soon, 30 * day},
		"a CA that ends soon":                           {listener(year), 360 * day, Soon, 365 * day},
		"a CA that ends soon, beside a good one":        {listener(made(0, 1000*day), year), 360 * day, Soon, 365 * day},
		"a CA that has ended, beside a good one":        {listener(year, made(0, 1000*day)), 366 * day, None, 1000 * day},
		"a CA that is yet to begin, beside a good one":  {listener(year, made(100*day, 365*day)), day, None, 365 * day},
		"two CAs that have ended":                       {listener(year, made(0, 300*day)), 400 * day, Expired, 365 * day},
		"a CA that is yet to begin, after one that has": {listener(made(0, day), made(9*day, 365*day)), 5 * day, Early, 374 * day},
	} {
		tracker := New()
		tracker.Apply([]resource.Change{c.change})
		all := tracker.State(start.Add(c.at))
		if len(all) != 1 || all[0].Trouble != c.want || !all[0].Until.Equal(start.Add(c.until)) {
			t.Errorf("%s: %+v, want trouble %d until %v", what, all, c.want, start.Add(c.until))
		}
	}
}

// What is in force counts: what is deleted, or has no content any more, is forgotten.
func TestOnlyWhatIsInForceIsTracked(t *testing.T) {
	tracker := New()
	served := []*x509.Certificate{}
	tracker.Watch("--http-cert", Presented, func() []*x509.Certificate { return served })
	ca := made(0, day)
	service := &resource.Service{TLS: &resource.ServiceTLS{CA: ca}}
	none := listener(ca)
	none.Spec.(*resource.Listener).TLS.ClientAuth.Mode = "none"
	names := func() (list []string) {
		for _, s := range tracker.State(start) {
			list = append(list, s.Resource+" "+string(s.Role))
		}
		return list
	}
	want := func(what string, list ...string) {
		t.Helper()
		if got := names(); strings.Join(got, ", ") != strings.Join(list, ", ") {
			t.Errorf("%s: %q, want %q", what, got, list)
		}
	}
	tracker.Apply([]resource.Change{certificate(ca), listener(ca), put("Service", "s", service)})
	want("at first", "Certificate/c certificate", "Listener/l ca", "Service/s ca")
	tracker.Apply([]resource.Change{certificate(""), none, put("Service", "s", &resource.Service{TLS: &resource.ServiceTLS{CA: "ca.pem"}})})
	want("without content")
	tracker.Apply([]resource.Change{certificate(ca)})
	tracker.Apply([]resource.Change{resource.Delete(resource.Key{Kind: "Certificate", Name: "c"})})
	want("deleted")
	served = append(served, certs.SelfSigned("a").TLS.Leaf)
	want("watched", "--http-cert certificate")
}

// The problems of all nodes are one list: what they have in common is the same text,
// what is a node's own has its name.
func TestProblemsNameTheNodeOnlyIfItMatters(t *testing.T) {
	tracker := New()
	followed := &resource.Certificate{Follow: true, CertFile: "/a", KeyFile: "/b", Cert: made(0, day)}
	tracker.Apply([]resource.Change{certificate(made(0, 10*day)), put("Certificate", "f", followed), listener(made(20*day, day))})
	got := strings.Join(tracker.Problems("n1", start.Add(9*day)), "\n")
	want := "node n1: Certificate/f: the certificate expired at 2026-03-02T12:00:00Z\n" +
		"Listener/l: the CA that verifies its peers is not valid before 2026-03-21T12:00:00Z: are the clocks right?\n" +
		"Certificate/c: the certificate expires soon, at 2026-03-11T12:00:00Z: renew it"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	tracker := New()
	text := made(0, day)
	for i := range maxProblems + 7 {
		tracker.Apply([]resource.Change{put("Certificate", fmt.Sprint(i), &resource.Certificate{Cert: text})})
	}
	list := tracker.Problems("n1", start.Add(2*day))
	if len(list) != maxProblems+1 || !strings.HasPrefix(list[maxProblems], "7 more ") {
		t.Errorf("%d texts, the last is %q", len(list), list[len(list)-1])
	}
}
