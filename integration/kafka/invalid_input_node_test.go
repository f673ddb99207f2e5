package kafka

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// invalidInputNode is a node in front of real brokers, for clients that send invalid
// input.
type invalidInputNode struct {
	node
	ca                         *realkafka.Authority
	plain, tenant, sasl, byTLS target
	neighbours                 []*rawConn
	counted                    map[string]int // connections expected to be closed, by reason
	// earlier counts, for each open connection, the logged ends of earlier ones
	// with the same source address: ports are reused.
	earlier map[string]int
}

func newInvalidInputNode(t *testing.T) *invalidInputNode {
	t.Helper()
	c := cluster(t)
	cert, key, _ := issued(t, &c.CA, "*."+domain)
	ports, err := process.FreePorts(2)
	must(t, err)
	at := func(n int) string { return fmt.Sprintf("127.%d.253.%d", 20+os.Getpid()%200, n) }
	text := fmt.Sprintf(invalidInputResources,
		quoted(c.Bootstrap(realkafka.Plain)), c.Brokers[0].Addr(realkafka.SASL),
		cert, key, ports[0], ports[1], at(1), at(2), domain, domain)
	w := &invalidInputNode{
		node: startNode(t, "closed", text, ports...), ca: &c.CA, counted: map[string]int{}, earlier: map[string]int{},
		plain:  target{name: "plain", bootstrap: []string{at(1) + ":9092"}},
		tenant: target{name: "tenant", bootstrap: []string{at(2) + ":9092"}},
		sasl:   target{name: "sasl", bootstrap: []string{process.Loopback(ports[1])}},
		byTLS: target{
			name: "tls", bootstrap: []string{fmt.Sprintf("bootstrap.%s:%d", domain, ports[0])},
			tls: &tls.Config{RootCAs: c.CA.Pool}, hosts: func(string) string { return "127.0.0.1" },
		},
	}
	for _, g := range []target{w.plain, w.tenant, w.sasl, w.byTLS} {
		waitAnswers(t, g)
		if g.name == "sasl" {
			continue // only authenticated clients may continue to send requests
		}
		neighbour, err := g.raw(t.Context(), g.bootstrap[0])
		must(t, err)
		t.Cleanup(func() { neighbour.Close() })
		w.neighbours = append(w.neighbours, neighbour)
	}
	return w
}

// address returns the address to connect to.
func (g target) address() string {
	host, port, _ := net.SplitHostPort(g.bootstrap[0])
	if g.hosts != nil {
		host = g.hosts(host)
	}
	return net.JoinHostPort(host, port)
}

// wantEnd checks that the node closed a connection for one of the reasons, and
// that neighbouring connections still work.
func (w *invalidInputNode) wantEnd(t *testing.T, c net.Conn, reasons ...string) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(15*time.Second)))
	if _, err := io.Copy(io.Discard, c); err != nil && failure(err) != "closed" {
		t.Errorf("not closed: %v", err)
	}
	local := c.LocalAddr().String()
	c.Close()
	var line string
	testkit.WaitFor(t, "the line of the access log", func() bool {
		if lines := w.endsOf(t, local); len(lines) > w.earlier[local] {
			line = lines[w.earlier[local]]
		}
		return line != ""
	})
	reason := reasonOf.FindStringSubmatch(line)
	if reason == nil || !slices.Contains(reasons, reason[1]) {
		t.Errorf("the connection ended with none of %v:\n%s", reasons, line)
	} else {
		w.counted[reason[1]]++
	}
	w.wantNeighbours(t)
}

var reasonOf = regexp.MustCompile(` reason=(\w+)`)

// endsOf returns the access log lines about closed connections from one source
// address.
func (w *invalidInputNode) endsOf(t *testing.T, client string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(w.Log())
	must(t, err)
	for l := range strings.Lines(string(text)) {
		if strings.Contains(l, "connection closed") && strings.Contains(l, "client="+client+" ") {
			lines = append(lines, l)
		}
	}
	return lines
}

// wantNeighbours uses the connections opened before.
func (w *invalidInputNode) wantNeighbours(t *testing.T) {
	t.Helper()
	for _, n := range w.neighbours {
		req := request(18, 3).(*kmsg.ApiVersionsRequest)
		req.ClientSoftwareName, req.ClientSoftwareVersion = "neighbour", "1"
		resp, _, err := n.ask(req)
		if err != nil {
			t.Fatalf("a neighbouring connection: %v", err)
		}
		if code := resp.(*kmsg.ApiVersionsResponse).ErrorCode; code != 0 {
			t.Fatalf("a neighbouring connection: error %d", code)
		}
	}
}

// connect opens a TCP connection to a target, without TLS.
func (w *invalidInputNode) connect(t *testing.T, g target) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: 5 * time.Second}
	c, err := d.DialContext(t.Context(), "tcp", g.address())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	w.opened(t, c)
	return c
}

// opened counts the logged ends of earlier connections from the same address.
func (w *invalidInputNode) opened(t *testing.T, c net.Conn) {
	t.Helper()
	local := c.LocalAddr().String()
	w.earlier[local] = len(w.endsOf(t, local))
}

// greeted returns a connection on which a request other than ApiVersions was
// answered.
func (w *invalidInputNode) greeted(t *testing.T, g target) *rawConn {
	t.Helper()
	c, err := g.raw(t.Context(), g.bootstrap[0])
	must(t, err)
	t.Cleanup(func() { c.Close() })
	w.opened(t, c)
	_, _, err = c.ask(request(60, 0))
	must(t, err)
	return c
}

// invalidInputResources takes the brokers, one of them with SASL, a certificate and
// its key, two ports, two addresses, and a domain twice.
const invalidInputResources = `kind: PhysicalCluster
name: big
spec: {bootstrap: [%s]}
---
kind: PhysicalCluster
name: guarded
spec: {brokers: [{name: b0, address: %q}]}
---
kind: Certificate
name: kafka
spec: {certFile: %q, keyFile: %q}
---
kind: Listener
name: secured
spec: {address: "127.0.0.1:%d", protocol: kafka, tls: {}}
---
kind: Listener
name: login
spec: {address: "127.0.0.1:%d", protocol: kafka}
---
kind: VirtualCluster
name: plain
spec:
  physicalClusterRef: big
  brokers: {discover: {address: %s, bootstrapPort: 9092, brokerPorts: 9093-9099}}
---
kind: VirtualCluster
name: tenant
spec:
  physicalClusterRef: big
  filters: [{type: MultiTenant, config: {tenantKey: wrong}}]
  brokers: {discover: {address: %s, bootstrapPort: 9092, brokerPorts: 9093-9099}}
---
kind: VirtualCluster
name: sasl
spec:
  physicalClusterRef: guarded
  brokers: [{name: v0, endpointRef: login, physicalBrokerRef: b0}]
---
kind: VirtualCluster
name: tls
spec:
  physicalClusterRef: big
  tls: {certificateRef: kafka}
  brokers: {discover: {endpointRef: secured, bootstrap: bootstrap.%s, sniPattern: "broker-$(nodeId).%s"}}
`
