package trust

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
)

// Errors of proofs.
var (
	// ErrProof: the peer does not know the secret, or sits between two that do.
	ErrProof = errors.New("the other side does not know the token's secret, or someone sits between")
	// ErrChannel: the connection is not one that a proof can be bound to.
	ErrChannel = errors.New("not a finished TLS 1.3 connection")
)

// The roles of the two sides of a proof. Each proves its own, so that neither
// can send back what it was sent.
const (
	Dialer   = "dialer"
	Acceptor = "acceptor"
)

const exporterLabel = "EXPORTER-penstock-join"

// Prove proves knowledge of a key (Token.ProofKey) to the other side of a TLS
// connection, and to it alone: HMAC-SHA256 over the role and keying material
// exported from the connection (RFC 8446, section 7.5; the idea of RFC 9266).
// Somebody in the middle has two connections with different material, so
// neither proof fits the other. The proof tells nothing of the secret, which
// has 256 random bits.
func Prove(key []byte, role string, cs *tls.ConnectionState) ([]byte, error) {
	if cs == nil || !cs.HandshakeComplete || cs.Version < tls.VersionTLS13 {
		return nil, ErrChannel
	}
	if len(key) < sha256.Size {
		return nil, fmt.Errorf("%w: a key of %d bytes, the least is %d", ErrChannel, len(key), sha256.Size)
	}
	material, err := cs.ExportKeyingMaterial(exporterLabel, nil, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrChannel, err)
	}
	mac := hmac.New(sha256.New, key)
	// The role ends at a zero byte, and the material has a fixed length.
	mac.Write([]byte(role))
	mac.Write([]byte{0})
	mac.Write(material)
	return mac.Sum(nil), nil
}

// Check takes the other side's proof of its role.
func Check(key []byte, role string, cs *tls.ConnectionState, proof []byte) error {
	want, err := Prove(key, role, cs)
	if err != nil {
		return err
	}
	if !hmac.Equal(want, proof) {
		return ErrProof
	}
	return nil
}
