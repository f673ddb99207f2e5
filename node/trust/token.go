package trust

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unique"
)

// ErrToken means that a text is no token.
var ErrToken = errors.New("not a token")

// Kind says what a token is for.
type Kind string

// The kinds.
const (
	Join   Kind = "join"   // lets a node join
	Admin  Kind = "admin"  // lets its bearer administer, as its record's role allows
	Expect Kind = "expect" // lets nodes form a cluster with one another, and join it later
)

// kindBytes are the kinds as tokens hold them.
var kindBytes = map[Kind]byte{Join: 'j', Admin: 'a', Expect: 'e'}

// Secret is 32 bytes that never print themselves, not even as an unexported
// field of something else, where fmt asks no method: there it sees a pointer,
// or, with a verb that does not fit, the pointer that this one points to.
// Equal secrets are ==.
type Secret struct {
	p unique.Handle[unique.Handle[[32]byte]]
}

func newSecret(b []byte) Secret { return Secret{unique.Make(unique.Make([32]byte(b)))} }

// reveal gives the bytes.
func (s Secret) reveal() []byte {
	if s == (Secret{}) {
		return make([]byte, 32)
	}
	b := s.p.Value().Value()
	return b[:]
}

const hidden = "(hidden)"

// Format hides it.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText hides it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Token is what someone is given who may join or administer. It prints as its
// kind and ID; only Reveal gives the text that holds the secret.
type Token struct {
	Kind      Kind
	ClusterID string   // "" of Expect
	CADigest  [32]byte // Digest of the cluster's CA; zero of Expect
	ID        string   // 8 hex digits, what the cluster's record is found by; of Expect it follows from the secret
	Secret    Secret
}

const (
	tokenHead = "pst1."
	maxToken  = 300 // bytes of text
)

// NewExpectToken makes a secret for nodes that are to form a cluster. It needs
// no cluster.
func NewExpectToken() Token {
	t := Token{Kind: Expect, Secret: newSecret(randomBytes(32))}
	t.ID = t.expectID()
	return t
}

func (t Token) expectID() string {
	id := sha256.Sum256(append([]byte("penstock expect\x00"), t.Secret.reveal()...))
	return hex.EncodeToString(id[:4])
}

// Reveal is the text of the token, for the one who is to have it: "pst1." and
// base64url of the kind, what it names, the secret and a checksum.
func (t Token) Reveal() string {
	if t.Kind == "" {
		return ""
	}
	b := []byte{kindBytes[t.Kind]}
	if t.Kind != Expect {
		id, _ := hex.DecodeString(t.ID)
		b = append(b, byte(len(t.ClusterID)))
		b = append(b, t.ClusterID...)
		b = append(b, t.CADigest[:]...)
		b = append(b, id...)
	}
	return tokenHead + base64.RawURLEncoding.EncodeToString(appendSum(append(b, t.Secret.reveal()...)))
}

// ParseToken reads the text of a token; spaces around it do not matter. Its
// errors tell what is no token at all, what was cut or mistyped, and what a
// newer version made, and repeat nothing of it.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	body, ok := strings.CutPrefix(text, tokenHead)
	switch {
	case text == "":
		return Token{}, fmt.Errorf("%w: it is empty", ErrToken)
	case !ok && strings.HasPrefix(text, "pst"):
		return Token{}, fmt.Errorf("%w of this version: tokens begin with %q here; it was mistyped, or a newer version made it", ErrToken, tokenHead)
	case !ok:
		return Token{}, fmt.Errorf("%w: tokens begin with %q", ErrToken, tokenHead)
	case len(text) > maxToken:
		return Token{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrToken, len(text), maxToken)
	}
	mistyped := fmt.Errorf("%w: it was cut or mistyped: copy it whole", ErrToken)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return Token{}, mistyped
	}
	raw, ok = cutSum(raw)
	if !ok || len(raw) == 0 {
		return Token{}, mistyped
	}
	return parseToken(raw)
}

// parseToken reads what stands in a token whose checksum is right.
func parseToken(raw []byte) (t Token, err error) {
	for kind, b := range kindBytes {
		if b == raw[0] {
			t.Kind = kind
		}
	}
	if t.Kind == "" {
		return Token{}, fmt.Errorf("%w of a kind that this build knows (%q): a newer version made it", ErrToken, raw[:1])
	}
	rest := raw[1:]
	if t.Kind != Expect {
		const fixed = 32 + 4
		if len(rest) < 1 || len(rest) < 1+int(rest[0])+fixed {
			return Token{}, fmt.Errorf("%w: a %s token of %d bytes", ErrToken, t.Kind, len(raw))
		}
		n := int(rest[0])
		t.ClusterID = string(rest[1 : 1+n])
		t.CADigest = [32]byte(rest[1+n:])
		t.ID = hex.EncodeToString(rest[1+n+32 : 1+n+fixed])
		rest = rest[1+n+fixed:]
		if err := checkID("cluster", t.ClusterID); err != nil {
			return Token{}, fmt.Errorf("%w: %w", ErrToken, err)
		}
	}
	if len(rest) != 32 {
		return Token{}, fmt.Errorf("%w: a %s token with a secret of %d bytes", ErrToken, t.Kind, len(rest))
	}
	t.Secret = newSecret(rest)
	if t.Kind == Expect {
		t.ID = t.expectID()
	}
	return t, nil
}

// ProofKey is what knowledge of a Join or Expect token is proven with: Prove
// and Check.
func (t Token) ProofKey() []byte {
	key, err := hkdf.Key(sha256.New, t.Secret.reveal(), nil, "penstock proof\x00"+string(t.Kind)+"\x00"+t.ClusterID, sha256.Size)
	if err != nil {
		panic(err) // only of lengths that are constant here
	}
	return key
}

// String names the token without its secret.
func (t Token) String() string {
	if t.Kind == "" {
		return "no token"
	}
	return string(t.Kind) + " token " + t.ID
}

// Format names the token without its secret, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// LogValue names the token without its secret.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText names the token without its secret: nothing reads it back.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
