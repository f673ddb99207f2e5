package resource

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"penstock/routing/hostname"
)

// Validate reports the faults of a service alone.
func (s *Service) Validate(fault func(path, message string, value any)) {
	CheckFields(s, fault)
	s.Balancing.validate(fault)
	s.HTTP.validate(fault)
	if s.HealthCheck != nil {
		s.HealthCheck.validate(fault)
	}
	if s.ProxyProtocol != nil && s.ProxyProtocol.Send == "" {
		fault("proxyProtocol.send", "is required: v1 or v2", nil)
	}
	if s.TLS != nil {
		s.TLS.validate(fault)
	}
	seen := make(map[string]int, len(s.Endpoints))
	for i := range s.Endpoints {
		e, path := &s.Endpoints[i], item("endpoints", i)
		if message := checkAddress(e.Address, false); message != "" {
			fault(path+".address", message, orNil(e.Address))
			continue
		}
		checkTags(path+".tags", e.Tags, fault)
		identity := endpointIdentity(e)
		if before, ok := seen[identity]; ok {
			fault(path+".address", "duplicate with the same tags, first at spec."+item("endpoints", before), e.Address)
		}
		seen[identity] = i
	}
}

// endpointIdentity joins the address and the tags of an endpoint.
func endpointIdentity(e *Endpoint) string {
	if len(e.Tags) == 0 {
		return e.Address
	}
	var b strings.Builder
	b.WriteString(e.Address)
	for _, k := range slices.Sorted(maps.Keys(e.Tags)) {
		b.WriteString("\x00" + k + "\x00" + e.Tags[k])
	}
	return b.String()
}

// tokenBytes are the bytes of a token (RFC 9110, section 5.6.2).
const tokenBytes = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// maxUpgrades bounds the protocols of http.upgrades.
const maxUpgrades = 16

func (h *ServiceHTTP) validate(fault report) {
	if n := len(h.Upgrades); n > maxUpgrades {
		fault("http.upgrades", fmt.Sprintf("has more than %d protocols", maxUpgrades), n)
	}
	for i, name := range h.Upgrades {
		switch {
		case name == "" || len(name) > maxHeaderName || strings.Trim(name, tokenBytes) != "":
			fault(item("http.upgrades", i), "must be the name of a protocol without its version, such as websocket", name)
		case NeverUpgrade(name):
			fault(item("http.upgrades", i), "is never forwarded: requests after such a switch would bypass routing", name)
		}
	}
	checkDuplicates("http.upgrades", h.Upgrades, fault)
}

// Protocols returns the protocols that a client may switch to.
func (h *ServiceHTTP) Protocols() []string {
	if len(h.Upgrades) == 0 {
		return []string{"websocket"}
	}
	return h.Upgrades
}

// NeverUpgrade reports whether a protocol carries requests itself or hides them:
// other versions of HTTP (including h2c-14 and other drafts), SPDY and TLS. The
// protocol is given without its version.
func NeverUpgrade(protocol string) bool {
	name, _, _ := strings.Cut(strings.ToLower(protocol), "-")
	return slices.Contains([]string{"h2", "h2c", "h3", "http", "https", "spdy", "tls", "quic"}, name)
}

func (b *Balancing) validate(fault report) {
	if b.HashOn != "" && b.Policy != "maglev" {
		fault("balancing.hashOn", "requires policy: maglev", b.HashOn)
	}
	if b.ZoneMinHealthy != nil && b.Zone == "" {
		fault("balancing.zoneMinHealthy", "requires balancing.zone", *b.ZoneMinHealthy)
	}
	if b.Zone != "" {
		if message := tagFault(b.Zone, "any"); message != "" {
			fault("balancing.zone", message, b.Zone)
		}
	}
}

// maxProbe bounds what a health check sends and compares, in bytes.
const maxProbe = 1024

func (h *HealthCheck) validate(fault report) {
	if h.Type == "http" {
		for _, f := range []struct{ path, value string }{{"healthCheck.send", h.Send}, {"healthCheck.expect", h.Expect}} {
			if f.value != "" {
				fault(f.path, "requires type: tcp or tls", f.value)
			}
		}
	} else {
		for _, f := range []struct{ path, value string }{{"healthCheck.path", h.Path}, {"healthCheck.host", h.Host}} {
			if f.value != "" {
				fault(f.path, "requires type: http", f.value)
			}
		}
		if len(h.Status) > 0 {
			fault("healthCheck.status", "requires type: http", nil)
		}
	}
	blank := func(s string) bool {
		return strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	}
	if h.Path != "" && (h.Path[0] != '/' || blank(h.Path)) {
		fault("healthCheck.path", "must begin with / and be printable ASCII without spaces", h.Path)
	}
	if blank(h.Host) {
		fault("healthCheck.host", "must be printable ASCII without spaces", h.Host)
	}
	for i, status := range h.Status {
		if status < 100 || status > 599 {
			fault(item("healthCheck.status", i), "must be from 100 to 599", status)
		}
	}
	for _, f := range []struct{ path, value string }{{"healthCheck.send", h.Send}, {"healthCheck.expect", h.Expect}} {
		if b, err := Unescape(f.value); err != nil {
			fault(f.path, err.Error(), f.value)
		} else if len(b) > maxProbe {
			fault(f.path, "must have at most 1024 bytes", f.value)
		}
	}
}

func (t *ServiceTLS) validate(fault report) {
	if t.CA != "" {
		checkCA("tls.ca", t.CA, fault)
	}
	if strings.HasPrefix(strings.ToLower(t.ServerName), "spiffe://") {
		fault("tls.serverName", "is a SPIFFE ID, not a server name: "+
			"write the DNS name or IP address in the endpoints' certificates, "+
			"and in ca a CA that signs only those; SPIFFE IDs of endpoints are not verified", t.ServerName)
	} else if t.ServerName != "" {
		if _, err := netip.ParseAddr(t.ServerName); err != nil {
			if _, err := hostname.ParsePattern(t.ServerName); err != nil {
				fault("tls.serverName", err.Error(), t.ServerName)
			} else if strings.HasPrefix(t.ServerName, "*") {
				fault("tls.serverName", "must be one name, not a wildcard", t.ServerName)
			}
		}
	}
	if t.CertificateRef != "" {
		checkRef("tls.certificateRef", t.CertificateRef, fault)
	}
	checkALPN("tls.alpn", t.ALPN, fault)
	if t.InsecureSkipVerify && t.CA != "" {
		fault("tls.insecureSkipVerify", "accepts any certificate, so ca would have no effect: leave one out", true)
	}
}

// Refs lists the client certificate of a service.
func (s *Service) Refs() []Ref {
	if s.TLS == nil || s.TLS.CertificateRef == "" {
		return nil
	}
	return []Ref{{Key: Key{"Certificate", s.TLS.CertificateRef}, Path: "spec.tls.certificateRef"}}
}

// maxBackends bounds the backends of one destination: each choice is made among
// all of them, and the turn of each is kept.
const maxBackends = 1000

// Validate reports the faults of a route alone.
func (r *MeshTCPRoute) Validate(fault func(path, message string, value any)) {
	CheckFields(r, fault)
	if r.TargetRef != nil {
		r.TargetRef.validate("targetRef", fault)
	}
	if len(r.To) == 0 {
		fault("to", "is required: the destinations to route", nil)
	}
	seen := make(map[string]int, len(r.To))
	for i := range r.To {
		to, path := &r.To[i], item("to", i)
		to.validate(path, fault)
		if name := to.TargetRef.Name; name != "" {
			if before, ok := seen[name]; ok {
				fault(path+".targetRef.name", "duplicate, first at spec."+item("to", before), name)
			}
			seen[name] = i
		}
	}
	r.validateRollout(fault)
}

func (to *RouteTo) validate(path string, fault report) {
	to.TargetRef.checkDestination(path+".targetRef", fault)
	if len(to.Rules) != 1 {
		fault(path+".rules", "must hold exactly one rule", len(to.Rules))
	}
	for i := range to.Rules {
		checkBackends(item(path+".rules", i)+".default.backendRefs", to.Rules[i].Default.BackendRefs, fault)
	}
}

func checkBackends(path string, refs []BackendRef, fault report) {
	if refs != nil && len(refs) == 0 {
		fault(path, "must not be empty: leave it out for the destination itself", nil)
	}
	if len(refs) > maxBackends {
		fault(path, fmt.Sprintf("must hold at most %d backends", maxBackends), len(refs))
		return
	}
	for i := range refs {
		b := &refs[i]
		t := TargetRef{Kind: b.Kind, Name: b.Name, Tags: b.Tags}
		t.validate(item(path, i), fault)
	}
}

// checkDestination checks a target as the destination of connections or requests.
func (t *TargetRef) checkDestination(path string, fault report) {
	switch t.Kind {
	case "MeshService", "":
		t.validate(path, fault)
	case "Mesh", "MeshSubset", "MeshServiceSubset":
		fault(path+".kind", "must be MeshService here: a destination is one service", t.Kind)
	}
}

// validate checks that name and tags fit the kind. CheckFields reports unknown kinds.
func (t *TargetRef) validate(path string, fault report) {
	named, tagged := false, false
	switch t.Kind {
	case "":
		fault(path+".kind", "is required", nil)
		return
	case "Mesh":
	case "MeshSubset":
		tagged = true
	case "MeshService":
		named = true
	case "MeshServiceSubset":
		named, tagged = true, true
	default:
		return
	}
	switch {
	case named:
		checkServiceRef(path+".name", t.Name, fault)
	case t.Name != "":
		fault(path+".name", "is not allowed for kind "+t.Kind, t.Name)
	}
	switch {
	case tagged && len(t.Tags) == 0:
		fault(path+".tags", "is required for kind "+t.Kind, nil)
	case !tagged && len(t.Tags) > 0:
		fault(path+".tags", "is not allowed for kind "+t.Kind+": use "+strings.TrimSuffix(t.Kind, "Subset")+"Subset", nil)
	}
	checkTags(path+".tags", t.Tags, fault)
}

// Refs lists the services that the route names. All may be missing: a missing
// backend is skipped, and its share goes to the others.
func (r *MeshTCPRoute) Refs() []Ref {
	refs := targetRefs(nil, r.TargetRef, "targetRef")
	for i := range r.To {
		to, path := &r.To[i], item("to", i)
		refs = targetRefs(refs, &to.TargetRef, path+".targetRef")
		for j := range to.Rules {
			refs = backendRefs(refs, to.Rules[j].Default.BackendRefs, item(path+".rules", j))
		}
	}
	return refs
}

// targetRefs appends the service that a target names, if any.
func targetRefs(refs []Ref, t *TargetRef, path string) []Ref {
	if t == nil || t.Name == "" {
		return refs
	}
	return append(refs, Ref{Key: Key{"Service", t.Name}, Path: "spec." + path + ".name", Optional: true})
}

// backendRefs appends the services of a rule's backends.
func backendRefs(refs []Ref, backends []BackendRef, rule string) []Ref {
	for i, b := range backends {
		if b.Name != "" {
			refs = append(refs, Ref{Key: Key{"Service", b.Name}, Path: "spec." + item(rule+".default.backendRefs", i) + ".name", Optional: true})
		}
	}
	return refs
}
