package resource

import "net/netip"

// Listener accepts connections at one address and maps them to services.
type Listener struct {
	// Address is host:port, [v6]:port, ":port" (at the node's --bind) or
	// "unix:PATH" (a path of at most 107 bytes). With port 0 the system
	// picks a free one. Required.
	Address string `yaml:"address"`
	// Protocol is tcp, tls, kafka, mesh or mysql. Default tcp. Connections to a kafka
	// listener go to the virtual brokers that name it. A mesh listener accepts only nodes of
	// this cluster, with the connections of their clients to Services with mesh: true;
	// the names in hosts are those of these Services. A mysql listener leads to Services
	// with protocol mysql only.
	Protocol string `yaml:"protocol" default:"tcp" oneof:"tcp tls kafka mesh mysql"`
	// TLS configures TLS. On a tls listener the default is passthrough. A tcp listener
	// can have originate alone. On a kafka
	// listener {} means TLS: the server name selects the virtual broker, and the
	// virtual clusters have the certificates; left out there: plain text. On a mysql
	// listener it must have mode terminate, and clients choose whether they use TLS;
	// left out there: they cannot.
	TLS *ListenerTLS `yaml:"tls"`
	// Hosts maps server names to destinations.
	Hosts []HostRule `yaml:"hosts"`
	// Service is the destination of a valid name that no host rule matches (on a
	// tcp listener, of every connection; on a mysql listener, of those that no user
	// and no host rule matches). Left out: the connection is closed.
	Service string `yaml:"service"`
	// NoServerName is what a ClientHello without a server name gets: close or the
	// listener's service. Default close.
	NoServerName string `yaml:"noServerName" default:"close" oneof:"close service"`
	// ProxyProtocol lists the networks that must send a PROXY header.
	ProxyProtocol *AcceptProxy `yaml:"proxyProtocol"`
	// Timeouts bound the phases before a connection is routed.
	Timeouts ListenerTimeouts `yaml:"timeouts"`
	// Limits refuse connections over a bound. 0: no limit.
	Limits ListenerLimits `yaml:"limits"`
	// HTTP sets how requests are read that a MeshHTTPRoute routes one by one. It
	// requires protocol tcp, or tls with mode terminate.
	HTTP ListenerHTTP `yaml:"http"`
	// MySQL sets how the clients of a mysql listener are served. It requires protocol
	// mysql.
	MySQL ListenerMySQL `yaml:"mysql"`
	// Tags are part of the source of every connection to this listener.
	Tags map[string]string `yaml:"tags"`
	// Sources adds tags by client network; the longest prefix that contains the
	// client's address wins.
	Sources []SourceRule `yaml:"sources"`
	// Nodes selects the nodes that run the listener, by their tags. Default all.
	Nodes map[string]string `yaml:"nodes"`
}

// ListenerTLS configures TLS on a listener.
type ListenerTLS struct {
	// Mode is passthrough or terminate. Default passthrough.
	Mode string `yaml:"mode" default:"passthrough" oneof:"passthrough terminate"`
	// CertificateRefs name Certificates; the one whose names match the server name
	// best is presented. Required for terminate.
	CertificateRefs []string `yaml:"certificateRefs"`
	// ALPN lists the protocols offered to clients, best first.
	ALPN []string `yaml:"alpn"`
	// MinVersion is "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"minVersion" default:"1.2" oneof:"1.2 1.3"`
	// ClientAuth requests client certificates.
	ClientAuth *ClientAuth `yaml:"clientAuth"`
	// StartTLS is postgres for clients of PostgreSQL, which ask for TLS by an
	// SSLRequest. Endpoints are asked in the same way, with passthrough always and with
	// terminate where the Service has tls; those of a Service with mesh: true cannot
	// be reached with passthrough. A client that does not use TLS is refused.
	// The default of alpn is [postgresql] then. Only with protocol tls.
	StartTLS string `yaml:"startTLS" oneof:"postgres"`
	// Originate is the TLS to the endpoints for what plain clients of this listener
	// send, whichever Service it goes to, in place of that Service's own tls. Health
	// checks stay as the Service says. Only with protocol tcp, and without all other
	// fields of tls. Connections that would go to a Service with mesh: true, or whose
	// requests would be routed one by one, are closed.
	Originate *ServiceTLS `yaml:"originate"`
}

// Originates returns the TLS to the endpoints in place of the services' own; nil: there
// is none.
func (l *Listener) Originates() *ServiceTLS {
	if l.TLS == nil {
		return nil
	}
	return l.TLS.Originate
}

// ClientAuth requests a certificate from clients.
type ClientAuth struct {
	// Mode is none, request (verified when given) or require. Default require.
	Mode string `yaml:"mode" default:"require" oneof:"none request require"`
	// CA is a bundle of PEM certificates, or the file that holds it, relative
	// to the resource's file and read when it is applied. Required, or caFile,
	// caRef or trustDomains, unless mode is none.
	CA string `yaml:"ca"`
	// CAFile is a file with CA on each node, which reads it again when it changes.
	CAFile string `yaml:"caFile"`
	// CARef names a Certificate with identity or workloadAPI whose trust bundle is
	// used in place of CA, as it changes. Clients must have a SPIFFE ID of its trust
	// domain then.
	CARef string `yaml:"caRef"`
	// TrustDomains lists the SPIFFE trust domains whose workloads may connect, at most
	// 64: names of TrustBundles, and cluster for the cluster's own. A certificate is
	// verified by the bundle of the trust domain of its own SPIFFE ID alone; it must
	// have that ID as its only URI SAN. With CA as well, only certificates without a
	// SPIFFE ID are verified by CA.
	TrustDomains []string `yaml:"trustDomains"`
	// SPIFFE lists the SPIFFE IDs that may connect, at most 64, as
	// spiffe://prod.example/ns/shop/sa/web; "*" stands for any characters of one
	// segment or for any trust domain, "**" at the end for one or more segments. A
	// certificate must have exactly one URI SAN then. Left out: every certificate
	// of the CA is accepted.
	SPIFFE []string `yaml:"spiffe"`
}

// HostRule sends server names to a service.
type HostRule struct {
	// Names are exact names or wildcards ("*.example.com": one or more
	// labels, never the apex). IDNs are converted to A-labels.
	Names []string `yaml:"names"`
	// Service is the destination. Required.
	Service string `yaml:"service"`
	// ALPN limits the rule to clients that offer one of these. Default any. The
	// same name may occur in several rules whose protocols differ.
	ALPN []string `yaml:"alpn"`
}

// AcceptProxy lists the networks that must send a PROXY header.
type AcceptProxy struct {
	// Accept lists networks whose connections must begin with a header; other
	// connections are not checked for one.
	Accept []netip.Prefix `yaml:"accept"`
}

// ListenerTimeouts bound the phases before a connection is routed.
type ListenerTimeouts struct {
	// ProxyHeader bounds the wait for the whole PROXY header. Default 5s, 3s to 10m.
	ProxyHeader Duration `yaml:"proxyHeader" default:"5s" range:"3s..10m"`
	// Hello bounds the wait for the whole ClientHello. Default 5s, 100ms to 10m.
	Hello Duration `yaml:"hello" default:"5s" range:"100ms..10m"`
	// Handshake bounds the TLS handshake. Default 10s, 100ms to 10m.
	Handshake Duration `yaml:"handshake" default:"10s" range:"100ms..10m"`
}

// ListenerLimits refuse connections over a bound; 0 is no limit.
type ListenerLimits struct {
	// Connections bounds the concurrent connections, up to 1,000,000,000.
	Connections int `yaml:"connections" range:"0..1000000000"`
	// ConnectionsPerSecond bounds the rate of new connections, up to 1,000,000,000.
	ConnectionsPerSecond int `yaml:"connectionsPerSecond" range:"0..1000000000"`
	// PerSource bounds the concurrent connections of one client (an IPv4 address
	// or an IPv6 /64), up to 1,000,000,000.
	PerSource int `yaml:"perSource" range:"0..1000000000"`
}

// ListenerHTTP sets how requests are read that are routed one by one.
type ListenerHTTP struct {
	// TrustedProxies lists networks of proxies whose X-Forwarded-For, Forwarded
	// and similar headers are kept; those of all other clients are removed. Left
	// out: none.
	TrustedProxies []netip.Prefix `yaml:"trustedProxies"`
	// Underscores is for headers and trailers whose name has an underscore, or any
	// other character than letters, digits and hyphens: drop removes them, refuse
	// answers the request with 400, allow forwards them. Default drop.
	Underscores string `yaml:"underscores" default:"drop" oneof:"drop allow refuse"`
	// PathParameters is for paths with parameters ("/a;v=1/b"): keep forwards
	// them, and matches that name no parameter ignore them; refuse answers with
	// 400. Default keep.
	PathParameters string `yaml:"pathParameters" default:"keep" oneof:"keep refuse"`
	// EscapedSlashes is for paths with "%2F" or "%5C": keep forwards them as part
	// of their segment, refuse answers with 400. Default keep.
	EscapedSlashes string `yaml:"escapedSlashes" default:"keep" oneof:"keep refuse"`
	// ForwardClientCert tells endpoints the client's verified certificate in
	// X-Forwarded-Client-Cert, as Envoy does with SANITIZE_SET: Hash, Subject, URI
	// and DNS. What clients send in that header is removed, trusted proxies
	// included, unless forwardClientCertMode says otherwise. So requests are routed one by one, if client and service speak HTTP
	// (see docs/http.md); other connections are passed on as they are. Requires
	// tls.clientAuth. Default false.
	ForwardClientCert bool `yaml:"forwardClientCert"`
	// ForwardClientCertMode says what becomes of X-Forwarded-Client-Cert as a client
	// with a verified certificate sends it, with forwardClientCert: set replaces it by
	// the client's certificate (Envoy's SANITIZE_SET); append adds the client's
	// certificate after it (APPEND_FORWARD); forward passes it on as it is
	// (FORWARD_ONLY). That of a client without a verified certificate is removed in any
	// case. Use append and forward only where every client with a certificate is a proxy
	// that is trusted to name other clients. Default set; the others need tls.clientAuth.
	ForwardClientCertMode string `yaml:"forwardClientCertMode" default:"set" oneof:"set append forward"`
}

// Modes of ListenerHTTP.ForwardClientCertMode.
const (
	ClientCertSet     = "set"
	ClientCertAppend  = "append"
	ClientCertForward = "forward"
)

// KeepsClientCert reports whether what clients with a verified certificate send in
// X-Forwarded-Client-Cert is passed on.
func (h *ListenerHTTP) KeepsClientCert() bool {
	return h.ForwardClientCert && (h.ForwardClientCertMode == ClientCertAppend || h.ForwardClientCertMode == ClientCertForward)
}

// SourceRule adds tags to connections by client network.
type SourceRule struct {
	// From lists networks; a plain address is a network of one. Required.
	From []netip.Prefix `yaml:"from"`
	// Tags become part of the source of connections from these networks. Required.
	Tags map[string]string `yaml:"tags"`
}

// IsZero reports whether no field is given.
func (h *ListenerHTTP) IsZero() bool {
	return len(h.TrustedProxies) == 0 && h.Underscores == "" && h.PathParameters == "" && h.EscapedSlashes == "" &&
		!h.ForwardClientCert && h.ForwardClientCertMode == ""
}

// Trusts reports whether a client is one of the trusted proxies.
func (h *ListenerHTTP) Trusts(client netip.Addr) bool {
	if !client.IsValid() {
		return false
	}
	client = client.Unmap().WithZone("")
	for _, p := range h.TrustedProxies {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Contains(client) {
			return true
		}
	}
	return false
}

// Refs lists the services and certificates of a listener.
func (l *Listener) Refs() []Ref {
	refs := make([]Ref, 0, len(l.Hosts)+len(l.MySQL.Users)+2)
	if l.Service != "" {
		refs = append(refs, Ref{Key: Key{"Service", l.Service}, Path: "spec.service"})
	}
	for i := range l.Hosts {
		if l.Hosts[i].Service != "" {
			refs = append(refs, Ref{Key: Key{"Service", l.Hosts[i].Service}, Path: Item("spec.hosts", i) + ".service"})
		}
	}
	for i := range l.MySQL.Users {
		if name := l.MySQL.Users[i].Service; name != "" {
			refs = append(refs, Ref{Key: Key{"Service", name}, Path: Item("spec.mysql.users", i) + ".service"})
		}
	}
	if l.TLS != nil {
		for i, name := range l.TLS.CertificateRefs {
			refs = append(refs, Ref{Key: Key{"Certificate", name}, Path: Item("spec.tls.certificateRefs", i)})
		}
		refs = append(refs, l.TLS.ClientAuth.TrustDomainRefs("spec.tls.clientAuth")...)
		refs = append(refs, l.TLS.Originate.refs(originatePath)...)
	}
	return appendBundleRef(refs, l)
}
