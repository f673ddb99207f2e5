package trust

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func mint(t *testing.T, kind Kind, ttl time.Duration) (Token, TokenRecord) {
	t.Helper()
	token, record, err := Mint(kind, "operator", "ops", "local", ttl, "c1", [32]byte{1, 2, 3}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return token, record
}

// tokens returns one token of each kind.
func tokens(t *testing.T) []Token {
	t.Helper()
	joining, _ := mint(t, Join, time.Hour)
	admin, _ := mint(t, Admin, time.Hour)
	return []Token{joining, admin, NewExpectToken()}
}

func TestTokenRoundTrip(t *testing.T) {
	for _, token := range tokens(t) {
		text := token.Reveal()
		for _, s := range []string{text, "\n " + text + " \r\n"} {
			if got, err := ParseToken(s); err != nil || got != token || got.Reveal() != text {
				t.Errorf("%s: %v, %v", token, got, err)
			}
		}
		if len(token.ID) != 8 || !strings.HasPrefix(text, "pst1.") || strings.ContainsAny(text, "=+/ ") || len(text) > maxToken {
			t.Errorf("ID %q, %d bytes of text", token.ID, len(text))
		}
	}
	if a, b := NewExpectToken(), NewExpectToken(); a == b || a.ID == b.ID || a.ClusterID != "" || a.CADigest != [32]byte{} {
		t.Error("tokens for forming must differ and name no cluster")
	}
	if got := (Token{}).Reveal(); got != "" {
		t.Errorf("no token has the text %q", got)
	}
}

func TestDamagedTokenIsDistinguishedFromAnotherText(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, token := range tokens(t) {
		text := token.Reveal()
		for i := len(tokenPrefix); i < len(text); i++ {
			other := alphabet[(strings.IndexByte(alphabet, text[i])+1)%64]
			for what, s := range map[string]string{
				"cut": text[:i], "mistyped": text[:i] + string(other) + text[i+1:],
				"doubled": text[:i] + text[i:i+1] + text[i:], "left out": text[:i] + text[i+1:], "broken": text[:i] + " " + text[i:],
			} {
				if _, err := ParseToken(s); s != text && (!errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "truncated or mistyped")) {
					t.Fatalf("%s, %s at %d: %v", token, what, i, err)
				}
			}
		}
	}
}

// withChecksum returns the text of a token with a valid checksum.
func withChecksum(raw string) string {
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(appendChecksum([]byte(raw)))
}

func TestParseTokenErrors(t *testing.T) {
	rest := strings.Repeat("x", 32+4+32)
	for _, test := range []struct{ text, says string }{
		{"", "it is empty"},
		{" \n", "it is empty"},
		{"hunter2", `tokens begin with "pst1."`},
		{"pst2.AAAA", "created by a newer version"},
		{"PST1.AAAA", `tokens begin with "pst1."`},
		{"pst1.", "truncated or mistyped"},
		{"pst1." + strings.Repeat("A", maxToken), "the limit is 300"},
		{withChecksum("z" + rest), "a newer version created it"},
		{withChecksum("j"), "a join token of 1 bytes"},
		{withChecksum("j\xff" + rest), "a join token of"},
		{withChecksum("j\x02c1" + rest + "x"), "a secret of 33 bytes"},
		{withChecksum("j\x02c/" + rest), "invalid identifier"},
		{withChecksum("j\x00" + rest), "invalid identifier"},
		{withChecksum("e"), "a secret of 0 bytes"},
		{withChecksum("e" + rest), "a secret of 68 bytes"},
	} {
		_, err := ParseToken(test.text)
		if !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%.40q: %v, want ErrToken, saying %q", test.text, err, test.says)
		}
		if err != nil && len(test.text) > 6 && strings.Contains(err.Error(), test.text[5:]) {
			t.Errorf("the error repeats the input: %v", err)
		}
	}
}

func TestRecordAcceptsOnlyItsToken(t *testing.T) {
	now := time.Now()
	token, record := mint(t, Admin, time.Hour)
	other, _ := mint(t, Admin, time.Hour)
	if err := record.Authenticate(token, now); err != nil || !record.CheckBearer(token.Secret) {
		t.Errorf("its own: %v", err)
	}
	stolen := other
	stolen.ID = token.ID
	asJoin := token
	asJoin.Kind = Join
	for name, wrong := range map[string]Token{"another": other, "another secret": stolen, "another kind": asJoin, "none": {}} {
		if err := record.Authenticate(wrong, now); !errors.Is(err, ErrWrongToken) {
			t.Errorf("%s: %v, want ErrWrongToken", name, err)
		}
	}
	joining, joinRecord := mint(t, Join, time.Hour)
	if joinRecord.CheckBearer(joining.Secret) {
		t.Error("a join token was accepted without a proof")
	}
	if _, ok := record.ProofKey(); ok {
		t.Error("an admin token has a key for proofs")
	}
	if key, ok := joinRecord.ProofKey(); !ok || string(key) != string(joining.ProofKey()) {
		t.Error("the record's key is not the token's")
	}
	expect := NewExpectToken()
	formed, err := expect.Record("join", "formed", "form", time.Hour, now)
	if key, ok := formed.ProofKey(); err != nil || !ok || string(key) != string(expect.ProofKey()) || formed.ID != expect.ID {
		t.Errorf("the record of a token for forming: %v, %v", formed, err)
	}
}

func TestTokenExpiryAndRevocation(t *testing.T) {
	now := time.Now()
	token, record := mint(t, Admin, time.Hour)
	if err := record.Valid(now.Add(59 * time.Minute)); err != nil || record.State(now) != "valid" {
		t.Errorf("in its time: %v, %s", err, record.State(now))
	}
	if err := record.Authenticate(token, now.Add(61*time.Minute)); !errors.Is(err, ErrExpired) ||
		record.State(now.Add(2*time.Hour)) != "expired" {
		t.Errorf("after its time: %v, want ErrExpired", err)
	}
	revoked := record.Revoke(now)
	if err := revoked.Authenticate(token, now); !errors.Is(err, ErrRevoked) || revoked.State(now.Add(2*time.Hour)) != "revoked" {
		t.Errorf("revoked: %v, want ErrRevoked", err)
	}
	if again := revoked.Revoke(now.Add(time.Hour)); !again.Revoked.Equal(now) {
		t.Errorf("revoked twice at %s, first at %s", again.Revoked, now)
	}
	for _, ttl := range []time.Duration{0, -time.Second, MaxTTL + 1} {
		if _, _, err := Mint(Admin, "admin", "x", "y", ttl, "c1", [32]byte{}, now); err == nil {
			t.Errorf("a lifetime of %s was taken", ttl)
		}
	}
	if _, _, err := Mint(Expect, "join", "x", "y", time.Hour, "c1", [32]byte{}, now); !errors.Is(err, ErrToken) {
		t.Errorf("a token for forming was minted: %v", err)
	}
	if _, _, err := Mint(Join, "join", "a\nb", "y", time.Hour, "c1", [32]byte{}, now); !errors.Is(err, ErrID) {
		t.Errorf("a name of two lines: %v", err)
	}
	if _, _, err := Mint(Join, "join", "a", "y", time.Hour, "", [32]byte{}, now); !errors.Is(err, ErrID) {
		t.Errorf("no cluster: %v", err)
	}
}

func TestStoredRecordRoundTripDetectsTampering(t *testing.T) {
	ring := newRing(t)
	for _, kind := range []Kind{Join, Admin} {
		token, record := mint(t, kind, time.Hour)
		stored := must(record.Marshal(ring))(t)
		got := must(ParseTokenRecord(ring, stored))(t)
		if got.verifier != record.verifier || got.ID != token.ID || !got.Expires.Equal(record.Expires) ||
			!got.Revoked.IsZero() || got.Name != "ops" || got.By != "local" {
			t.Errorf("came back as %#v", got)
		}
		again := must(ParseTokenRecord(ring, must(got.Revoke(time.Now()).Marshal(ring))(t)))(t)
		if again.Revoked.IsZero() || again.verifier != record.verifier {
			t.Error("the revocation does not come back")
		}
		for name, change := range map[string][2]string{
			"role": {`"operator"`, `"admin"`}, "kind": {`"kind":"` + string(kind) + `"`, `"kind":"expect"`}, "ID": {token.ID, "00000000"},
			"format": {`"format":1`, `"format":2`}, "JSON": {`{`, `[`},
		} {
			changed := strings.Replace(string(stored), change[0], change[1], 1)
			if changed == string(stored) {
				t.Fatalf("%s: nothing to change in %s", name, stored)
			}
			if _, err := ParseTokenRecord(ring, []byte(changed)); !errors.Is(err, ErrRecord) {
				t.Errorf("another %s: %v, want ErrRecord", name, err)
			}
		}
		if _, err := ParseTokenRecord(newRing(t), stored); !errors.Is(err, ErrNoKey) {
			t.Errorf("another cluster's key: %v", err)
		}
		if plain := must(json.Marshal(record))(t); strings.Contains(string(plain), "erifier") {
			t.Errorf("JSON without Marshal has the verifier: %s", plain)
		}
	}
}

// A token of random letters forms a cluster as one of NewExpectToken does, and has the
// usual form from then on.
func TestTokenOfLetters(t *testing.T) {
	letters := strings.Repeat("aZ0", 15)
	a, err := ParseToken(" pst1e." + letters + "\n")
	if err != nil || a.Kind != Expect || a.ID != a.expectID() {
		t.Fatal(a, err)
	}
	if again, err := ParseToken(a.Reveal()); err != nil || again != a {
		t.Errorf("in its usual form it is %v, %v", again, err)
	}
	if other, err := ParseToken("pst1e." + letters + "b"); err != nil || other.Secret == a.Secret {
		t.Errorf("other letters are %v, %v", other, err)
	}
	for _, bad := range []string{"", letters[:42], letters + "-", letters + "é", strings.Repeat("a", 301)} {
		if _, err := ParseToken("pst1e." + bad); !errors.Is(err, ErrToken) || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
