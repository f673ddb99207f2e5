package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// pebbleVersion is the version that setup.sh installs.
const pebbleVersion = "2.10.1"

// pebble is a running certificate authority that speaks ACME, in strict mode: it
// refuses what RFC 8555 does not allow.
type pebble struct {
	t         testing.TB
	directory string // URL
	ca        string // PEM that the directory's own certificate is verified by
	proc      *process.Process
	roots     string // URL of the root that it issues under
	zone      *zone
}

// pebbleConfig is what a test changes of pebble's configuration.
type pebbleConfig struct {
	httpPort, tlsPort int               // where it checks names
	life              int               // of certificates, in seconds; 0: 90 days
	external          map[string]string // accounts by ID; none: they are not required
	env               []string
}

// startPebble starts pebble until the end of the test. It resolves names by
// pebble.zone.
func startPebble(t testing.TB, cfg pebbleConfig) *pebble {
	t.Helper()
	program := filepath.Join(realkafka.Peers(), "pebble-"+pebbleVersion, "pebble")
	if _, err := os.Stat(program); err != nil {
		testkit.NotTested(t, "%v; make setup installs it", err)
	}
	own := newAuthority(t, "directory")
	pair, dir := own.issue("127.0.0.1"), t.TempDir()
	p := &pebble{t: t, ca: own.PEM, zone: startZone(t)}
	ports, err := process.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	life := cfg.life
	if life == 0 {
		life = 90 * 24 * 60 * 60
	}
	config := map[string]any{
		"listenAddress": process.Loopback(ports[0]), "managementListenAddress": process.Loopback(ports[1]),
		"certificate": pair.certFile, "privateKey": pair.keyFile,
		"httpPort": cfg.httpPort, "tlsPort": cfg.tlsPort, "keyAlgorithm": "ecdsa",
		"externalAccountBindingRequired": len(cfg.external) > 0, "externalAccountMACKeys": cfg.external,
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "of the test", "validityPeriod": life}},
	}
	text, err := json.Marshal(map[string]any{"pebble": config})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	argv := append([]string{"env", "PEBBLE_AUTHZREUSE=0"}, cfg.env...)
	argv = append(argv, program, "-strict", "-config", file, "-dnsserver", p.zone.addr)
	if p.proc, err = process.Start("pebble", dir, argv, ports...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pebble:\n%s", p.proc.Output())
		}
		p.proc.Kill()
	})
	p.directory = "https://" + process.Loopback(ports[0]) + "/dir"
	p.roots = "https://" + process.Loopback(ports[1]) + "/roots/0"
	return p
}

// root returns the root that certificates are issued under.
func (p *pebble) root() *x509.CertPool {
	p.t.Helper()
	own := x509.NewCertPool()
	own.AppendCertsFromPEM([]byte(p.ca))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: own}, DisableKeepAlives: true}}
	res, err := client.Get(p.roots)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		p.t.Fatalf("pebble's root: %q", text)
	}
	return pool
}

// spec returns acme of a Certificate for these names, one line each, with more
// lines.
func (p *pebble) spec(name string, names string, more ...string) string {
	text := fmt.Sprintf("---\nkind: Certificate\nname: %s\nspec:\n  acme:\n    directory: %s\n    names: [%s]\n    agreeToTerms: true\n    ca: |\n",
		name, p.directory, names)
	for line := range strings.Lines(p.ca) {
		text += "      " + line
	}
	for _, line := range more {
		text += "    " + line + "\n"
	}
	return text
}

// zone is a DNS server that gives every name the same address.
type zone struct {
	addr string
	mu   sync.Mutex
	ip   net.IP // nil: no name has one
}

func startZone(t testing.TB) *zone {
	t.Helper()
	l := testkit.Listen(t) // pebble asks by TCP
	z := &zone{addr: l.Addr().String()}
	ready := make(chan struct{})
	s := &dns.Server{Listener: l, Handler: z, NotifyStartedFunc: func() { close(ready) }}
	go func() { _ = s.ActivateAndServe() }()
	testkit.Receive(t, "the DNS server", ready)
	t.Cleanup(func() { _ = s.Shutdown() })
	return z
}

// point gives every name this address; "": none.
func (z *zone) point(ip string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.ip = net.ParseIP(ip)
}

// ServeDNS implements dns.Handler.
func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	ip := z.ip
	z.mu.Unlock()
	r := new(dns.Msg).SetReply(q)
	if len(q.Question) == 1 && q.Question[0].Qtype == dns.TypeA && ip != nil {
		r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: ip}}
	}
	_ = w.WriteMsg(r)
}
