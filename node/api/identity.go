package api

import "time"

// The methods of workload identities, for the roles issuer and admin.
const (
	MethodIdentityIssue  = "identity.issue"  // IdentityRequest -> IdentityIssued
	MethodIdentities     = "identity.list"   // Empty -> Identities
	MethodIdentityRevoke = "identity.revoke" // IdentityRevokeRequest -> IdentityRevoked
	// MethodIdentityNode is for nodes, which hold identities of services and of
	// workloads beside them: IdentityRequest -> IdentityIssued.
	MethodIdentityNode = "identity.node"
	// MethodTrustBundle is for readers: Empty -> TrustBundle.
	MethodTrustBundle = "identity.bundle"
)

// IdentityRequest requests an X.509 SVID.
type IdentityRequest struct {
	// ID is a SPIFFE ID of the cluster's trust domain, or its path alone.
	ID  string        `json:"id"`
	CSR []byte        `json:"csr"`           // PKCS #10, DER; its names are ignored
	TTL time.Duration `json:"ttl"`           // 5m to 168h; 0: 1h
	DNS []string      `json:"dns,omitempty"` // DNS SANs, for admins and nodes only
	// Reissue requests it although an earlier certificate of the ID was revoked; only
	// nodes are refused otherwise.
	Reissue bool `json:"reissue,omitempty"`
}

// IdentityIssued is an issued X.509 SVID.
type IdentityIssued struct {
	ID          string    `json:"id"`
	Serial      string    `json:"serial"`
	Certificate []byte    `json:"certificate"` // DER
	Chain       [][]byte  `json:"chain"`       // DER: intermediates to send along while the CA is rotated
	Roots       [][]byte  `json:"roots"`       // DER: the trust bundle
	Expires     time.Time `json:"expires"`
}

// Identity is an issued certificate. State is valid, expired or revoked.
type Identity struct {
	Serial  string    `json:"serial"`
	ID      string    `json:"id"`
	State   string    `json:"state"`
	By      string    `json:"by"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// Identities lists issued certificates, the newest first.
type Identities []Identity

// IdentityRevokeRequest revokes the certificate of a serial number, or all that
// are in force of a SPIFFE ID or path.
type IdentityRevokeRequest struct {
	Identity string `json:"identity"`
}

// IdentityRevoked says how many certificates were revoked.
type IdentityRevoked struct {
	Count int `json:"count"`
}

// TrustBundle is what verifies the workload certificates of the cluster.
type TrustBundle struct {
	TrustDomain string `json:"trustDomain"`
	// Sequence grows with each change of the bundle.
	Sequence uint64   `json:"sequence"`
	Roots    [][]byte `json:"roots"` // DER, the newest first
}
