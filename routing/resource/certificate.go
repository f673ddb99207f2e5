package resource

// Certificate is a certificate chain with its key.
type Certificate struct {
	// CertFile is the file of Cert, relative to the resource's file. It is read
	// where and when the resource is applied; Cert is what is stored.
	CertFile string `yaml:"certFile"`
	// KeyFile is the file of Key, read in the same way.
	KeyFile string `yaml:"keyFile"`
	// Cert is the chain as PEM, leaf first. Required, unless CertFile is given.
	Cert string `yaml:"cert"`
	// Key is the private key as PEM, not encrypted. It is never shown.
	// Required, unless KeyFile is given.
	Key Secret `yaml:"key"`
}
