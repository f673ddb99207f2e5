package model

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// virtualCluster makes a VirtualCluster of each gateway.
func (r *release) virtualCluster(n *yaml.Node, path string) {
	v := r.fields(n, path, "name", "targetCluster", "target", "gateways", "filters", "drainTimeout", "logNetwork", "logFrames",
		"subjectBuilder", "topicNameCache")
	given := r.text(v["name"], n, path+".name")
	name := strings.ToLower(given) // Kroxylicious tells no case apart
	for _, left := range []struct{ field, instead string }{
		{"logNetwork", "use --log-level and `penstock explain` to follow connections"},
		{"logFrames", "frames are not logged; metrics count requests by API"},
		{"subjectBuilder", "no filter uses the client's identity"},
		{"topicNameCache", "topic names are cached as needed"},
	} {
		if at := v[left.field]; at != nil && (at.Kind != yaml.ScalarNode || r.flag(at, path+"."+left.field)) {
			r.warn(at, path+"."+left.field, "is ignored: "+left.instead, nil)
		}
	}
	physical, servers := r.target(n, path, name, v)
	filters, prefix := r.filterChain(v, path, given)
	r.checkTenants(n, path, servers, prefix, name)
	if v["gateways"] == nil || len(v["gateways"].Content) == 0 {
		r.Fault(n, path+".gateways", "is required: a list with at least one gateway for clients", nil)
		return
	}
	first := true
	r.each(v["gateways"], path+".gateways", func(g *yaml.Node, at string) {
		spec, before := document.NewMapping(g), r.faults
		if physical != nil {
			spec.Put(physical, "physicalClusterRef", physical)
		}
		if filters != nil {
			spec.Put(n, "filters", filters)
		}
		if r.idle != nil {
			spec.Put(r.idle, "idleTimeout", r.idle)
		}
		if drain := v["drainTimeout"]; drain != nil {
			window := document.NewMapping(drain)
			window.Put(drain, "window", drain)
			spec.Put(drain, "drain", window.Node)
		}
		of := name
		if !first {
			of += "." + strings.ToLower(document.TextOf(g, "name"))
		}
		first = false
		if r.gateway(g, at, of, given, spec); physical != nil && r.faults == before {
			r.object(&r.virtual, g, KindVirtual, of, spec)
		}
	})
}

// target returns the name of the physical cluster, and the bootstrap servers of
// one that stands in the virtual cluster.
func (r *release) target(n *yaml.Node, path, name string, v map[string]*yaml.Node) (ref *yaml.Node, servers string) {
	inline, named := v["targetCluster"], v["target"]
	switch {
	case inline != nil && named != nil:
		r.Fault(named, path+".target", "conflicts with targetCluster: give only one of them", nil)
	case inline != nil:
		t := r.fields(inline, path+".targetCluster", "bootstrapServers", "tls", "bootstrapServerSelection", "connectTimeout")
		if servers = r.physicalCluster(inline, path+".targetCluster", name, t); servers != "" {
			return document.Text(inline, name), servers
		}
	case named != nil:
		t := r.fields(named, path+".target", "cluster", "router")
		if at := t["router"]; at != nil {
			r.Fault(at, path+".target.router", noCounterpart+"a virtual cluster has one physical cluster; use target.cluster", at.Value)
			return nil, ""
		}
		if cluster := r.text(t["cluster"], named, path+".target.cluster"); cluster != "" && !r.invalidClusters[cluster] {
			return t["cluster"], ""
		}
	default:
		r.Fault(n, path+".target", "is required: target.cluster, or targetCluster", nil)
	}
	return nil, ""
}

// gateway makes the VirtualCluster of one gateway.
func (r *release) gateway(n *yaml.Node, path, name, cluster string, spec document.Mapping) {
	v := r.fields(n, path, "name", "portIdentifiesNode", "sniHostIdentifiesNode", "tls")
	r.text(v["name"], n, path+".name")
	ports, names := v["portIdentifiesNode"], v["sniHostIdentifiesNode"]
	brokers, discover := document.NewMapping(n), document.NewMapping(n)
	switch {
	case (ports == nil) == (names == nil):
		r.Fault(n, path, "must have either portIdentifiesNode or sniHostIdentifiesNode", nil)
	case ports != nil:
		r.byPort(ports, path+".portIdentifiesNode", discover)
	default:
		if v["tls"] == nil {
			r.Fault(n, path+".tls", "is required with sniHostIdentifiesNode: without TLS there is no server name", nil)
		}
		r.byName(names, path+".sniHostIdentifiesNode", cluster, discover)
	}
	if tls := v["tls"]; tls != nil {
		spec.Put(tls, "tls", r.gatewayTLS(tls, path+".tls", name))
	}
	brokers.Put(n, "discover", discover.Node)
	spec.Put(n, "brokers", brokers.Node)
}

// byPort converts a gateway with a port for each broker. Kroxylicious listens
// at all addresses; Penstock where its --bind says.
func (r *release) byPort(n *yaml.Node, path string, d document.Mapping) {
	v := r.fields(n, path, "bootstrapAddress", "advertisedBrokerAddressPattern", "nodeStartPort", "nodeIdRanges")
	if r.proxyProtocol != nil {
		r.Fault(r.proxyProtocol, "proxyProtocol.mode", noCounterpart+
			"only gateways with sniHostIdentifiesNode support the PROXY protocol, not "+path, r.proxyProtocol.Value)
	}
	text := r.text(v["bootstrapAddress"], n, path+".bootstrapAddress")
	if text == "" {
		return
	}
	host, port := r.splitPort(v["bootstrapAddress"], path+".bootstrapAddress", text)
	if port == 0 {
		return
	}
	d.Put(v["bootstrapAddress"], "bootstrapPort", number(v["bootstrapAddress"], port))
	advertised := document.Text(v["bootstrapAddress"], host)
	if at := v["advertisedBrokerAddressPattern"]; at != nil {
		if strings.Contains(at.Value, hostname.Placeholder) {
			r.Fault(at, path+".advertisedBrokerAddressPattern", noCounterpart+"brokers by port share one host; remove "+
				hostname.Placeholder+", or use sniHostIdentifiesNode", at.Value)
			return
		}
		advertised = at
	}
	d.Put(advertised, "advertise", advertised)
	first, last := r.nodeIDs(n, v["nodeIdRanges"], path+".nodeIdRanges")
	start := port + 1
	if at := v["nodeStartPort"]; at != nil {
		start = r.number(at, path+".nodeStartPort", 1, 65535)
	}
	if last < first || start == 0 {
		return
	}
	end := start + last - first
	if end > 65535 {
		r.Fault(n, path, "needs ports above 65535 for its brokers", end)
		return
	}
	d.Put(n, "brokerPorts", document.Text(n, strconv.Itoa(start)+"-"+strconv.Itoa(end)))
	d.Put(n, "firstNodeId", number(n, first))
}

func number(from *yaml.Node, i int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(i), Line: from.Line}
}

// nodeIDs joins the ranges of node ids to one, 0 to 2 where there are none.
// After a fault the last is before the first.
func (r *release) nodeIDs(parent, n *yaml.Node, path string) (first, last int) {
	if n == nil || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return 0, 2
	}
	type nodes struct {
		start, end int
		at         *yaml.Node
		path       string
	}
	var all []nodes
	before := len(n.Content)
	r.each(n, path, func(item *yaml.Node, at string) {
		v := r.fields(item, at, "name", "start", "end")
		if v["start"] == nil || v["end"] == nil {
			r.Fault(item, at, "must have start and end", nil)
			return
		}
		const highest = 1<<31 - 1
		x := nodes{r.number(v["start"], at+".start", 0, highest), r.number(v["end"], at+".end", 0, highest), item, at}
		if x.end < x.start {
			r.Fault(v["end"], at+".end", "must not be below start", x.end)
			return
		}
		all = append(all, x)
	})
	if len(all) < before || len(all) == 0 {
		return 0, -1
	}
	slices.SortFunc(all, func(a, b nodes) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(all); i++ {
		switch last := all[i-1].end; {
		case all[i].start <= last:
			r.Fault(all[i].at, all[i].path, "overlaps with another range", all[i].start)
			return 0, -1
		case all[i].start > last+1:
			r.Fault(all[i].at, all[i].path, noCounterpart+"ports belong to consecutive node ids; give one range with start "+
				strconv.Itoa(all[0].start)+" and end "+strconv.Itoa(all[len(all)-1].end)+
				", which moves the ports of later brokers, or use sniHostIdentifiesNode", all[i].start)
			return 0, -1
		}
	}
	return all[0].start, all[len(all)-1].end
}

// clusterPlaceholder stands for the name of the virtual cluster.
const clusterPlaceholder = "$(virtualClusterName)"

// byName converts a gateway with a server name for each broker.
func (r *release) byName(n *yaml.Node, path, cluster string, d document.Mapping) {
	v := r.fields(n, path, "bootstrapAddress", "advertisedBrokerAddressPattern")
	bootstrap := r.text(v["bootstrapAddress"], n, path+".bootstrapAddress")
	pattern := r.text(v["advertisedBrokerAddressPattern"], n, path+".advertisedBrokerAddressPattern")
	if bootstrap == "" || pattern == "" {
		return
	}
	name := strings.ToLower(cluster)
	host, port := r.splitPort(v["bootstrapAddress"], path+".bootstrapAddress", strings.ReplaceAll(bootstrap, clusterPlaceholder, name))
	if port == 0 {
		return
	}
	pattern = strings.ReplaceAll(pattern, clusterPlaceholder, name)
	if cut := strings.LastIndexByte(pattern, ':'); cut >= 0 {
		at := v["advertisedBrokerAddressPattern"]
		_, advertised := r.splitPort(at, path+".advertisedBrokerAddressPattern", pattern)
		if pattern = pattern[:cut]; advertised != 0 && advertised != port {
			d.Put(at, "advertisePort", number(at, advertised))
		}
	}
	listener := "kafka-" + strconv.Itoa(port)
	if !r.sniPorts[port] {
		r.sniPorts[port] = true
		r.sniListener(v["bootstrapAddress"], listener, port)
	}
	d.Put(n, "endpointRef", document.Text(v["bootstrapAddress"], listener))
	d.Put(n, "bootstrap", document.Text(v["bootstrapAddress"], host))
	d.Put(n, "sniPattern", document.Text(v["advertisedBrokerAddressPattern"], pattern))
}

// sniListener makes the listener that all gateways of one port share.
func (r *release) sniListener(at *yaml.Node, name string, port int) {
	spec := document.NewMapping(at)
	spec.Put(at, "address", document.Text(at, ":"+strconv.Itoa(port)))
	spec.Put(at, "protocol", document.Text(at, "kafka"))
	spec.Put(at, "tls", document.NewMapping(at).Node)
	if r.proxyProtocol != nil {
		accept := document.NewMapping(r.proxyProtocol)
		anywhere := document.List(r.proxyProtocol, document.Text(r.proxyProtocol, "0.0.0.0/0"), document.Text(r.proxyProtocol, "::/0"))
		accept.Put(r.proxyProtocol, "accept", anywhere)
		spec.Put(r.proxyProtocol, "proxyProtocol", accept.Node)
	}
	r.object(&r.listeners, at, kindListener, name, spec)
}

// filterDefinition reads one filter.
func (r *release) filterDefinition(n *yaml.Node, path string) {
	v := r.fields(n, path, "name", "type", "config")
	name, kind := r.text(v["name"], n, path+".name"), r.text(v["type"], n, path+".type")
	if name == "" || kind == "" {
		return
	}
	if r.filters[name] != nil {
		r.Fault(v["name"], path+".name", "duplicate", name)
		return
	}
	d := &filterDefinition{node: v["type"], path: path + ".type", config: v["config"]}
	r.filters[name] = d
	switch kind = kind[strings.LastIndexByte(kind, '.')+1:]; kind {
	case "MultiTenant", "MultiTenantTransformationFilterFactory":
		d.kind, d.separator = "MultiTenant", "-"
		if d.config != nil {
			given := r.fields(d.config, path+".config", "prefixResourceNameSeparator")["prefixResourceNameSeparator"]
			if given != nil {
				d.separator = given.Value
			}
		}
	case "ApiVersions", "BrokerAddress", "TopicMetrics":
		d.kind = kind
	case "ProtocolLogger", "ProtocolLogging":
		r.warn(d.node, d.path, "is ignored: frames are not logged; metrics count requests by API", kind)
	default:
		without := cmp.Or(consequences[kind], "without it clients could see or do something different")
		r.Fault(d.node, d.path, noCounterpart+without+". To accept that, remove the filter and all references to it", kind)
	}
}

// consequences says of filters that have no counterpart what would be without them.
var consequences = map[string]string{
	"RecordEncryption":      "without it records would be stored in the clear",
	"RecordValidation":      "without it invalid records would be stored",
	"Authorization":         "without it only the brokers' own ACLs decide; write the rules there",
	"OauthBearerValidation": "without it only the brokers check tokens",
	"SaslInspection":        "without it clients may use any mechanism of the brokers",
	"EntityIsolation":       "without it clients would share the entities that it isolates; MultiTenant isolates tenants",
}

// filtersByName returns the filters of a list of names.
func (r *release) filtersByName(n *yaml.Node, path string) (all []*filterDefinition) {
	r.each(n, path, func(item *yaml.Node, at string) {
		d := r.filters[item.Value]
		if d == nil || item.Kind != yaml.ScalarNode {
			r.Fault(item, at, "is not defined in filterDefinitions", item.Value)
			return
		}
		d.used = true
		all = append(all, d)
	})
	return all
}

// filterChain makes the filters of a virtual cluster, and tells the prefix that they
// give to names. Nil: none.
func (r *release) filterChain(v map[string]*yaml.Node, path, cluster string) (list *yaml.Node, prefix string) {
	filters := r.defaults
	if v["filters"] != nil {
		filters = r.filtersByName(v["filters"], path+".filters")
	}
	for _, d := range filters {
		if d.kind == "" {
			continue
		}
		filter, conf := document.NewMapping(d.node), d.config
		filter.Put(d.node, "type", document.Text(d.node, d.kind))
		if d.separator != "" {
			prefix = cluster + d.separator + prefix
			own := document.NewMapping(d.node)
			own.Put(d.node, "prefix", document.Text(d.node, cluster+d.separator))
			conf = own.Node
		}
		if conf != nil {
			filter.Put(conf, "config", conf)
		}
		if list == nil {
			list = document.List(d.node)
		}
		list.Content = append(list.Content, filter.Node)
	}
	return list, prefix
}

// checkTenants reports where one tenant would see another's names. Clusters that
// are defined by name are one PhysicalCluster, which is checked as such; inline
// ones are the same cluster if they have the same bootstrap servers.
func (r *release) checkTenants(n *yaml.Node, path, servers, prefix, cluster string) {
	if servers == "" || prefix == "" {
		return
	}
	for _, other := range r.targets[servers] {
		if other.prefix != prefix && (strings.HasPrefix(other.prefix, prefix) || strings.HasPrefix(prefix, other.prefix)) {
			r.Fault(n, path+".name", "produces the prefix "+prefix+", but "+
				resource.Key{Kind: KindVirtual, Name: other.cluster}.String()+" on the same bootstrap servers has "+other.prefix+
				": one would see names of the other; rename one, or give MultiTenant a prefixResourceNameSeparator that no name contains", cluster)
		}
	}
	r.targets[servers] = append(r.targets[servers], tenantPrefix{prefix, cluster})
}
