package trust

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The errors of sealed values. None reveals the content.
var (
	// ErrSealed: the value is not sealed, is damaged, or was sealed with another
	// aad.
	ErrSealed = errors.New("cannot be opened")
	// ErrNoKey: the value was sealed with a key that this node does not have.
	ErrNoKey = errors.New("sealed with a key that is not in the keyring")
	// ErrKeyring: the text is not a keyring.
	ErrKeyring = errors.New("not a keyring")
)

// maxKeys bounds the keys of a keyring.
const maxKeys = 32

// A sealed value consists of these two bytes, the key ID (4), a random nonce
// (12), the AES-256-GCM ciphertext, and its tag (16). The first byte never
// begins JSON, msgpack or text; the second is the format. Random nonces are
// safe for 2^32 values under one key, far more than a cluster ever seals.
const (
	sealMark    = 0xc1
	sealFormat  = 1
	sealHeader  = 6
	sealMinimum = sealHeader + 12 + 16
)

// Keyring seals and opens values with the cluster's keys. It is the only secret
// that is never in the store: a node receives it when it joins, and keeps it in
// its data folder. A Keyring is immutable; Rotate returns a new one.
type Keyring struct {
	keys []*sealKey // newest first, the first one seals; pointers, so that no printer follows them
}

type sealKey struct {
	secret [32]byte
	id     [4]byte
	aead   cipher.AEAD
}

// NewKeyring returns a keyring with one new key.
func NewKeyring() (*Keyring, error) {
	key, err := newSealKey([32]byte(randomBytes(32)))
	if err != nil {
		return nil, err
	}
	return &Keyring{[]*sealKey{key}}, nil
}

func newSealKey(secret [32]byte) (*sealKey, error) {
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	id := sha256.Sum256(append([]byte("penstock sealing key\x00"), secret[:]...))
	return &sealKey{secret, [4]byte(id[:4]), aead}, err
}

// Seal encrypts a value and binds it to aad, such as the key of its entry, so
// that it does not open elsewhere.
func (k *Keyring) Seal(aad, plain []byte) ([]byte, error) {
	if k == nil || len(k.keys) == 0 {
		return nil, ErrNoKey
	}
	key := k.keys[0]
	out := make([]byte, 0, sealMinimum+len(plain))
	out = append(append(out, sealMark, sealFormat), key.id[:]...)
	return key.aead.Seal(out, nil, plain, bound(out[:sealHeader], aad)), nil
}

// Open decrypts the output of Seal for the same aad, with any key of the ring.
func (k *Keyring) Open(aad, sealed []byte) ([]byte, error) {
	if !Sealed(sealed) {
		return nil, fmt.Errorf("%w: it is not sealed", ErrSealed)
	}
	if sealed[1] != sealFormat {
		return nil, fmt.Errorf("%w: it has format %d, this build knows %d: a newer version sealed it", ErrSealed, sealed[1], sealFormat)
	}
	if len(sealed) < sealMinimum {
		return nil, fmt.Errorf("%w: %d bytes are too few: it was cut", ErrSealed, len(sealed))
	}
	if k == nil {
		return nil, ErrNoKey
	}
	for _, key := range k.keys {
		if [4]byte(sealed[2:]) != key.id {
			continue
		}
		plain, err := key.aead.Open(nil, nil, sealed[sealHeader:], bound(sealed[:sealHeader], aad))
		if err != nil {
			return nil, fmt.Errorf("%w: it was changed, or sealed for another place", ErrSealed)
		}
		return plain, nil
	}
	return nil, fmt.Errorf("%w: key %x", ErrNoKey, sealed[2:sealHeader])
}

// bound returns the additional data of a sealed value: its header and aad.
func bound(header, aad []byte) []byte { return append(bytes.Clone(header), aad...) }

// Sealed reports whether a value begins like a sealed one.
func Sealed(b []byte) bool { return len(b) >= 2 && b[0] == sealMark }

// Rotate returns a keyring with a new key, which seals from now on. Values
// sealed with older keys still open. Beyond 32 keys the oldest is dropped.
func (k *Keyring) Rotate() (*Keyring, error) {
	next, err := NewKeyring()
	if err != nil {
		return nil, err
	}
	next.keys = append(next.keys, k.keys...)
	next.keys = next.keys[:min(len(next.keys), maxKeys)]
	return next, nil
}

// Newest returns a keyring with only the newest key, for use once all values
// are sealed with it.
func (k *Keyring) Newest() *Keyring { return &Keyring{k.keys[:1:1]} }

// Current reports whether a value is sealed with the newest key.
func (k *Keyring) Current(sealed []byte) bool {
	return len(sealed) >= sealHeader && Sealed(sealed) && [4]byte(sealed[2:]) == k.keys[0].id
}

// Equal reports whether two rings hold the same keys in the same order.
func (k *Keyring) Equal(other *Keyring) bool {
	if k == nil || other == nil || len(k.keys) != len(other.keys) {
		return k == other
	}
	for i := range k.keys {
		if k.keys[i].secret != other.keys[i].secret {
			return false
		}
	}
	return true
}

const keyringHead = "penstock-keyring-1 "

// Marshal returns the keys as one line of text with a checksum.
func (k *Keyring) Marshal() []byte {
	var b []byte
	for _, key := range k.keys {
		b = append(b, key.secret[:]...)
	}
	return []byte(keyringHead + base64.RawURLEncoding.EncodeToString(appendSum(b)) + "\n")
}

// ParseKeyring parses the output of Marshal.
func ParseKeyring(b []byte) (*Keyring, error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(string(b)), keyringHead)
	if !ok {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrKeyring, keyringHead)
	}
	if len(text) > base64.RawURLEncoding.EncodedLen(maxKeys*32+sumSize) {
		return nil, fmt.Errorf("%w: more than %d keys", ErrKeyring, maxKeys)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: it was cut or changed", ErrKeyring)
	}
	raw, ok = cutSum(raw)
	if !ok || len(raw) == 0 || len(raw)%32 != 0 {
		return nil, fmt.Errorf("%w: it was cut or changed", ErrKeyring)
	}
	ring := &Keyring{}
	for ; len(raw) > 0; raw = raw[32:] {
		key, err := newSealKey([32]byte(raw))
		if err != nil {
			return nil, err
		}
		ring.keys = append(ring.keys, key)
	}
	return ring, nil
}

// Format hides the keys.
func (k *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "keyring") }

// sumSize is the size, in bytes, of the checksum that ends keyrings and tokens.
const sumSize = 4

func sum(b []byte) []byte {
	s := sha256.Sum256(append([]byte("penstock checksum\x00"), b...))
	return s[:sumSize]
}

func appendSum(b []byte) []byte { return append(b, sum(b)...) }

func cutSum(b []byte) ([]byte, bool) {
	if len(b) < sumSize {
		return nil, false
	}
	body := b[:len(b)-sumSize]
	return body, bytes.Equal(sum(body), b[len(body):])
}
