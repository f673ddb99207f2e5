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

// DidYouMean returns ", did you mean X?" for the nearest known word, or "" if
// none is near. Words of up to three letters are too alike to be corrected.
func DidYouMean(word string, known []string) string {
	best := Nearest(word, known)
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// Nearest returns the known word that a misspelt one stands for, or "".
func Nearest(word string, known []string) string {
	best, bestAt := "", 1
	if len(word) > 3 {
		bestAt = min(4, 1+len(word)/3)
	}
	for _, k := range known {
		d := 0
		if !strings.EqualFold(word, k) {
			d = distance(strings.ToLower(word), strings.ToLower(k), bestAt)
		}
		if d < bestAt {
			best, bestAt = k, d
		}
	}
	return best
}

// distance counts the edits between two words: insertions, deletions,
// replacements and swaps of neighbours. It returns limit if their lengths differ
// by limit or more.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
