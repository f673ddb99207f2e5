package session

import (
	"strings"
	"testing"
)

// TestNamesInTokens: the user name is found, and nothing else ever.
func TestNamesInTokens(t *testing.T) {
	for _, test := range []struct{ mechanism, token, want string }{
		{"PLAIN", "\x00alice\x00secret", "alice"},
		{"PLAIN", "admin\x00alice\x00sec\x00ret", "alice"},
		{"PLAIN", "alice secret", ""},
		{"PLAIN", "\x00" + strings.Repeat("a", 500) + "\x00secret", strings.Repeat("a", maxStringLen)},
		{"PLAIN", "\x00al\xffice\x00secret", "al?ice"},
		{"SCRAM-SHA-256", "n,,n=alice,r=nonce", "alice"},
		{"SCRAM-SHA-512", "n,a=admin,n=al=2Cice=3D,r=nonce", "al,ice="},
		{"SCRAM-SHA-256", "c=biws,r=nonce,p=proof", ""},
		{"OAUTHBEARER", "n,,\x01auth=Bearer secret\x01\x01", ""},
		{"GSSAPI", "\x60\x82secret", ""},
		{"", "\x00alice\x00secret", ""},
	} {
		if got := userName(test.mechanism, []byte(test.token)); got != test.want {
			t.Errorf("%s %q: %q, want %q", test.mechanism, test.token, got, test.want)
		}
	}
}

// TestSASLExchangeEnd by mechanism: SCRAM takes two rounds.
func TestSASLExchangeEnd(t *testing.T) {
	for _, test := range []struct {
		mechanism, token string
		want             bool
	}{
		{"PLAIN", "", true},
		{"SCRAM-SHA-256", "r=nonce,s=salt,i=4096", false},
		{"SCRAM-SHA-256", "v=signature", true},
		{"OAUTHBEARER", `{"status":"invalid_token"}`, false},
		{"OAUTHBEARER", "", true},
		{"GSSAPI", "anything", true},
	} {
		if got := saslFinished(test.mechanism, []byte(test.token)); got != test.want {
			t.Errorf("%s %q: %v", test.mechanism, test.token, got)
		}
	}
}
