package trust

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// The errors of rejected tokens.
var (
	// ErrExpired: the token has expired.
	ErrExpired = errors.New("the token has expired")
	// ErrRevoked: the token was revoked.
	ErrRevoked = errors.New("the token was revoked")
	// ErrWrongToken: the cluster has another token under that ID.
	ErrWrongToken = errors.New("the token does not belong to this cluster")
	// ErrRecord: the stored record of a token is unreadable.
	ErrRecord = errors.New("unreadable token record")
)

// MaxTTL bounds the lifetime of a token to that of the CA that it names.
const MaxTTL = caLifetime

// recordFormat is the format of stored records.
const recordFormat = 1

// TokenRecord is the cluster's record of a token: enough to verify it, without
// the secret itself. Times are UTC.
type TokenRecord struct {
	ID      string    `json:"id"`
	Kind    Kind      `json:"kind"`
	Name    string    `json:"name"` // shown by history and the audit log
	Role    string    `json:"role"`
	Created time.Time `json:"created"`
	By      string    `json:"by"`
	Expires time.Time `json:"expires"`
	Revoked time.Time `json:"revoked,omitzero"` // zero: not revoked
	// Path is the pattern of SPIFFE paths for which a token of role issuer may issue.
	Path string `json:"path,omitempty"`

	// verifier is the SHA-256 of an Admin token's secret, and Token.ProofKey of
	// the others, which is secret as well. Only Marshal writes it.
	verifier Secret
}

// Mint returns a new token and its record.
func Mint(
	kind Kind, role, name, by string, ttl time.Duration,
	clusterID string, caDigest [32]byte, now time.Time,
) (Token, TokenRecord, error) {
	if kind != Join && kind != Admin {
		return Token{}, TokenRecord{}, fmt.Errorf("%w: cannot create a token of kind %q", ErrToken, kind)
	}
	if err := checkID("cluster", clusterID); err != nil {
		return Token{}, TokenRecord{}, err
	}
	t := Token{Kind: kind, ClusterID: clusterID, CADigest: caDigest, ID: randomHex(4), Secret: newSecret(randomBytes(32))}
	r, err := t.Record(role, name, by, ttl, now)
	if err != nil {
		return Token{}, TokenRecord{}, err
	}
	return t, r, nil
}

// Record returns the record of a token. Mint calls it, and so does the
// bootstrap of a cluster, with the token that its nodes were given.
func (t Token) Record(role, name, by string, ttl time.Duration, now time.Time) (TokenRecord, error) {
	if err := checkName(name); err != nil {
		return TokenRecord{}, err
	}
	if ttl <= 0 || ttl > MaxTTL {
		return TokenRecord{}, fmt.Errorf("lifetime %s: must be above 0 and at most %s", ttl, MaxTTL)
	}
	r := TokenRecord{ID: t.ID, Kind: t.Kind, Name: name, Role: role, Created: now.UTC(), By: by, Expires: now.Add(ttl).UTC()}
	if t.Kind == Admin {
		v := sha256.Sum256(t.Secret.reveal())
		r.verifier = newSecret(v[:])
	} else {
		r.verifier = newSecret(t.ProofKey())
	}
	return r, nil
}

// Valid returns an error if the token is expired or revoked at now, which is
// the verifier's clock.
func (r TokenRecord) Valid(now time.Time) error {
	switch {
	case !r.Revoked.IsZero():
		return fmt.Errorf("%w: %s", ErrRevoked, r)
	case !now.Before(r.Expires):
		return fmt.Errorf("%w: %s, at %s", ErrExpired, r, r.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// State returns valid, expired or revoked.
func (r TokenRecord) State(now time.Time) string {
	switch err := r.Valid(now); {
	case errors.Is(err, ErrRevoked):
		return "revoked"
	case err != nil:
		return "expired"
	}
	return "valid"
}

// Revoke returns the record as revoked. An earlier revocation keeps its time.
func (r TokenRecord) Revoke(now time.Time) TokenRecord {
	if r.Revoked.IsZero() {
		r.Revoked = now.UTC()
	}
	return r
}

// CheckBearer reports whether secret is that of this Admin token.
func (r TokenRecord) CheckBearer(secret Secret) bool {
	v := sha256.Sum256(secret.reveal())
	return r.Kind == Admin && subtle.ConstantTimeCompare(v[:], r.verifier.reveal()) == 1
}

// Authenticate verifies a presented Admin token.
func (r TokenRecord) Authenticate(t Token, now time.Time) error {
	if t.Kind != Admin || t.ID != r.ID || !r.CheckBearer(t.Secret) {
		return fmt.Errorf("%w: %s", ErrWrongToken, t)
	}
	return r.Valid(now)
}

// ProofKey returns the key that proves a Join or Expect token; other kinds have
// none.
func (r TokenRecord) ProofKey() (key []byte, ok bool) {
	if r.Kind != Join && r.Kind != Expect {
		return nil, false
	}
	return r.verifier.reveal(), true
}

// storedRecord is a record as it is stored.
type storedRecord struct {
	Format int `json:"format"`
	TokenRecord
	Verifier []byte `json:"verifier"` // sealed
}

// Marshal encodes the record for the store, with the verifier sealed.
func (r TokenRecord) Marshal(ring *Keyring) ([]byte, error) {
	verifier, err := ring.Seal(r.aad(), r.verifier.reveal())
	if err != nil {
		return nil, err
	}
	return json.Marshal(storedRecord{recordFormat, r, verifier})
}

// ParseTokenRecord parses the output of Marshal.
func ParseTokenRecord(ring *Keyring, b []byte) (TokenRecord, error) {
	var stored storedRecord
	if err := json.Unmarshal(b, &stored); err != nil {
		return TokenRecord{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if stored.Format != recordFormat {
		return TokenRecord{}, fmt.Errorf("%w: format %d, this build supports %d", ErrRecord, stored.Format, recordFormat)
	}
	r := stored.TokenRecord
	verifier, err := ring.Open(r.aad(), stored.Verifier)
	if err != nil {
		return TokenRecord{}, fmt.Errorf("%w %.20q: %w", ErrRecord, r.ID, err)
	}
	if id, err := hex.DecodeString(r.ID); err != nil || len(id) != 4 || kindBytes[r.Kind] == 0 || len(verifier) != sha256.Size {
		return TokenRecord{}, fmt.Errorf("%w: ID %.20q, kind %.20q", ErrRecord, r.ID, r.Kind)
	}
	r.verifier = newSecret(verifier)
	return r, nil
}

// aad returns the aad of the verifier: a record whose role or path was changed in
// the store does not open.
func (r TokenRecord) aad() []byte {
	if r.Path != "" {
		return fmt.Appendf(nil, "token\x00%s\x00%s\x00%s\x00%s", r.ID, r.Kind, r.Role, r.Path)
	}
	return fmt.Appendf(nil, "token\x00%s\x00%s\x00%s", r.ID, r.Kind, r.Role)
}

// String describes the token.
func (r TokenRecord) String() string { return fmt.Sprintf("%s token %s (%s)", r.Kind, r.ID, r.Name) }

// Format describes the token, whatever the verb.
func (r TokenRecord) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }
