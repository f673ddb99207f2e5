package trust

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestSealedValueOpensOnlyWithItsAAD(t *testing.T) {
	ring := newRing(t)
	plain := []byte("-----BEGIN PRIVATE KEY-----")
	sealed := must(ring.Seal([]byte("Certificate/a"), plain))(t)
	if !Sealed(sealed) || Sealed(plain) || Sealed(nil) || bytes.Contains(sealed, plain[:8]) {
		t.Errorf("Sealed: %v, %v, %v", Sealed(sealed), Sealed(plain), Sealed(nil))
	}
	if got := must(ring.Open([]byte("Certificate/a"), sealed))(t); !bytes.Equal(got, plain) {
		t.Errorf("opened as %q", got)
	}
	if again := must(ring.Seal([]byte("Certificate/a"), plain))(t); bytes.Equal(again, sealed) {
		t.Error("sealed twice, it is the same: the nonce is not random")
	}
	if empty := must(ring.Open(nil, must(ring.Seal(nil, nil))(t)))(t); len(empty) != 0 {
		t.Errorf("nothing opens as %q", empty)
	}
	future := bytes.Clone(sealed)
	future[1] = 2
	for name, test := range map[string]struct {
		aad    string
		sealed []byte
		ring   *Keyring
		want   error
	}{
		"another place":     {"Certificate/b", sealed, ring, ErrSealed},
		"another ring":      {"Certificate/a", sealed, newRing(t), ErrNoKey},
		"no ring":           {"Certificate/a", sealed, nil, ErrNoKey},
		"not sealed":        {"Certificate/a", plain, ring, ErrSealed},
		"empty":             {"Certificate/a", nil, ring, ErrSealed},
		"a newer format":    {"Certificate/a", future, ring, ErrSealed},
		"cut to its header": {"Certificate/a", sealed[:sealHeader], ring, ErrSealed},
	} {
		if got, err := test.ring.Open([]byte(test.aad), test.sealed); !errors.Is(err, test.want) || got != nil {
			t.Errorf("%s: %q, %v; want %v", name, got, err, test.want)
		}
	}
	for i := range sealed {
		for _, broken := range [][]byte{flip(sealed, i), sealed[:i]} {
			if _, err := ring.Open([]byte("Certificate/a"), broken); !errors.Is(err, ErrSealed) && !errors.Is(err, ErrNoKey) {
				t.Fatalf("changed or cut at byte %d: %v", i, err)
			}
		}
	}
	if _, err := (*Keyring)(nil).Seal(nil, plain); !errors.Is(err, ErrNoKey) {
		t.Errorf("sealing without a ring: %v", err)
	}
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 1
	return b
}

func TestRotatedRingOpensWhatOlderKeysSealed(t *testing.T) {
	old := newRing(t)
	sealed := must(old.Seal(nil, []byte("x")))(t)
	next := must(old.Rotate())(t)
	if _, err := next.Open(nil, sealed); err != nil {
		t.Errorf("sealed before the rotation: %v", err)
	}
	anew := must(next.Seal(nil, []byte("x")))(t)
	if _, err := old.Open(nil, anew); !errors.Is(err, ErrNoKey) {
		t.Errorf("the old ring opens data sealed with the new key: %v", err)
	}
	if next.Current(sealed) || !next.Current(anew) || !old.Current(sealed) || next.Current([]byte("x")) {
		t.Error("Current does not tell the newest key from the others")
	}
	if _, err := next.Newest().Open(nil, sealed); !errors.Is(err, ErrNoKey) {
		t.Errorf("the newest key alone opens data sealed with the old one: %v", err)
	}
	for range maxKeys + 3 {
		next = must(next.Rotate())(t)
	}
	if len(next.keys) != maxKeys {
		t.Errorf("%d keys, the limit is %d", len(next.keys), maxKeys)
	}
	if got := must(ParseKeyring(next.Marshal()))(t); !got.Equal(next) {
		t.Error("the largest ring does not come back")
	}
}

func TestKeyringRoundTripAndErrors(t *testing.T) {
	ring := must(newRing(t).Rotate())(t)
	text := ring.Marshal()
	if got := must(ParseKeyring(text))(t); !got.Equal(ring) || got.Equal(newRing(t)) || got.Equal(nil) {
		t.Error("another ring came back")
	}
	for i := range text[:len(text)-1] {
		if _, err := ParseKeyring(text[:i]); !errors.Is(err, ErrKeyring) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		if got, err := ParseKeyring(flip(text, i)); !errors.Is(err, ErrKeyring) {
			t.Fatalf("changed at %d: %v, %v", i, got, err)
		}
	}
	long := keyringPrefix + strings.Repeat("A", 43*(maxKeys+2))
	for _, bad := range []string{"", "x", keyringPrefix, keyringPrefix + "AAAA", long, string(text) + string(text)} {
		if _, err := ParseKeyring([]byte(bad)); !errors.Is(err, ErrKeyring) {
			t.Errorf("%.60q: %v", bad, err)
		}
	}
}
