// Package urlpath converts URL paths to a normal form, so that clients and
// route authors may write a path in several ways, but comparison, checks and
// forwarding see one. It handles neither rules nor queries.
//
//	urlpath.Normal("/%63art%2f7") // "/cart%2F7", true
//	urlpath.Normal("/a/%2e%2e/b") // false
package urlpath

import (
	"slices"
	"strings"
)

// Normal converts an escaped path to normal form (RFC 3986, section 6.2.2):
// characters that need no escape have none, and other escapes are upper-case.
// %2F remains distinct from /.
//
// It returns false for paths that servers interpret differently: without a
// leading /, with a broken escape or a NUL, or with the segments . and .. in
// any form, including /..%2F, /..%5C and /..; . Empty segments remain: //a is
// not /a.
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

// isNormal reports whether nothing needs to change, as in nearly every path.
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

// needsEscape reports whether a path must not contain a character unescaped:
// all except RFC 3986's pchar and the slash.
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

// hasDots reports whether a path has a segment . or .., which servers resolve
// differently. For some of them an escaped slash or a backslash also ends a
// segment, and a semicolon ends its name. The path is otherwise in normal form.
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

// ends are the escaped characters that end a segment for some servers.
var ends = []string{"%2F", "%5C", "%3B"}

// separates reports whether a segment may start after this text.
func separates(before string) bool {
	return before[len(before)-1] == '/' || strings.HasSuffix(before, "%2F") || strings.HasSuffix(before, "%5C")
}

// HasParameters reports whether a segment of a path in normal form has
// parameters: an unescaped semicolon (RFC 3986, section 3.3).
func HasParameters(path string) bool { return strings.IndexByte(path, ';') >= 0 }

// HasEscapedSlash reports whether a path in normal form has an escaped slash or
// backslash, which ends a segment for some servers.
func HasEscapedSlash(path string) bool {
	return strings.Contains(path, "%2F") || strings.Contains(path, "%5C")
}

// WithoutParameters removes the parameters of each segment: "/a;v=1/b" becomes
// "/a/b". Many servers select content by such a path. It allocates only if
// there are parameters.
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

// CutPrefix returns the path after a prefix of whole segments. A prefix without
// parameters also matches segments with parameters: "/a" leaves "/b" of
// "/a;v=1/b".
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
