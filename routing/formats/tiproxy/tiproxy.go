// Package tiproxy converts the configuration file of TiProxy, in TOML:
//
//	[proxy]
//	addr = "0.0.0.0:6000"
//	pd-addrs = "pd-0:2379,pd-1:2379"
//	[security.server-tls]
//	cert = "/etc/tiproxy/server.crt"
//	key = "/etc/tiproxy/server.key"
//
// It becomes
//
//	proxy.addr, port-range        Listener tiproxy, or tiproxy-PORT for each of several
//	proxy.pd-addrs, cluster-tls   EndpointProvider tiproxy-pd, of type etcd
//	balance, sql-tls, the rest    Service tiproxy, whose endpoints PD knows
//	cert, key                     Certificates tiproxy-server, -cluster and -sql, whose
//	                              files the nodes follow
//
// Each key is known: an unknown one is a fault, one that has no meaning here a warning
// that says what to do instead. What would let in clients, or use servers, that TiProxy
// would not is a fault, never left out.
package tiproxy

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// The names of what the file becomes.
const (
	serviceName  = "tiproxy"
	providerName = "tiproxy-pd"
	// portLabel is TiDB's label of the port that leads to it, with routing-rule port.
	portLabel = "tiproxy-port"
	zoneLabel = "zone"
	// topology is where TiDB publishes itself in PD's etcd.
	topology = "/topology/tidb/"
)

// Defaults of TiProxy.
const (
	defaultAddr     = "0.0.0.0:6000"
	defaultPD       = "127.0.0.1:2379"
	defaultFailover = 60    // seconds
	statusPort      = 10080 // of TiDB
	maxPorts        = 256
)

// Foreign returns TiProxy's format.
func Foreign() []codec.Foreign {
	return []codec.Foreign{{Name: "TiProxy", Is: isTiProxy, Report: convert}}
}

// isTiProxy reports whether a document is TiProxy's, which is the only one in TOML.
func isTiProxy(root *yaml.Node) bool { return root.Tag == codec.TOMLTag }

// converter converts one file.
type converter struct {
	root        *yaml.Node
	fault, warn codec.ForeignFault
	values      map[string]*yaml.Node // by path; those with a fault are missing
	clusterTLS  bool                  // cluster-tls is in use
	loadWarned  bool                  // that the load cannot be read because of it
	sqlTLS      *tlsOnce              // nil: not converted yet
	resources   []*yaml.Node
}

func convert(root *yaml.Node, fault, warn codec.ForeignFault) []*yaml.Node {
	c := &converter{root: root, warn: warn, values: map[string]*yaml.Node{}}
	faults := 0
	c.fault = func(n *yaml.Node, path, message string, value any) {
		faults++
		fault(n, path, message, value)
	}
	c.read(root, "")
	addresses := c.addresses()
	tls := c.serverTLS()
	for _, a := range addresses {
		c.listener(a, len(addresses) > 1, tls)
	}
	c.provider()
	if c.text("balance.routing-rule") == "port" {
		for _, a := range addresses {
			c.service(c.nameOf(a, true), a.port)
		}
	} else {
		c.service(serviceName, "")
	}
	c.warnLabels()
	if faults > 0 {
		return nil
	}
	return c.resources
}

// text returns a string, or "".
func (c *converter) text(path string) string {
	if n := c.values[path]; n != nil {
		return n.Value
	}
	return ""
}

func (c *converter) isTrue(path string) bool { return c.text(path) == "true" }

// at returns the node of a key, or the whole file.
func (c *converter) at(path string) *yaml.Node {
	if n := c.values[path]; n != nil {
		return n
	}
	return c.root
}

// address is one listening address.
type address struct {
	from       *yaml.Node
	host, port string
}

func (a *address) String() string { return net.JoinHostPort(a.host, a.port) }

// addresses returns those of proxy.addr and port-range.
func (c *converter) addresses() (list []address) {
	n, given := c.at("proxy.addr"), c.text("proxy.addr")
	if given == "" {
		given = defaultAddr
	}
	for part := range strings.SplitSeq(given, ",") {
		host, port, err := net.SplitHostPort(strings.TrimSpace(part))
		if err != nil || !isPort(port) || host != "" && !isIP(host) {
			c.fault(n, "proxy.addr", "must be IP:port, or several of them, separated by commas", part)
			continue
		}
		if host == "" {
			host = "0.0.0.0"
		}
		list = append(list, address{n, host, port})
	}
	if r := c.values["proxy.port-range"]; r != nil && len(r.Content) > 0 && len(list) > 0 {
		return c.portRange(r, list[0].host)
	}
	return list
}

func (c *converter) portRange(n *yaml.Node, host string) (list []address) {
	const path = "proxy.port-range"
	if len(n.Content) != 2 {
		c.fault(n, path, "must be two ports, the first and the last", nil)
		return nil
	}
	first, last := number(n.Content[0]), number(n.Content[1])
	if first < 1 || last > math.MaxUint16 || first > last || last-first >= maxPorts {
		c.fault(n, path, fmt.Sprintf("must be two ports from 1 to 65535, the first and the last of at most %d", maxPorts), nil)
		return nil
	}
	for port := int(first); port <= int(last); port++ {
		list = append(list, address{n, host, strconv.Itoa(port)})
	}
	return list
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// nameOf returns the name of what is for an address, which is one of several.
func (c *converter) nameOf(a address, several bool) string {
	if several {
		return serviceName + "-" + a.port
	}
	return serviceName
}

// mapping is a mapping in the making, in the line of a node.
type mapping struct{ document.Mapping }

func newMapping(from *yaml.Node) mapping { return mapping{document.NewMapping(from)} }

func (m mapping) text(from *yaml.Node, key, value string) {
	m.Put(from, key, document.Text(from, value))
}

func (m mapping) plain(from *yaml.Node, key, tag, value string) {
	n := document.Text(from, value)
	n.Tag = tag
	m.Put(from, key, n)
}

func (m mapping) whole(from *yaml.Node, key string, value int) {
	m.plain(from, key, "!!int", strconv.Itoa(value))
}

func (m mapping) isTrue(from *yaml.Node, key string) { m.plain(from, key, "!!bool", "true") }

func (m mapping) texts(from *yaml.Node, key string, values ...string) {
	items := make([]*yaml.Node, len(values))
	for i, v := range values {
		items[i] = document.Text(from, v)
	}
	m.Put(from, key, document.List(from, items...))
}

func (c *converter) add(kind, name string, spec mapping) {
	f := document.Open(c.root, kind, nil, c.fault)
	c.resources = append(c.resources, f.Resource(kind, document.Text(c.root, name), nil, spec.Node))
}

func (c *converter) listener(a address, several bool, tls *yaml.Node) {
	spec := newMapping(a.from)
	spec.text(a.from, "address", a.String())
	spec.text(c.root, "protocol", resource.ProtocolMySQL)
	if tls != nil {
		spec.Put(tls, "tls", tls)
	}
	name, service := c.nameOf(a, several), serviceName
	if c.text("balance.routing-rule") == "port" {
		service = c.nameOf(a, true)
	}
	spec.text(c.root, "service", service)
	if n := c.values["proxy.max-connections"]; n != nil && number(n) > 0 {
		limits := newMapping(n)
		limits.whole(n, "connections", int(number(n)))
		spec.Put(n, "limits", limits.Node)
		if several {
			c.warn(n, "proxy.max-connections", "bounds the connections of Listener "+name+" alone", n.Value)
		}
	}
	c.add("Listener", name, spec)
}

// provider adds the provider of what PD knows.
func (c *converter) provider() {
	const path = "proxy.pd-addrs"
	n, given := c.at(path), defaultPD
	if c.values[path] != nil {
		given = n.Value
	}
	var endpoints []string
	for part := range strings.SplitSeq(given, ",") {
		part = strings.TrimSpace(part)
		bare := strings.TrimPrefix(strings.TrimPrefix(part, "http://"), "https://")
		if part == "" {
			c.fault(n, path, "must have the addresses of PD: without it, list the servers in endpoints of a Service with protocol: mysql", nil)
			return
		}
		if message := validate.Address(bare); message != "" || strings.HasPrefix(bare, "unix:") {
			c.fault(n, path, "must be host:port, or several of them, separated by commas", part)
			return
		}
		endpoints = append(endpoints, part)
	}
	etcd := newMapping(n)
	etcd.texts(n, "endpoints", endpoints...)
	etcd.text(c.root, "prefix", topology)
	etcd.text(c.root, "format", "tidb")
	if tls := c.clientTLS("cluster-tls", "ca", "tiproxy-cluster"); tls != nil {
		etcd.Put(tls, "tls", tls)
		c.clusterTLS = true
	}
	spec := newMapping(n)
	spec.text(c.root, "type", "etcd")
	spec.Put(n, "etcd", etcd.Node)
	c.add(resource.KindProvider, providerName, spec)
}

// service adds the service of all servers, or of those with a label for a port.
func (c *converter) service(name, port string) {
	spec := newMapping(c.root)
	spec.text(c.root, "protocol", resource.ProtocolMySQL)
	spec.Put(c.root, "balancing", c.balancing())
	spec.Put(c.root, "endpointsFrom", document.List(c.root, c.endpointsFrom(port)))
	if list := c.failed(); list != nil {
		spec.Put(list, "endpoints", list)
	}
	spec.Put(c.root, "healthCheck", c.healthCheck())
	drain := newMapping(c.at("proxy.failover-timeout"))
	timeout := defaultFailover
	if n := c.values["proxy.failover-timeout"]; n != nil {
		timeout = max(int(number(n)), 1)
	}
	drain.text(drain.Node, "timeout", strconv.Itoa(timeout)+"s")
	spec.Put(drain.Node, "endpointDrain", drain.Node)
	c.serviceTLS(spec)
	if n := c.values["proxy.proxy-protocol"]; n != nil && n.Value == "v2" {
		send := newMapping(n)
		send.text(n, "send", "v2")
		spec.Put(n, "proxyProtocol", send.Node)
		if name == serviceName || port != "" {
			c.warn(n, "proxy.proxy-protocol", "sends the header to the servers; for clients behind a load balancer, give its networks in "+
				"proxyProtocol.accept of Listener "+name+": from others no header is looked for", nil)
		}
	}
	c.add("Service", name, spec)
}

// balancing returns the service's balancing.
func (c *converter) balancing() *yaml.Node {
	b := newMapping(c.root)
	policy := "leastConnections"
	if c.text("balance.routing-policy") == "random" {
		policy = "random"
	}
	b.text(c.at("balance.routing-policy"), "policy", policy)
	switch rule := c.text("balance.routing-rule"); rule {
	case "client_cidr", "proxy_cidr":
		c.fault(c.at("balance.routing-rule"), "balance.routing-rule", "is not supported: give the clients' networks tags in sources of a "+
			"Listener, and route by them with a MeshTCPRoute", rule)
	}
	if n := c.values["balance.label-name"]; n != nil && n.Value != "" {
		b.text(n, "matchTag", n.Value)
	}
	off := c.values["balance.location.enabled"]
	if c.text("balance.policy") != "connection" && (off == nil || off.Value == "true") {
		b.text(c.at("balance.policy"), "zone", zoneLabel)
	}
	return b.Node
}

// endpointsFrom returns the servers that PD knows: those of the file's own group, and of
// the port.
func (c *converter) endpointsFrom(port string) *yaml.Node {
	from := newMapping(c.root)
	from.text(c.root, "provider", providerName)
	selected := newMapping(c.root)
	name := c.text("balance.label-name")
	if own := document.Child(c.values["labels"], name); name != "" && own != nil {
		selected.text(own, name, own.Value)
	}
	if port != "" {
		selected.text(c.root, portLabel, port)
	}
	if len(selected.Node.Content) > 0 {
		from.Put(c.root, "select", selected.Node)
	}
	return from.Node
}

// failed returns the endpoints of proxy.fail-backend-list, which get no connections: an
// address that a Service lists counts as it is listed.
func (c *converter) failed() *yaml.Node {
	const path = "proxy.fail-backend-list"
	n := c.values[path]
	if n == nil || len(n.Content) == 0 {
		return nil
	}
	list := document.List(n)
	for i, item := range n.Content {
		if message := validate.Address(item.Value); message != "" || strings.HasPrefix(item.Value, "unix:") {
			c.fault(item, resource.Item(path, i), "must be the address that TiDB publishes, host:port; names of pods are not known here", item.Value)
			continue
		}
		e := newMapping(item)
		e.text(item, "address", item.Value)
		e.whole(item, "weight", 0)
		list.Content = append(list.Content, e.Node)
	}
	return list
}

// healthCheck returns the check of the servers: every 3 s for 2 s, as TiProxy's. It asks
// for their status, which tells of a shutdown before it happens; with cluster-tls the port
// of that has TLS of its own, and the greeting at the port for SQL has to do.
func (c *converter) healthCheck() *yaml.Node {
	h := newMapping(c.root)
	if c.clusterTLS {
		h.text(c.root, "type", "mysql")
	} else {
		h.text(c.root, "type", "http")
		h.text(c.root, "path", "/status")
		h.text(c.root, "portTag", "status_port")
		h.whole(c.root, "port", statusPort)
	}
	h.text(c.root, "interval", "3s")
	h.text(c.root, "timeout", "2s")
	return h.Node
}

// warnLabels says where the labels of a TiProxy belong.
func (c *converter) warnLabels() {
	n := c.values["labels"]
	if n == nil || len(n.Content) == 0 {
		return
	}
	tags := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		tags[n.Content[i].Value] = n.Content[i+1].Value
	}
	var flags []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		flags = append(flags, "--tag "+k+"="+tags[k])
	}
	c.warn(n, "labels", "are tags of nodes here: start them with "+strings.Join(flags, " "), nil)
}
