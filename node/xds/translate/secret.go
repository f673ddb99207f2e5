package translate

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"penstock/routing/resource"
)

// caPrefix begins the names of the secrets with CAs. No Certificate can have
// such a name.
const caPrefix = "ca/"

// caName returns the name of the secret with the CA of a service's endpoints.
func caName(service string) string { return caPrefix + service }

// certificateSecret returns a Certificate, key included.
func certificateSecret(name string, c *resource.Certificate) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(c.Cert),
		PrivateKey:       inline(string(c.Key)),
	}}}
}

// caSecret returns the CA of a service's endpoints, for clusters that the proxy's
// own configuration has.
func caSecret(name, ca string) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(ca)},
	}}
}
