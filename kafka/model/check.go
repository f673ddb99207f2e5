package model

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// brokerAddress is the type of filter that shows clients virtual addresses.
const brokerAddress = "BrokerAddress"

// Claims lists the server names that the brokers want of their listeners.
func (c *VirtualCluster) Claims() []validate.Claim {
	claims := make([]validate.Claim, 0, len(c.Brokers.List)+2)
	for i := range c.Brokers.List {
		b, at := &c.Brokers.List[i], resource.Item("spec.brokers", i)
		if b.EndpointRef == "" {
			continue // reported by Validate
		}
		claim := validate.Claim{Listener: b.EndpointRef, Path: at + ".endpointRef"}
		if b.SNIMatchAddress != "" {
			pattern, err := hostname.ParsePattern(b.SNIMatchAddress)
			if err != nil {
				continue // reported by Validate
			}
			claim.Name, claim.Path = pattern, at+".sniMatchAddress"
		}
		claims = append(claims, claim)
	}
	d := c.Brokers.Discover
	if d == nil || d.EndpointRef == "" {
		return claims
	}
	if name, err := hostname.ParseName(d.Bootstrap); err == nil {
		claims = append(claims, validate.Claim{Listener: d.EndpointRef, Name: name, Path: "spec.brokers.discover.bootstrap"})
	}
	if pattern, err := hostname.ParseNumbered(d.SNIPattern); err == nil {
		claims = append(claims, validate.Claim{Listener: d.EndpointRef, Name: pattern.String(), Path: "spec.brokers.discover.sniPattern"})
	}
	return claims
}

// Listens lists the ports of brokers that are discovered by port.
func (c *VirtualCluster) Listens() []validate.Listen {
	d := c.Brokers.Discover
	if d == nil || d.BootstrapPort == 0 || d.BrokerPorts.Len() > maxPorts {
		return nil
	}
	const at = "spec.brokers.discover"
	all := make([]validate.Listen, 0, d.BrokerPorts.Len()+1)
	all = append(all, validate.Listen{Address: d.listenAddress(d.BootstrapPort), Path: at + ".bootstrapPort"})
	for i := range d.BrokerPorts.Len() {
		all = append(all, validate.Listen{Address: d.listenAddress(int(d.BrokerPorts.First) + i), Path: at + ".brokerPorts"})
	}
	return all
}

// listenAddress is the address of one of its ports, as a listener would have it.
func (d *Discover) listenAddress(port int) string {
	return net.JoinHostPort(d.Address, strconv.Itoa(port))
}

// CheckInSet reports what is wrong with a virtual cluster beside others.
func (c *VirtualCluster) CheckInSet(v *validate.View) {
	c.checkPhysical(v)
	c.checkEndpoints(v)
	c.checkPrefix(v)
	for _, own := range v.OwnClaims() {
		listener := listenerOf(v, own.Listener)
		if listener == nil || listener.TLS == nil {
			continue // reported with the endpoint
		}
		if rival, ok := v.FirstConflict(own); ok {
			v.Fault(own.Path, describeConflict(own.Name, rival.Name)+" "+rival.String(), own.Name)
		}
		name := strings.Replace(own.Name, hostname.Placeholder, "0", 1)
		if certificate := c.certificateOf(own.Path); name != "" && !v.CertificateCovers(certificate, name) {
			v.Warn(own.Path, "the Certificate "+certificate+" does not cover this name: clients that verify it will refuse the connection", own.Name)
		}
	}
}

// certificateOf names the certificate that is shown for the claim of a path.
func (c *VirtualCluster) certificateOf(path string) string {
	for i := range c.Brokers.List {
		if b := &c.Brokers.List[i]; b.TLS != nil && strings.HasPrefix(path, resource.Item("spec.brokers", i)+".") {
			return b.TLS.CertificateRef
		}
	}
	if c.TLS == nil {
		return ""
	}
	return c.TLS.CertificateRef
}

// describeConflict says how a name meets another on the same listener.
func describeConflict(own, rival string) string {
	numbered := func(s string) bool { return strings.Contains(s, hostname.Placeholder) }
	suffix, wild := strings.CutPrefix(own, "*")
	switch {
	case own == rival:
		return "duplicate on the endpoint, first at"
	case wild && strings.HasSuffix(rival, suffix) || numbered(own) && !numbered(rival) && !strings.HasPrefix(rival, "*."):
		return "also matches the name " + rival + " of"
	case numbered(own) && numbered(rival):
		return "overlaps with " + rival + " of"
	}
	return "is also matched by " + rival + " of"
}

// listenerOf returns a kafka listener, or nil.
func listenerOf(v *validate.View, name string) *resource.Listener {
	o, ok := v.Get(resource.Key{Kind: kindListener, Name: name})
	if !ok {
		return nil
	}
	if l, ok := o.Spec.(*resource.Listener); ok && l.Protocol == "kafka" {
		return l
	}
	return nil
}

// checkPhysical compares the brokers with those of the physical cluster.
func (c *VirtualCluster) checkPhysical(v *validate.View) {
	o, ok := v.Get(resource.Key{Kind: KindPhysical, Name: c.PhysicalClusterRef})
	physical, is := o.Spec.(*PhysicalCluster)
	if !ok || !is || c.Brokers.Discover != nil || len(c.Brokers.List) == 0 {
		return // the set reports missing references
	}
	if len(physical.Bootstrap) > 0 {
		v.Fault("spec.brokers", "are listed, but "+o.String()+" has only bootstrap: use discover, or list its brokers there", nil)
		return
	}
	missing := make(map[string]bool, len(physical.Brokers))
	names := make([]string, len(physical.Brokers))
	for i := range physical.Brokers {
		names[i] = physical.Brokers[i].Name
		missing[names[i]] = true
	}
	for i := range c.Brokers.List {
		b := &c.Brokers.List[i]
		if b.PhysicalBrokerRef == "" {
			continue
		}
		if _, ok := missing[b.PhysicalBrokerRef]; !ok {
			hint := resource.DidYouMean(b.PhysicalBrokerRef, names)
			v.Fault(resource.Item("spec.brokers", i)+".physicalBrokerRef", o.String()+" has no such broker"+hint, b.PhysicalBrokerRef)
		}
		missing[b.PhysicalBrokerRef] = false
	}
	var left []string
	for _, name := range names {
		if missing[name] {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		const most = 5
		text := strings.Join(left[:min(most, len(left))], ", ")
		if more := len(left) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		message := "has no virtual broker for " + text + " of " + o.String() + ": clients could not reach the partitions that they lead"
		v.Fault("spec.brokers", message, nil)
	}
}

// checkEndpoints compares what the brokers want with what their listeners are.
func (c *VirtualCluster) checkEndpoints(v *validate.View) {
	shown := map[string]string{} // host:port -> path
	byHand := c.hasManualMapping(v)
	for i := range c.Brokers.List {
		b, at := &c.Brokers.List[i], resource.Item("spec.brokers", i)
		l := c.checkEndpoint(v, b.EndpointRef, at+".endpointRef")
		if l == nil {
			continue
		}
		if l.TLS != nil {
			if b.SNIMatchAddress == "" {
				v.Fault(at+".sniMatchAddress", "is required: on an endpoint with TLS the server name selects the broker", nil)
			}
			if b.TLS == nil && (c.TLS == nil || c.TLS.CertificateRef == "") {
				v.Fault(at+".tls", "is required, here or in spec.tls: an endpoint with TLS needs a certificate", nil)
			}
		} else {
			c.checkPlain(v, b, at)
		}
		if !byHand {
			c.checkAdvertised(v, b, l, at, shown)
		}
	}
	d := c.Brokers.Discover
	if d == nil || d.EndpointRef == "" {
		return
	}
	const at = "spec.brokers.discover"
	l := c.checkEndpoint(v, d.EndpointRef, at+".endpointRef")
	switch {
	case l == nil:
		return
	case l.TLS == nil:
		v.Fault(at+".endpointRef", "must name a listener with tls: {}: without TLS there is no server name", d.EndpointRef)
		return
	case c.TLS == nil || c.TLS.CertificateRef == "":
		v.Fault("spec.tls", "is required: an endpoint with TLS needs a certificate", nil)
	}
	if portOf(l.Address) == 0 && d.AdvertisePort == 0 {
		v.Fault(at+".advertisePort", "is required: the endpoint's port is unknown", l.Address)
	}
}

// hasManualMapping reports whether a filter of one of the clusters configures
// addresses, so that those of the brokers need not be known here.
func (c *VirtualCluster) hasManualMapping(v *validate.View) bool {
	by := func(filters []Filter) bool {
		for i := range filters {
			if t := c.types.find(filters[i].Type); t != nil && t.Name == brokerAddress && filters[i].Config != nil {
				return true
			}
		}
		return false
	}
	o, _ := v.Get(resource.Key{Kind: KindPhysical, Name: c.PhysicalClusterRef})
	physical, ok := o.Spec.(*PhysicalCluster)
	return by(c.Filters) || ok && by(physical.Filters)
}

// checkEndpoint returns the listener of a reference if it can be an endpoint.
func (c *VirtualCluster) checkEndpoint(v *validate.View, name, path string) *resource.Listener {
	if name == "" {
		return nil
	}
	l := listenerOf(v, name)
	if l == nil {
		if _, ok := v.Get(resource.Key{Kind: kindListener, Name: name}); ok {
			v.Fault(path, "must name a listener with protocol: kafka", name)
		}
	}
	return l
}

// checkPlain reports what an endpoint without TLS cannot tell apart.
func (c *VirtualCluster) checkPlain(v *validate.View, b *VirtualBroker, at string) {
	if b.SNIMatchAddress != "" {
		v.Fault(at+".sniMatchAddress", "works only on endpoints with TLS; "+b.EndpointRef+" has no TLS", b.SNIMatchAddress)
	}
	for _, own := range v.OwnClaims() {
		if own.Path != at+".endpointRef" && own.Path != at+".sniMatchAddress" {
			continue
		}
		for rival := range v.OtherClaims(own) {
			v.Fault(at+".endpointRef", "has no TLS, so it can serve only one broker; it already serves "+rival.String(), b.EndpointRef)
			return
		}
	}
}

// checkAdvertised reports brokers that clients could not tell apart, or reach.
func (c *VirtualCluster) checkAdvertised(v *validate.View, b *VirtualBroker, l *resource.Listener, at string, shown map[string]string) {
	address := b.advertised(l)
	if address == "" {
		if l.TLS == nil || b.SNIMatchAddress != "" {
			v.Fault(at+".advertise", "is required: the endpoint's address does not say where clients connect", l.Address)
		}
		return
	}
	if first, twice := shown[strings.ToLower(address)]; twice {
		if b.Advertise == "" || !strings.HasSuffix(first, ".advertise") { // else reported by Validate
			v.Fault(at+".advertise", "duplicate address, first at "+first, address)
		}
		return
	}
	path := at
	if b.Advertise != "" {
		path += ".advertise"
	}
	shown[strings.ToLower(address)] = path
}

// advertised returns the host:port advertised to clients; "" where it does not
// follow from what is written, ":port" where it is the node's --bind.
func (b *VirtualBroker) advertised(l *resource.Listener) string {
	if b.Advertise != "" {
		return b.Advertise
	}
	port := portOf(l.Address)
	if port == 0 {
		return ""
	}
	if l.TLS != nil {
		name, err := hostname.ParseName(b.SNIMatchAddress)
		if err != nil {
			return "" // none, or a wildcard
		}
		return net.JoinHostPort(name, strconv.Itoa(port))
	}
	host, _, _ := resource.SplitAddress(l.Address)
	if host != "" && resource.AnyHost(host) {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// portOf is the port of a listener's address; 0: it has none that is known.
func portOf(address string) int {
	if strings.HasPrefix(address, "unix:") {
		return 0
	}
	_, port, _ := resource.SplitAddress(address)
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}
