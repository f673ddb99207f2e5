package model

import (
	"fmt"
	"math"
	"net/netip"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// maxPorts bounds the ports of one cluster.
const maxPorts = 1000

// Validate reports the faults of a virtual cluster alone.
func (c *VirtualCluster) Validate(fault func(path, message string, value any)) {
	validate.Fields(c, fault)
	validate.Ref("physicalClusterRef", c.PhysicalClusterRef, fault)
	if c.TLS != nil {
		c.TLS.validate(fault)
	}
	c.types.validate("filters", c.Filters, fault)
	d := c.WithDefaults()
	if d.MaxFrameBeforeAuth > d.MaxFrame && d.MaxFrameBeforeAuth <= 1<<30 {
		fault("maxFrameBeforeAuth", fmt.Sprintf("must not exceed maxFrame, %s", d.MaxFrame), d.MaxFrameBeforeAuth)
	}
	switch b := &c.Brokers; {
	case len(b.List) == 0 && b.Discover == nil:
		fault("brokers", "is required: a list of brokers, or discover", nil)
	case b.Discover != nil:
		c.validateDiscover(b.Discover, fault)
	default:
		c.validateList(fault)
	}
}

func (t *VirtualTLS) validate(fault func(path, message string, value any)) {
	if t.CertificateRef != "" {
		validate.Ref("tls.certificateRef", t.CertificateRef, fault)
	}
	if t.ClientAuth != nil {
		validate.ClientAuth("tls.clientAuth", t.ClientAuth, fault)
	}
}

func (c *VirtualCluster) validateList(fault func(path, message string, value any)) {
	checkCount("brokers", len(c.Brokers.List), fault)
	names, physical, advertised := map[string]string{}, map[string]string{}, map[string]string{}
	for i := range c.Brokers.List {
		b, at := &c.Brokers.List[i], resource.Item("brokers", i)
		validate.Ref(at+".name", b.Name, fault)
		checkDuplicate(names, at+".name", b.Name, b.Name, fault)
		validate.Ref(at+".endpointRef", b.EndpointRef, fault)
		validate.Ref(at+".physicalBrokerRef", b.PhysicalBrokerRef, fault)
		if first, twice := physical[b.PhysicalBrokerRef]; twice && b.PhysicalBrokerRef != "" {
			fault(at+".physicalBrokerRef", "duplicate, first at spec."+first+
				": each virtual broker needs its own physical broker", b.PhysicalBrokerRef)
		} else {
			physical[b.PhysicalBrokerRef] = at + ".physicalBrokerRef"
		}
		if b.SNIMatchAddress != "" {
			if pattern, err := hostname.ParsePattern(b.SNIMatchAddress); err != nil {
				fault(at+".sniMatchAddress", err.Error(), b.SNIMatchAddress)
			} else if strings.HasPrefix(pattern, "*.") && b.Advertise == "" {
				fault(at+".advertise", "is required with a wildcard: the host:port to advertise to clients", nil)
			}
		}
		if b.Advertise != "" {
			if message := checkBrokerAddress(b.Advertise); message != "" {
				fault(at+".advertise", message, b.Advertise)
			}
			checkDuplicate(advertised, at+".advertise", strings.ToLower(b.Advertise), b.Advertise, fault)
		}
		if b.TLS != nil {
			validate.Ref(at+".tls.certificateRef", b.TLS.CertificateRef, fault)
		}
	}
}

// byName tells the two forms of discovery apart by the first field that only
// one of them has.
func (d *Discover) byName() bool {
	return d.EndpointRef != "" || d.SNIPattern != "" || d.Bootstrap != "" || d.AdvertisePort != 0
}

func (d *Discover) byPort() bool {
	return d.BootstrapPort != 0 || d.BrokerPorts.Len() > 0 || d.Address != "" || d.Advertise != "" || d.FirstNodeID != 0
}

func (c *VirtualCluster) validateDiscover(d *Discover, fault func(path, message string, value any)) {
	const at = "brokers.discover"
	switch {
	case d.byName() && d.byPort():
		fault(at, "mixes two forms: brokers by name have endpointRef, bootstrap, sniPattern and advertisePort, brokers by port "+
			"have address, bootstrapPort, brokerPorts, advertise and firstNodeId", nil)
	case d.byName():
		d.validateNames(at, fault)
	case d.byPort():
		d.validatePorts(at, fault)
		if c.TLS != nil && c.TLS.CertificateRef == "" {
			fault("tls.certificateRef", "is required: the ports use TLS, and discovered brokers have no certificates of their own", nil)
		}
	default:
		fault(at, "is empty: brokers by name need endpointRef, bootstrap and sniPattern, brokers by port need bootstrapPort and brokerPorts", nil)
	}
}

func (d *Discover) validateNames(at string, fault func(path, message string, value any)) {
	validate.Ref(at+".endpointRef", d.EndpointRef, fault)
	bootstrap, err := hostname.ParseName(d.Bootstrap)
	switch {
	case d.Bootstrap == "":
		fault(at+".bootstrap", "is required: the server name for bootstrapping clients", nil)
	case err != nil:
		fault(at+".bootstrap", err.Error(), d.Bootstrap)
	}
	if d.SNIPattern == "" {
		fault(at+".sniPattern", "is required: the server name of each broker, with "+hostname.Placeholder, nil)
		return
	}
	pattern, err := hostname.ParseNumbered(d.SNIPattern)
	if err != nil {
		fault(at+".sniPattern", err.Error(), d.SNIPattern)
	} else if n, taken := pattern.Match(bootstrap); taken {
		fault(at+".bootstrap", fmt.Sprintf("is also the name of broker %d in sniPattern", n), d.Bootstrap)
	}
}

func (d *Discover) validatePorts(at string, fault func(path, message string, value any)) {
	if d.Address != "" {
		if _, err := netip.ParseAddr(d.Address); err != nil {
			fault(at+".address", "must be an IP address", d.Address)
		}
	}
	if d.Advertise != "" {
		if message := validate.Host(d.Advertise); message != "" {
			fault(at+".advertise", message, d.Advertise)
		}
	} else if d.Address != "" && resource.AnyHost(d.Address) {
		fault(at+".advertise", "is required: clients cannot connect to a wildcard address", d.Address)
	}
	if d.BootstrapPort == 0 {
		fault(at+".bootstrapPort", "is required: the port for bootstrapping clients", nil)
	}
	switch ports := d.BrokerPorts; {
	case ports.Len() == 0:
		fault(at+".brokerPorts", "is required: a port for each broker, such as 9193-9199", nil)
	case ports.Len() > maxPorts:
		fault(at+".brokerPorts", fmt.Sprintf("has %d ports: the limit is %d", ports.Len(), maxPorts), ports)
	case ports.Has(d.BootstrapPort):
		fault(at+".brokerPorts", fmt.Sprintf("includes bootstrapPort, %d", d.BootstrapPort), ports)
	case d.FirstNodeID > math.MaxInt32-ports.Len()+1:
		fault(at+".firstNodeId", "is too large: node ids of the last ports would exceed 2147483647", d.FirstNodeID)
	}
}
