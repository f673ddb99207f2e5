package validate

import (
	"slices"
	"strconv"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// Claim is a server name, or a set of names, that an object needs of a listener.
type Claim struct {
	// Listener is the listener's name.
	Listener string
	// Name is an exact name, a wildcard ("*.example.com") or a numbered name
	// ("broker-$(nodeId).example.com"), in normal form. "" claims all connections.
	Name string
	Path string // "spec.brokers[1].sniMatchAddress"

	order int // in the object
}

// nameClaim is a claim as a set keeps it. Claims are ordered by the listener and
// the reversed name, so that the names below a domain are adjacent, with the
// numbered names of a domain together, and its wildcards as well:
//
//	edge \0 moc.elpmaxe.1-rekorb       broker-1.example.com
//	edge \0 moc.elpmaxe. \1 broker-$   broker-$(nodeId).example.com
//	edge \0 moc.elpmaxe. \2            *.example.com
type nameClaim struct {
	Claim
	owner resource.Key
}

const (
	markNumbered = "\x01"
	markWildcard = "\x02"
)

func (c *Claim) key(owner resource.Key) []byte {
	key := append([]byte(c.Listener), 0)
	if suffix, ok := strings.CutPrefix(c.Name, "*."); ok {
		key = append(appendBackwards(key, "."+suffix), markWildcard...)
	} else if label, domain, _ := strings.Cut(c.Name, "."); strings.Contains(label, hostname.Placeholder) {
		key = append(append(appendBackwards(key, "."+domain), markNumbered...), label...)
	} else {
		key = appendBackwards(key, c.Name)
	}
	key = append(append(key, 0), owner.Kind...)
	key = append(append(key, 0), owner.Name...)
	return strconv.AppendInt(append(key, 0), int64(c.order), 10)
}

func appendBackwards(dst []byte, s string) []byte {
	from := len(dst)
	dst = append(dst, s...)
	slices.Reverse(dst[from:])
	return dst
}

// eachClaim calls do with all claims to names of a listener until it returns
// false.
func (s *Set) eachClaim(listener string, do func(*nameClaim) bool) {
	s.walkClaims(listener, "", "", do)
}

// walkClaims calls do with the claims to names of a listener that end in end,
// followed in the key by mark. It stops when do returns false, and then returns
// false.
func (s *Set) walkClaims(listener, end, mark string, do func(*nameClaim) bool) (more bool) {
	more = true
	prefix := append(appendBackwards(append([]byte(listener), 0), end), mark...)
	tree(s.claims).Root().WalkPrefix(prefix, func(_ []byte, x *nameClaim) bool {
		more = do(x)
		return !more
	})
	return more
}

// eachOverlap calls do with the claims that have a name in common with c, c's
// own included, until it returns false.
func (s *Set) eachOverlap(c Claim, do func(*nameClaim) bool) {
	if c.Name == "" {
		return // conflicts depend on the listener, not on a name
	}
	suffix, wild := strings.CutPrefix(c.Name, "*.")
	if wild {
		if s.walkClaims(c.Listener, "."+suffix, "", do) { // all names and wildcards below
			s.wildcardsAbove(c.Listener, suffix, do)
		}
		return
	}
	_, domain, _ := strings.Cut(c.Name, ".")
	numbered, err := hostname.ParseNumbered(c.Name)
	if err != nil {
		s.eachNameOverlap(c, domain, do)
		return
	}
	meets := func(x *nameClaim) bool {
		other, err := hostname.ParseNumbered(x.Name)
		return err != nil || !other.Overlaps(numbered) || do(x)
	}
	named := func(x *nameClaim) bool {
		_, of := numbered.Match(x.Name)
		return !of || do(x)
	}
	if s.walkClaims(c.Listener, "."+domain, markNumbered, meets) && s.walkClaims(c.Listener, "."+domain, "", named) {
		s.wildcardsAbove(c.Listener, c.Name, do)
	}
}

// eachNameOverlap is eachOverlap for one exact name.
func (s *Set) eachNameOverlap(c Claim, domain string, do func(*nameClaim) bool) {
	more := s.walkClaims(c.Listener, c.Name, "\x00", do)
	hostname.EachNumbered(c.Name, func(p hostname.Numbered, _ int32) bool {
		more = more && s.walkClaims(c.Listener, "."+domain, markNumbered+p.Before+hostname.Placeholder+p.After+"\x00", do)
		return more
	})
	if more {
		s.wildcardsAbove(c.Listener, c.Name, do)
	}
}

// wildcardsAbove calls do with the wildcards that match a name, or all names of
// a domain: those of its parents.
func (s *Set) wildcardsAbove(listener, name string, do func(*nameClaim) bool) {
	for {
		_, parent, ok := strings.Cut(name, ".")
		if !ok || !s.walkClaims(listener, "."+parent, markWildcard, do) {
			return
		}
		name = parent
	}
}
