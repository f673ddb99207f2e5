package svid

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"penstock/node/workload"
	"penstock/routing/resource"
)

// holdPause is the pause before another attempt to hold an identity for which the node
// has no room.
const holdPause = 30 * time.Second

// followCluster keeps the certificate that the cluster's CA issues to this node, and
// the cluster's trust bundle, until the entry ends. The Source renews it.
func (e *entry) followCluster() {
	held := e.m.cfg.Held
	identity := workload.Identity{ID: e.spec.Identity, DNS: e.spec.DNS, TTL: e.spec.TTL.D()}
	hold, err := held.Hold(identity)
	for err != nil {
		e.learn(nil, err)
		select {
		case <-time.After(holdPause):
		case <-e.ctx.Done():
			return
		}
		hold, err = held.Hold(identity)
	}
	defer hold.Release()
	for {
		roots, rootsChanged := held.Roots()
		svid, changed, err := hold.Get()
		if errors.Is(err, workload.ErrReleased) {
			return // the node stops
		}
		c := &content{}
		if len(roots) > 0 {
			c.bundle = &resource.CertificateBundle{TrustDomain: held.TrustDomain(), PEM: certificates(roots)}
		}
		if err == nil {
			c.chain, c.until = certificates(svid.Cert.Certificate), svid.Expires
			c.key, err = keyPEM(svid.Cert.PrivateKey)
		}
		if errors.Is(err, workload.ErrPending) {
			err = errPending
		}
		e.learn(c, err)
		select {
		case <-changed:
		case <-rootsChanged:
		case <-e.ctx.Done():
			return
		}
	}
}

// certificates returns certificates, DER, as PEM.
func certificates(ders [][]byte) string {
	var text []byte
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return string(text)
}

// keyPEM returns a private key as PEM. Its errors contain nothing of the key.
func keyPEM(key any) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("a key of type %T cannot be used", key)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}
