package translate

import (
	"fmt"
	"slices"
	"strings"

	"penstock/node/xds/snapshot"
	"penstock/routing/hamt"
)

// spiffeScheme begins SPIFFE IDs (SPIFFE-ID, section 2).
const spiffeScheme = "spiffe://"

// anyPath ends an identity that stands for all paths below it.
const anyPath = "/*"

// identities returns the identities of a service's proxies; none if they get no
// configuration.
func (b *Builder) identities(name string, s *service) []string {
	switch {
	case s == nil || s.audience == nil:
		return nil
	case len(s.audience.discovery.Identities) > 0:
		return s.audience.discovery.Identities
	}
	return []string{b.cfg.spiffeID(name), name}
}

func (c *Config) spiffeID(service string) string {
	return spiffeScheme + c.TrustDomain + "/service/" + service
}

// updateOwners updates the services that name each identity.
func updateOwners(owners *hamt.Edit[[]string], service string, before, after []string) {
	for _, id := range before {
		rest := slices.DeleteFunc(slices.Clone(indexed(owners, id)), func(s string) bool { return s == service })
		if len(rest) == 0 {
			owners.Delete(id)
		} else {
			owners.Set(id, rest)
		}
	}
	for _, id := range after {
		names := append(slices.Clip(indexed(owners, id)), service)
		slices.Sort(names)
		owners.Set(id, slices.Compact(names))
	}
}

// Identify implements snapshot.Snapshot. A SPIFFE ID is looked up as it is, then
// by the longest pattern that covers it.
func (s *Snapshot) Identify(id snapshot.Identity) (service string, ok bool, why string) {
	for key := range identityKeys(id) {
		owners, named := s.owners.Get(key)
		switch {
		case !named:
		case len(owners) == 1:
			return owners[0], true, ""
		default:
			return "", false, fmt.Sprintf("the services %s all name the identity %s", strings.Join(owners, ", "), key)
		}
	}
	if id.String() == "" {
		return "", false, "the certificate has neither a SPIFFE ID nor a common name"
	}
	return "", false, fmt.Sprintf("no service with discovery names the identity %.300q", id.String())
}

// identityKeys iterates over the identities that a service may name a proxy by,
// the most specific first.
func identityKeys(id snapshot.Identity) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if id.SPIFFE == "" {
			// A common name must not pass for a SPIFFE ID, which the CA has checked as a URI.
			if id.CommonName != "" && !strings.HasPrefix(id.CommonName, spiffeScheme) {
				yield(id.CommonName)
			}
			return
		}
		if strings.HasSuffix(id.SPIFFE, anyPath) || !yield(id.SPIFFE) {
			return
		}
		rest, isSPIFFE := strings.CutPrefix(id.SPIFFE, spiffeScheme)
		for isSPIFFE {
			end := strings.LastIndexByte(rest, '/')
			if end < 0 {
				return
			}
			rest = rest[:end]
			if !yield(spiffeScheme + rest + anyPath) {
				return
			}
		}
	}
}
