package resource

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxShown bounds a value in a fault, in bytes.
const maxShown = 80

// Show formats a value for a fault: on one line, short, never a secret. A text
// that looks like a private key is hidden in every field, since it may have been
// put into the wrong one.
func Show(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return quote(v)
	case Secret:
		return v.String()
	}
	return quote(fmt.Sprint(value))
}

// quote shortens a text, and quotes it if it needs escapes or has outer blanks.
func quote(s string) string {
	if s == "" {
		return `""`
	}
	if looksSecret(s) {
		return HiddenSecret
	}
	cut := s
	if len(cut) > maxShown {
		cut = cut[:maxShown]
		for len(cut) > 0 && !utf8.ValidString(cut[max(0, len(cut)-utf8.UTFMax):]) && !utf8.RuneStart(s[len(cut)]) {
			cut = cut[:len(cut)-1]
		}
	}
	if q := strconv.Quote(cut); len(q) != len(cut)+2 || strings.TrimSpace(cut) != cut {
		cut = q
	}
	if len(s) > maxShown {
		cut += fmt.Sprintf("... %d bytes", len(s))
	}
	return cut
}

func looksSecret(s string) bool { return strings.Contains(s, "PRIVATE KEY") }
