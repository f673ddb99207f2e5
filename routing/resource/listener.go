package resource

import "net/netip"

// Listener is a place where clients connect.
type Listener struct {
	// Address is host:port, [v6]:port, ":port" (at the node's --bind) or
	// "unix:PATH" (a path of at most 107 bytes). With port 0 the system
	// picks a free one. Required.
	Address string `yaml:"address"`
	// Protocol is tcp, tls or kafka. Default tcp. What comes at a kafka
	// listener goes to the virtual brokers that name it.
	Protocol string `yaml:"protocol" default:"tcp" oneof:"tcp tls kafka"`
	// TLS says what a tls listener does with TLS. Default: passthrough. On a
	// kafka listener {}: the server name picks the virtual broker, and the
	// certificates are those of the virtual clusters. Left out there: in the
	// clear.
	TLS *ListenerTLS `yaml:"tls"`
	// Hosts maps server names to destinations.
	Hosts []HostRule `yaml:"hosts"`
	// Service is the destination of a valid name that no host rule matches
	// (on a tcp listener: of every connection). Left out: closed.
	Service string `yaml:"service"`
	// NoServerName says what a hello without a name gets: close or service.
	// Default close.
	NoServerName string `yaml:"noServerName" default:"close" oneof:"close service"`
	// ProxyProtocol names who must send a PROXY header.
	ProxyProtocol *AcceptProxy `yaml:"proxyProtocol"`
	// Timeouts bound the phases before a connection is routed.
	Timeouts ListenerTimeouts `yaml:"timeouts"`
	// Limits refuse connections over a bound. 0: no limit.
	Limits ListenerLimits `yaml:"limits"`
	// HTTP is how requests are read that a MeshHTTPRoute routes one by one. It
	// is for listeners that can read them: protocol tcp, or tls with mode terminate.
	HTTP ListenerHTTP `yaml:"http"`
	// Tags are part of the source of every connection that comes here.
	Tags map[string]string `yaml:"tags"`
	// Sources gives tags to client networks; the longest prefix that holds
	// the client wins.
	Sources []SourceRule `yaml:"sources"`
	// Nodes picks the nodes that run the listener, by their tags. Default all.
	Nodes map[string]string `yaml:"nodes"`
}

// ListenerTLS is how a tls listener treats TLS.
type ListenerTLS struct {
	// Mode is passthrough or terminate. Default passthrough.
	Mode string `yaml:"mode" default:"passthrough" oneof:"passthrough terminate"`
	// CertificateRefs name Certificates; the one whose names match the
	// server name best is shown. Required for terminate.
	CertificateRefs []string `yaml:"certificateRefs"`
	// ALPN lists the protocols offered to clients, best first.
	ALPN []string `yaml:"alpn"`
	// MinVersion is "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"minVersion" default:"1.2" oneof:"1.2 1.3"`
	// ClientAuth asks for client certificates.
	ClientAuth *ClientAuth `yaml:"clientAuth"`
}

// ClientAuth asks clients for a certificate.
type ClientAuth struct {
	// Mode is none, request (verified when given) or require. Default require.
	Mode string `yaml:"mode" default:"require" oneof:"none request require"`
	// CA is a bundle of PEM certificates, or the file that holds it, relative
	// to the resource's file and read when it is applied. Required unless
	// mode is none.
	CA string `yaml:"ca"`
}

// HostRule sends server names to a service.
type HostRule struct {
	// Names are exact names or wildcards ("*.example.com": one or more
	// labels, never the apex). IDNs are converted to A-labels.
	Names []string `yaml:"names"`
	// Service is the destination. Required.
	Service string `yaml:"service"`
	// ALPN limits the rule to clients that offer one of these. Default any.
	// The same name may stand in several rules whose protocols differ.
	ALPN []string `yaml:"alpn"`
}

// AcceptProxy names who must send a PROXY header.
type AcceptProxy struct {
	// Accept lists networks whose connections must begin with a header;
	// from others none is looked for.
	Accept []netip.Prefix `yaml:"accept"`
}

// ListenerTimeouts bound the phases before a connection is routed.
type ListenerTimeouts struct {
	// ProxyHeader is for the whole PROXY header. Default 5s, 3s to 10m.
	ProxyHeader Duration `yaml:"proxyHeader" default:"5s" range:"3s..10m"`
	// Hello is for the whole ClientHello. Default 5s, 100ms to 10m.
	Hello Duration `yaml:"hello" default:"5s" range:"100ms..10m"`
	// Handshake is for TLS. Default 10s, 100ms to 10m.
	Handshake Duration `yaml:"handshake" default:"10s" range:"100ms..10m"`
}

// ListenerLimits refuse connections over a bound; 0 is no limit.
type ListenerLimits struct {
	// Connections at once, up to 1,000,000,000.
	Connections int `yaml:"connections" range:"0..1000000000"`
	// ConnectionsPerSecond counts new connections, up to 1,000,000,000.
	ConnectionsPerSecond int `yaml:"connectionsPerSecond" range:"0..1000000000"`
	// PerSource counts connections at once of one client (an IPv4 address
	// or an IPv6 /64), up to 1,000,000,000.
	PerSource int `yaml:"perSource" range:"0..1000000000"`
}

// ListenerHTTP is how requests are read that are routed one by one.
type ListenerHTTP struct {
	// TrustedProxies lists networks of proxies whose X-Forwarded-For, Forwarded
	// and similar headers are kept; from all other clients they are removed.
	// Left out: none.
	TrustedProxies []netip.Prefix `yaml:"trustedProxies"`
	// Underscores says what happens to headers and trailers whose name has an
	// underscore, or any other character than letters, digits and hyphens: drop
	// removes them, refuse answers the request 400, allow passes them on.
	// Default drop.
	Underscores string `yaml:"underscores" default:"drop" oneof:"drop allow refuse"`
	// PathParameters says what happens to paths with parameters ("/a;v=1/b"):
	// keep passes them on, and matches that name none look past them; refuse
	// answers 400. Default keep.
	PathParameters string `yaml:"pathParameters" default:"keep" oneof:"keep refuse"`
	// EscapedSlashes says what happens to paths with "%2F" or "%5C": keep passes
	// them on as part of their segment, refuse answers 400. Default keep.
	EscapedSlashes string `yaml:"escapedSlashes" default:"keep" oneof:"keep refuse"`
}

// SourceRule gives tags to client networks.
type SourceRule struct {
	// From lists networks; an address alone is a network of one. Required.
	From []netip.Prefix `yaml:"from"`
	// Tags become part of the source of connections from there. Required.
	Tags map[string]string `yaml:"tags"`
}
