package session

import (
	"encoding/base64"
	"errors"
	"testing"

	"penstock/kafka/filter"
)

func bearer(gs2, claims string) string {
	return gs2 + "\x01auth=Bearer e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".\x01\x01"
}

// What cannot be told for certain is nobody.
func TestNamesThatABrokerConfirms(t *testing.T) {
	for _, c := range []struct{ mechanism, token, want string }{
		{"PLAIN", "\x00alice\x00pw", "alice"},
		{"PLAIN", "alice\x00alice\x00pw", "alice"},
		{"PLAIN", "bob\x00alice\x00pw", ""},
		{"PLAIN", "\x00alice\x00p\x00w", ""},
		{"PLAIN", "\x00al\xff\x00pw", ""},
		{"SCRAM-SHA-256", "n,,n=alice,r=abc", "alice"},
		{"SCRAM-SHA-512", "n,,n=a=2Cb=3Dc,r=abc", "a,b=c"},
		{"SCRAM-SHA-512", "n,,n=a=2cb,r=abc", ""},
		{"SCRAM-SHA-512", "n,a=alice,n=alice,r=abc", "alice"},
		{"SCRAM-SHA-512", "n,a=bob,n=alice,r=abc", ""},
		{"SCRAM-SHA-512", "n,,n=token,r=abc,tokenauth=true", ""},
		{"OAUTHBEARER", bearer("n,,", `{"sub":"alice"}`), "alice"},
		{"OAUTHBEARER", bearer("n,a=alice,", `{"sub":"alice"}`), "alice"},
		{"OAUTHBEARER", bearer("n,a=bob,", `{"sub":"alice"}`), ""},
		{"OAUTHBEARER", bearer("n,,", `{"sub":"alice","sub":"bob"}`), ""},
		{"OAUTHBEARER", bearer("n,,", `{"x":{"sub":"bob"},"sub":"alice"}`), "alice"},
		{"OAUTHBEARER", "n,,\x01auth=Bearer opaque\x01\x01", ""},
		{"GSSAPI", "alice", ""},
	} {
		if got := provenName(c.mechanism, []byte(c.token)); got != c.want {
			t.Errorf("%s %q: %q, want %q", c.mechanism, c.token, got, c.want)
		}
	}
}

// A client that sends the next login before the answer to the first could make the answer
// look like that of the other name.
func TestPipelinedLoginsAreNobody(t *testing.T) {
	c := &filter.Client{Principal: filter.AnonymousPrincipal}
	var e saslExchange
	e.handshake()
	e.waiting--
	e.token("PLAIN", []byte("\x00alice\x00pw"))
	e.handshake()
	e.token("PLAIN", []byte("\x00bob\x00pw"))
	e.waiting--
	if err := e.confirm(c); err != nil || c.Principal != "" {
		t.Errorf("the client is %q, %v", c.Principal, err)
	}
}

// A principal does not change (KIP-368).
func TestAnotherPrincipalEndsTheConnection(t *testing.T) {
	c := &filter.Client{Principal: filter.AnonymousPrincipal}
	login := func(token string) error {
		var e saslExchange
		e.handshake()
		e.waiting--
		e.token("PLAIN", []byte(token))
		e.waiting--
		return e.confirm(c)
	}
	if err := errors.Join(login("\x00alice\x00a"), login("\x00alice\x00a")); err != nil || c.Principal != "User:alice" {
		t.Fatalf("the client is %q, %v", c.Principal, err)
	}
	if err := login("\x00bob\x00b"); !errors.Is(err, filter.ErrDenied) || c.Principal != "User:alice" {
		t.Errorf("the client is %q, %v", c.Principal, err)
	}
}

func FuzzProvenName(f *testing.F) {
	f.Add("PLAIN", []byte("\x00alice\x00pw"))
	f.Add("SCRAM-SHA-256", []byte("n,,n=a=2C,r=x"))
	f.Add("OAUTHBEARER", []byte(bearer("n,,", `{"sub":"alice"}`)))
	f.Fuzz(func(_ *testing.T, mechanism string, token []byte) { provenName(mechanism, token) })
}
