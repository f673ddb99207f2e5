package validate

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"penstock/routing/resource"
)

// validateCertificate reports the faults of a certificate alone. Content that is
// yet to be read from a file or filled in for a hidden key is checked then. The
// time is not considered, so that an expiring certificate does not make stored objects
// invalid; Admit checks it when the certificate is applied.
func validateCertificate(c *resource.Certificate, fault Report) {
	Fields(c, fault)
	if c.Identity == "" {
		checkNoIdentity(c, fault)
	}
	switch {
	case c.ACME != nil:
		validateACME(c, fault)
		return
	case c.HasBundle():
		validateSVID(c, fault)
		return
	}
	if c.Follow {
		validateFollowed(c, fault)
		return
	}
	either := func(field string, inline, file bool) {
		switch {
		case inline && file:
			fault(field, "conflicts with "+field+"File: give only one of them", nil)
		case !inline && !file:
			fault(field, "is required, or "+field+"File, or acme", nil)
		}
	}
	either("cert", c.Cert != "", c.CertFile != "")
	either("key", c.Key != "", c.KeyFile != "")
	var leaf *x509.Certificate
	if c.Cert != "" {
		chain, err := resource.ParseCertificates(c.Cert)
		if err != nil {
			fault("cert", err.Error(), nil)
		} else {
			leaf = chain[0]
		}
	}
	if c.Key == "" || c.Key == resource.HiddenSecret {
		return
	}
	key, err := parseKey(string(c.Key))
	switch {
	case err != nil:
		fault("key", err.Error(), nil)
	case leaf != nil && !samePublicKey(leaf, key):
		fault("key", "does not belong to the first certificate of cert", nil)
	}
}

// validateFollowed reports the faults of a certificate whose files nodes read.
func validateFollowed(c *resource.Certificate, fault Report) {
	for _, f := range []struct {
		field, file string
		inline      bool
	}{{"cert", c.CertFile, c.Cert != ""}, {"key", c.KeyFile, c.Key != ""}} {
		if f.inline {
			fault(f.field, "conflicts with follow: the nodes read it from "+f.field+"File", nil)
		}
		if f.file == "" {
			fault(f.field+"File", "is required with follow: a file on each node", nil)
		}
		followedPath(f.field+"File", f.file, fault)
	}
}

// maxFollowedPath bounds the path of a followed file, in bytes (PATH_MAX of Linux).
const maxFollowedPath = 4096

// followedPath reports a path that no file can have.
func followedPath(path, file string, fault Report) {
	if strings.ContainsRune(file, 0) || len(file) >= maxFollowedPath {
		fault(path, fmt.Sprintf("must be a path of less than %d bytes, without a zero byte", maxFollowedPath), nil)
	}
}

// parseKey parses a private key. Its errors never contain content, nor do they
// wrap errors of the crypto libraries.
func parseKey(text string) (crypto.Signer, error) {
	for rest := []byte(text); ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil:
			return nil, fmt.Errorf("must be a private key as PEM (-----BEGIN PRIVATE KEY-----)")
		case block.Type == "EC PARAMETERS":
			continue // openssl writes them before an EC key
		case block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "":
			return nil, fmt.Errorf("is encrypted; it must be stored without a passphrase")
		case !strings.Contains(block.Type, "PRIVATE KEY"):
			return nil, fmt.Errorf("contains something other than a private key")
		}
		var key any
		var err error
		switch block.Type {
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		}
		signer, ok := key.(crypto.Signer)
		if err != nil || !ok {
			return nil, fmt.Errorf("cannot be read: it must be an RSA, ECDSA or Ed25519 key as PKCS#8, PKCS#1 or SEC 1")
		}
		return signer, nil
	}
}

func samePublicKey(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// CA reports a bundle that cannot be parsed. A text without PEM is a file
// name; the file is read when the resource is applied.
func CA(path, text string, fault Report) {
	if !resource.IsPEM(text) {
		return
	}
	if _, err := resource.ParseCertificates(text); err != nil {
		fault(path, err.Error(), nil)
	}
}

// expired returns the fault of a chain whose leaf has expired, or "".
func expired(c *resource.Certificate, now time.Time) string {
	leaf, err := c.Leaf()
	if err != nil || !now.After(leaf.NotAfter) {
		return ""
	}
	return "expired at " + leaf.NotAfter.UTC().Format(time.RFC3339)
}
