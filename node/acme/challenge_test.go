package acme

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net"
	"strings"
	"testing"

	"penstock/netio/clienthello"
)

func newChallenges(t testing.TB, list ...Challenge) *Challenges {
	t.Helper()
	c := new(Challenges)
	if err := c.set(list); err != nil {
		t.Fatal(err)
	}
	return c
}

var tlsChallenge = Challenge{Type: typeTLS, Name: "a.example", Token: "abc", Answer: "abc.thumbprint"}

func TestOnlyTheCheckOfAWaitingNameIsAnswered(t *testing.T) {
	c := newChallenges(t, tlsChallenge, Challenge{Type: typeHTTP, Name: "b.example", Token: "x-_9", Answer: "x-_9.thumbprint"})
	for name, h := range map[string]clienthello.Hello{
		"another name":      {ServerName: "b.example", ALPN: []string{ALPN}},
		"no name":           {ALPN: []string{ALPN}},
		"other protocols":   {ServerName: "a.example", ALPN: []string{"h2"}},
		"with others":       {ServerName: "a.example", ALPN: []string{ALPN, "h2"}},
		"no protocol":       {ServerName: "a.example"},
		"protocol by case":  {ServerName: "a.example", ALPN: []string{"ACME-TLS/1"}},
		"a name with a dot": {ServerName: "a.example.", ALPN: []string{ALPN}},
	} {
		if c.TLS(&h) != nil {
			t.Errorf("%s: is answered", name)
		}
	}
	if c.TLS(&clienthello.Hello{ServerName: "A.Example", ALPN: []string{ALPN}}) == nil {
		t.Error("the check is not answered")
	}
	if new(Challenges).TLS(&clienthello.Hello{ServerName: "a.example", ALPN: []string{ALPN}}) != nil {
		t.Error("the zero value answers")
	}
	for _, q := range [][2]string{
		{"a.example", "abc"}, {"b.example", "x-_8"}, {"b.example", ""}, {"b.example", "x-_9/"}, {"b.example", "../x-_9"}, {"", "x-_9"},
		{"c.example", "x-_9"}, {"b.example", strings.Repeat("a", maxToken+1)},
	} {
		if answer, ok := c.HTTP(q[0], q[1]); ok {
			t.Errorf("%q is answered %q", q, answer)
		}
	}
	for _, host := range []string{"b.example", "B.example", "b.example:80"} {
		if answer, ok := c.HTTP(host, "x-_9"); !ok || answer != "x-_9.thumbprint" {
			t.Errorf("%s gets %q", host, answer)
		}
	}
}

// The certificate is what RFC 8737, section 3, asks for.
func TestTheAnswerByTLSHasTheDigest(t *testing.T) {
	config := newChallenges(t, tlsChallenge).TLS(&clienthello.Hello{ServerName: "a.example", ALPN: []string{ALPN}})
	client, server := net.Pipe()
	defer client.Close()
	go func() { _ = tls.Server(server, config).Handshake() }()
	c := tls.Client(client, &tls.Config{ServerName: "a.example", InsecureSkipVerify: true, NextProtos: []string{ALPN}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	state := c.ConnectionState()
	leaf := state.PeerCertificates[0]
	if state.NegotiatedProtocol != ALPN || len(leaf.DNSNames) != 1 || leaf.DNSNames[0] != "a.example" || len(leaf.IPAddresses) != 0 {
		t.Errorf("%q for %v", state.NegotiatedProtocol, leaf.DNSNames)
	}
	if err := leaf.CheckSignature(x509.ECDSAWithSHA256, leaf.RawTBSCertificate, leaf.Signature); err != nil {
		t.Error("it is not signed by its own key:", err)
	}
	sum := sha256.Sum256([]byte(tlsChallenge.Answer))
	want := append([]byte{4, 32}, sum[:]...)
	found := false
	for _, x := range leaf.Extensions {
		found = found || x.Id.Equal(idACMEIdentifier) && x.Critical && string(x.Value) == string(want)
	}
	if !found {
		t.Error("it has no critical acmeIdentifier with the digest")
	}
}

// A change of another order keeps the configuration.
func TestAnswersStayWhileTheyAreTheSame(t *testing.T) {
	c := newChallenges(t, tlsChallenge)
	h := &clienthello.Hello{ServerName: "a.example", ALPN: []string{ALPN}}
	before := c.TLS(h)
	other := tlsChallenge
	other.Name = "b.example"
	if err := c.set([]Challenge{other, tlsChallenge}); err != nil {
		t.Fatal(err)
	}
	if c.TLS(h) != before {
		t.Error("the configuration was made again")
	}
	other = tlsChallenge
	other.Answer = "other"
	if err := c.set([]Challenge{other, {Type: typeTLS, Name: "c.example", Token: "no token!", Answer: "x"}}); err != nil {
		t.Fatal(err)
	}
	if c.TLS(h) == before {
		t.Error("another answer has the same configuration")
	}
	if c.TLS(&clienthello.Hello{ServerName: "c.example", ALPN: []string{ALPN}}) != nil {
		t.Error("what is no token is answered")
	}
}

// BenchmarkHello is what the look for challenges costs an ordinary connection.
func BenchmarkHello(b *testing.B) {
	c := newChallenges(b, tlsChallenge)
	h := &clienthello.Hello{ServerName: "a.example", ALPN: []string{"h2", "http/1.1"}}
	b.ReportAllocs()
	for b.Loop() {
		if c.TLS(h) != nil {
			b.Fatal("answered")
		}
	}
}
