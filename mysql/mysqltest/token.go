package mysqltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// tokenLife is how long a token is valid, as in TiDB.
const tokenLife = time.Minute

// Signer signs session tokens, and checks them. Servers of one cluster share it,
// as TiDB servers share a signing certificate and its key.
type Signer struct{ key *ecdsa.PrivateKey }

// NewSigner returns a signer with a key of its own.
func NewSigner(t testing.TB) *Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &Signer{key: key}
}

// token is a session token, with the names of TiDB's.
type token struct {
	Username   string    `json:"username"`
	SignTime   time.Time `json:"sign-time"`
	ExpireTime time.Time `json:"expire-time"`
	Signature  []byte    `json:"signature,omitempty"`
}

// digest returns the hash that is signed.
func (k token) digest() []byte {
	k.Signature = nil
	text, err := json.Marshal(k)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return sum[:]
}

// Token returns a token for a user; nil without a signer.
func (s *Signer) Token(user string, now time.Time) []byte {
	if s == nil {
		return nil
	}
	k := token{Username: user, SignTime: now.UTC().Round(0), ExpireTime: now.UTC().Round(0).Add(tokenLife)}
	var err error
	if k.Signature, err = ecdsa.SignASN1(rand.Reader, s.key, k.digest()); err != nil {
		panic(err)
	}
	text, err := json.Marshal(k)
	if err != nil {
		panic(err)
	}
	return text
}

// valid reports whether text is a token for the user that s signed and that has
// not expired.
func (s *Signer) valid(text []byte, user string, now time.Time) bool {
	var k token
	if s == nil || json.Unmarshal(text, &k) != nil {
		return false
	}
	return ecdsa.VerifyASN1(&s.key.PublicKey, k.digest(), k.Signature) && !now.After(k.ExpireTime) &&
		!k.SignTime.Add(tokenLife).Before(now) && strings.EqualFold(k.Username, user)
}
