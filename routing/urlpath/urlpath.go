// Package urlpath is the normal form of a URL's path: what is compared, checked
// and sent on is one text, whatever a client or a route's author writes. It
// knows no rules and no queries.
//
//	urlpath.Normal("/%63art%2f7") // "/cart%2F7", true
//	urlpath.Normal("/a/%2e%2e/b") // false
package urlpath

import (
	"slices"
	"strings"
)

// Normal brings an escaped path into normal form (RFC 3986, section 6.2.2):
// characters that need no escape have none, and those that do have one in
// capitals. So what is compared is one text whatever a client writes; %2F stays
// apart from /.
//
// It returns false for what means one thing to one server and another to the
// next: a path that does not begin with /, broken escapes, a NUL, and the
// segments . and .. in any form: /..%2F, /..%5C and /..; have one. Empty
// segments stay: //a is not /a.
func Normal(path string) (string, bool) {
	if !strings.HasPrefix(path, "/") {
		return "", false
	}
	if !isNormal(path) {
		var ok bool
		if path, ok = normalize(path); !ok {
			return "", false
		}
	}
	return path, !hasDots(path)
}

// isNormal tells that there is nothing to change: of nearly every path.
func isNormal(path string) bool {
	for i := range len(path) {
		if c := path[i]; c == '%' || needsEscape(c) {
			return false
		}
	}
	return true
}

func normalize(path string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c, escaped := path[i], false
		if c == '%' {
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return "", false
			}
			c, escaped = unhex(path[i+1])<<4|unhex(path[i+2]), true
			i += 2
		}
		if c == 0 {
			return "", false
		}
		if needsEscape(c) || escaped && !isUnreserved(c) {
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// needsEscape tells of characters that a path cannot have as they are: RFC
// 3986's pchar, and the slash, are all that it can.
func needsEscape(c byte) bool {
	return !isUnreserved(c) && !strings.ContainsRune("/!$&'()*+,;=:@", rune(c)) || c >= 0x80
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// hasDots tells of the segments . and .., which no two servers resolve alike. To
// some of them an escaped slash or a backslash ends a segment as well, and what
// comes behind a semicolon is no part of it. path is in normal form, but for
// them.
func hasDots(path string) bool {
	for at := 1; ; at++ {
		next := strings.IndexByte(path[at:], '.')
		if next < 0 {
			return false
		}
		at += next
		if !separates(path[:at]) {
			continue
		}
		rest := strings.TrimPrefix(path[at+1:], ".")
		if rest == "" || rest[0] == '/' || rest[0] == ';' || len(rest) >= 3 && slices.Contains(ends, rest[:3]) {
			return true
		}
	}
}

// ends are what ends a segment for some servers, escaped.
var ends = []string{"%2F", "%5C", "%3B"}

// separates tells whether a segment may begin behind what is before.
func separates(before string) bool {
	return before[len(before)-1] == '/' || strings.HasSuffix(before, "%2F") || strings.HasSuffix(before, "%5C")
}

// HasParameters tells whether a segment of a path in normal form has parameters:
// a semicolon that is not escaped (RFC 3986, section 3.3).
func HasParameters(path string) bool { return strings.IndexByte(path, ';') >= 0 }

// HasEscapedSlash tells whether a path in normal form has a slash or a backslash
// that is escaped: to some servers it ends a segment.
func HasEscapedSlash(path string) bool {
	return strings.Contains(path, "%2F") || strings.Contains(path, "%5C")
}

// WithoutParameters takes the parameters off each segment: "/a;v=1/b" is "/a/b".
// Many servers choose what they serve by such a path. It allocates only where
// there are some.
func WithoutParameters(path string) string {
	if !HasParameters(path) {
		return path
	}
	var b strings.Builder
	for path != "" {
		i := strings.IndexByte(path, ';')
		if i < 0 {
			break
		}
		b.WriteString(path[:i])
		path = path[i:]
		if i = strings.IndexByte(path, '/'); i < 0 {
			return b.String()
		}
		path = path[i:]
	}
	b.WriteString(path)
	return b.String()
}

// CutPrefix gives what follows a prefix of whole segments. A prefix that names
// no parameters takes those of its segments with it: behind "/a" in "/a;v=1/b"
// there is "/b".
func CutPrefix(path, prefix string) string {
	prefix = strings.TrimSuffix(prefix, "/")
	if rest, ok := strings.CutPrefix(path, prefix); ok && !strings.HasPrefix(rest, ";") {
		return rest
	}
	if HasParameters(prefix) {
		return strings.TrimPrefix(path, prefix)
	}
	rest := path
	for range strings.Count(prefix, "/") {
		next := strings.IndexByte(rest[1:], '/')
		if next < 0 {
			return ""
		}
		rest = rest[1+next:]
	}
	return rest
}
