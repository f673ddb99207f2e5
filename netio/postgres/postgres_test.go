package postgres

import (
	"errors"
	"strings"
	"testing"
)

const (
	ssl     = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	gss     = "\x00\x00\x00\x08\x04\xd2\x16\x30"
	cancel  = "\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02"
	startup = "\x00\x00\x00\x11\x00\x03\x00\x00user\x00me\x00\x00"
)

func TestRequests(t *testing.T) {
	for name, test := range map[string]struct {
		in   string
		want Request
		bad  bool
	}{
		"nothing":           {"", More, false},
		"a TLS record":      {"\x16", TLS, false},
		"SSLRequest":        {ssl, SSLRequest, false},
		"with bytes behind": {ssl + "\x16", SSLRequest, false},
		"a part of it":      {ssl[:7], More, false},
		"GSSENCRequest":     {gss, GSSENCRequest, false},
		"CancelRequest":     {cancel, Cancel, false},
		"StartupMessage":    {startup, Startup, false},
		"protocol 3.2":      {"\x00\x00\x00\x09\x00\x03\x00\x02\x00", Startup, false},
		"protocol 2":        {"\x00\x00\x01\x28\x00\x02\x00\x00", Startup, false},
		"protocol 1":        {"\x00\x00\x01\x28\x00\x01\x00\x00", More, true},
		"protocol 4":        {"\x00\x00\x00\x09\x00\x04\x00\x00", More, true},
		"a long SSLRequest": {"\x00\x00\x00\x09\x04\xd2\x16\x2f", More, true},
		"a short Cancel":    {"\x00\x00\x00\x08\x04\xd2\x16\x2e", More, true},
		"a length of 7":     {"\x00\x00\x00\x07", More, true},
		"a length of 10000": {"\x00\x00\x27\x10\x00\x03\x00\x00", Startup, false},
		"a length of 10001": {"\x00\x00\x27\x11", More, true},
		"a length of 1 MiB": {"\x00\x10", More, true},
		"HTTP":              {"G", More, true},
		"a TLS alert":       {"\x15", More, true},
	} {
		got, err := Parse([]byte(test.in))
		if got != test.want || errors.Is(err, ErrInvalid) != test.bad {
			t.Errorf("%s: %v, %v, want %v and an error: %v", name, got, err, test.want, test.bad)
		}
	}
}

func TestMessages(t *testing.T) {
	if got := string(AppendSSLRequest([]byte("x"))); got != "x"+ssl {
		t.Errorf("SSLRequest: %q", got)
	}
	want := "E\x00\x00\x00\x20SFATAL\x00VFATAL\x00C28000\x00Mno way\x00\x00"
	if got := string(AppendError([]byte("x"), "28000", "no way")); got != "x"+strings.Replace(want, "\x20", string(rune(len(want)-1)), 1) {
		t.Errorf("ErrorResponse: %q", got)
	}
}

// An answer is given once and for all, and early enough.
func FuzzParse(f *testing.F) {
	for _, s := range []string{ssl, gss, cancel, startup, "\x16\x03\x01", "GET / HTTP/1.1\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, bad := Parse(b)
		if len(b) >= Size && whole == More && bad == nil {
			t.Fatal("more is needed than Size")
		}
		for i := range b {
			part, err := Parse(b[:i])
			if (part != More || err != nil) && (part != whole || (err == nil) != (bad == nil)) {
				t.Fatalf("%d bytes: %v, %v; all of them: %v, %v", i, part, err, whole, bad)
			}
		}
	})
}
