package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/process"
	"penstock/node/api"
	"penstock/node/nodetest"
)

// getCertificates has an Envoy present a Certificate, which it gets by SDS, to an
// upstream, and replaces it.
func (m *mesh) getCertificates(t *testing.T) {
	ca := certs.NewCA("backends")
	config := ca.Server("vault.example.com")
	config.ClientAuth = tls.RequireAndVerifyClientCert
	vault := testkit.ListenOn(t, "tcp", "127.0.0.1:0")
	testkit.ServeOn(t, tls.NewListener(vault, config), func(conn net.Conn) {
		secure := conn.(*tls.Conn)
		if secure.Handshake() == nil {
			io.WriteString(conn, secure.ConnectionState().PeerCertificates[0].SerialNumber.String())
		}
	})
	at := m.freeAddress()
	issue := func() (serial string) {
		pair := ca.Issue("web-client")
		m.apply(strings.TrimPrefix(nodetest.Certificate("vault-client", pair), "\n---\n"))
		return pair.TLS.Leaf.SerialNumber.String()
	}
	first := issue()
	m.apply(fmt.Sprintf("kind: Service\nname: vault\nspec:\n  endpoints: [{address: %q}]\n"+
		"  tls:\n    serverName: vault.example.com\n    certificateRef: vault-client\n    ca: |\n%s",
		vault.Addr(), nodetest.Indent(ca.PEM, 6)))
	m.extra["web"] = fmt.Sprintf("    - {service: vault, address: %q}\n    certificates: [vault-client]\n", at)
	m.applyServices()
	testkit.WaitFor(t, "the Envoy to present its certificate", func() bool { return connect(at) == first })
	second := issue()
	testkit.WaitFor(t, "the Envoy to present the next certificate", func() bool { return connect(at) == second })
	if strings.Contains(m.mobile.get("/config_dump"), "vault-client") {
		t.Error("another service's Envoy has the certificate")
	}
}

// freeAddress returns a loopback address that nothing listens on.
func (m *mesh) freeAddress() string {
	m.t.Helper()
	ports, err := process.FreePorts(1)
	if err != nil {
		m.t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", ports[0])
}

// showRefusals gives an Envoy a listener at an address that is taken. Envoy
// refuses it and keeps the others.
func (m *mesh) showRefusals(t *testing.T) {
	taken := testkit.ListenOn(t, "tcp", "127.0.0.1:0")
	m.extra["mobile"] = fmt.Sprintf("    - {service: vault, address: %q}\n", taken.Addr())
	m.applyServices()
	refused := func() string {
		p := m.proxy("mobile")
		if p == nil {
			return ""
		}
		for _, of := range p.Types {
			if of.Type == "listener" && of.Refusing {
				return of.Rejected
			}
		}
		return ""
	}
	testkit.WaitFor(t, "the Envoy to refuse the listener", func() bool { return strings.Contains(refused(), "cannot bind") })
	if got := refused(); !strings.Contains(got, taken.Addr().String()) {
		t.Errorf("refused with %q", got)
	}
	testkit.WaitFor(t, "status to show it", func() bool {
		out, err := m.run(nil, "status")
		return err == nil && strings.Contains(out, "cannot bind")
	})
	if out := m.penstock(nil, "get", "proxies"); !strings.Contains(out, "mobile") {
		t.Errorf("get proxies:\n%s", out)
	}
	if connect(m.shop["mobile"]) == "" {
		t.Error("the listeners that the Envoy had are gone")
	}
	m.extra["mobile"] = ""
	m.applyServices()
	testkit.WaitFor(t, "the Envoy to refuse nothing", func() bool { p := m.proxy("mobile"); return p != nil && refused() == "" })
}

// announce makes the Envoy of batch an endpoint of batch.
func (m *mesh) announce(t *testing.T) {
	m.extra["batch"] = "    announce: {port: 8443, tags: {via: envoy}}\n"
	m.applyServices()
	listed := func() (addresses []string) {
		var all api.Endpoints
		if err := m.query(&all, "get", "endpoints", "batch"); err != nil {
			return nil
		}
		for _, e := range all {
			if e.State == "ready" {
				addresses = append(addresses, e.Address+" "+e.Tags["via"])
			}
		}
		return addresses
	}
	testkit.WaitFor(t, "the Envoy to be an endpoint", func() bool {
		got := listed()
		return len(got) == 1 && strings.HasSuffix(got[0], ":8443 envoy")
	})
	m.batch.proc.Kill()
	testkit.WaitFor(t, "the Envoy to be no endpoint any more", func() bool { return len(listed()) == 0 })
	m.batch.start()
	testkit.WaitFor(t, "it to be back", func() bool { return len(listed()) == 1 })
}

// renew writes the certificate of a running Envoy again.
func (m *mesh) renew(t *testing.T) {
	p := m.web
	before := p.serial()
	testkit.WaitFor(t, "the first certificate in Envoy", func() bool { return p.uses(before) })
	p.bootstrap("--admin", p.admin)
	after := p.serial()
	if after == before {
		t.Fatal("the certificate is the same")
	}
	testkit.WaitFor(t, "the new certificate in Envoy", func() bool { return p.uses(after) && !p.uses(before) })
}

// serial returns the serial number of the certificate in the proxy's folder.
func (p *proxy) serial() string {
	p.t.Helper()
	text, err := os.ReadFile(p.dir + "/cert.pem")
	if err != nil {
		p.t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		p.t.Fatal(err)
	}
	return cert.SerialNumber.Text(16)
}

// uses reports whether Envoy has a certificate in use.
func (p *proxy) uses(serial string) bool {
	var all struct {
		Certificates []struct {
			CertChain []struct {
				SerialNumber string `json:"serial_number"`
			} `json:"cert_chain"`
		} `json:"certificates"`
	}
	if json.Unmarshal([]byte(p.get("/certs")), &all) != nil {
		return false
	}
	for _, c := range all.Certificates {
		for _, chain := range c.CertChain {
			if strings.TrimLeft(chain.SerialNumber, "0") == serial {
				return true
			}
		}
	}
	return false
}

// surviveNode kills the node that an Envoy talks to, and changes something.
func (m *mesh) surviveNode(t *testing.T) {
	of := func(service string) string {
		if p := m.proxy(service); p != nil {
			return p.Node
		}
		return ""
	}
	var victim *node
	testkit.WaitFor(t, "the node of the Envoy", func() bool { return of("web") != "" })
	victim = m.named(of("web"))
	victim.kill()
	m.apply(strings.TrimPrefix(splits(0, 100), "---\n"))
	for service, addr := range m.shop {
		testkit.WaitFor(t, "the change at the Envoy of "+service, func() bool {
			return shares(50, func() string { return connect(addr) })["v2"] == 50
		})
	}
	testkit.WaitFor(t, "the Envoy at another node", func() bool { return of("web") != "" && of("web") != victim.name })
	victim.start()
	victim.waitReady()

	// One that stops has its proxies go on elsewhere as well.
	other := m.named(of("web"))
	other.stop()
	m.apply(strings.TrimPrefix(splits(100, 0), "---\n"))
	for service, addr := range m.shop {
		testkit.WaitFor(t, "the next change at the Envoy of "+service, func() bool {
			return shares(50, func() string { return connect(addr) })["v1"] == 50
		})
	}
	other.start()
	other.waitReady()
}
