// Package hostname validates server names, converts them to a normal form, and
// matches them against patterns. Routing and the selection of certificates use
// the same Matcher, so that they never disagree about a name.
//
// Names are compared as lower-case ASCII A-labels. Configured names are
// converted to that form once, when configuration is read (ParsePattern):
//
//	"API.Example.com"  ->  "api.example.com"
//	"*.bücher.example" ->  "*.xn--bcher-kva.example"
//
// Names from clients are checked, not repaired (CheckSNI): apart from case, a
// name that is not in that form is refused, because a name that two parties
// could interpret differently must not be routed.
package hostname

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Bounds of RFC 1035 in bytes, without the root's trailing dot.
const (
	maxName  = 253
	maxLabel = 63
)

// Errors of ParseName and ParsePattern.
var (
	ErrEmpty       = errors.New("empty name")
	ErrTrailingDot = errors.New("ends with a dot; leave it out")
	ErrEmptyLabel  = errors.New("has an empty label")
	ErrLabelLength = errors.New("has a label of more than 63 bytes")
	ErrLength      = errors.New("is longer than 253 bytes")
	ErrCharacter   = errors.New("has a character that is not allowed in host names")
	ErrHyphen      = errors.New("has a label that begins or ends with a hyphen")
	ErrAddress     = errors.New("is or looks like an IP address; clients do not send addresses as server names")
	ErrWildcard    = errors.New(`has a wildcard that is not a whole first label, like "*.example.com"`)
	ErrIDN         = errors.New("is not a valid internationalised name")
)

// toASCII converts IDNs as browsers do (UTS 46, non-transitional) and checks
// each A-label. It leaves the ASCII rules to check, which allows underscores,
// and hyphens in the third and fourth position ("r3---sn.example").
var toASCII = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.BidiRule(),
	idna.CheckHyphens(false),
	idna.StrictDomainName(false),
)

// ParseName returns the normal form of one exact name.
func ParseName(s string) (string, error) {
	name := s
	if needsIDNA(name) {
		if strings.ContainsRune(name, utf8.RuneError) { // includes invalid UTF-8
			return "", ErrIDN
		}
		ascii, err := toASCII.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrIDN, err)
		}
		name = ascii
	}
	name = strings.ToLower(name)
	if err := check(name); err != nil {
		return "", err
	}
	return name, nil
}

// ParsePattern returns the normal form of an exact name or of a wildcard, "*."
// and a name.
func ParsePattern(s string) (string, error) {
	suffix, wild := strings.CutPrefix(s, "*.")
	if strings.Contains(suffix, "*") {
		return "", ErrWildcard
	}
	name, err := ParseName(suffix)
	if err != nil || !wild {
		return name, err
	}
	if len(name) > maxName-len("a.") {
		return "", ErrLength // no name below the wildcard would fit
	}
	if s[2:] == name {
		return s, nil // the usual case; saves a copy of each of 100,000 names
	}
	return "*." + name, nil
}

// needsIDNA reports whether a name has a non-ASCII character or an A-label.
func needsIDNA(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return true
		}
		if (i == 0 || s[i-1] == '.') && len(s) >= i+4 && strings.EqualFold(s[i:i+4], "xn--") {
			return true
		}
	}
	return false
}

// Classes of bytes in a name.
const (
	bad byte = iota
	lower
	upper
	digit
	hyphen
	dot
)

// class maps each byte to its class. Underscores count as letters: RFC 1123
// does not allow them in host names, but such names are in use, DNS and clients
// accept them, and they are unambiguous, so refusing them would protect against
// nothing.
var class = func() (c [256]byte) {
	for b := byte('a'); b <= 'z'; b++ {
		c[b] = lower
		c[b-'a'+'A'] = upper
	}
	for b := byte('0'); b <= '9'; b++ {
		c[b] = digit
	}
	c['_'], c['-'], c['.'] = lower, hyphen, dot
	return c
}()

// check returns the fault of a lower-case ASCII name, or nil.
func check(s string) error {
	_, err := scan(s)
	return err
}

// scan checks an ASCII name of any case, and reports whether it is lower-case.
// It runs for every connection: one pass, no allocation.
func scan(s string) (isLower bool, err error) {
	switch {
	case s == "":
		return false, ErrEmpty
	case len(s) > maxName:
		return false, ErrLength
	case s[len(s)-1] == '.':
		return false, ErrTrailingDot
	}
	isLower = true
	start := 0 // of the current label
	last := dot
	for i := range len(s) {
		c := class[s[i]]
		switch c {
		case bad:
			return false, badByte(s)
		case upper:
			isLower = false
		case hyphen:
			if last == dot {
				return false, ErrHyphen
			}
		case dot:
			if err := endLabel(last, i-start); err != nil {
				return false, err
			}
			start = i + 1
		}
		last = c
	}
	if err := endLabel(last, len(s)-start); err != nil {
		return false, err
	}
	if isNumeric(s[start:]) {
		return false, ErrAddress
	}
	return isLower, nil
}

// endLabel checks a label of n bytes that ends with a byte of class last.
func endLabel(last byte, n int) error {
	switch {
	case n == 0:
		return ErrEmptyLabel
	case n > maxLabel:
		return ErrLabelLength
	case last == hyphen:
		return ErrHyphen
	}
	return nil
}

// badByte returns the likely fault of a name with a forbidden character.
func badByte(s string) error {
	switch {
	case strings.Contains(s, "*"):
		return ErrWildcard
	case strings.Contains(s, ":"):
		return ErrAddress // IPv6, or a name with a port
	}
	return ErrCharacter
}

// isNumeric reports whether address parsers read a name with this last label as
// an IPv4 address: decimal digits, or 0x and hexadecimal ones, as in 127.1 or
// 0x7f.1. No top-level domain is numeric.
func isNumeric(label string) bool {
	if hex, ok := cutHex(label); ok {
		return strings.Trim(hex, "0123456789abcdefABCDEF") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func cutHex(label string) (string, bool) {
	if len(label) >= 2 && label[0] == '0' && label[1]|0x20 == 'x' {
		return label[2:], true
	}
	return "", false
}

// CheckSNI returns the normal form of a server name from a client, and whether
// it is valid. It allocates only for names with upper-case letters.
func CheckSNI(raw string) (name string, ok bool) {
	isLower, err := scan(raw)
	if err != nil {
		return "", false
	}
	if isLower {
		return raw, true
	}
	return strings.ToLower(raw), true
}

// SplitAuthority splits the host of an HTTP request (RFC 9110, section 7.2)
// into the name, in lower case and without the root's trailing dot, and the
// port, or "". An IPv6 address keeps its brackets. It allocates only for
// upper-case letters.
func SplitAuthority(s string) (name, port string) {
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		s, port = s[:i], s[i+1:]
	}
	return strings.ToLower(strings.TrimSuffix(s, ".")), port
}
