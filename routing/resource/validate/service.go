package validate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// validateService reports the faults of a service alone.
func validateService(s *resource.Service, fault Report) {
	Fields(s, fault)
	validateBalancing(&s.Balancing, fault)
	if s.Balancing.MinHealthy != nil && !slices.ContainsFunc(s.Endpoints, func(e resource.Endpoint) bool { return e.Priority > 0 }) {
		fault("balancing.minHealthy", "requires an endpoint with a priority above 0", *s.Balancing.MinHealthy)
	}
	validateServiceHTTP(&s.HTTP, fault)
	switch {
	case s.Protocol == resource.ProtocolMySQL:
		validateMySQLService(s, fault)
	case !s.MySQL.IsZero():
		fault("mysql", "requires protocol: mysql", nil)
	}
	if s.HealthCheck != nil {
		validateHealthCheck(s.HealthCheck, fault)
	}
	if s.CircuitBreaker != nil {
		validateCircuitBreaker(s.CircuitBreaker, fault)
	}
	if s.ProxyProtocol != nil && s.ProxyProtocol.Send == "" {
		fault("proxyProtocol.send", "is required: v1 or v2", nil)
	}
	if s.ProxyProtocol != nil && s.ProxyProtocol.ClientIdentity && s.ProxyProtocol.Send == "v1" {
		fault("proxyProtocol.clientIdentity", "requires send: v2; a header of version 1 has only addresses", nil)
	}
	if s.TLS != nil {
		validateServiceTLS(s.TLS, fault)
	}
	if s.Mesh {
		validateMeshService(s, fault)
	}
	validateEndpointsFrom(s.EndpointsFrom, fault)
	if s.Discovery != nil {
		validateDiscovery(s.Discovery, fault)
	}
	seen := make(map[string]int, len(s.Endpoints))
	for i := range s.Endpoints {
		e, path := &s.Endpoints[i], resource.Item("endpoints", i)
		if message := checkAddress(e.Address, false); message != "" {
			fault(path+".address", message, orNil(e.Address))
			continue
		}
		checkTags(path+".tags", e.Tags, fault)
		identity := endpointIdentity(e)
		if before, ok := seen[identity]; ok {
			fault(path+".address", "duplicate with the same tags, first at spec."+resource.Item("endpoints", before), e.Address)
		}
		seen[identity] = i
	}
}

// validateMeshService reports fields that have no meaning towards mesh listeners:
// they belong to the Service that such a listener leads to.
func validateMeshService(s *resource.Service, fault Report) {
	switch s.Protocol {
	case "kafka":
		fault("protocol", "must be tcp, http or http2 with mesh: true; Kafka's connections go there as tcp", s.Protocol)
	case resource.ProtocolMySQL:
		fault("protocol", "must be tcp, http or http2 with mesh: true; a mysql listener leads to the servers themselves", s.Protocol)
	}
	if s.TLS != nil {
		fault("tls", "is not allowed with mesh: true, which uses TLS 1.3 with the nodes' own certificates", nil)
	}
	if s.ProxyProtocol != nil {
		fault("proxyProtocol", "is not allowed with mesh: true, which has a header of its own inside TLS; "+
			"set it on the Service behind the mesh listener", s.ProxyProtocol.Send)
	}
	if s.Discovery != nil {
		fault("discovery", "is not allowed with mesh: true: only nodes of the cluster can connect to a mesh listener", nil)
	}
	h := s.HealthCheck
	if h != nil && (h.Type == "http" || h.Type == "mysql") {
		fault("healthCheck.type", "must be tcp or tls with mesh: true; check the service itself on the Service behind the mesh listener", h.Type)
	}
	if h != nil && h.Send+h.Expect != "" {
		fault("healthCheck.send", "and expect are not allowed with mesh: true; set them on the Service behind the mesh listener", nil)
	}
}

func validateCircuitBreaker(b *resource.CircuitBreaker, fault Report) {
	if b.Service.IsZero() && b.Endpoint.IsZero() {
		fault("circuitBreaker", "bounds nothing: give connections, pending or requests under service or endpoint", nil)
	}
	if b.QueueTimeout != 0 && (b.Queue == nil || *b.Queue == 0) {
		fault("circuitBreaker.queueTimeout", "requires circuitBreaker.queue", b.QueueTimeout)
	}
	for _, x := range []struct {
		field             string
		service, endpoint *int
	}{
		{"connections", b.Service.Connections, b.Endpoint.Connections},
		{"pending", b.Service.Pending, b.Endpoint.Pending},
		{"requests", b.Service.Requests, b.Endpoint.Requests},
	} {
		if x.service != nil && x.endpoint != nil && *x.endpoint > *x.service {
			fault("circuitBreaker.endpoint."+x.field, fmt.Sprintf("is above the bound of the whole service, %d", *x.service), *x.endpoint)
		}
	}
}

// endpointIdentity joins the address and the tags of an endpoint.
func endpointIdentity(e *resource.Endpoint) string {
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

func validateServiceHTTP(h *resource.ServiceHTTP, fault Report) {
	if n := len(h.Upgrades); n > maxUpgrades {
		fault("http.upgrades", fmt.Sprintf("has more than %d protocols", maxUpgrades), n)
	}
	for i, name := range h.Upgrades {
		switch {
		case name == "" || len(name) > maxHeaderName || strings.Trim(name, tokenBytes) != "":
			fault(resource.Item("http.upgrades", i), "must be the name of a protocol without its version, such as websocket", name)
		case resource.NeverUpgrade(name):
			fault(resource.Item("http.upgrades", i), "is never forwarded: requests after such a switch would bypass routing", name)
		}
	}
	checkDuplicates("http.upgrades", h.Upgrades, fault)
}

func validateBalancing(b *resource.Balancing, fault Report) {
	if b.HashOn != "" && b.Policy != "maglev" {
		fault("balancing.hashOn", "requires policy: maglev", b.HashOn)
	}
	if b.ZoneMinHealthy != nil && b.Zone == "" {
		fault("balancing.zoneMinHealthy", "requires balancing.zone", *b.ZoneMinHealthy)
	}
	for _, f := range []struct{ path, tag string }{{"balancing.zone", b.Zone}, {"balancing.matchTag", b.MatchTag}} {
		if f.tag == "" {
			continue
		}
		if message := tagFault(f.tag, "any"); message != "" {
			fault(f.path, message, f.tag)
		}
	}
}

// maxProbe bounds what a health check sends and compares, in bytes.
const maxProbe = 1024

func validateHealthCheck(h *resource.HealthCheck, fault Report) {
	if h.Type == "http" || h.Type == "mysql" {
		for _, f := range []struct{ path, value string }{{"healthCheck.send", h.Send}, {"healthCheck.expect", h.Expect}} {
			if f.value != "" {
				fault(f.path, "requires type: tcp or tls", f.value)
			}
		}
	}
	if h.Type != "http" {
		for _, f := range []struct{ path, value string }{{"healthCheck.path", h.Path}, {"healthCheck.host", h.Host}} {
			if f.value != "" {
				fault(f.path, "requires type: http", f.value)
			}
		}
		if len(h.Status) > 0 {
			fault("healthCheck.status", "requires type: http", nil)
		}
	}
	if h.PortTag != "" {
		if message := tagFault(h.PortTag, "any"); message != "" {
			fault("healthCheck.portTag", message, h.PortTag)
		}
	}
	if h.Path != "" && !isPath(h.Path) {
		fault("healthCheck.path", "must begin with / and be printable ASCII without spaces", h.Path)
	}
	if hasBlank(h.Host) {
		fault("healthCheck.host", "must be printable ASCII without spaces", h.Host)
	}
	for i, status := range h.Status {
		if status < 100 || status > 599 {
			fault(resource.Item("healthCheck.status", i), "must be from 100 to 599", status)
		}
	}
	for _, f := range []struct{ path, value string }{{"healthCheck.send", h.Send}, {"healthCheck.expect", h.Expect}} {
		if b, err := resource.Unescape(f.value); err != nil {
			fault(f.path, err.Error(), f.value)
		} else if len(b) > maxProbe {
			fault(f.path, "must have at most 1024 bytes", f.value)
		}
	}
}

// hasBlank reports whether a part of an HTTP request has spaces, or what is not printable
// ASCII.
func hasBlank(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// isPath reports whether a path can be asked for as it is.
func isPath(s string) bool { return strings.HasPrefix(s, "/") && !hasBlank(s) }

func validateServiceTLS(t *resource.ServiceTLS, fault Report) {
	CheckCA("tls", t.CA, t.CAFile, t.CARef, fault)
	if strings.HasPrefix(strings.ToLower(t.ServerName), "spiffe://") {
		fault("tls.serverName", "is a SPIFFE ID, not a server name: "+
			"write the DNS name to send as SNI, and the SPIFFE ID in tls.verify.spiffe", t.ServerName)
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
		Ref("tls.certificateRef", t.CertificateRef, fault)
	}
	checkALPN("tls.alpn", t.ALPN, fault)
	if t.InsecureSkipVerify && (t.CA != "" || t.CAFile != "" || t.CARef != "") {
		fault("tls.insecureSkipVerify", "accepts any certificate, so ca would have no effect: leave one out", true)
	}
	if t.InsecureSkipVerify && t.Verify != nil {
		fault("tls.insecureSkipVerify", "accepts any certificate, so verify would have no effect: leave one out", true)
	}
	if t.Verify != nil {
		checkVerify("tls.verify", t.Verify, fault)
	}
	if len(t.TrustDomains) > 0 {
		validateEndpointDomains(t, fault)
	}
}

// validateEndpointDomains reports the faults of trustDomains towards endpoints.
func validateEndpointDomains(t *resource.ServiceTLS, fault Report) {
	checkTrustDomains("tls.trustDomains", t.TrustDomains, fault)
	if t.CA != "" || t.CAFile != "" || t.CARef != "" {
		fault("tls.trustDomains", "conflicts with ca, caFile and caRef: give only one of them", nil)
	}
	if t.InsecureSkipVerify {
		fault("tls.insecureSkipVerify", "accepts any certificate, so trustDomains would have no effect: leave one out", true)
	}
	if t.Verify == nil || len(t.Verify.SPIFFE) == 0 {
		fault("tls.trustDomains", "requires verify.spiffe: without it every workload of these trust domains could pose as the endpoint", nil)
	} else if len(t.Verify.DNS)+len(t.Verify.URI) > 0 {
		fault("tls.verify", "must have spiffe alone with trustDomains: an endpoint is known by its SPIFFE ID then", nil)
	}
}
