package record

import (
	"time"

	"penstock/consensus/store"
)

// KindIdentity has one entry for each workload certificate that may still be
// valid, by serial number.
const KindIdentity = "_identity"

// Identity is an issued X.509 SVID: the entry _identity/SERIAL. It has no key and
// no certificate. It is deleted when no clock can take the certificate for valid.
type Identity struct {
	Format int    `json:"format"`
	Serial string `json:"serial"` // lower-case hex
	ID     string `json:"id"`     // SPIFFE ID
	By     string `json:"by"`     // who asked for it
	// Issued, Expires and Revoked are by the leader's clock at the time. Revoked is
	// zero while the certificate is in force.
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	Revoked time.Time `json:"revoked,omitzero"`
}

// IdentityKey returns the key of a certificate's entry.
func IdentityKey(serial string) store.Key { return store.Key{Kind: KindIdentity, Name: serial} }
