package tiproxy

import (
	"math"

	yaml "go.yaml.in/yaml/v3"
)

// certificate adds the Certificate of a role, whose files the nodes follow, and returns
// its name; "" if the role has none.
func (c *converter) certificate(role, name string) string {
	at := "security." + role
	cert, key := c.values[at+".cert"], c.values[at+".key"]
	given := func(n *yaml.Node) bool { return n != nil && n.Value != "" }
	switch {
	case !given(cert) && !given(key):
		return ""
	case !given(cert):
		c.fault(key, at+".cert", "is required beside key", nil)
		return ""
	case !given(key):
		c.fault(cert, at+".key", "is required beside cert", nil)
		return ""
	}
	spec := newMapping(cert)
	spec.isTrue(cert, "follow")
	spec.text(cert, "certFile", cert.Value)
	spec.text(key, "keyFile", key.Value)
	c.add("Certificate", name, spec)
	return name
}

// minVersion adds the least version of TLS. Versions below 1.2 are not supported.
func (c *converter) minVersion(role string, tls mapping) {
	path := "security." + role + ".min-tls-version"
	n := c.values[path]
	switch c.text(path) {
	case "1.0", "1.1":
		c.warn(n, path, "is 1.2 at least", n.Value)
	case "1.3":
		tls.text(n, "minVersion", "1.3")
	}
}

// refuseNames reports common names that certificates must have: to leave them out would
// accept others.
func (c *converter) refuseNames(role, instead string) {
	path := "security." + role + ".cert-allowed-cn"
	if n := c.values[path]; n != nil && len(n.Content) > 0 {
		c.fault(n, path, "is not supported, as common names identify no one: "+instead, nil)
	}
}

// serverTLS returns the TLS of the listeners; nil: none.
func (c *converter) serverTLS() *yaml.Node {
	const role, at = "server-tls", "security.server-tls"
	c.refuseNames(role, "use clientAuth.spiffe of the Listener, or a CA of these clients alone")
	name := c.certificate(role, "tiproxy-server")
	if name == "" {
		if n := c.values[at+".ca"]; n != nil && n.Value != "" {
			c.fault(n, at+".ca", "requires cert and key", nil)
		}
		return nil
	}
	from := c.at(at + ".cert")
	tls := newMapping(from)
	tls.text(from, "mode", "terminate")
	tls.texts(from, "certificateRefs", name)
	c.minVersion(role, tls)
	if ca := c.values[at+".ca"]; ca != nil && ca.Value != "" {
		auth := newMapping(ca)
		mode := "require"
		if c.isTrue(at + ".skip-ca") {
			mode = "request"
		}
		auth.text(ca, "mode", mode)
		auth.text(ca, "caFile", ca.Value)
		tls.Put(ca, "clientAuth", auth.Node)
	}
	return tls.Node
}

// clientTLS returns the TLS towards servers of a role; nil: none, as in TiProxy without ca
// and skip-ca. The CA goes into the field ca.
func (c *converter) clientTLS(role, field, name string) *yaml.Node {
	at := "security." + role
	c.refuseNames(role, "the server's name is verified instead")
	ca := c.values[at+".ca"]
	hasCA := ca != nil && ca.Value != ""
	if !hasCA && !c.isTrue(at+".skip-ca") {
		if n := c.values[at+".cert"]; n != nil && n.Value != "" {
			c.fault(n, at+".cert", "requires ca, or skip-ca: true: without one of them TiProxy uses no TLS", nil)
		}
		return nil
	}
	from := c.at(at + ".skip-ca")
	if hasCA {
		from = ca
	}
	tls := newMapping(from)
	if hasCA {
		tls.text(ca, field, ca.Value)
	} else {
		tls.isTrue(from, "insecureSkipVerify")
	}
	if cert := c.certificate(role, name); cert != "" {
		tls.text(c.at(at+".cert"), "certificateRef", cert)
	}
	c.minVersion(role, tls)
	return tls.Node
}

// serviceTLS adds the TLS towards the servers, and the pace of moves.
func (c *converter) serviceTLS(spec mapping) {
	if c.sqlTLS == nil {
		c.sqlTLS = &tlsOnce{c.clientTLS("sql-tls", "caFile", "tiproxy-sql")}
	}
	tls := c.sqlTLS.node
	if tls != nil {
		spec.Put(tls, "tls", tls)
	}
	settings := newMapping(c.root)
	if n := c.values["security.require-backend-tls"]; n != nil && n.Value == "true" {
		if tls == nil {
			c.fault(n, "security.require-backend-tls", "requires ca, or skip-ca: true, in security.sql-tls", nil)
		}
		settings.isTrue(n, "requireTLS")
	}
	if n := c.values["balance.status.migrations-per-second"]; n != nil && number(n) > 0 {
		settings.whole(n, "movesPerSecond", int(math.Ceil(number(n))))
	}
	if rebalance := c.rebalance(); len(rebalance.Node.Content) > 0 {
		settings.Put(c.root, "rebalance", rebalance.Node)
	}
	if load := c.load(); load != nil {
		settings.Put(c.root, "load", load)
	}
	if len(settings.Node.Content) > 0 {
		spec.Put(c.root, "mysql", settings.Node)
	}
}

// rebalance returns when and how fast sessions move so that servers have as many. TiProxy
// bounds neither value; those beyond the bounds of the fields mean the same as these.
func (c *converter) rebalance() mapping {
	const leastRatio, mostRatio = 101, 1000
	out := newMapping(c.root)
	c.pace("conn-count", out)
	if n := c.values["balance.conn-count.count-ratio-threshold"]; n != nil && number(n) > 0 {
		out.whole(n, "ratio", int(min(max(math.Round(number(n)*100), leastRatio), mostRatio)))
	}
	return out
}

// tlsOnce is the TLS of all services, which is converted once.
type tlsOnce struct{ node *yaml.Node }
