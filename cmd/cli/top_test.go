package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
)

// A redraw starts in the upper left corner, clears the end of each line and
// everything below, and never exceeds the screen.
func TestTopRedrawsInPlace(t *testing.T) {
	s := &api.TopSample{Node: "n1", At: time.Unix(1700000000, 0), Connections: 3}
	for i := range 50 {
		s.Flows = append(s.Flows, api.Flow{Listener: "edge", Service: fmt.Sprintf("s%d", i), InRate: 1234, BytesOut: 5e9})
	}
	var b strings.Builder
	drawSample(&b, s)
	text, ok := strings.CutPrefix(b.String(), "\x1b[H")
	if !ok || !strings.HasSuffix(text, "\x1b[K\n\x1b[J") {
		t.Fatalf("drawn %q", b.String())
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n\x1b[J"), "\n")
	if len(lines) != 23 {
		t.Errorf("%d lines on a screen of 24", len(lines))
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, "\x1b[K") {
			t.Errorf("line %q is not cleared to its end", line)
		}
	}
	if got := lines[len(lines)-1]; got != "... 30 more\x1b[K" {
		t.Errorf("the last line is %q", got)
	}
	if !strings.Contains(text, "1.2 KB/s") || !strings.Contains(text, "5.0 GB") {
		t.Errorf("numbers are not for people: %s", lines[2])
	}
}

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
