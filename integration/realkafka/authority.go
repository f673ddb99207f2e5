package realkafka

import (
	"os"
	"path/filepath"

	"penstock/internal/testkit/certs"
)

// Authority is a CA for tests, with its certificate in a file.
type Authority struct {
	*certs.CA
	File string
}

// NewAuthority creates a CA whose certificate is a file of dir. Tests use CAs
// other than the cluster's for clients that trust the wrong one.
func NewAuthority(dir string) (Authority, error) {
	a := Authority{certs.NewCA("brokers of a test"), filepath.Join(dir, "ca.pem")}
	return a, os.WriteFile(a.File, []byte(a.PEM), 0o600)
}

// keystore writes a key and a certificate for an IP address into one PEM file.
func (a *Authority) keystore(dir, ip string) (string, error) {
	p := a.Issue("broker", ip)
	file := filepath.Join(dir, "broker.pem")
	return file, os.WriteFile(file, []byte(p.Key+p.Cert), 0o600)
}
