package cli

import (
	"strings"
	"testing"
)

func TestClientTextIsSanitized(t *testing.T) {
	for sni, want := range map[string]string{
		"api.example.com":        "api.example.com",
		"\x1b[2Jx":               `"\x1b[2Jx"`,
		"two words":              `"two words"`,
		"b\u00fccher":            `"b\u00fccher"`,
		strings.Repeat("a", 100): strings.Repeat("a", 64) + "...",
	} {
		if got := sanitizeUntrusted(sni); got != want {
			t.Errorf("%q is shown as %s, want %s", sni, got, want)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 KB",
		1.5e6: "1.5 MB", 2e9: "2.0 GB", 3e12: "3.0 TB", 4e15: "4000.0 TB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
}
