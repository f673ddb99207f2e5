package codec

import "strings"

// suggestions name the replacement for fields that do not exist but that users
// of other proxies look for. Keys are "Type.field", or "field" for all types, in
// lower case. For a feature that does not exist, the text says so and names the
// nearest alternative.
var suggestions = map[string]string{
	"listener.port":            suggestionListenerPort,
	"listener.bind":            suggestionListenerPort,
	"listener.listen":          suggestionListenerPort,
	"listener.host":            `write address: "IP:port", where to listen; server names belong in hosts`,
	"listener.sni":             suggestionNames,
	"listener.servername":      suggestionNames,
	"listener.servernames":     suggestionNames,
	"listener.hostnames":       suggestionNames,
	"listener.backend":         suggestionListenerService,
	"listener.backends":        suggestionListenerService,
	"listener.endpoints":       suggestionListenerService,
	"listener.upstream":        suggestionListenerService,
	"listener.certificate":     suggestionListenerCertificate,
	"listener.certificateref":  suggestionListenerCertificate,
	"listener.certificaterefs": suggestionListenerCertificate,
	"listener.timeout": "timeouts has proxyHeader, hello and handshake; " +
		"those of connections are the Service's connect.timeout, idleTimeout and maxAge",
	"listener.maxconnections":    "write limits: {connections: N}",
	"listener.ratelimit":         "write limits: {connectionsPerSecond: N}; perSource: N bounds the connections of one client",
	"listenertls.certificate":    "write certificateRefs: [NAME], the names of Certificates",
	"listenertls.certificateref": "write certificateRefs: [NAME], a list",
	"listenertls.cert":           "write certificateRefs: [NAME], the names of Certificates",
	"listenertls.key":            "a key belongs in a Certificate, which certificateRefs names",
	"listenertls.ca":             "write clientAuth: {ca: ...} for the CA of client certificates",
	"hostrule.host":              "write names: [HOST], a list",
	"hostrule.hosts":             "write names: [HOST]",
	"hostrule.sni":               "write names: [HOST]",
	"hostrule.weight":            suggestionWeight,
	"hostrule.backendrefs":       "write service: NAME; a MeshTCPRoute to that Service has backendRefs with weights",

	"service.port":      suggestionServicePort,
	"service.address":   "write endpoints: [{address: \"host:port\"}]",
	"service.addresses": suggestionEndpoints,
	"service.backends":  suggestionEndpoints,
	"service.servers":   suggestionEndpoints,
	"service.targets":   suggestionEndpoints,
	"service.upstreams": suggestionEndpoints,
	"service.hosts":     suggestionEndpoints,
	"service.selector":  suggestionEndpoints,
	"service.timeout": "write connect: {timeout: ...} for connecting, " +
		"idleTimeout for a connection without bytes, http: {timeout: ...} for requests",
	"service.timeouts":         "write connect: {timeout: ...}, idleTimeout, halfClosedTimeout and maxAge",
	"service.retries":          suggestionRetries,
	"service.retry":            suggestionRetries,
	"service.policy":           suggestionBalancing,
	"service.algorithm":        suggestionBalancing,
	"service.loadbalancer":     suggestionBalancing,
	"service.loadbalancing":    suggestionBalancing,
	"service.outlierdetection": "write ejection: {failures: 3, window: 10s}",
	"service.circuitbreaker":   "write ejection: {failures: 3, window: 10s}",
	"service.sni":              "write tls: {serverName: NAME}",
	"service.servername":       "write tls: {serverName: NAME}",
	"service.weight":           suggestionWeight,
	"service.stickysessions":   "write balancing: {policy: maglev, hashOn: source}",
	"service.affinity":         "write balancing: {policy: maglev, hashOn: source}",
	"servicetls.sni":           "write serverName: NAME",
	"servicetls.mode":          "tls: {} speaks TLS to the endpoints; leave tls out for none",
	"servicetls.cert":          "write certificateRef: NAME, the name of a Certificate",
	"servicetls.key":           "a key belongs in a Certificate, which certificateRef names",
	"servicetls.insecure":      "write insecureSkipVerify: true, which accepts any certificate",
	"servicetls.spiffeid":      "write verify: {spiffe: [spiffe://DOMAIN/PATH]}, and ca or trustDomains for its issuer",
	"endpoint.port":            "the port is part of address: \"host:port\"",
	"endpoint.host":            "write address: \"host:port\"",
	"endpoint.ip":              "write address: \"IP:port\"",
	"endpoint.zone":            "write tags: {zone: NAME}, and balancing: {zone: zone} in the Service",
	"endpoint.labels":          "write tags: {k: v}",

	"ratelimit.burst": "each rate has its own burst: connections: {rate: 100, burst: 200}",

	"backendref.port":       "a backend is a Service, whose endpoints have the ports: leave it out",
	"backendref.subset":     "write kind: MeshServiceSubset with tags: {k: v}",
	"backendref.version":    "write kind: MeshServiceSubset with tags: {version: ...}",
	"backendref.labels":     "write kind: MeshServiceSubset with tags: {k: v}",
	"targetref.labels":      "write tags: {k: v}",
	"targetref.port":        "a route applies to all ports of a Service: leave it out",
	"meshtcproute.sources":  "write targetRef: {kind: MeshSubset, tags: {k: v}} to select the sources",
	"meshtcproute.from":     "write targetRef: {kind: MeshSubset, tags: {k: v}} to select the sources",
	"meshhttproute.from":    "write targetRef: {kind: MeshSubset, tags: {k: v}} to select the sources",
	"routerule.backendrefs": "write default: {backendRefs: [...]}",
	"routerule.weight":      suggestionWeight,
	"routeto.backendrefs":   "write rules: [{default: {backendRefs: [...]}}]",
	"healthcheck.port":      "checks go to the endpoint's own address",
	"healthcheck.uri":       "write path: PATH with type: http",

	"allow":     suggestionAccess,
	"deny":      suggestionAccess,
	"allowlist": suggestionAccess,
	"denylist":  suggestionAccess,
	"whitelist": suggestionAccess,
	"blacklist": suggestionAccess,
	"acl":       suggestionAccess,
	"backup":    suggestionBackup,
	"mirror":    suggestionMirror,
	"shadow":    suggestionMirror,
}

const (
	suggestionListenerPort    = `the port is part of address: ":9443" is that port at the node's --bind`
	suggestionNames           = "write hosts: [{names: [NAME], service: SERVICE}]"
	suggestionListenerService = "write service: NAME, or hosts for one by server name; " +
		"endpoints belong in the Service, and weights in a MeshTCPRoute"
	suggestionListenerCertificate = "write tls: {mode: terminate, certificateRefs: [NAME]}"
	suggestionServicePort         = `the port is part of each endpoint's address: endpoints: [{address: "host:port"}]`
	suggestionEndpoints           = `write endpoints: [{address: "host:port"}]`
	suggestionRetries             = "write connect: {attempts: N}; retryBudget there bounds retries"
	suggestionBalancing           = "write balancing: {policy: roundRobin}, or leastConnections, random, maglev"
	suggestionWeight              = "weights belong to a Service's endpoints, or to the backendRefs of a MeshTCPRoute"
	suggestionAccess              = "write a TrafficPermission: from selects clients, to selects services and listeners, action is allow or deny"
	suggestionBackup              = "backup and priority belong to each endpoint of a Service: endpoints: [{address: ..., backup: true}]"
	suggestionMirror              = "mirroring is not supported; a MeshTCPRoute sends a share of traffic elsewhere by weighted backendRefs, " +
		"and penstock simulate tries a change without traffic"
)

// suggestionFor returns the suggestion for an unknown field of a type, or "".
func suggestionFor(typ, field string) string {
	field = strings.ToLower(field)
	if suggestion, ok := suggestions[strings.ToLower(typ)+"."+field]; ok {
		return suggestion
	}
	return suggestions[field]
}
