package ui

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"
)

// Keys seals and opens sessions. Its keys are derived from those of the cluster's TLS
// session tickets, which every node has and the leader replaces once a day: the last
// three are kept.
//
// The second newest key seals, once there are two: every node has had it for a day, so a
// cookie that one node has just made is opened by a node that is a moment behind. It is
// kept for another day, which is longer than any session.
type Keys struct {
	keys atomic.Pointer[[]cipher.AEAD] // the newest first; nil: none yet
}

// Set replaces the keys by those that are derived from these secrets, the newest first.
func (k *Keys) Set(secrets [][32]byte) {
	keys := make([]cipher.AEAD, 0, len(secrets))
	for _, secret := range secrets {
		// None of these fails for keys of 32 bytes.
		key, err := hkdf.Key(sha256.New, secret[:], nil, "penstock dashboard session", 32)
		if err != nil {
			continue
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			continue
		}
		if aead, err := cipher.NewGCMWithRandomNonce(block); err == nil {
			keys = append(keys, aead)
		}
	}
	k.keys.Store(&keys)
}

// session is what a cookie contains.
type session struct {
	token string    // the ID of the token, not its secret
	begun time.Time // to the second
	csrf  [16]byte  // what requests that change something must show
}

// A sealed session is sessionFormat (1 byte), which is authenticated as well, and the
// ciphertext of the time (8), csrf (16) and the token's ID.
const (
	sessionFormat = 1
	sessionFixed  = 8 + 16
	maxCookie     = 512 // bytes of a cookie that is looked at
)

var (
	errNoKeys = errors.New("this node has no session key yet")
	errCookie = errors.New("the session is of another cluster, or too old")
)

// seal returns a session as the value of a cookie.
func (k *Keys) seal(s session) (string, error) {
	keys := k.keys.Load()
	if keys == nil || len(*keys) == 0 {
		return "", errNoKeys
	}
	plain := binary.BigEndian.AppendUint64(nil, uint64(s.begun.Unix())) //nolint:gosec // after 1970
	plain = append(append(plain, s.csrf[:]...), s.token...)
	format := []byte{sessionFormat}
	sealed := (*keys)[min(1, len(*keys)-1)].Seal(format, nil, plain, format)
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

// open is the inverse of seal.
func (k *Keys) open(value string) (session, error) {
	keys := k.keys.Load()
	if keys == nil || len(*keys) == 0 {
		return session{}, errNoKeys
	}
	if len(value) > maxCookie {
		return session{}, errCookie
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || len(sealed) == 0 || sealed[0] != sessionFormat {
		return session{}, errCookie
	}
	for _, key := range *keys {
		plain, err := key.Open(nil, nil, sealed[1:], sealed[:1])
		if err != nil || len(plain) <= sessionFixed {
			continue
		}
		return session{
			begun: time.Unix(int64(binary.BigEndian.Uint64(plain)), 0), //nolint:gosec // as sealed
			csrf:  [16]byte(plain[8:]), token: string(plain[sessionFixed:]),
		}, nil
	}
	return session{}, errCookie
}
