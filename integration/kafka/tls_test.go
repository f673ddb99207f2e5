package kafka

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// issued writes a certificate and its key to one file each, and both to a
// third.
func issued(t testing.TB, by *realkafka.Authority, names ...string) (cert, key, both string) {
	t.Helper()
	pair, dir := by.Issue(names...), t.TempDir()
	cert, key, err := pair.WriteFiles(dir)
	must(t, err)
	both = filepath.Join(dir, "both.pem")
	must(t, os.WriteFile(both, []byte(pair.Key+pair.Cert), 0o600))
	return cert, key, both
}

// startLocalhost starts a virtual cluster with TLS under the name localhost,
// which every machine resolves, with one port per broker. Clients without a
// server name are rejected.
func startLocalhost(t testing.TB, c *realkafka.Cluster) target {
	t.Helper()
	cert, key, _ := issued(t, &c.CA, "localhost")
	ports, err := process.FreePorts(len(c.Brokers))
	must(t, err)
	var listeners strings.Builder
	var physical, brokers, at []string
	for i, b := range c.Brokers {
		fmt.Fprintf(&listeners, "---\nkind: Listener\nname: e%d\nspec: {address: \"127.0.0.1:%d\", protocol: kafka, tls: {}}\n", i, ports[i])
		physical = append(physical, fmt.Sprintf("{name: b%d, address: %q}", i, b.Addr(realkafka.TLS)))
		brokers = append(brokers, fmt.Sprintf("{name: v%d, endpointRef: e%d, sniMatchAddress: localhost, physicalBrokerRef: b%d}", i, i, i))
		at = append(at, fmt.Sprint("localhost:", ports[i]))
	}
	startPenstock(t, fmt.Sprintf("kind: PhysicalCluster\nname: big\nspec:\n  tls: {ca: %q}\n  brokers: [%s]\n"+
		"---\nkind: Certificate\nname: localhost\nspec: {certFile: %q, keyFile: %q}\n%s"+
		"---\nkind: VirtualCluster\nname: local\nspec:\n  physicalClusterRef: big\n  tls: {certificateRef: localhost}\n  brokers: [%s]\n",
		c.CA.File, strings.Join(physical, ", "), cert, key, &listeners, strings.Join(brokers, ", ")), ports...)
	g := target{name: "Penstock at localhost, TLS", bootstrap: at, tls: &tls.Config{RootCAs: c.CA.Pool}, caFile: c.CA.File}
	waitAnswers(t, g)
	return g
}

// mutual is a node whose clients and brokers all require certificates.
type mutual struct {
	node
	good        target // with a certificate that is trusted
	bare, wrong target // without one, and with one of another CA
	// uncertain are virtual clusters in plain text whose physical clusters require
	// a certificate that the node does not have.
	uncertain []target
	foreign   realkafka.Authority
}

func startMutual(t *testing.T, c *realkafka.Cluster) mutual {
	t.Helper()
	var m mutual
	var err error
	m.foreign, err = realkafka.NewAuthority(t.TempDir())
	must(t, err)
	serverCert, serverKey, _ := issued(t, &c.CA, "*."+domain)
	nodeCert, nodeKey, _ := issued(t, &c.CA, "penstock")
	otherCert, otherKey, _ := issued(t, &m.foreign, "penstock")
	ports, err := process.FreePorts(1)
	must(t, err)
	at := func(n int) string { return fmt.Sprintf("127.%d.254.%d", 20+os.Getpid()%200, n) }
	brokers := quoted(c.Bootstrap(realkafka.Mutual))
	m.node = startNode(t, "closed", fmt.Sprintf(mutualResources,
		serverCert, serverKey, nodeCert, nodeKey, otherCert, otherKey,
		brokers, c.CA.File, ports[0], domain, at(1), at(2)), ports...)
	client := func(name string, by *realkafka.Authority) target {
		g := target{
			name: name, bootstrap: []string{fmt.Sprintf("bootstrap.%s:%d", domain, ports[0])},
			tls: &tls.Config{RootCAs: c.CA.Pool}, caFile: c.CA.File, hosts: func(string) string { return "127.0.0.1" },
		}
		if by != nil {
			cert, key, both := issued(t, by, "client")
			pair, err := tls.LoadX509KeyPair(cert, key)
			must(t, err)
			g.tls.Certificates, g.keystore = []tls.Certificate{pair}, both
		}
		return g
	}
	m.good, m.bare, m.wrong = client("trusted", &c.CA), client("bare", nil), client("foreign", &m.foreign)
	m.uncertain = []target{{name: "bare", bootstrap: []string{at(1) + ":9092"}}, {name: "foreign", bootstrap: []string{at(2) + ":9092"}}}
	waitAnswers(t, m.good)
	return m
}

// mutualResources takes three certificates with their keys, the brokers, their
// CA, a port, a domain, and two addresses.
const mutualResources = `kind: Certificate
name: server
spec: {certFile: %q, keyFile: %q}
---
kind: Certificate
name: node
spec: {certFile: %q, keyFile: %q}
---
kind: Certificate
name: other
spec: {certFile: %q, keyFile: %q}
---
kind: PhysicalCluster
name: mutual
spec: {bootstrap: [%[7]s], tls: {ca: %[8]q, certificateRef: node}}
---
kind: PhysicalCluster
name: bare
spec: {bootstrap: [%[7]s], tls: {ca: %[8]q}}
---
kind: PhysicalCluster
name: foreign
spec: {bootstrap: [%[7]s], tls: {ca: %[8]q, certificateRef: other}}
---
kind: Listener
name: kafka
spec: {address: "127.0.0.1:%[9]d", protocol: kafka, tls: {}}
---
kind: VirtualCluster
name: mutual
spec:
  physicalClusterRef: mutual
  tls: {certificateRef: server, clientAuth: {mode: require, ca: %[8]q}}
  brokers: {discover: {endpointRef: kafka, bootstrap: bootstrap.%[10]s, sniPattern: "broker-$(nodeId).%[10]s"}}
---
kind: VirtualCluster
name: bare
spec:
  physicalClusterRef: bare
  brokers: {discover: {address: %[11]s, bootstrapPort: 9092, brokerPorts: 9093-9099}}
---
kind: VirtualCluster
name: foreign
spec:
  physicalClusterRef: foreign
  brokers: {discover: {address: %[12]s, bootstrapPort: 9092, brokerPorts: 9093-9099}}
`

// TestMutualTLS uses certificates on both sides: clients to Penstock, and
// Penstock to brokers. Connections without them fail.
func TestMutualTLS(t *testing.T) {
	c := cluster(t)
	m := startMutual(t, c)
	compare(t, slices.DeleteFunc(producePrograms(), func(p program) bool {
		return p.name != "compression zstd" && p.name != "transactions"
	}), direct(c), m.good)
	t.Run("client, bare", func(t *testing.T) {
		m.wantRefused(t, m.bare, "listener=kafka ", "handshake_no_certificate", "showed no certificate")
	})
	t.Run("client, foreign", func(t *testing.T) {
		m.wantRefused(t, m.wrong, "listener=kafka ", "handshake_bad_certificate", "unknown authority")
	})
	for _, g := range m.uncertain {
		// In TLS 1.3 a broker refuses with an alert after the handshake.
		t.Run("node, "+g.name, func(t *testing.T) {
			m.wantRefused(t, g, "listener=virtualcluster/"+g.name+":", "upstream_reset", "certificate")
		})
	}
}

// wantRefused checks that no request is answered, and that the log says why.
func (m *mutual) wantRefused(t *testing.T, g target, listener, reason, says string) {
	t.Helper()
	raw, err := g.raw(t.Context(), g.bootstrap[0])
	if err == nil { // TLS 1.3 rejects a client certificate after the handshake
		defer raw.Close()
		var resp kmsg.Response
		if resp, _, err = raw.ask(request(18, 0)); err == nil {
			t.Fatalf("the client got a response: %s", text(resp, ""))
		}
	}
	t.Logf("the client got: %v", err)
	var told string
	testkit.WaitFor(t, "a line with "+reason, func() bool {
		log, err := os.ReadFile(m.Log())
		must(t, err)
		for l := range strings.Lines(string(log)) {
			if strings.Contains(l, "connection closed") && strings.Contains(l, listener) &&
				strings.Contains(l, " reason="+reason+" ") && strings.Contains(l, says) {
				told = l
			}
		}
		return told != ""
	})
	t.Logf("the log has: %s", told)
}

// TestJavaWithCertificates runs a Java tool with correct and with wrong
// certificates; with wrong ones it fails and says why.
func TestJavaWithCertificates(t *testing.T) {
	c := cluster(t)
	m := startMutual(t, c)
	distrusting := m.good
	distrusting.name, distrusting.caFile = "trusting another authority", m.foreign.File
	for _, one := range []struct {
		target
		says string // empty: it works
	}{
		{m.good, ""},
		{distrusting, "SSL handshake failed"},
		{m.bare, "SSL"},
		{m.wrong, "SSL"},
	} {
		t.Run(one.name, func(t *testing.T) {
			r := newRun(t, one.target)
			file, machine := r.javaConfig()
			out, err := realkafka.ToolWith(r.ctx, machine, "", "org.apache.kafka.tools.TopicCommand",
				"--bootstrap-server", strings.Join(r.bootstrap, ","), "--command-config", file, "--list")
			switch {
			case one.says == "" && err != nil:
				t.Fatal(err)
			case one.says != "" && err == nil:
				t.Fatalf("the client succeeded:\n%s", out)
			case err != nil && !strings.Contains(err.Error(), one.says):
				t.Errorf("the output lacks %q:\n%v", one.says, err)
			}
		})
	}
}
