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

// ErrToken means that a text is not a valid token.
var ErrToken = errors.New("invalid token")

// Kind is the purpose of a token.
type Kind string

// The kinds.
const (
	Join   Kind = "join"   // lets a node join
	Admin  Kind = "admin"  // grants its bearer the role in its record
	Expect Kind = "expect" // lets nodes bootstrap a cluster, and join it later
)

// kindBytes has the encoding of the kinds in tokens.
var kindBytes = map[Kind]byte{Join: 'j', Admin: 'a', Expect: 'e'}

// Secret is 32 bytes that never print, not even as an unexported field of
// another value, where fmt calls no method: there fmt sees a pointer or, with
// an unsuitable verb, the pointer that it points to. Equal secrets are ==.
type Secret struct {
	p unique.Handle[unique.Handle[[32]byte]]
}

func newSecret(b []byte) Secret { return Secret{unique.Make(unique.Make([32]byte(b)))} }

// reveal returns the bytes.
func (s Secret) reveal() []byte {
	if s == (Secret{}) {
		return make([]byte, 32)
	}
	b := s.p.Value().Value()
	return b[:]
}

const hidden = "(hidden)"

// Format hides the secret.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Token is the credential of a joining node or of a user. It prints as its kind
// and ID; only Reveal returns the text with the secret.
type Token struct {
	Kind      Kind
	ClusterID string   // "" for Expect
	CADigest  [32]byte // Digest of the cluster's CA; zero for Expect
	ID        string   // 8 hex digits, the key of the cluster's record; for Expect derived from the secret
	Secret    Secret
}

const (
	tokenPrefix = "pst1."
	maxToken    = 300 // bytes of text

	// lettersPrefix begins an Expect token of random letters and digits, for programs
	// that cannot compute a checksum, such as Helm's templates. minLetters of them have
	// 256 bits.
	lettersPrefix = "pst1e."
	minLetters    = 43
)

// NewExpectToken returns a new token for nodes that will bootstrap a cluster.
func NewExpectToken() Token {
	t := Token{Kind: Expect, Secret: newSecret(randomBytes(32))}
	t.ID = t.expectID()
	return t
}

func (t Token) expectID() string {
	id := sha256.Sum256(append([]byte("penstock expect\x00"), t.Secret.reveal()...))
	return hex.EncodeToString(id[:4])
}

// Reveal returns the text of the token, for its owner: "pst1." and base64url of
// the kind, the cluster, CA and ID that it names, the secret and a checksum.
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
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(appendChecksum(append(b, t.Secret.reveal()...)))
}

// ParseToken parses the text of a token, and ignores surrounding space. Its
// errors distinguish text that is no token from damaged tokens and from those
// of a newer build. They repeat nothing of the text.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if letters, ok := strings.CutPrefix(text, lettersPrefix); ok {
		return parseLetters(letters)
	}
	body, ok := strings.CutPrefix(text, tokenPrefix)
	switch {
	case text == "":
		return Token{}, fmt.Errorf("%w: it is empty", ErrToken)
	case !ok && strings.HasPrefix(text, "pst"):
		return Token{}, fmt.Errorf("%w: tokens of this version begin with %q; "+
			"it was mistyped, or created by a newer version", ErrToken, tokenPrefix)
	case !ok:
		return Token{}, fmt.Errorf("%w: tokens begin with %q", ErrToken, tokenPrefix)
	case len(text) > maxToken:
		return Token{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrToken, len(text), maxToken)
	}
	mistyped := fmt.Errorf("%w: it was truncated or mistyped: copy all of it", ErrToken)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return Token{}, mistyped
	}
	raw, ok = trimChecksum(raw)
	if !ok || len(raw) == 0 {
		return Token{}, mistyped
	}
	return parseToken(raw)
}

// parseLetters derives an Expect token from random letters and digits.
func parseLetters(letters string) (Token, error) {
	other := strings.IndexFunc(letters, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if len(letters) < minLetters || len(letters) > maxToken || other >= 0 {
		return Token{}, fmt.Errorf("%w: %q is followed by %d to %d random letters and digits: it was truncated or mistyped",
			ErrToken, lettersPrefix, minLetters, maxToken)
	}
	secret := sha256.Sum256([]byte("penstock expect letters\x00" + letters))
	t := Token{Kind: Expect, Secret: newSecret(secret[:])}
	t.ID = t.expectID()
	return t, nil
}

// parseToken parses the payload of a token whose checksum is right.
func parseToken(raw []byte) (t Token, err error) {
	for kind, b := range kindBytes {
		if b == raw[0] {
			t.Kind = kind
		}
	}
	if t.Kind == "" {
		return Token{}, fmt.Errorf("%w: unknown kind %q: a newer version created it", ErrToken, raw[:1])
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

// ProofKey returns the key that proves a Join or Expect token in Prove and
// Check.
func (t Token) ProofKey() []byte {
	key, err := hkdf.Key(sha256.New, t.Secret.reveal(), nil, "penstock proof\x00"+string(t.Kind)+"\x00"+t.ClusterID, sha256.Size)
	if err != nil {
		panic(err) // fails only for bad lengths, which are constant here
	}
	return key
}

// String describes the token without its secret.
func (t Token) String() string {
	if t.Kind == "" {
		return "no token"
	}
	return string(t.Kind) + " token " + t.ID
}

// Format describes the token without its secret, whatever the verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// LogValue describes the token without its secret.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText describes the token without its secret. Nothing parses it.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
