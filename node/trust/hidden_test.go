package trust

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// holder has secrets in unexported fields, where fmt calls no methods.
type holder struct {
	token  Token
	record TokenRecord
	secret Secret
	ring   *Keyring
	ca     *CA
	id     *Identity
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	ca := newCA(t, "c1")
	id := join(t, ca, "a", time.Now())
	token, record := mint(t, Join, time.Hour)
	secrets := [][]byte{
		token.Secret.reveal(),
		record.verifier.reveal(),
		id.ring.keys[0].secret[:],
		must(ca.key.Bytes())(t),
		must(id.key.Bytes())(t),
	}
	values := map[string]any{
		"token": token, "&token": &token, "record": record, "secret": token.Secret, "ring": id.ring, "ca": ca, "id": id,
		"holder": holder{token, record, token.Secret, id.ring, ca, id}, "tokens": []Token{token}, "map": map[string]Token{"x": token},
		"public": struct {
			T Token
			R TokenRecord
			S Secret
			K *Keyring
			C *CA
			I *Identity
		}{token, record, token.Secret, id.ring, ca, id},
	}
	for name, v := range values {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%08b", "%c", "%p"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
		j, _ := json.Marshal(v)
		m, _ := msgpack.Marshal(v)
		out.Write(append(j, m...))
		for i, secret := range secrets {
			if found := findSecret(out.String(), secret); found != "" {
				t.Errorf("%s shows secret %d as %s", name, i, found)
			}
		}
	}
}

// findSecret searches for 8 bytes of a secret in all formats that printers use.
func findSecret(s string, secret []byte) string {
	part := secret[8:16]
	list := strings.Trim(fmt.Sprintf("%v", part), "[]")
	spellings := map[string]string{
		"raw": string(part), "hex": hex.EncodeToString(part),
		"base64": base64.RawStdEncoding.EncodeToString(secret)[12:20], "base64url": base64.RawURLEncoding.EncodeToString(secret)[12:20],
		"quoted": strings.Trim(fmt.Sprintf("%q", part), `"`), "list": list, "JSON list": strings.ReplaceAll(list, " ", ","),
		"Go":     strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", part), "[]byte{"), "}"),
		"binary": strings.Trim(fmt.Sprintf("%08b", part), "[]"),
	}
	for name, spelling := range spellings {
		if strings.Contains(s, spelling) || strings.Contains(s, strings.ToUpper(spelling)) && name == "hex" {
			return name
		}
	}
	return ""
}

func TestThePrinterTestWouldSeeASecret(t *testing.T) {
	secret := [32]byte(randomBytes(32))
	open := struct{ s [32]byte }{secret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%X", "%d", "%08b"} {
		if findSecret(fmt.Sprintf(verb, open), secret[:]) == "" {
			t.Errorf("%s shows it, and it was not found", verb)
		}
	}
}

func TestNamesThatAreShown(t *testing.T) {
	id := must(NewIdentity("a"))(t)
	token, _ := mint(t, Admin, time.Hour)
	for _, test := range []struct{ got, want string }{
		{fmt.Sprint(id), "node " + id.NodeID + " of no cluster"},
		{fmt.Sprint((*Identity)(nil)), "no node"},
		{fmt.Sprintf("%q", token), "admin token " + token.ID},
		{fmt.Sprint(Token{}), "no token"},
		{fmt.Sprintf("%+v", token.Secret), "(hidden)"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}
