package model

import (
	"strings"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// PhysicalCluster is a real Kafka cluster.
type PhysicalCluster struct {
	// Brokers lists its brokers, each with a name that virtual brokers refer
	// to. Required unless Bootstrap is given.
	Brokers []PhysicalBroker `yaml:"brokers"`
	// Bootstrap lists host:port of some brokers, from which all others are
	// learned. Such a cluster is for virtual clusters whose brokers are
	// discovered. Required unless Brokers is given.
	Bootstrap []string `yaml:"bootstrap"`
	// TLS towards the brokers. Left out: plain.
	TLS *PhysicalTLS `yaml:"tls"`
	// Filters see what goes to this cluster, behind those of each virtual
	// cluster: requests in this order, responses in reverse.
	Filters []Filter `yaml:"filters"`
	// Connect bounds how a broker is reached.
	Connect Connect `yaml:"connect"`
	// Discovery says how the brokers are learned, where that is needed.
	Discovery Discovery `yaml:"discovery"`

	types *filterTypes
}

// PhysicalBroker is one broker of a physical cluster.
type PhysicalBroker struct {
	// Name is what virtual brokers refer to. Required.
	Name string `yaml:"name"`
	// Address is host:port, where it is connected to. Required.
	Address string `yaml:"address"`
	// Advertised is the host:port that the broker itself tells clients.
	// Default the address.
	Advertised string `yaml:"advertised"`
	// TLS takes the place of the cluster's TLS for this broker, as a whole.
	TLS *PhysicalTLS `yaml:"tls"`
}

// PhysicalTLS is TLS towards brokers.
type PhysicalTLS struct {
	// CA is a bundle of PEM certificates, or the file that holds it,
	// relative to the resource's file and read when it is applied. Left out:
	// the system's.
	CA string `yaml:"ca"`
	// CAFile is a file with CA on each node, which reads it again when it changes.
	CAFile string `yaml:"caFile"`
	// CARef names a Certificate with identity or workloadAPI whose trust bundle is
	// used in place of CA, as it changes. Only for the cluster's TLS.
	CARef string `yaml:"caRef"`
	// ServerName to ask for and to verify. Default the broker's host name or IP address.
	ServerName string `yaml:"serverName"`
	// CertificateRef names the Certificate to show as a client.
	CertificateRef string `yaml:"certificateRef"`
	// MinVersion is "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"minVersion" default:"1.2" oneof:"1.2 1.3"`
	// InsecureSkipVerify takes any certificate. Default false.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
}

// Connect bounds how a broker is reached.
type Connect struct {
	// Timeout of one attempt, TLS included. Default 10s, 10ms to 10m.
	Timeout resource.Duration `yaml:"timeout" default:"10s" range:"10ms..10m"`
}

// Discovery says how the brokers of a cluster are learned.
type Discovery struct {
	// Interval between two looks at the cluster. Default 30s, 1s to 1h.
	Interval resource.Duration `yaml:"interval" default:"30s" range:"1s..1h"`
	// SASL is how the node logs in to look, where the cluster asks for it.
	// Clients log in by themselves.
	SASL *SASL `yaml:"sasl"`
}

// SASL is how the node logs in to a cluster.
type SASL struct {
	// Mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Required.
	Mechanism string `yaml:"mechanism" oneof:"PLAIN SCRAM-SHA-256 SCRAM-SHA-512"`
	// Username is the principal's. Required.
	Username string `yaml:"username"`
	// Password is stored sealed and never shown. Required.
	Password resource.Secret `yaml:"password"`
}

// Variant returns the configuration that a type of filter has.
func (p *PhysicalCluster) Variant(word string) any { return p.types.variant(word) }

// WithDefaults returns a copy in which every default is filled in.
func (p *PhysicalCluster) WithDefaults() *PhysicalCluster {
	out := *p
	resource.FillDefaults(&out)
	return &out
}

// Refs lists the client certificates.
func (p *PhysicalCluster) Refs() []resource.Ref {
	refs := p.TLS.refs(nil, "spec.tls")
	if name, path := p.BundleRef(); name != "" {
		refs = append(refs, ref(kindCertificate, name, path))
	}
	for i := range p.Brokers {
		refs = p.Brokers[i].TLS.refs(refs, resource.Item("spec.brokers", i)+".tls")
	}
	return refs
}

func (t *PhysicalTLS) refs(refs []resource.Ref, path string) []resource.Ref {
	if t == nil || t.CertificateRef == "" {
		return refs
	}
	return append(refs, ref(kindCertificate, t.CertificateRef, path+".certificateRef"))
}

func ref(kind, name, path string) resource.Ref {
	return resource.Ref{Key: resource.Key{Kind: kind, Name: name}, Path: path}
}

// Files lists the bundles that are files.
func (p *PhysicalCluster) Files() []resource.FileRef {
	var files []resource.FileRef
	if p.TLS != nil {
		files = resource.CAFile("spec.tls.ca", &p.TLS.CA)
	}
	for i := range p.Brokers {
		if t := p.Brokers[i].TLS; t != nil {
			files = append(files, resource.CAFile(resource.Item("spec.brokers", i)+".tls.ca", &t.CA)...)
		}
	}
	return files
}

// TrustedCAs implements resource.Truster: what verifies brokers.
func (p *PhysicalCluster) TrustedCAs() (list []string) {
	if p.TLS != nil {
		list = append(list, p.TLS.CA)
	}
	for i := range p.Brokers {
		if t := p.Brokers[i].TLS; t != nil {
			list = append(list, t.CA)
		}
	}
	return list
}

// maxBrokers bounds the brokers of one cluster.
const maxBrokers = 1000

// Validate reports the faults of a physical cluster alone.
func (p *PhysicalCluster) Validate(fault func(path, message string, value any)) {
	validate.Fields(p, fault)
	switch {
	case len(p.Brokers) == 0 && len(p.Bootstrap) == 0:
		fault("brokers", "is required unless bootstrap is given", nil)
	case len(p.Brokers) > 0 && len(p.Bootstrap) > 0:
		fault("bootstrap", "conflicts with brokers: give only one of them", nil)
	}
	checkCount("brokers", len(p.Brokers), fault)
	checkCount("bootstrap", len(p.Bootstrap), fault)
	seen := map[string]string{}
	for i, address := range p.Bootstrap {
		at := resource.Item("bootstrap", i)
		if message := checkBrokerAddress(address); message != "" {
			fault(at, message, orNil(address))
		}
		checkDuplicate(seen, at, strings.ToLower(address), address, fault)
	}
	p.validateBrokers(fault)
	p.TLS.validate("tls", fault)
	p.types.validate("filters", p.Filters, fault)
	if s := p.Discovery.SASL; s != nil {
		if s.Mechanism == "" {
			fault("discovery.sasl.mechanism", "is required: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", nil)
		}
		if s.Username == "" {
			fault("discovery.sasl.username", "is required", nil)
		}
		if s.Password == "" {
			fault("discovery.sasl.password", "is required", nil)
		}
	}
}

func (p *PhysicalCluster) validateBrokers(fault func(path, message string, value any)) {
	names, addresses, advertised := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range p.Brokers {
		b, at := &p.Brokers[i], resource.Item("brokers", i)
		validate.Ref(at+".name", b.Name, fault)
		checkDuplicate(names, at+".name", b.Name, b.Name, fault)
		if message := checkBrokerAddress(b.Address); message != "" {
			fault(at+".address", message, orNil(b.Address))
		}
		checkDuplicate(addresses, at+".address", strings.ToLower(b.Address), b.Address, fault)
		if b.Advertised != "" {
			if message := checkBrokerAddress(b.Advertised); message != "" {
				fault(at+".advertised", message, b.Advertised)
			}
		}
		path := at + ".advertised"
		if b.Advertised == "" {
			path = at + ".address"
		}
		if first := advertised[strings.ToLower(b.advertised())]; first == "" || b.Advertised != "" {
			checkDuplicate(advertised, path, strings.ToLower(b.advertised()), b.advertised(), fault)
		}
		b.TLS.validate(at+".tls", fault)
		if b.TLS != nil && b.TLS.CARef != "" {
			fault(at+".tls.caRef", "is for the cluster's tls alone: give it there, or ca or caFile here", b.TLS.CARef)
		}
	}
}

// advertised is the address that the broker itself tells.
func (b *PhysicalBroker) advertised() string {
	if b.Advertised != "" {
		return b.Advertised
	}
	return b.Address
}

func (t *PhysicalTLS) validate(path string, fault func(path, message string, value any)) {
	if t == nil {
		return
	}
	t.validateCA(path, fault)
	if t.CertificateRef != "" {
		validate.Ref(path+".certificateRef", t.CertificateRef, fault)
	}
	if t.ServerName != "" {
		if message := validate.Host(t.ServerName); message != "" {
			fault(path+".serverName", message, t.ServerName)
		}
	}
}

// checkBrokerAddress says what is wrong with the address of a broker.
func checkBrokerAddress(address string) string {
	if strings.HasPrefix(address, "unix:") {
		return "must be host:port or [v6]:port: Kafka does not support unix sockets"
	}
	return strings.Replace(validate.Address(address), ", [v6]:port or unix:PATH", " or [v6]:port", 1)
}

// checkDuplicate reports a duplicate. Empty keys are reported elsewhere.
func checkDuplicate(seen map[string]string, path, key, value string, fault func(path, message string, value any)) {
	if key == "" {
		return
	}
	if before, twice := seen[key]; twice {
		fault(path, "duplicate, first at spec."+before, value)
		return
	}
	seen[key] = path
}

func checkCount(path string, n int, fault func(path, message string, value any)) {
	if n > maxBrokers {
		fault(path, "has too many brokers: the limit is 1000", n)
	}
}

// orNil leaves an empty text out of a fault.
func orNil(s string) any {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return s
}
