package model

import (
	"errors"
	"strconv"
	"strings"

	"penstock/routing/resource"
)

// VirtualCluster is a Kafka cluster as clients see it: a physical one, whole,
// under other addresses and seen through filters.
type VirtualCluster struct {
	// PhysicalClusterRef names the PhysicalCluster. Required.
	PhysicalClusterRef string `yaml:"physicalClusterRef"`
	// TLS towards the clients. Required where an endpoint has TLS, unless each
	// of its brokers brings a certificate.
	TLS *VirtualTLS `yaml:"tls"`
	// Filters see what goes through: requests in this order, responses in
	// reverse, both nearer to the client than those of the physical cluster.
	// ApiVersions and BrokerAddress are there without being named, before all
	// others, where neither cluster names them.
	Filters []Filter `yaml:"filters"`
	// Brokers are the brokers that clients see: a list, or how they are
	// discovered. Required.
	Brokers Brokers `yaml:"brokers"`
	// UnmappedBrokers says what becomes of an answer with a broker that has no
	// virtual address: hide (the broker is left out of the answer, and the
	// partitions that it leads have no leader) or fail (the connection is
	// closed). Its real address is shown in no case. Default hide.
	UnmappedBrokers string `yaml:"unmappedBrokers" default:"hide" oneof:"fail hide"`
	// MaxFrame is the size of the largest request, and of the largest response
	// that a filter must see whole. Default 100MiB, 1KiB to 1GiB.
	MaxFrame resource.Size `yaml:"maxFrame" default:"100MiB" range:"1KiB..1GiB"`
	// MaxFrameBeforeAuth is the same for ApiVersions and for what logs a client
	// in, and for everything from SaslHandshake until the login has succeeded.
	// Default 64KiB, 1KiB to 1GiB.
	MaxFrameBeforeAuth resource.Size `yaml:"maxFrameBeforeAuth" default:"64KiB" range:"1KiB..1GiB"`
	// MaxInFlight is how many requests of one connection may wait for their
	// responses; further ones are not read until then. Default 1000, 1..100000.
	MaxInFlight int `yaml:"maxInFlight" default:"1000" range:"1..100000"`
	// FrameTimeout is the time in which a frame must be whole that a filter must
	// see whole. What streams through is bounded by IdleTimeout alone. Default
	// 30s, 1s to 1h.
	FrameTimeout resource.Duration `yaml:"frameTimeout" default:"30s" range:"1s..1h"`
	// IdleTimeout ends a connection without a byte in either direction.
	// Default 1h, up to 720h; 0 is none.
	IdleTimeout *resource.Duration `yaml:"idleTimeout" default:"1h" range:"0..720h"`
	// Drain says how connections end that a change leaves without a broker.
	Drain Drain `yaml:"drain"`
	// Limits refuse connections over a bound. 0: no limit.
	Limits Limits `yaml:"limits"`

	types *filterTypes
}

// VirtualTLS is TLS towards clients.
type VirtualTLS struct {
	// CertificateRef names the Certificate to show, unless the broker has one
	// of its own. May be left out where each has.
	CertificateRef string `yaml:"certificateRef"`
	// ClientAuth asks for client certificates.
	ClientAuth *resource.ClientAuth `yaml:"clientAuth"`
	// MinVersion is "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"minVersion" default:"1.2" oneof:"1.2 1.3"`
}

// Brokers are the virtual brokers, in one of two forms.
type Brokers struct {
	// List is every broker by hand; the physical cluster must have the same
	// number, one for each.
	List []VirtualBroker `form:"list"`
	// Discover follows the brokers that the physical cluster has.
	Discover *Discover `yaml:"discover"`
}

// VirtualBroker is one broker that clients see.
type VirtualBroker struct {
	// Name is for people: status and metrics show it. Required.
	Name string `yaml:"name"`
	// EndpointRef names the kafka Listener where clients reach it. Required.
	EndpointRef string `yaml:"endpointRef"`
	// SNIMatchAddress is the server name by which clients reach it. Required
	// where the endpoint has TLS. A wildcard is for one or more labels in front.
	SNIMatchAddress string `yaml:"sniMatchAddress"`
	// PhysicalBrokerRef names the broker of the physical cluster. Required.
	PhysicalBrokerRef string `yaml:"physicalBrokerRef"`
	// Advertise is the host:port that is advertised to clients. Default the
	// sniMatchAddress with the port of the endpoint; without TLS the address of the
	// endpoint.
	Advertise string `yaml:"advertise"`
	// TLS is what this broker has of its own.
	TLS *BrokerTLS `yaml:"tls"`
}

// BrokerTLS is what one virtual broker has of its own.
type BrokerTLS struct {
	// CertificateRef names the Certificate to show. Required.
	CertificateRef string `yaml:"certificateRef"`
}

// Discover follows the brokers of the physical cluster, each under a name or at
// a port that its node id alone decides: the same at every node of Penstock,
// and known before the broker is. By name it needs endpointRef, bootstrap and
// sniPattern; by port bootstrapPort and brokerPorts.
type Discover struct {
	// EndpointRef names the kafka Listener with TLS that clients connect to.
	EndpointRef string `yaml:"endpointRef"`
	// Bootstrap is the server name that clients bootstrap from.
	Bootstrap string `yaml:"bootstrap"`
	// SNIPattern is the server name of each broker, with $(nodeId) in its
	// first label ("broker-$(nodeId).t1.example.com").
	SNIPattern string `yaml:"sniPattern"`
	// AdvertisePort is the port that is advertised to clients. Default the port of
	// the endpoint, 1..65535.
	AdvertisePort int `yaml:"advertisePort" range:"1..65535"`
	// Address is the IP address where the ports are. Default the node's --bind.
	Address string `yaml:"address"`
	// BootstrapPort is the port that clients bootstrap from, 1..65535.
	BootstrapPort int `yaml:"bootstrapPort" range:"1..65535"`
	// BrokerPorts are the ports of the brokers, such as 9193-9199, at most 1000.
	BrokerPorts PortRange `yaml:"brokerPorts"`
	// Advertise is the host that is advertised to clients. Default the address.
	Advertise string `yaml:"advertise"`
	// FirstNodeID is the node id at the first of the ports. Default 0,
	// up to 2147483647.
	FirstNodeID int `yaml:"firstNodeId" range:"0..2147483647"`
}

// Drain says how connections end that a change leaves without a broker.
type Drain struct {
	// Window is the time over which they end, each between two requests.
	// Default 30s, up to 1h; 0 is at once.
	Window *resource.Duration `yaml:"window" default:"30s" range:"0..1h"`
	// TransactionDeadline is how much longer one may live that is in a
	// transaction. Default 1m, up to 1h.
	TransactionDeadline *resource.Duration `yaml:"transactionDeadline" default:"1m" range:"0..1h"`
}

// Limits refuse connections over a bound; 0 is no limit.
type Limits struct {
	// Connections at once, at this node, up to 1,000,000,000.
	Connections int `yaml:"connections" range:"0..1000000000"`
}

// PortRange is ports without a gap, "9193-9199" or a single one.
type PortRange struct{ First, Last uint16 }

// Len is the number of ports.
func (r PortRange) Len() int {
	if r.First == 0 {
		return 0
	}
	return int(r.Last) - int(r.First) + 1
}

// Has reports whether a port is one of them.
func (r PortRange) Has(port int) bool {
	return r.First != 0 && int(r.First) <= port && port <= int(r.Last)
}

// String returns "9193-9199" or "9193".
func (r PortRange) String() string {
	first := strconv.Itoa(int(r.First))
	if r.First == r.Last {
		return first
	}
	return first + "-" + strconv.Itoa(int(r.Last))
}

var errPorts = errors.New("must be ports from 1 to 65535, such as 9193-9199 or 9193")

// MarshalText returns the form of String.
func (r PortRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads "9193-9199" or "9193".
func (r *PortRange) UnmarshalText(text []byte) error {
	first, last, isRange := strings.Cut(string(text), "-")
	if !isRange {
		last = first
	}
	a, err := parsePort(first)
	if err != nil {
		return err
	}
	b, err := parsePort(last)
	if err != nil {
		return err
	}
	if b < a {
		return errors.New("must start with the lower port")
	}
	r.First, r.Last = a, b
	return nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, errPorts
	}
	return uint16(n), nil
}

// Variant returns the configuration that a type of filter has.
func (c *VirtualCluster) Variant(word string) any { return c.types.variant(word) }

// WithDefaults returns a copy in which every default is filled in.
func (c *VirtualCluster) WithDefaults() *VirtualCluster {
	out := *c
	resource.FillDefaults(&out)
	return &out
}

// Refs lists the physical cluster, the endpoints and the certificates.
func (c *VirtualCluster) Refs() []resource.Ref {
	var refs []resource.Ref
	add := func(kind, name, path string) {
		if name != "" {
			refs = append(refs, ref(kind, name, path))
		}
	}
	add(KindPhysical, c.PhysicalClusterRef, "spec.physicalClusterRef")
	if c.TLS != nil {
		add(kindCertificate, c.TLS.CertificateRef, "spec.tls.certificateRef")
		name, path := c.BundleRef()
		add(kindCertificate, name, path)
		refs = append(refs, c.TLS.ClientAuth.TrustDomainRefs("spec.tls.clientAuth")...)
	}
	for i := range c.Brokers.List {
		b, at := &c.Brokers.List[i], resource.Item("spec.brokers", i)
		add(kindListener, b.EndpointRef, at+".endpointRef")
		if b.TLS != nil {
			add(kindCertificate, b.TLS.CertificateRef, at+".tls.certificateRef")
		}
	}
	if d := c.Brokers.Discover; d != nil {
		add(kindListener, d.EndpointRef, "spec.brokers.discover.endpointRef")
	}
	return refs
}

// TrustedCAs implements resource.Truster: what verifies clients.
func (c *VirtualCluster) TrustedCAs() []string {
	if c.TLS == nil {
		return nil
	}
	return c.TLS.ClientAuth.TrustedCAs()
}

// Files lists the bundle of the clients' certificates, if it is a file.
func (c *VirtualCluster) Files() []resource.FileRef {
	if c.TLS == nil || c.TLS.ClientAuth == nil {
		return nil
	}
	return resource.CAFile("spec.tls.clientAuth.ca", &c.TLS.ClientAuth.CA)
}
