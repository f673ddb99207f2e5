package api

import "time"

// MethodIssueProxy issues a certificate for a proxy: ProxyCertificateRequest ->
// ProxyCertificate.
const MethodIssueProxy = "proxy.issue"

// ProxyCertificateRequest requests a certificate for a proxy of a service, which
// must have discovery.
type ProxyCertificateRequest struct {
	Service string        `json:"service"`
	CSR     []byte        `json:"csr"` // PKCS #10, DER; its names are ignored
	TTL     time.Duration `json:"ttl"` // 1h to 2160h
}

// ProxyCertificate is a proxy's certificate. A node with --dev has none to give:
// there Certificate is empty, and proxies connect without TLS.
type ProxyCertificate struct {
	Certificate []byte   `json:"certificate,omitempty"` // DER
	CAs         [][]byte `json:"cas,omitempty"`         // DER, newest first
	// ID is the proxy's SPIFFE ID, ServerID that of every node's discovery server.
	ID       string    `json:"id,omitempty"`
	ServerID string    `json:"serverID,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
}
