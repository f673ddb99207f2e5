package resource

import "strings"

// hints say what there is in the place of a field that does not exist and
// that users of other proxies look for. Keys are "Type.field", or "field" for
// all types, in lower case. What is here in no form says so, with the nearest
// way that there is.
var hints = map[string]string{
	"listener.port":              hintListenerPort,
	"listener.bind":              hintListenerPort,
	"listener.listen":            hintListenerPort,
	"listener.host":              `the address to listen at is address: "IP:port"; server names stand in hosts`,
	"listener.sni":               hintNames,
	"listener.servername":        hintNames,
	"listener.servernames":       hintNames,
	"listener.hostnames":         hintNames,
	"listener.backend":           hintListenerService,
	"listener.backends":          hintListenerService,
	"listener.endpoints":         hintListenerService,
	"listener.upstream":          hintListenerService,
	"listener.certificate":       hintListenerCertificate,
	"listener.certificateref":    hintListenerCertificate,
	"listener.certificaterefs":   hintListenerCertificate,
	"listener.timeout":           "timeouts has proxyHeader, hello and handshake; those of connections are the Service's connect.timeout, idleTimeout and maxAge",
	"listener.maxconnections":    "write limits: {connections: N}",
	"listener.ratelimit":         "write limits: {connectionsPerSecond: N}, perSource: N bounds what one client has open",
	"listenertls.certificate":    "write certificateRefs: [NAME], the names of Certificates",
	"listenertls.certificateref": "write certificateRefs: [NAME], a list",
	"listenertls.cert":           "write certificateRefs: [NAME], the names of Certificates",
	"listenertls.key":            "a key stands in a Certificate, which certificateRefs names",
	"listenertls.ca":             "write clientAuth: {ca: ...} for the CA of client certificates",
	"hostrule.host":              "write names: [HOST], a list",
	"hostrule.hosts":             "write names: [HOST]",
	"hostrule.sni":               "write names: [HOST]",
	"hostrule.weight":            hintWeight,
	"hostrule.backendrefs":       "write service: NAME; a MeshTCPRoute to that Service has backendRefs with weights",

	"service.port":             hintServicePort,
	"service.address":          "write endpoints: [{address: \"host:port\"}]",
	"service.addresses":        hintEndpoints,
	"service.backends":         hintEndpoints,
	"service.servers":          hintEndpoints,
	"service.targets":          hintEndpoints,
	"service.upstreams":        hintEndpoints,
	"service.hosts":            hintEndpoints,
	"service.selector":         hintEndpoints,
	"service.timeout":          "write connect: {timeout: ...} for connecting, idleTimeout for a connection without bytes, http: {timeout: ...} for requests",
	"service.timeouts":         "write connect: {timeout: ...}, idleTimeout, halfClosedTimeout and maxAge",
	"service.retries":          hintRetries,
	"service.retry":            hintRetries,
	"service.policy":           hintBalancing,
	"service.algorithm":        hintBalancing,
	"service.loadbalancer":     hintBalancing,
	"service.loadbalancing":    hintBalancing,
	"service.outlierdetection": "write ejection: {failures: 3, window: 10s}",
	"service.circuitbreaker":   "write ejection: {failures: 3, window: 10s}",
	"service.sni":              "write tls: {serverName: NAME}",
	"service.servername":       "write tls: {serverName: NAME}",
	"service.weight":           hintWeight,
	"service.stickysessions":   "write balancing: {policy: maglev, hashOn: source}",
	"service.affinity":         "write balancing: {policy: maglev, hashOn: source}",
	"servicetls.sni":           "write serverName: NAME",
	"servicetls.mode":          "tls: {} speaks TLS to the endpoints; leave tls out for none",
	"servicetls.cert":          "write certificateRef: NAME, the name of a Certificate",
	"servicetls.key":           "a key stands in a Certificate, which certificateRef names",
	"servicetls.insecure":      "write insecureSkipVerify: true, which takes any certificate",
	"servicetls.verify":        "certificates are verified; insecureSkipVerify: true takes any",
	"servicetls.spiffeid":      "an endpoint is known by the name in its certificate: serverName, and ca for who signs it",
	"endpoint.port":            "the port is part of address: \"host:port\"",
	"endpoint.host":            "write address: \"host:port\"",
	"endpoint.ip":              "write address: \"IP:port\"",
	"endpoint.priority":        hintBackup,
	"endpoint.zone":            "write tags: {zone: NAME}, and balancing: {zone: zone} in the Service",
	"endpoint.labels":          "write tags: {k: v}",

	"backendref.port":       "a backend is a Service, whose endpoints have the ports: leave it out",
	"backendref.subset":     "write kind: MeshServiceSubset with tags: {k: v}",
	"backendref.version":    "write kind: MeshServiceSubset with tags: {version: ...}",
	"backendref.labels":     "write kind: MeshServiceSubset with tags: {k: v}",
	"targetref.labels":      "write tags: {k: v}",
	"targetref.port":        "routes are of Services, whatever the port: leave it out",
	"meshtcproute.sources":  "write targetRef: {kind: MeshSubset, tags: {k: v}} for the sources that the route is for",
	"meshtcproute.from":     "write targetRef: {kind: MeshSubset, tags: {k: v}} for the sources that the route is for",
	"meshhttproute.from":    "write targetRef: {kind: MeshSubset, tags: {k: v}} for the sources that the route is for",
	"routerule.backendrefs": "write default: {backendRefs: [...]}",
	"routerule.weight":      hintWeight,
	"routeto.backendrefs":   "write rules: [{default: {backendRefs: [...]}}]",
	"healthcheck.port":      "checks go to the endpoint's own address",
	"healthcheck.uri":       "write path: PATH with type: http",

	"allow":     hintAccess,
	"deny":      hintAccess,
	"allowlist": hintAccess,
	"denylist":  hintAccess,
	"whitelist": hintAccess,
	"blacklist": hintAccess,
	"acl":       hintAccess,
	"backup":    hintBackup,
	"mirror":    hintMirror,
	"shadow":    hintMirror,
}

const (
	hintListenerPort        = `the port is part of address: ":9443" is that port at the node's --bind`
	hintNames               = "write hosts: [{names: [NAME], service: SERVICE}]"
	hintListenerService     = "write service: NAME, or hosts for one by server name; endpoints stand in the Service, and weights in a MeshTCPRoute"
	hintListenerCertificate = "write tls: {mode: terminate, certificateRefs: [NAME]}"
	hintServicePort         = `the port is part of each endpoint's address: endpoints: [{address: "host:port"}]`
	hintEndpoints           = `write endpoints: [{address: "host:port"}]`
	hintRetries             = "write connect: {attempts: N}, and retryBudget there bounds them"
	hintBalancing           = "write balancing: {policy: roundRobin}, or leastConnections, random, maglev"
	hintWeight              = "weights stand at a Service's endpoints, or at the backendRefs of a MeshTCPRoute to it"
	hintAccess              = "there are no lists of who may connect yet: a Listener's limits bound clients, its tls.clientAuth asks for their certificates, and networks are for the host's firewall"
	hintBackup              = "there are no backup endpoints: balancing: {zone: TAG} prefers those near and spills over to the others; or make the backup a Service of its own and move weight to it by a MeshTCPRoute"
	hintMirror              = "traffic is not copied; a MeshTCPRoute sends a share of it elsewhere by backendRefs with weights, and penstock simulate plays a change without traffic"
)

// hintFor says what there is in the place of a field of a type; "": nothing
// is known of it.
func hintFor(typ, field string) string {
	field = strings.ToLower(field)
	if hint, ok := hints[strings.ToLower(typ)+"."+field]; ok {
		return hint
	}
	return hints[field]
}
