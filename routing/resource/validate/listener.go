package validate

import (
	"net/netip"
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// validateListener reports the faults of a listener alone.
func validateListener(l *resource.Listener, fault Report) {
	Fields(l, fault)
	if message := checkAddress(l.Address, true); message != "" {
		fault("address", message, orNil(l.Address))
	}
	switch l.Protocol {
	case "kafka":
		validateKafkaListener(l, fault)
	case "mesh":
		validateMeshListener(l, fault)
	case resource.ProtocolMySQL:
		validateMySQLListener(l, fault)
	case "tcp", "":
		refuseTLS(l, fault)
		if t := l.Originates(); t != nil {
			validateOriginate(l, t, fault)
		}
	case "tls":
		if l.TLS != nil {
			validateListenerTLS(l.TLS, fault)
		}
	}
	if l.NoServerName == "service" && l.Service == "" {
		fault("noServerName", "requires service, the destination of such connections", l.NoServerName)
	}
	if l.Service != "" {
		checkServiceRef("service", l.Service, fault)
	}
	validateHosts(l, fault)
	if l.ProxyProtocol != nil && len(l.ProxyProtocol.Accept) == 0 {
		fault("proxyProtocol.accept", "is required: the networks whose connections begin with a PROXY header", nil)
	}
	if !l.HTTP.IsZero() && !readsRequests(l) {
		fault("http", "requires a listener that can read requests: protocol: tcp or mesh, or protocol: tls with tls.mode: terminate", nil)
	}
	if l.HTTP.ForwardClientCert && !verifiesClients(l) && l.Protocol != "mesh" {
		fault("http.forwardClientCert", "requires tls.clientAuth with mode: require or request: only a verified certificate is forwarded", nil)
	}
	if mode := l.HTTP.ForwardClientCertMode; mode != "" && mode != resource.ClientCertSet {
		switch {
		case !l.HTTP.ForwardClientCert:
			fault("http.forwardClientCertMode", "requires http.forwardClientCert: true", mode)
		case l.Protocol == "mesh":
			fault("http.forwardClientCertMode", "must be set in a mesh listener: its clients are nodes, which forward no such header", mode)
		}
	}
	if l.Protocol != resource.ProtocolMySQL && !l.MySQL.IsZero() {
		fault("mysql", "requires protocol: mysql", nil)
	}
	checkTags("tags", l.Tags, fault)
	checkTags("nodes", l.Nodes, fault)
	validateSources(l, fault)
}

// readsRequests reports whether the listener sees what its connections carry.
func readsRequests(l *resource.Listener) bool {
	return l.Protocol == "tcp" || l.Protocol == "" || l.Protocol == "mesh" || l.Protocol == "tls" && l.TLS != nil && l.TLS.Mode == "terminate"
}

// verifiesClients reports whether the listener asks clients for certificates.
func verifiesClients(l *resource.Listener) bool {
	return l.TLS != nil && l.TLS.ClientAuth != nil && l.TLS.ClientAuth.Mode != "none"
}

// refuseTLS reports fields that a tcp listener cannot have.
func refuseTLS(l *resource.Listener, fault Report) {
	const why = "requires protocol: tls"
	if l.TLS != nil && l.TLS.Originate == nil {
		fault("tls", why+"; a tcp listener can have originate alone", nil)
	}
	if len(l.Hosts) > 0 {
		fault("hosts", why+"; without TLS there is no server name", nil)
	}
	if l.NoServerName != "" {
		fault("noServerName", why, l.NoServerName)
	}
}

// validateMeshListener reports fields that a mesh listener cannot have: its clients
// are nodes of the cluster, which say who theirs are.
func validateMeshListener(l *resource.Listener, fault Report) {
	if l.TLS != nil {
		fault("tls", "is not allowed with protocol: mesh, which always uses TLS 1.3 with the nodes' own certificates", nil)
	}
	if l.ProxyProtocol != nil {
		fault("proxyProtocol", "is not allowed with protocol: mesh, whose header comes inside TLS", nil)
	}
	if l.NoServerName != "" {
		fault("noServerName", "is not allowed with protocol: mesh: connections are routed by the name of their Service, which is always there", l.NoServerName)
	}
	for i := range l.Hosts {
		for j, name := range l.Hosts[i].Names {
			if strings.HasPrefix(name, "*") {
				fault(resource.Item(resource.Item("hosts", i)+".names", j), "must be the name of one Service with mesh: true", name)
			}
		}
		if len(l.Hosts[i].ALPN) > 0 {
			fault(resource.Item("hosts", i)+".alpn", "is not allowed with protocol: mesh", nil)
		}
	}
}

// validateKafkaListener reports fields that a kafka listener cannot have: virtual
// clusters decide where its connections go and which certificates are presented.
func validateKafkaListener(l *resource.Listener, fault Report) {
	const why = "is not allowed with protocol: kafka; virtual clusters name the listener"
	if l.Service != "" {
		fault("service", why, l.Service)
	}
	if len(l.Hosts) > 0 {
		fault("hosts", why, nil)
	}
	if l.NoServerName != "" {
		fault("noServerName", "is not allowed with protocol: kafka: connections without a server name are never served", l.NoServerName)
	}
	if t := l.TLS; t != nil && (t.Mode != "" || len(t.CertificateRefs) > 0 || len(t.ALPN) > 0 || t.MinVersion != "" || t.ClientAuth != nil || t.StartTLS != "" || t.Originate != nil) {
		fault("tls", "must be {} with protocol: kafka; certificates and clientAuth belong in the tls of virtual clusters", nil)
	}
}

func validateListenerTLS(t *resource.ListenerTLS, fault Report) {
	if t.Originate != nil {
		fault("tls.originate", "requires protocol: tcp; for TLS to the endpoints of a tls listener set tls of the Service", nil)
	}
	if t.Mode != "terminate" {
		const why = "requires mode: terminate"
		if len(t.CertificateRefs) > 0 {
			fault("tls.certificateRefs", why, nil)
		}
		if len(t.ALPN) > 0 {
			fault("tls.alpn", why, nil)
		}
		if t.MinVersion != "" {
			fault("tls.minVersion", why, t.MinVersion)
		}
		if t.ClientAuth != nil {
			fault("tls.clientAuth", why, nil)
		}
		return
	}
	if len(t.CertificateRefs) == 0 {
		fault("tls.certificateRefs", "is required for mode: terminate", nil)
	}
	for i, name := range t.CertificateRefs {
		Ref(resource.Item("tls.certificateRefs", i), name, fault)
	}
	checkDuplicates("tls.certificateRefs", t.CertificateRefs, fault)
	checkALPN("tls.alpn", t.ALPN, fault)
	if i := slices.Index(t.ALPN, "acme-tls/1"); i >= 0 {
		fault(resource.Item("tls.alpn", i), "is for the checks of certificate authorities, which Certificates with acme answer: leave it out", nil)
	}
	if t.ClientAuth != nil {
		ClientAuth("tls.clientAuth", t.ClientAuth, fault)
	}
}

func validateHosts(l *resource.Listener, fault Report) {
	count := 0
	for i := range l.Hosts {
		count += len(l.Hosts[i].Names)
	}
	seen := make(map[string]namePlace, count)
	for i := range l.Hosts {
		rule, path := &l.Hosts[i], resource.Item("hosts", i)
		if len(rule.Names) == 0 {
			fault(path+".names", "is required: the server names of the rule", nil)
		}
		checkServiceRef(path+".service", rule.Service, fault)
		checkALPN(path+".alpn", rule.ALPN, fault)
		for j, name := range rule.Names {
			canonical, err := hostname.ParsePattern(name)
			if err != nil {
				fault(resource.Item(path+".names", j), err.Error(), name)
			} else if before, ok := recordName(seen, canonical, rule.ALPN, namePlace{i, j}); ok {
				at := resource.Item(resource.Item("spec.hosts", before.rule)+".names", before.name)
				fault(resource.Item(path+".names", j), "duplicate, first at "+at, name)
			}
		}
	}
}

// namePlace is the position of a name in the rules.
type namePlace struct{ rule, name int }

// recordName records a name for each of its protocols. It returns an earlier
// position of the name for one of the same protocols, where a ClientHello could
// match both rules equally well.
func recordName(seen map[string]namePlace, name string, alpn []string, use namePlace) (before namePlace, twice bool) {
	note := func(key string) {
		if at, ok := seen[key]; !ok {
			seen[key] = use
		} else if at != use {
			before, twice = at, true // at == use: a protocol that is listed twice
		}
	}
	if len(alpn) == 0 {
		note(name)
	}
	for _, p := range alpn {
		note(name + "\x00" + p)
	}
	return before, twice
}

func validateSources(l *resource.Listener, fault Report) {
	seen := map[netip.Prefix]string{}
	for i, s := range l.Sources {
		path := resource.Item("sources", i)
		if len(s.From) == 0 {
			fault(path+".from", "is required: the networks of the clients", nil)
		}
		if len(s.Tags) == 0 {
			fault(path+".tags", "is required: the tags of these clients", nil)
		}
		checkTags(path+".tags", s.Tags, fault)
		for j, p := range s.From {
			if !p.IsValid() {
				continue // could not be parsed
			}
			at := resource.Item(path+".from", j)
			if before, ok := seen[p]; ok {
				fault(at, "duplicate, first at spec."+before, p)
			}
			seen[p] = at
		}
	}
}

// orNil returns nil for an empty text, to leave it out of a fault.
func orNil(s string) any {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return s
}

// validateHost reports the faults of a Host alone.
func validateHost(h *resource.Host, fault Report) {
	Fields(h, fault)
	Ref("listener", h.Listener, fault)
	checkServiceRef("service", h.Service, fault)
	checkALPN("alpn", h.ALPN, fault)
	if len(h.Names) == 0 {
		fault("names", "is required: the server names to add to the listener", nil)
	}
	seen := make(map[string]int, len(h.Names))
	for i, name := range h.Names {
		canonical, err := hostname.ParsePattern(name)
		if err != nil {
			fault(resource.Item("names", i), err.Error(), name)
		} else if before, ok := seen[canonical]; ok {
			fault(resource.Item("names", i), "duplicate, first at "+resource.Item("spec.names", before), name)
		} else {
			seen[canonical] = i
		}
	}
}
