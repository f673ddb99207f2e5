package demo

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// secureName is the server name of the TLS service.
const secureName = "secure.demo.internal"

// fixtures holds the environment of the nodes: services, a Kafka cluster and a
// CA.
type fixtures struct {
	shopV1, shopV2, secure, flakyA, flakyB *service

	kafka *kfake.Cluster // nil: not started

	caCert          *x509.Certificate
	caKey           *ecdsa.PrivateKey
	certPEM, keyPEM []byte
	caFile          string
	roots           *x509.CertPool
}

func newFixtures(dir string) (*fixtures, error) {
	w := &fixtures{}
	for _, s := range []struct {
		at   **service
		name string
	}{{&w.shopV1, "shop v1"}, {&w.shopV2, "shop v2"}, {&w.secure, "secure"}, {&w.flakyA, "flaky a"}, {&w.flakyB, "flaky b"}} {
		var err error
		if *s.at, err = newService(s.name); err != nil {
			w.close()
			return nil, err
		}
	}
	if err := errors.Join(w.makeCertificate(dir), w.startKafka()); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *fixtures) close() {
	for _, s := range []*service{w.shopV1, w.shopV2, w.secure, w.flakyA, w.flakyB} {
		if s != nil {
			s.close()
		}
	}
	if w.kafka != nil {
		w.kafka.Close()
	}
}

// makeCertificate creates a self-signed certificate for the TLS service, and
// writes it to a file for clients.
func (w *fixtures) makeCertificate(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "Penstock demo"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		DNSNames: []string{secureName}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return err
	}
	w.caKey = key
	if w.caCert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	w.certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	w.keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM(w.certPEM)
	w.caFile = filepath.Join(dir, "demo-ca.pem")
	return os.WriteFile(w.caFile, w.certPEM, 0o600)
}

// route returns the split of the shop with the given share for v1, in percent.
func (w *fixtures) route(v1 int) string {
	return fmt.Sprintf(`kind: MeshTCPRoute
name: canary
spec:
  targetRef: {kind: Mesh}
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - default:
        backendRefs:
        - {kind: MeshServiceSubset, name: shop, weight: %d, tags: {version: v1}}
        - {kind: MeshServiceSubset, name: shop, weight: %d, tags: {version: v2}}
`, v1, 100-v1)
}

// resources returns the initial resources.
func (w *fixtures) resources(p ports, v1 int) string {
	return fmt.Sprintf(`kind: Listener
name: shop
spec: {address: ":%d", service: shop}
---
kind: Listener
name: flaky
spec: {address: ":%d", service: flaky}
---
kind: Listener
name: edge
spec:
  address: ":%d"
  protocol: tls
  tls: {mode: terminate, certificateRefs: [demo]}
  hosts:
  - {names: [%s], service: secure}
---
kind: Service
name: shop
spec:
  endpoints:
  - {address: "%s", tags: {version: v1}}
  - {address: "%s", tags: {version: v2}}
---
kind: Service
name: secure
spec:
  endpoints: [{address: "%s"}]
---
kind: Service
name: flaky
spec:
  connect: {timeout: 500ms, attempts: 3, retryBudget: 100}
  ejection: {failures: 3, window: 5s, duration: 2s, maxShare: 50}
  endpoints: [{address: "%s"}, {address: "%s"}]
---
kind: Certificate
name: demo
spec:
  cert: |
%s  key: |
%s---
%s`, p.shop, p.flaky, p.edge, secureName, w.shopV1.addr, w.shopV2.addr, w.secure.addr, w.flakyA.addr, w.flakyB.addr,
		indent(w.certPEM), indent(w.keyPEM), w.route(v1))
}

func indent(text []byte) string {
	var b strings.Builder
	for line := range bytes.Lines(text) {
		b.WriteString("    ")
		b.Write(line)
	}
	return b.String()
}
