package plaintext

import (
	"strings"
	"testing"
	"time"
)

func TestClientTextIsSanitized(t *testing.T) {
	for sni, want := range map[string]string{
		"api.example.com":        "api.example.com",
		"\x1b[2Jx":               `"\x1b[2Jx"`,
		"two words":              `"two words"`,
		"b\u00fccher":            `"b\u00fccher"`,
		strings.Repeat("a", 100): strings.Repeat("a", 64) + "...",
	} {
		if got := Untrusted(sni); got != want {
			t.Errorf("%q is shown as %s, want %s", sni, got, want)
		}
	}
}

func TestBytesText(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 KB",
		1.5e6: "1.5 MB", 2e9: "2.0 GB", 3e12: "3.0 TB", 4e15: "4000.0 TB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
}

func TestAgesAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 350 * time.Millisecond: "350ms", 59*time.Second + 900*time.Millisecond: "59s", 200 * time.Second: "3m20s",
		time.Hour: "1h00m", 24*time.Hour - time.Second: "23h59m", 220 * time.Hour: "9d4h",
	} {
		if got := Age(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
