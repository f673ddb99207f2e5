package hostname

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Placeholder is the placeholder for the number in a configured Numbered name.
const Placeholder = "$(nodeId)"

// Errors of ParseNumbered.
var (
	ErrPlaceholder      = errors.New("must have " + Placeholder + " once, in the first label")
	ErrPlaceholderDigit = errors.New("must not have a digit next to " + Placeholder + ": the end of the number would be ambiguous")
)

// Numbered is a set of names that differ in one decimal number in the first
// label: "broker-$(nodeId).example.com" stands for broker-0.example.com and all
// others up to 2147483647, without leading zeros. The number is not adjacent to
// other digits, so a name matches at most one Numbered for each run of digits
// in its first label.
type Numbered struct {
	// Before and After surround the number in the first label.
	Before, After string
	// Domain is the rest of the name, without the dot before it.
	Domain string
}

// ParseNumbered parses such a name and converts it to normal form.
func ParseNumbered(s string) (Numbered, error) {
	label, domain, _ := strings.Cut(s, ".")
	before, after, ok := strings.Cut(label, Placeholder)
	switch {
	case !ok || strings.Contains(after, Placeholder) || strings.Contains(domain, Placeholder):
		return Numbered{}, ErrPlaceholder
	case domain == "":
		return Numbered{}, fmt.Errorf("%w, followed by a domain", ErrPlaceholder)
	case endsInDigit(before) || beginsWithDigit(after):
		return Numbered{}, ErrPlaceholderDigit
	}
	before, after = strings.ToLower(before), strings.ToLower(after)
	// The name with the longest number must be valid.
	name, err := ParseName(before + strconv.Itoa(math.MaxInt32) + after + "." + domain)
	if err != nil {
		return Numbered{}, err
	}
	_, domain, _ = strings.Cut(name, ".")
	if !strings.HasPrefix(name, before) { // the first label is an IDN
		return Numbered{}, ErrIDN
	}
	return Numbered{before, after, domain}, nil
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

func endsInDigit(s string) bool { return s != "" && isDigit(s[len(s)-1]) }

func beginsWithDigit(s string) bool { return s != "" && isDigit(s[0]) }

// String returns the form that ParseNumbered accepts.
func (p Numbered) String() string { return p.Before + Placeholder + p.After + "." + p.Domain }

// Name returns the name with a number.
func (p Numbered) Name(n int32) string {
	return p.Before + strconv.FormatInt(int64(n), 10) + p.After + "." + p.Domain
}

// Match returns the number in a name in normal form, if the name matches.
func (p Numbered) Match(name string) (int32, bool) {
	rest, ok := strings.CutPrefix(name, p.Before)
	if !ok {
		return 0, false
	}
	rest, ok = strings.CutSuffix(rest, p.Domain)
	if !ok {
		return 0, false
	}
	rest, ok = strings.CutSuffix(rest, p.After+".")
	if !ok {
		return 0, false
	}
	return number(rest)
}

// number parses s as a number without leading zeros.
func number(s string) (int32, bool) {
	if s == "" || len(s) > 10 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil
}

// Overlaps reports whether some name matches both.
func (p Numbered) Overlaps(q Numbered) bool {
	if p.Domain != q.Domain {
		return false
	}
	if len(p.Before) > len(q.Before) {
		p, q = q, p
	}
	if len(p.Before) == len(q.Before) {
		return p.Before == q.Before && p.After == q.After
	}
	// p's number comes first: it is part of q.Before, and q's number of p.After.
	rest, ok := strings.CutPrefix(q.Before, p.Before)
	if !ok {
		return false
	}
	digits := runOfDigits(rest)
	if _, ok := number(rest[:digits]); !ok {
		return false
	}
	rest, ok = strings.CutPrefix(p.After, rest[digits:])
	if !ok {
		return false
	}
	digits = runOfDigits(rest)
	_, ok = number(rest[:digits])
	return ok && rest[digits:] == q.After
}

func runOfDigits(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return n
}

// EachNumbered calls do with each Numbered that a name in normal form matches,
// and its number, until do returns false.
func EachNumbered(name string, do func(p Numbered, n int32) bool) {
	label, domain, ok := strings.Cut(name, ".")
	if !ok {
		return
	}
	for i := 0; i < len(label); {
		digits := runOfDigits(label[i:])
		if digits == 0 {
			i++
			continue
		}
		if n, ok := number(label[i : i+digits]); ok && !do(Numbered{label[:i], label[i+digits:], domain}, n) {
			return
		}
		i += digits
	}
}
