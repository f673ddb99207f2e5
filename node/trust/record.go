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

// Errors of tokens that are not taken.
var (
	// ErrExpired: its time is over.
	ErrExpired = errors.New("the token has expired")
	// ErrRevoked: someone ended it.
	ErrRevoked = errors.New("the token was revoked")
	// ErrWrongToken: the cluster knows a token of that ID, and it is another.
	ErrWrongToken = errors.New("the token is not one of this cluster")
	// ErrRecord: what is stored of a token cannot be read.
	ErrRecord = errors.New("unreadable record of a token")
)

// maxTTL is how long a token can live; as long as the CA that it names.
const maxTTL = caLife

// recordFormat is the format of stored records.
const recordFormat = 1

// TokenRecord is what the cluster keeps of a token: enough to check it, never
// the secret itself. Times are UTC.
type TokenRecord struct {
	ID      string    `json:"id"`
	Kind    Kind      `json:"kind"`
	Name    string    `json:"name"` // what history and the audit log show
	Role    string    `json:"role"`
	Created time.Time `json:"created"`
	By      string    `json:"by"`
	Expires time.Time `json:"expires"`
	Revoked time.Time `json:"revoked,omitzero"` // zero: it was not

	// verifier is the SHA-256 of an Admin token's secret; of the others it is
	// Token.ProofKey, which must not be seen either. Marshal alone writes it.
	verifier Secret
}

// Mint makes a token and what the cluster is to keep of it.
func Mint(kind Kind, role, name, by string, ttl time.Duration, clusterID string, caDigest [32]byte, now time.Time) (Token, TokenRecord, error) {
	if kind != Join && kind != Admin {
		return Token{}, TokenRecord{}, fmt.Errorf("%w: kind %q is not minted", ErrToken, kind)
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

// Record gives what a cluster keeps of a token: Mint does this, and whoever
// forms a cluster does it with the token that all its nodes were given.
func (t Token) Record(role, name, by string, ttl time.Duration, now time.Time) (TokenRecord, error) {
	if err := checkName(name); err != nil {
		return TokenRecord{}, err
	}
	if ttl <= 0 || ttl > maxTTL {
		return TokenRecord{}, fmt.Errorf("a lifetime of %s: it must be above 0 and at most %s", ttl, maxTTL)
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

// Valid tells whether the token still counts, by the clock of whoever asks.
func (r TokenRecord) Valid(now time.Time) error {
	switch {
	case !r.Revoked.IsZero():
		return fmt.Errorf("%w: %s", ErrRevoked, r)
	case !now.Before(r.Expires):
		return fmt.Errorf("%w: %s, at %s", ErrExpired, r, r.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// State is valid, expired or revoked.
func (r TokenRecord) State(now time.Time) string {
	switch err := r.Valid(now); {
	case errors.Is(err, ErrRevoked):
		return "revoked"
	case err != nil:
		return "expired"
	}
	return "valid"
}

// Revoke gives the record of the token ended. Ended twice, the first counts.
func (r TokenRecord) Revoke(now time.Time) TokenRecord {
	if r.Revoked.IsZero() {
		r.Revoked = now.UTC()
	}
	return r
}

// CheckBearer tells whether that is the secret of this Admin token.
func (r TokenRecord) CheckBearer(secret Secret) bool {
	v := sha256.Sum256(secret.reveal())
	return r.Kind == Admin && subtle.ConstantTimeCompare(v[:], r.verifier.reveal()) == 1
}

// Authenticate takes an Admin token that was shown, or says why not.
func (r TokenRecord) Authenticate(t Token, now time.Time) error {
	if t.Kind != Admin || t.ID != r.ID || !r.CheckBearer(t.Secret) {
		return fmt.Errorf("%w: %s", ErrWrongToken, t)
	}
	return r.Valid(now)
}

// ProofKey is what a Join or Expect token is proven with; no key for others.
func (r TokenRecord) ProofKey() (key []byte, ok bool) {
	if r.Kind != Join && r.Kind != Expect {
		return nil, false
	}
	return r.verifier.reveal(), true
}

// storedRecord is a record as it stands in the store.
type storedRecord struct {
	Format int `json:"format"`
	TokenRecord
	Verifier []byte `json:"verifier"` // sealed
}

// Marshal gives the record for the store, with what checks the token sealed.
func (r TokenRecord) Marshal(ring *Keyring) ([]byte, error) {
	verifier, err := ring.Seal(r.place(), r.verifier.reveal())
	if err != nil {
		return nil, err
	}
	return json.Marshal(storedRecord{recordFormat, r, verifier})
}

// ParseTokenRecord reads what Marshal gave.
func ParseTokenRecord(ring *Keyring, b []byte) (TokenRecord, error) {
	var stored storedRecord
	if err := json.Unmarshal(b, &stored); err != nil {
		return TokenRecord{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if stored.Format != recordFormat {
		return TokenRecord{}, fmt.Errorf("%w: it has format %d, this build knows %d", ErrRecord, stored.Format, recordFormat)
	}
	r := stored.TokenRecord
	verifier, err := ring.Open(r.place(), stored.Verifier)
	if err != nil {
		return TokenRecord{}, fmt.Errorf("%w %.20q: %w", ErrRecord, r.ID, err)
	}
	if id, err := hex.DecodeString(r.ID); err != nil || len(id) != 4 || kindBytes[r.Kind] == 0 || len(verifier) != sha256.Size {
		return TokenRecord{}, fmt.Errorf("%w: ID %.20q, kind %.20q", ErrRecord, r.ID, r.Kind)
	}
	r.verifier = newSecret(verifier)
	return r, nil
}

// place ties the verifier to what it may do: a record whose role was changed
// in the store does not open.
func (r TokenRecord) place() []byte {
	return fmt.Appendf(nil, "token\x00%s\x00%s\x00%s", r.ID, r.Kind, r.Role)
}

// String names the token.
func (r TokenRecord) String() string { return fmt.Sprintf("%s token %s (%s)", r.Kind, r.ID, r.Name) }

// Format names the token, whatever the verb.
func (r TokenRecord) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, r.String()) }
