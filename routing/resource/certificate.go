package resource

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"reflect"
	"strings"
)

// Certificate is a certificate chain with its key.
type Certificate struct {
	// CertFile is the file of Cert, relative to the resource's file. It is read
	// where and when the resource is applied; Cert is what is stored.
	CertFile string `yaml:"certFile"`
	// KeyFile is the file of Key, read in the same way.
	KeyFile string `yaml:"keyFile"`
	// Follow leaves CertFile and KeyFile to the nodes: each reads its own, and
	// again when they change. Neither content is stored. Default false.
	Follow bool `yaml:"follow"`
	// Cert is the chain as PEM, leaf first. Required, unless CertFile, ACME, Identity
	// or WorkloadAPI is given.
	Cert string `yaml:"cert"`
	// Key is the private key as PEM, not encrypted. It is never shown.
	// Required, unless KeyFile, ACME, Identity or WorkloadAPI is given.
	Key Secret `yaml:"key"`
	// ACME obtains the chain and the key from a certificate authority, in place of
	// all other fields.
	ACME *ACME `yaml:"acme"`
	// Identity is the SPIFFE ID of a workload: a path such as /ns/shop/web, in the
	// cluster's trust domain, or the ID in full. Each node gets and renews a
	// certificate for it from the cluster's CA, whose key does not leave the node. In
	// place of all other fields but dns and ttl.
	Identity string `yaml:"identity"`
	// DNS lists the DNS names of the certificate for identity, at most 16. Without any
	// a listener presents it for each server name that no other certificate covers.
	DNS []string `yaml:"dns"`
	// TTL is how long a certificate for identity is valid, 5m to 168h; it is renewed
	// at half of that. Default 24h.
	TTL Duration `yaml:"ttl" default:"24h" range:"5m..168h"`
	// WorkloadAPI gets the certificate from an agent on each node's machine, such as
	// SPIRE's, in place of all other fields.
	WorkloadAPI *WorkloadAPI `yaml:"workloadAPI"`
}

// WorkloadAPI is an agent that serves the SPIFFE Workload API to the node. It gives an
// X.509 SVID with its key, and the trust bundle; see Certificate.HasBundle.
type WorkloadAPI struct {
	// Socket is where the agent listens, such as unix:///run/spire/agent.sock. Required.
	Socket string `yaml:"socket"`
	// SPIFFEID picks one of several SVIDs by its SPIFFE ID. Default the agent's first.
	SPIFFEID string `yaml:"spiffeID"`
	// Hint picks one by the hint that the agent gives with it. At most 253 bytes.
	Hint string `yaml:"hint"`
}

// WithDefaults returns a copy with all defaults filled in.
func (c *Certificate) WithDefaults() *Certificate {
	out := *c
	fill(reflect.ValueOf(&out).Elem())
	return &out
}

// HasBundle reports whether the certificate comes with a trust bundle, which a caRef can
// name.
func (c *Certificate) HasBundle() bool { return c.Identity != "" || c.WorkloadAPI != nil }

// IsPEM reports whether text is PEM rather than a file name.
func IsPEM(text string) bool { return strings.Contains(text, "-----BEGIN") }

// Refs returns nothing: a certificate refers to no other resource.
func (c *Certificate) Refs() []Ref { return nil }

// Leaf parses the first certificate of the chain.
func (c *Certificate) Leaf() (*x509.Certificate, error) {
	chain, err := ParseCertificates(c.Cert)
	if err != nil {
		return nil, err
	}
	return chain[0], nil
}

// Names lists the DNS names that the certificate is, or is to be, valid for; none
// if it was not read yet.
func (c *Certificate) Names() []string {
	switch {
	case c.ACME != nil:
		return c.ACME.Names
	case c.Identity != "":
		return c.DNS
	}
	leaf, err := c.Leaf()
	if err != nil {
		return nil
	}
	return leaf.DNSNames
}

// NamesKnown reports whether Names is complete: a file may not have been read yet, and
// the certificate of an identity without names is for all of them.
func (c *Certificate) NamesKnown() bool { return c.ACME != nil || c.Cert != "" || len(c.DNS) > 0 }

// ForAnyName reports whether a listener presents the certificate, whose leaf this is,
// for any server name: peers know it by its SPIFFE ID.
func (c *Certificate) ForAnyName(leaf *x509.Certificate) bool {
	return c.HasBundle() && len(leaf.DNSNames) == 0
}

// maxChain bounds the certificates of one chain or bundle.
const maxChain = 1000

// ParseCertificates parses a chain or bundle. Its errors never contain content.
func ParseCertificates(text string) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for rest := []byte(text); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			if len(chain) == 0 {
				return nil, fmt.Errorf("must be PEM certificates (-----BEGIN CERTIFICATE-----)")
			}
			if strings.Contains(string(rest), "-----BEGIN") {
				return nil, fmt.Errorf("has broken PEM after certificate %d", len(chain))
			}
			return chain, nil
		}
		switch {
		case looksSecret(block.Type):
			return nil, fmt.Errorf("contains a private key; only certificates are allowed")
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("contains PEM of type %s; only certificates are allowed", quote(block.Type))
		case len(chain) == maxChain:
			return nil, fmt.Errorf("has more than %d certificates", maxChain)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(chain)+1, err)
		}
		chain = append(chain, cert)
	}
}
