package resource

import "reflect"

// ACME has the cluster obtain a certificate, and renew it, from a certificate
// authority that speaks ACME (RFC 8555).
type ACME struct {
	// Directory is the URL of the authority's directory: https, or http towards a
	// loopback address, for tests. Required.
	Directory string `yaml:"directory"`
	// Names are the server names of the certificate, 1 to 100. Wildcards are
	// refused: an authority gives them only for a record in the DNS. Required.
	Names []string `yaml:"names"`
	// Email is the address at which the authority may contact you. Left out: none.
	Email string `yaml:"email"`
	// AgreeToTerms says that you agree to the authority's terms of service. It must
	// be true.
	AgreeToTerms bool `yaml:"agreeToTerms"`
	// Challenge is how the authority checks the names: tlsALPN01 connects to port
	// 443, where any tls listener of the nodes answers; http01 asks port 80, where
	// only a listener answers whose requests a MeshHTTPRoute routes. Default
	// tlsALPN01.
	Challenge string `yaml:"challenge" default:"tlsALPN01" oneof:"tlsALPN01 http01"`
	// CA is a bundle of PEM certificates that the directory's own certificate is
	// verified by, or the file that holds it, relative to the resource's file and
	// read when it is applied. Left out: the system's.
	CA string `yaml:"ca"`
	// ExternalAccount binds the account to one that you have with the authority
	// (RFC 8555, section 7.3.4). Left out: none.
	ExternalAccount *ACMEExternalAccount `yaml:"externalAccount"`
	// KeyType is the type of the certificate's key: ecdsaP256 or rsa2048. Default
	// ecdsaP256.
	KeyType string `yaml:"keyType" default:"ecdsaP256" oneof:"ecdsaP256 rsa2048"`
}

// ACMEExternalAccount is an account outside of ACME.
type ACMEExternalAccount struct {
	// KID is the identifier that the authority gave. Required.
	KID string `yaml:"kid"`
	// HMAC is the key that the authority gave, base64url without padding. It is
	// never shown. Required.
	HMAC Secret `yaml:"hmac"`
}

// WithDefaults returns a copy with all defaults filled in. Lists are shared.
func (a *ACME) WithDefaults() *ACME {
	out := *a
	fill(reflect.ValueOf(&out).Elem())
	return &out
}
