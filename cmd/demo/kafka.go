package demo

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// kafkaBrokers is the number of brokers of the embedded cluster.
const kafkaBrokers = 3

// The tenants: red and green share a TLS port and are selected by server name;
// blue has plain-text ports of its own. extra is added and removed.
var tenantNames = []string{"red", "green", "blue"}

const extraTenant = "extra"

// startKafka starts the embedded cluster.
func (w *fixtures) startKafka() (err error) {
	w.kafka, err = kfake.NewCluster(kfake.NumBrokers(kafkaBrokers))
	return err
}

// suffix is the domain suffix of a tenant's broker names.
func suffix(tenant string) string { return "." + tenant + ".localhost" }

// kafkaResources returns the initial Kafka resources. frontPort is the balancer's
// port, which clients are given instead of the nodes' own.
func (w *fixtures) kafkaResources(p ports, frontPort int) (string, error) {
	text := fmt.Sprintf(`kind: Listener
name: kafka
spec: {address: ":%d", protocol: kafka, tls: {}}
---
kind: PhysicalCluster
name: kfake
spec: {bootstrap: [%q]}
---
kind: VirtualCluster
name: blue
spec:
  physicalClusterRef: kfake
  filters: [{type: MultiTenant, config: {tenantKey: blue}}]
  brokers: {discover: {bootstrapPort: %d, brokerPorts: "%d-%d", advertise: 127.0.0.1}}
`, p.kafka, w.kafka.ListenAddrs()[0], p.plain, p.plain+1, p.plain+kafkaBrokers)
	for _, name := range []string{"red", "green"} {
		cert, err := w.issue("*" + suffix(name))
		if err != nil {
			return "", err
		}
		text += "---\n" + cert.resource(name+"-tls") + "---\n" + tenant(name, frontPort, 0)
	}
	return text, nil
}

// tenant returns a virtual cluster behind the TLS port; round varies its
// maxFrame.
func tenant(name string, frontPort, round int) string {
	return fmt.Sprintf(`kind: VirtualCluster
name: %[1]s
spec:
  physicalClusterRef: kfake
  tls: {certificateRef: %[1]s-tls}
  filters: [{type: MultiTenant, config: {tenantKey: %[1]s}}]
  maxFrame: %[4]dMiB
  brokers: {discover: {endpointRef: kafka, bootstrap: bootstrap%[2]s, sniPattern: "broker-$(nodeId)%[2]s", advertisePort: %[3]d}}
`, name, suffix(name), frontPort, 16+round%16)
}

// pair is a certificate with its key, in PEM.
type pair struct{ cert, key []byte }

func (p *pair) resource(name string) string {
	return fmt.Sprintf("kind: Certificate\nname: %s\nspec:\n  cert: |\n%s  key: |\n%s", name, indent(p.cert), indent(p.key))
}

// issue creates a certificate for a name, signed by the demo's CA.
func (w *fixtures) issue(name string) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, w.caCert, &key.PublicKey, w.caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// plainPorts finds the consecutive ports of tenant blue, one for the bootstrap
// and one per broker, and returns the first. Balancer and nodes use the same
// ports, because clients are given those of the nodes.
func plainPorts(ctx context.Context, hosts []string) (int, error) {
	all := append([]string{"127.0.0.1"}, hosts...)
	allFree := func(first int) bool {
		for i := range 1 + kafkaBrokers {
			if first+i > 65535 || !free(ctx, all, first+i) {
				return false
			}
		}
		return true
	}
	if allFree(plainPort) {
		return plainPort, nil
	}
	for range 100 {
		first, err := freePort(ctx, all, 0)
		if err != nil {
			return 0, err
		}
		if allFree(first) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("found no %d free ports in a row", 1+kafkaBrokers)
}

// openKafka opens the balancer's listeners for Kafka.
func (f *cluster) openKafka(ctx context.Context, hosts []string) error {
	l, err := listen(ctx, kafkaPort)
	if err != nil {
		return err
	}
	f.kafka = l.Addr().String()
	f.balancer.open(l, targets(hosts, f.ports.kafka))
	for i := range 1 + kafkaBrokers {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", at("127.0.0.1", f.ports.plain+i))
		if err != nil {
			return err
		}
		if i == 0 {
			f.plain = l.Addr().String()
		}
		f.balancer.open(l, targets(hosts, f.ports.plain+i))
	}
	return nil
}

func targets(hosts []string, port int) []string {
	var all []string
	for _, host := range hosts {
		all = append(all, at(host, port))
	}
	return all
}
