// Package plaintext makes text and numbers fit for a terminal: text that a peer or an
// operator chose cannot act as control sequences, and numbers have units.
//
//	plaintext.Untrusted("\x1b[2Jx") // "\x1b[2Jx" in quotes: shown, never obeyed
//	plaintext.Bytes(1.5e6)          // 1.5 MB
package plaintext

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// longest bounds text from clients, in bytes.
const longest = 64

// Untrusted makes text from an untrusted client safe for a terminal, which could
// interpret its bytes as control sequences. It truncates long text.
func Untrusted(s string) string {
	if len(s) > longest {
		s = s[:longest] + "..."
	}
	if strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// Line makes text from an operator safe for a terminal.
func Line(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// Bytes formats a number of bytes in decimal units.
func Bytes(n float64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for n >= 1000 && i < len(units)-1 {
		n /= 1000
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}

// Age formats a duration in at most five characters or so: 350ms, 12s, 3m20s, 5h12m, 9d4h.
func Age(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < day:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d/day), int(d%day/time.Hour))
}
