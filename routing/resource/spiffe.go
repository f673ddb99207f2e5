package resource

import (
	"fmt"
	"strings"
)

// A SPIFFEID is a workload's identity, "spiffe://TRUST-DOMAIN/PATH", in normal
// form (the SPIFFE-ID standard, section 2). Compare it with ==.
type SPIFFEID struct {
	TrustDomain string // lower case, without a port
	Path        string // "" or "/segment/..."
}

// String returns the ID as a URI.
func (id SPIFFEID) String() string { return spiffeScheme + id.TrustDomain + id.Path }

const (
	spiffeScheme = "spiffe://"
	// maxSPIFFEID is the longest ID (SPIFFE-ID, section 2.3), maxTrustDomain the
	// longest trust domain (section 2.1).
	maxSPIFFEID    = 2048
	maxTrustDomain = 255
)

// ParseSPIFFEID parses an ID. It accepts exactly what the SPIFFE-ID standard
// allows: no port, user, query, fragment, escape, empty segment or dot segment.
// The scheme and the trust domain must be in lower case: an ID that compares
// unequal elsewhere must not be equal here.
func ParseSPIFFEID(s string) (SPIFFEID, error) {
	if len(s) > maxSPIFFEID {
		return SPIFFEID{}, fmt.Errorf("has %d bytes; a SPIFFE ID has at most %d", len(s), maxSPIFFEID)
	}
	rest, ok := strings.CutPrefix(s, spiffeScheme)
	if !ok {
		return SPIFFEID{}, fmt.Errorf("must begin with %s", spiffeScheme)
	}
	domain, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		domain, path = rest[:slash], rest[slash:]
	}
	if err := CheckTrustDomain(domain); err != nil {
		return SPIFFEID{}, err
	}
	if path != "" {
		if err := checkSPIFFEPath(path, isSPIFFEPathByte); err != nil {
			return SPIFFEID{}, err
		}
	}
	return SPIFFEID{domain, path}, nil
}

// CheckTrustDomain returns what is wrong with the name of a trust domain.
func CheckTrustDomain(domain string) error {
	if domain == "" || len(domain) > maxTrustDomain {
		return fmt.Errorf("the trust domain must have 1 to %d bytes", maxTrustDomain)
	}
	for i := range len(domain) {
		if c := domain[i]; c != '.' && c != '-' && c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("the trust domain must consist of lower-case letters, digits, dots, hyphens and underscores; it has no port")
		}
	}
	return nil
}

func isSPIFFEPathByte(c byte) bool {
	return c == '.' || c == '-' || c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// checkSPIFFEPath checks a path that begins with a slash.
func checkSPIFFEPath(path string, allowed func(byte) bool) error {
	for segment := range strings.SplitSeq(path[1:], "/") {
		switch segment {
		case "":
			return fmt.Errorf("the path must have no empty segment, and no slash at its end")
		case ".", "..":
			return fmt.Errorf("the path must have no dot segment")
		}
		for i := range len(segment) {
			if !allowed(segment[i]) {
				return fmt.Errorf("the path must consist of letters, digits, dots, hyphens and underscores; it has no query, fragment or escape")
			}
		}
	}
	return nil
}

// CheckSPIFFEPattern returns what is wrong with a pattern of IDs: an ID in which
// "*" stands for any number of characters within one segment of the path, or for
// a whole trust domain, and "**" as the last segment for one or more segments.
func CheckSPIFFEPattern(pattern string) error {
	if len(pattern) > maxSPIFFEID {
		return fmt.Errorf("has %d bytes; a SPIFFE ID has at most %d", len(pattern), maxSPIFFEID)
	}
	rest, ok := strings.CutPrefix(pattern, spiffeScheme)
	if !ok {
		return fmt.Errorf("must begin with %s", spiffeScheme)
	}
	domain, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		domain, path = rest[:slash], rest[slash:]
	}
	if domain != "*" {
		if err := CheckTrustDomain(domain); err != nil {
			return fmt.Errorf("%w; * stands for any trust domain", err)
		}
	}
	path = strings.TrimSuffix(path, "/**")
	if path == "" {
		return nil
	}
	if strings.Contains(path, "**") {
		return fmt.Errorf("** may only be the last segment of the path")
	}
	return checkSPIFFEPath(path, func(c byte) bool { return c == '*' || isSPIFFEPathByte(c) })
}

// MatchSPIFFE reports whether a valid pattern matches an ID in normal form. It
// allocates nothing.
func MatchSPIFFE(pattern, id string) bool {
	pattern, ok := strings.CutPrefix(pattern, spiffeScheme)
	if !ok {
		return false
	}
	if id, ok = strings.CutPrefix(id, spiffeScheme); !ok {
		return false
	}
	first := true
	for {
		p, patternRest, patternMore := strings.Cut(pattern, "/")
		s, idRest, idMore := strings.Cut(id, "/")
		switch {
		case p == "**" && !patternMore && !first:
			return s != ""
		case first && p == "*":
		case !matchSegment(p, s):
			return false
		}
		if patternMore != idMore {
			return false
		}
		if !patternMore {
			return true
		}
		pattern, id, first = patternRest, idRest, false
	}
}

// matchSegment matches a segment with "*" for any characters, an empty string
// among them. It remembers only the last star, since an earlier one never needs
// to match more.
func matchSegment(pattern, s string) bool {
	star, retry := -1, 0
	for i, j := 0, 0; ; {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, retry = i, j
			i++
		case i < len(pattern) && j < len(s) && pattern[i] == s[j]:
			i++
			j++
		case i == len(pattern) && j == len(s):
			return true
		case star >= 0 && retry < len(s):
			retry++
			i, j = star+1, retry
		default:
			return false
		}
	}
}
