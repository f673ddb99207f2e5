package validate

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"penstock/routing/resource"
)

// Bounds of what a service's discovery names.
const (
	maxIdentities   = 64
	maxCertificates = 64
	maxUpstreams    = 10_000
	maxFrom         = 64
	maxCommonName   = 64   // RFC 5280, ub-common-name-length
	maxSPIFFE       = 2048 // bytes of a SPIFFE ID (SPIFFE-ID, section 2.3)
	maxTrustDomain  = 255  // bytes (section 2.1)
)

// validateDiscovery reports the faults of a service's discovery alone.
func validateDiscovery(d *resource.Discovery, fault Report) {
	checkCount("discovery.identities", len(d.Identities), maxIdentities, fault)
	for i, id := range d.Identities {
		if message := identityFault(id); message != "" {
			fault(resource.Item("discovery.identities", i), message, orNil(id))
		}
	}
	checkDuplicates("discovery.identities", d.Identities, fault)
	validateUpstreams(d.Upstreams, fault)
	checkCount("discovery.certificates", len(d.Certificates), maxCertificates, fault)
	for i, name := range d.Certificates {
		Ref(resource.Item("discovery.certificates", i), name, fault)
	}
	checkDuplicates("discovery.certificates", d.Certificates, fault)
	if d.Announce != nil {
		validateAnnounce(d.Announce, fault)
	}
}

const spiffeScheme = "spiffe://"

// identityFault returns what is wrong with the identity of a proxy, or "".
func identityFault(id string) string {
	if strings.HasPrefix(strings.ToLower(id), spiffeScheme) {
		return spiffeFault(id)
	}
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }
	switch {
	case strings.TrimSpace(id) == "":
		return "is required: a SPIFFE ID or a common name"
	case strings.Contains(id, "://"):
		return "must be a SPIFFE ID (spiffe://TRUST-DOMAIN/PATH) or a common name, not another URI"
	case len(id) > maxCommonName:
		return fmt.Sprintf("a common name must have at most %d bytes", maxCommonName)
	case strings.Contains(id, "*"):
		return "a common name must be one name: only a SPIFFE ID may end in /*"
	case strings.ContainsFunc(id, odd) || strings.TrimSpace(id) != id:
		return "a common name must not have control characters, nor spaces around it"
	}
	return ""
}

// spiffeFault returns what is wrong with a SPIFFE ID, which may end in "/*", or "".
func spiffeFault(id string) string {
	const word = "letters, digits, '.', '-' and '_'"
	domain, path, found := strings.Cut(strings.TrimPrefix(id, spiffeScheme), "/")
	switch {
	case !strings.HasPrefix(id, spiffeScheme):
		return "the scheme of a SPIFFE ID must be written in lower case: spiffe://"
	case len(id) > maxSPIFFE:
		return fmt.Sprintf("a SPIFFE ID must have at most %d bytes", maxSPIFFE)
	case domain == "" || len(domain) > maxTrustDomain || strings.Trim(domain, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "":
		return fmt.Sprintf("the trust domain of a SPIFFE ID must be 1 to %d lower-case %s", maxTrustDomain, word)
	case !found:
		return "names a trust domain alone: add the path of the workload, or /* for all of them"
	}
	segments := strings.Split(path, "/")
	if last := len(segments) - 1; segments[last] == "*" {
		segments = segments[:last]
	}
	for _, s := range segments {
		if s == "" || s == "." || s == ".." || strings.IndexFunc(s, notInSegment) >= 0 {
			return "the segments of a SPIFFE ID's path must be " + word + ", neither empty nor . or ..; the last may be *"
		}
	}
	return ""
}

func notInSegment(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_", r)
}

func validateUpstreams(list []resource.Upstream, fault Report) {
	checkCount("discovery.upstreams", len(list), maxUpstreams, fault)
	services := make(map[string]int, len(list))
	byPort := map[string][]upstreamAddress{}
	for i := range list {
		u, path := &list[i], resource.Item("discovery.upstreams", i)
		if u.Service != resource.EveryService {
			checkServiceRef(path+".service", u.Service, fault)
		} else if u.Address != "" {
			fault(path+".address", "is not allowed for *: give each service that has a listener an entry of its own", u.Address)
			continue
		}
		if first, ok := services[u.Service]; ok && u.Service != "" {
			fault(path+".service", "duplicate, first at spec."+resource.Item("discovery.upstreams", first), u.Service)
		}
		services[u.Service] = i
		if u.Address == "" {
			continue
		}
		if message := upstreamAddressFault(u.Address); message != "" {
			fault(path+".address", message, u.Address)
			continue
		}
		at := addressOf(u.Address)
		for _, other := range byPort[at.port] {
			if overlap(at.host, other.host) {
				fault(path+".address", "overlaps with that of spec."+resource.Item("discovery.upstreams", other.index), u.Address)
				break
			}
		}
		byPort[at.port] = append(byPort[at.port], upstreamAddress{at.host, i})
	}
}

// upstreamAddress is the host where the proxies listen for an upstream.
type upstreamAddress struct {
	host  string
	index int
}

// upstreamAddressFault returns what is wrong with IP:port, or "".
func upstreamAddressFault(s string) string {
	const shape = "must be IP:port, such as 127.0.0.1:9001"
	host, _, ok := resource.SplitAddress(s)
	if !ok || strings.HasPrefix(s, "unix:") {
		return shape
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return shape
	}
	return checkAddress(s, false)
}

func validateAnnounce(a *resource.Announce, fault Report) {
	if a.Port == 0 {
		fault("discovery.announce.port", "is required: the port at which the proxies take connections", nil)
	}
	checkCount("discovery.announce.from", len(a.From), maxFrom, fault)
	for i, text := range a.From {
		p, err := netip.ParsePrefix(text)
		at := resource.Item("discovery.announce.from", i)
		switch {
		case err != nil || p.Addr().Is4In6():
			fault(at, "must be a network like 10.0.0.0/8 or 2001:db8::/32", orNil(text))
		case p != p.Masked():
			fault(at, fmt.Sprintf("has bits beyond its length, did you mean %s?", p.Masked()), text)
		}
	}
	checkDuplicates("discovery.announce.from", a.From, fault)
	checkTags("discovery.announce.tags", a.Tags, fault)
}

// proxyIdentities returns the identities that a service claims for its proxies,
// with the path of each. Without any of its own it has the common name in the
// certificates that the cluster issues; their SPIFFE ID has the cluster's ID in
// it, which no other service is likely to name.
func proxyIdentities(m *member) map[string]string {
	if m == nil {
		return nil
	}
	s, ok := m.Spec.(*resource.Service)
	if !ok || s.Discovery == nil {
		return nil
	}
	if len(s.Discovery.Identities) == 0 {
		return map[string]string{m.Name: "spec.discovery"}
	}
	all := make(map[string]string, len(s.Discovery.Identities))
	for i, id := range s.Discovery.Identities {
		all[id] = resource.Item("spec.discovery.identities", i)
	}
	return all
}

// updateIdentities updates the services that claim each identity.
func (e *setEdit) updateIdentities(name string, old, next *member) {
	before, after := proxyIdentities(old), proxyIdentities(next)
	for id := range before {
		if _, stays := after[id]; !stays {
			e.identities.Delete(id, name)
		}
	}
	for id := range after {
		e.identities.Set(id, name, struct{}{})
	}
}

// checkIdentities reports identities that another service claims as well: a
// proxy belongs to one service.
func (c *checker) checkIdentities(m *member, s *resource.Service) {
	if s.Discovery == nil {
		return
	}
	all := proxyIdentities(m)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		claims := c.set.identities.Group(id)
		for _, name := range slices.Sorted(keys(claims.All())) {
			other := resource.Key{Kind: m.Kind, Name: name}
			if name != m.Name && !c.pending[other] {
				c.fault(&m.Object, all[id], "is an identity of "+other.String()+" as well: a proxy belongs to one service", id)
				break
			}
		}
	}
}

func keys[V any](all iter.Seq2[string, V]) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k := range all {
			if !yield(k) {
				return
			}
		}
	}
}
