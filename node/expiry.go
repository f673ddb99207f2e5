package node

import (
	"crypto/x509"

	"penstock/node/expiry"
)

// watchOwnExpiry adds the certificate that makes this a node of its cluster, and the
// cluster's CA.
func (n *Node) watchOwnExpiry() {
	if n.cluster == nil {
		return
	}
	n.expiry.Watch("node", expiry.Presented, func() []*x509.Certificate {
		if id := n.cluster.Identity(); id.Joined() {
			return []*x509.Certificate{id.Leaf()}
		}
		return nil
	})
	n.expiry.Watch("cluster", expiry.Trusted, func() (cas []*x509.Certificate) {
		id := n.cluster.Identity()
		if !id.Joined() {
			return nil
		}
		for _, der := range id.Bundle() {
			if c, err := x509.ParseCertificate(der); err == nil {
				cas = append(cas, c)
			}
		}
		return cas
	})
}
