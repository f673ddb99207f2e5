package resource

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Service is a destination: a set of endpoints and how to use them.
type Service struct {
	// Protocol is tcp, http, http2, kafka or mysql. Default tcp. Only mysql listeners
	// lead to a mysql service.
	Protocol string `yaml:"protocol" default:"tcp" oneof:"tcp http http2 kafka mysql"`
	// Balancing picks an endpoint for each connection.
	Balancing Balancing `yaml:"balancing"`
	// Connect bounds how an endpoint is reached.
	Connect Connect `yaml:"connect"`
	// HTTP sets how requests are forwarded that a MeshHTTPRoute routes one by one.
	HTTP ServiceHTTP `yaml:"http"`
	// MySQL sets how the servers of a mysql service are used. It requires protocol
	// mysql.
	MySQL ServiceMySQL `yaml:"mysql"`
	// HealthCheck probes endpoints actively. Left out: no probes.
	HealthCheck *HealthCheck `yaml:"healthCheck"`
	// Ejection takes endpoints that fail in use out of balancing. Left out: none.
	Ejection *Ejection `yaml:"ejection"`
	// CircuitBreaker bounds what is under way at the endpoints at once, on each
	// node. Left out: no bounds.
	CircuitBreaker *CircuitBreaker `yaml:"circuitBreaker"`
	// AllUnhealthy says what happens when no endpoint is healthy: fail
	// (connections are closed) or panic (all endpoints are used). Default fail.
	AllUnhealthy string `yaml:"allUnhealthy" default:"fail" oneof:"fail panic"`
	// IdleTimeout closes a connection without a byte in either direction. Default
	// 1h, up to 720h; 0 is none.
	IdleTimeout *Duration `yaml:"idleTimeout" default:"1h" range:"0..720h"`
	// HalfClosedTimeout replaces IdleTimeout once one side has ended. Default 5m,
	// or IdleTimeout if that is shorter; up to 720h. With 0 IdleTimeout stays in
	// force.
	HalfClosedTimeout *Duration `yaml:"halfClosedTimeout" default:"5m" range:"0..720h"`
	// MaxAge closes a connection of that age, up to 10 % earlier at random.
	// Default 0, none; up to 8760h.
	MaxAge *Duration `yaml:"maxAge" default:"0" range:"0..8760h"`
	// EndpointDrain closes the connections of an endpoint that is no longer in the
	// service. Left out: they stay until they end by themselves.
	EndpointDrain *EndpointDrain `yaml:"endpointDrain"`
	// ProxyProtocol sends a PROXY header to the endpoints.
	ProxyProtocol *SendProxy `yaml:"proxyProtocol"`
	// Mesh says that the endpoints are Listeners with protocol mesh, on nodes of this
	// cluster. Connections to them use TLS 1.3 with the nodes' certificates, and carry
	// the client's address, identity and tags. It requires protocol tcp, http or http2,
	// and a cluster (not --dev). Default false.
	Mesh bool `yaml:"mesh"`
	// TLS configures TLS to the endpoints. Left out: plain text. A mysql service uses it
	// for clients that have TLS, too, and with mysql.requireTLS for all.
	TLS *ServiceTLS `yaml:"tls"`
	// Resolve is the interval at which the host names of endpoints are resolved.
	// Default 10s, 1s to 24h.
	Resolve Duration `yaml:"resolve" default:"10s" range:"1s..24h"`
	// Endpoints are the addresses of the service. An empty list is allowed:
	// connections are closed until it has entries.
	Endpoints []Endpoint `yaml:"endpoints"`
	// EndpointsFrom adds the endpoints that providers find. An address that is
	// listed several times counts once: that of Endpoints, or else of the first provider.
	EndpointsFrom []EndpointsFrom `yaml:"endpointsFrom"`
	// Discovery lets proxies beside the service's instances, such as Envoy, take
	// their configuration from Penstock by xDS. Left out: none may.
	Discovery *Discovery `yaml:"discovery"`
}

// EndpointDrain says how the connections of a removed endpoint are closed.
type EndpointDrain struct {
	// Timeout is the time over which they are closed, evenly, the idle ones first.
	// If the endpoint comes back within it, the remaining ones stay. Default 30s,
	// 1s to 24h.
	Timeout Duration `yaml:"timeout" default:"30s" range:"1s..24h"`
}

// Balancing picks an endpoint for each connection.
type Balancing struct {
	// Policy is roundRobin, leastConnections, random or maglev. Default roundRobin.
	Policy string `yaml:"policy" default:"roundRobin" oneof:"roundRobin leastConnections random maglev"`
	// HashOn is what maglev hashes: source (client address) or serverName. Default source.
	HashOn string `yaml:"hashOn" default:"source" oneof:"source serverName"`
	// SlowStart is the time in which a new or recovered endpoint grows to its full
	// share. Default 0, up to 1h.
	SlowStart Duration `yaml:"slowStart" range:"0..1h"`
	// Zone prefers endpoints whose tag of this name equals the node's own. Empty: no preference.
	Zone string `yaml:"zone"`
	// ZoneMinHealthy is the share of the zone's endpoints, in percent, below which
	// connections spill over to other zones. Default 70, 0..100.
	ZoneMinHealthy *int `yaml:"zoneMinHealthy" default:"70" range:"0..100"`
	// MatchTag restricts the service to endpoints whose tag of this name equals the
	// node's own: others, and those without it, are never used, whatever their health.
	// A node that does not have the tag uses all endpoints. Empty: no restriction.
	MatchTag string `yaml:"matchTag"`
	// MinHealthy is the share of the endpoints of a priority, in percent, below
	// which connections spill over to the next priority. Default 71, 1..100.
	MinHealthy *int `yaml:"minHealthy" default:"71" range:"1..100"`
}

// Connect bounds how an endpoint is reached.
type Connect struct {
	// Timeout bounds one attempt, TLS included. Default 1s, 10ms to 10m.
	Timeout Duration `yaml:"timeout" default:"1s" range:"10ms..10m"`
	// Attempts is the number of attempts in all, each at another endpoint while
	// there is one. Left out: 3, and an attempt that fails before Timeout does not
	// count while another endpoint is untried and three times Timeout has not
	// passed. Default 3, 1..10.
	Attempts int `yaml:"attempts" default:"3" range:"1..10"`
	// RetryBudget bounds the retries that follow a timeout and go to an endpoint
	// that is failing too: to this share, in percent, of the connections of the
	// last 10 seconds (10 are always allowed). Default 20, 0..100.
	RetryBudget *int `yaml:"retryBudget" default:"20" range:"0..100"`

	attemptsGiven bool // Attempts was written; set by WithDefaults
}

// AttemptsGiven reports whether the user wrote Attempts. It is valid after WithDefaults.
func (c *Connect) AttemptsGiven() bool { return c.attemptsGiven }

// Deadline returns the time that all attempts together may take.
func (c *Connect) Deadline() time.Duration { return time.Duration(c.Attempts) * c.Timeout.D() }

// ServiceHTTP sets how requests are forwarded that are routed one by one.
type ServiceHTTP struct {
	// Timeout bounds a request, from its header to the end of the response; a
	// request that switches to another protocol, such as WebSocket, is exempt from
	// then on. Default 0, none; up to 24h.
	Timeout *Duration `yaml:"timeout" default:"0" range:"0..24h"`
	// ResponseTimeout bounds the time from the end of a request to the beginning
	// of the response. Default 1m, up to 24h; 0 is none.
	ResponseTimeout *Duration `yaml:"responseTimeout" default:"1m" range:"0..24h"`
	// BodyIdleTimeout is how long a client may pause within a request body while
	// no response has begun. gRPC calls are exempt. Default 30s, up to 24h; 0 is
	// none.
	BodyIdleTimeout *Duration `yaml:"bodyIdleTimeout" default:"30s" range:"0..24h"`
	// MaxIdle is how many idle connections are kept to each endpoint. Default 64, 0..10,000.
	MaxIdle *int `yaml:"maxIdle" default:"64" range:"0..10000"`
	// KeepIdle is how long idle connections are kept. It should be shorter than
	// the endpoints' own idle timeout. Default 1m, 1s to 1h.
	KeepIdle Duration `yaml:"keepIdle" default:"1m" range:"1s..1h"`
	// Upgrades lists the protocols that an HTTP/1.1 client may switch to, at most
	// 16; other versions of HTTP, SPDY and TLS are never allowed. Left out:
	// websocket.
	Upgrades []string `yaml:"upgrades"`
}

// HealthCheck probes endpoints actively.
type HealthCheck struct {
	// Type is tcp, tls, http or mysql. Default tcp. A mysql check passes when the server
	// greets its client.
	Type string `yaml:"type" default:"tcp" oneof:"tcp tls http mysql"`
	// Port is the port to check, at each endpoint's IP address, in place of the endpoint's
	// own, 1..65,535. Such a check sends no PROXY header. Endpoints that are unix
	// sockets are checked where they are.
	Port int `yaml:"port" range:"1..65535"`
	// PortTag names a tag of endpoints whose value is that port, such as status_port of
	// an etcd provider with format tidb. Endpoints without the tag are checked at port.
	PortTag string `yaml:"portTag"`
	// Interval is the time between checks of one endpoint, 10 % shorter or longer
	// at random. Default 2s, 100ms to 1h.
	Interval Duration `yaml:"interval" default:"2s" range:"100ms..1h"`
	// Timeout bounds one check. Default 1s, 10ms to 10m.
	Timeout Duration `yaml:"timeout" default:"1s" range:"10ms..10m"`
	// Rise is how many successes in a row make an endpoint healthy. Default 2, 1..100.
	Rise int `yaml:"rise" default:"2" range:"1..100"`
	// Fall is how many failures in a row make it unhealthy. Default 2, 1..100.
	Fall int `yaml:"fall" default:"2" range:"1..100"`
	// Path is what an http check GETs. Default "/".
	Path string `yaml:"path" default:"/"`
	// Host is the Host header of an http check. Default the endpoint's address.
	Host string `yaml:"host"`
	// Status lists the status codes that an http check accepts, 100..599. Default
	// 200 to 399.
	Status []int `yaml:"status"`
	// Send is what a tcp or tls check sends. Go escapes ("\r\n", "\x00") are
	// understood. At most 1024 bytes.
	Send string `yaml:"send"`
	// Expect is how the response to a tcp or tls check must begin, written like Send.
	Expect string `yaml:"expect"`
}

// Ejection takes endpoints that fail in use out of balancing.
type Ejection struct {
	// Failures is how many failures within Window eject an endpoint: failed
	// connects, and resets before the endpoint's first byte. Default 3, 1..1000.
	Failures int `yaml:"failures" default:"3" range:"1..1000"`
	// Window is the time in which failures count. Default 10s, 100ms to 1h.
	Window Duration `yaml:"window" default:"10s" range:"100ms..1h"`
	// Duration is that of the first ejection; each further one is longer by as
	// much, up to ten times. Default 10s, 100ms to 24h.
	Duration Duration `yaml:"duration" default:"10s" range:"100ms..24h"`
	// MaxShare is the share of the endpoints that may be ejected at once, in
	// percent. Default 50, 0..100.
	MaxShare *int `yaml:"maxShare" default:"50" range:"0..100"`
}

// CircuitBreaker bounds what is under way at a service's endpoints at once, on
// each node. Over an endpoint's bound another endpoint is chosen. When all usable
// ones, or the service, are at their bounds, new connections and requests wait in
// a queue, first come first served, and are refused when it is full.
type CircuitBreaker struct {
	// Service bounds all endpoints together, including removed ones that still have
	// connections.
	Service CircuitBounds `yaml:"service"`
	// Endpoint bounds each endpoint.
	Endpoint CircuitBounds `yaml:"endpoint"`
	// Queue is how many connections and requests may wait, together. Default 0,
	// none: they are refused at once; up to 100,000.
	Queue *int `yaml:"queue" default:"0" range:"0..100000"`
	// QueueTimeout is how long each may wait. Default 5s, 1ms to 10m.
	QueueTimeout Duration `yaml:"queueTimeout" default:"5s" range:"1ms..10m"`
}

// CircuitBounds are bounds of a CircuitBreaker.
type CircuitBounds struct {
	// Connections bounds the connections that lead only to their endpoint: all but
	// those of HTTP requests that are routed one by one. Left out: no bound;
	// 1..1,000,000.
	Connections *int `yaml:"connections" range:"1..1000000"`
	// Pending bounds the connections and requests that have no connection to their
	// endpoint yet. Left out: no bound; 1..1,000,000.
	Pending *int `yaml:"pending" range:"1..1000000"`
	// Requests bounds the HTTP requests that are routed one by one, from the choice
	// of their endpoint to the end of the response. Left out: no bound; 1..1,000,000.
	Requests *int `yaml:"requests" range:"1..1000000"`
}

// IsZero reports whether nothing is bounded.
func (b CircuitBounds) IsZero() bool {
	return b.Connections == nil && b.Pending == nil && b.Requests == nil
}

// SendProxy sends a PROXY header to the endpoints.
type SendProxy struct {
	// Send is v1 or v2. Required.
	Send string `yaml:"send" oneof:"v1 v2"`
	// ClientIdentity adds the SPIFFE ID of the client's verified certificate to
	// the header, as a TLV of type 0xE1; without one there is no such TLV. The other
	// TLVs about TLS are sent in any case. Requires send: v2. Default false.
	ClientIdentity bool `yaml:"clientIdentity"`
}

// ServiceTLS configures TLS to the endpoints.
type ServiceTLS struct {
	// CA is a bundle of PEM certificates, or the file that holds it,
	// relative to the resource's file and read when it is applied. Left out:
	// the system's.
	CA string `yaml:"ca"`
	// CAFile is a file with CA on each node, which reads it again when it changes.
	// Only for services and listeners.
	CAFile string `yaml:"caFile"`
	// CARef names a Certificate with identity or workloadAPI whose trust bundle is
	// used in place of CA, as it changes. SPIFFE IDs of verify must be of its trust
	// domain then. Only for services and listeners.
	CARef string `yaml:"caRef"`
	// TrustDomains lists the SPIFFE trust domains of the endpoints, at most 64: names
	// of TrustBundles, and cluster for the cluster's own. A certificate is verified by
	// the bundle of the trust domain of its own SPIFFE ID alone; it must have that ID
	// as its only URI SAN. Requires verify.spiffe, and excludes CA and CAFile. Only for
	// services and listeners.
	TrustDomains []string `yaml:"trustDomains"`
	// ServerName is sent as SNI and verified. Default the endpoint's host name or
	// IP address.
	ServerName string `yaml:"serverName"`
	// CertificateRef names the client certificate to present.
	CertificateRef string `yaml:"certificateRef"`
	// ALPN lists the protocols to offer.
	ALPN []string `yaml:"alpn"`
	// MinVersion is "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"minVersion" default:"1.2" oneof:"1.2 1.3"`
	// InsecureSkipVerify accepts any certificate. Default false.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
	// Verify says which identities the endpoints' certificates may have. One of
	// them is enough; the chain to CA is always verified. Left out: the server name.
	Verify *Verify `yaml:"verify"`
}

// Verify lists identities of certificates, at most 64 in each list. With it the server
// name is not verified; list it in dns if it is to count.
type Verify struct {
	// SPIFFE lists SPIFFE IDs, as spiffe://prod.example/ns/shop/sa/web; "*" stands
	// for any characters of one segment or for any trust domain, "**" at the end
	// for one or more segments. Only a certificate with exactly one URI SAN
	// matches.
	SPIFFE []string `yaml:"spiffe"`
	// DNS lists DNS names. One matches a certificate as a server name does, so a
	// wildcard in the certificate matches one label.
	DNS []string `yaml:"dns"`
	// URI lists URI SANs, compared byte by byte. SPIFFE IDs belong in spiffe.
	URI []string `yaml:"uri"`
}

// Endpoint is one address of a service.
type Endpoint struct {
	// Address is host:port, IP:port, [v6]:port or unix:PATH (a path of at
	// most 107 bytes). Required.
	Address string `yaml:"address"`
	// Weight is the share among the endpoints. Default 1, 0..1,000,000; with 0 the
	// endpoint gets nothing.
	Weight *int `yaml:"weight" default:"1" range:"0..1000000"`
	// Tags select subsets of a service.
	Tags map[string]string `yaml:"tags"`
	// Priority puts the endpoint into a level: a level gets what those before it
	// cannot take (balancing.minHealthy). Default 0, the first level; 0..127.
	Priority int `yaml:"priority" range:"0..127"`
	// Backup uses the endpoint only while no endpoint without it is usable.
	// Default false.
	Backup bool `yaml:"backup"`
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

// refs lists the client certificate and the trust domains; path is that of the settings.
func (t *ServiceTLS) refs(path string) (refs []Ref) {
	if t == nil {
		return nil
	}
	if t.CertificateRef != "" {
		refs = append(refs, Ref{Key: Key{"Certificate", t.CertificateRef}, Path: path + ".certificateRef"})
	}
	return append(refs, trustDomainRefs(path+".trustDomains", t.TrustDomains)...)
}

// Refs lists the client certificate of a service, its providers, and what its
// proxies may see. Upstreams may be missing, as backends of routes may.
func (s *Service) Refs() []Ref {
	refs := appendBundleRef(s.TLS.refs("spec.tls"), s)
	for i := range s.EndpointsFrom {
		if name := s.EndpointsFrom[i].Provider; name != "" {
			refs = append(refs, Ref{Key: Key{KindProvider, name}, Path: Item("spec.endpointsFrom", i) + ".provider"})
		}
	}
	if s.Discovery == nil {
		return refs
	}
	for i, u := range s.Discovery.Upstreams {
		if u.Service != "" && u.Service != EveryService {
			refs = append(refs, Ref{Key: Key{"Service", u.Service}, Path: Item("spec.discovery.upstreams", i) + ".service", Optional: true})
		}
	}
	for i, name := range s.Discovery.Certificates {
		refs = append(refs, Ref{Key: Key{"Certificate", name}, Path: Item("spec.discovery.certificates", i)})
	}
	return refs
}

var errEscape = errors.New(`has an invalid escape; valid are \r, \n, \t, \\, \", \', \0, \xHH and \uHHHH`)

// Unescape returns the bytes that a text with Go escapes stands for.
func Unescape(s string) ([]byte, error) {
	var out bytes.Buffer
	for s != "" {
		if rest, ok := strings.CutPrefix(s, `\0`); ok && (rest == "" || rest[0] < '0' || rest[0] > '7') {
			out.WriteByte(0)
			s = rest
			continue
		}
		if s[0] == '"' || s[0] == '\'' || s[0] == '\n' {
			out.WriteByte(s[0])
			s = s[1:]
			continue
		}
		quote := byte('"')
		if strings.HasPrefix(s, `\'`) {
			quote = '\''
		}
		r, multi, rest, err := strconv.UnquoteChar(s, quote)
		if err != nil {
			return nil, errEscape
		}
		if multi {
			out.WriteRune(r)
		} else {
			out.WriteByte(byte(r))
		}
		s = rest
	}
	return out.Bytes(), nil
}
