package resource

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
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
	// Cert is the chain as PEM, leaf first. Required, unless CertFile or ACME is
	// given.
	Cert string `yaml:"cert"`
	// Key is the private key as PEM, not encrypted. It is never shown.
	// Required, unless KeyFile or ACME is given.
	Key Secret `yaml:"key"`
	// ACME obtains the chain and the key from a certificate authority, in place of
	// all other fields.
	ACME *ACME `yaml:"acme"`
}

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
	if c.ACME != nil {
		return c.ACME.Names
	}
	leaf, err := c.Leaf()
	if err != nil {
		return nil
	}
	return leaf.DNSNames
}

// NamesKnown reports whether Names is complete: a file may not have been read yet.
func (c *Certificate) NamesKnown() bool { return c.ACME != nil || c.Cert != "" }

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
