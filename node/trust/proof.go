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
	// ErrProof: the peer does not have the secret, or a man in the middle relays
	// the connection.
	ErrProof = errors.New("the other side does not know the token's secret, or someone sits between")
	// ErrChannel: a proof cannot be bound to the connection.
	ErrChannel = errors.New("not a finished TLS 1.3 connection")
)

// The roles of the two sides of a proof. Each side proves its own role, so that
// neither can reflect the proof that it received.
const (
	Dialer   = "dialer"
	Acceptor = "acceptor"
)

const exporterLabel = "EXPORTER-penstock-join"

// Prove returns a proof of a key (Token.ProofKey) to the other side of a TLS
// connection, and to it alone: the HMAC-SHA256 of the role and of keying
// material exported from the connection (RFC 8446, section 7.5; the idea of RFC
// 9266). The two connections of a man in the middle have different material, so
// that no proof of one is valid on the other. The proof reveals nothing of the
// secret, which has 256 random bits.
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
	// The encoding is unambiguous: a zero byte ends the role, and the material has
	// a fixed length.
	mac.Write([]byte(role))
	mac.Write([]byte{0})
	mac.Write(material)
	return mac.Sum(nil), nil
}

// Check verifies the other side's proof of its role.
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
