package model

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// release converts one configuration file of Kroxylicious 0.11 to 0.25, the
// form of the io.kroxylicious.proxy.config records:
//
//	clusterDefinitions[], virtualClusters[].targetCluster   PhysicalCluster
//	virtualClusters[].gateways[]                            VirtualCluster, named for the
//	                                                        cluster; CLUSTER.GATEWAY from the
//	                                                        second gateway on
//	gateways[].sniHostIdentifiesNode                        Listener kafka-PORT, shared
//	tls.key                                                 Certificate, with .client behind
//	                                                        the name towards brokers
//
// What has no counterpart is a fault where leaving it out would change what
// clients may do, and a warning where it would not.
type release struct {
	*document.Frame
	warn codec.ForeignFault

	listeners, certificates, physical, virtual []*yaml.Node

	sniPorts        map[int]bool
	filters         map[string]*filterDefinition
	defaults        []*filterDefinition
	idle            *yaml.Node // network.proxy.authenticatedIdleTimeout; nil: none
	proxyProtocol   *yaml.Node // proxyProtocol.mode where it is required; nil: not
	targets         map[string][]tenantPrefix
	invalidClusters map[string]bool // clusterDefinitions that have no servers
	faults          int
}

// filterDefinition is one of filterDefinitions.
type filterDefinition struct {
	node      *yaml.Node // of the name
	path      string
	kind      string     // of Penstock's filter; "": it is left out
	config    *yaml.Node // of TopicMetrics and the like; nil: none
	separator string     // of MultiTenant: prefixResourceNameSeparator
	used      bool
}

// tenantPrefix is the prefix of a virtual cluster in front of inline bootstrap
// servers.
type tenantPrefix struct{ prefix, cluster string }

// releaseFields are the fields of a configuration file.
var releaseFields = []string{
	"virtualClusters", "clusterDefinitions", "filterDefinitions", "defaultFilters", "routerDefinitions",
	"management", "adminHttp", "micrometer", "useIoUring", "development", "network", "proxyProtocol",
}

// isRelease tells a configuration file of a release from the proposal's
// document.
func isRelease(root *yaml.Node) bool {
	clusters := document.Child(root, "virtualClusters")
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "endpoints", "physicalClusters":
			return false
		case "clusterDefinitions", "filterDefinitions", "defaultFilters":
			return true
		}
	}
	switch {
	case clusters == nil:
		return false
	case clusters.Kind == yaml.MappingNode:
		return true // of 0.10 and older: refused by name
	}
	return slices.ContainsFunc(clusters.Content, func(c *yaml.Node) bool {
		return document.Child(c, "gateways") != nil || document.Child(c, "targetCluster") != nil || document.Child(c, "target") != nil
	})
}

// convertRelease is the Report of Foreign for these files.
func convertRelease(root *yaml.Node, fault, warn codec.ForeignFault) []*yaml.Node {
	r := &release{
		warn: warn, sniPorts: map[int]bool{}, filters: map[string]*filterDefinition{},
		targets: map[string][]tenantPrefix{}, invalidClusters: map[string]bool{},
	}
	r.Frame = document.Open(root, "", nil, func(n *yaml.Node, path, message string, value any) {
		r.faults++
		fault(n, path, message, value)
	})
	r.Subject = "" // the paths of the document say it all
	r.document()
	return slices.Concat(r.listeners, r.certificates, r.physical, r.virtual)
}

const noCounterpart = "has no counterpart in Penstock: "

func (r *release) document() {
	v := r.fields(r.Root, "", releaseFields...)
	r.globalSettings(v)
	r.each(v["filterDefinitions"], "filterDefinitions", r.filterDefinition)
	r.defaults = r.filtersByName(v["defaultFilters"], "defaultFilters")
	r.each(v["clusterDefinitions"], "clusterDefinitions", r.clusterDefinition)
	switch clusters := v["virtualClusters"]; {
	case clusters == nil:
		r.Fault(r.Root, "virtualClusters", "is required: a list with at least one virtual cluster", nil)
	case clusters.Kind == yaml.MappingNode:
		r.Fault(clusters, "virtualClusters", "must be a list: a mapping of names is the form of Kroxylicious 0.10 and older", nil)
	default:
		r.each(clusters, "virtualClusters", r.virtualCluster)
	}
	for _, name := range slices.Sorted(maps.Keys(r.filters)) {
		if d := r.filters[name]; !d.used {
			r.Fault(d.node, d.path, "is not used by defaultFilters or the filters of a virtual cluster: use it or remove it", name)
		}
	}
}

// globalSettings reads the settings outside of clusters.
func (r *release) globalSettings(v map[string]*yaml.Node) {
	if n := v["routerDefinitions"]; n != nil {
		r.Fault(n, "routerDefinitions", noCounterpart+"a virtual cluster has one physical cluster; remove it, and use target.cluster", nil)
	}
	for _, key := range []string{"management", "adminHttp"} {
		if n := v[key]; n != nil {
			m := r.fields(n, key, "bindAddress", "host", "port", "endpoints")
			if e := m["endpoints"]; e != nil {
				r.fields(e, key+".endpoints", "prometheus")
			}
			r.warn(n, key, "is ignored: a node serves /metrics and health checks at --http ADDRESS", nil)
		}
	}
	if n := v["micrometer"]; n != nil {
		r.warn(n, "micrometer", "is ignored: Penstock always has metrics; add common tags in the scraper", nil)
	}
	if n := v["useIoUring"]; n != nil && r.flag(n, "useIoUring") {
		r.warn(n, "useIoUring", "is ignored: Penstock uses epoll", nil)
	}
	if n := v["development"]; n != nil {
		r.warn(n, "development", "is ignored: it is for developing Kroxylicious", nil)
	}
	r.network(v["network"])
	if n := v["proxyProtocol"]; n != nil {
		mode := r.fields(n, "proxyProtocol", "mode")["mode"]
		switch text := strings.ToLower(r.text(mode, n, "proxyProtocol.mode")); text {
		case "", "disabled":
		case "required":
			r.proxyProtocol = mode
		case "auto":
			r.Fault(mode, "proxyProtocol.mode", noCounterpart+"PROXY headers are never auto-detected; use required or disabled", mode.Value)
		default:
			r.Fault(mode, "proxyProtocol.mode", "must be required, auto or disabled", mode.Value)
		}
	}
}

func (r *release) network(n *yaml.Node) {
	if n == nil {
		return
	}
	v := r.fields(n, "network", "management", "proxy")
	for _, key := range []string{"management", "proxy"} {
		part, path := v[key], "network."+key
		if part == nil {
			continue
		}
		s := r.fields(part, path, "workerThreadCount", "shutdownQuietPeriod", "shutdownQuietPeriodSeconds", "shutdownTimeout",
			"authenticatedIdleTimeout", "unauthenticatedIdleTimeout")
		for _, left := range []struct{ field, instead string }{
			{"workerThreadCount", "the number of threads follows the available CPUs"},
			{"shutdownQuietPeriod", "use --drain-wait and --drain-timeout"},
			{"shutdownQuietPeriodSeconds", "use --drain-wait and --drain-timeout"},
			{"shutdownTimeout", "use --drain-timeout"},
		} {
			if at := s[left.field]; at != nil {
				r.warn(at, path+"."+left.field, "is ignored: "+left.instead, nil)
			}
		}
		if key == "management" {
			continue
		}
		r.idle = s["authenticatedIdleTimeout"]
		if at := s["unauthenticatedIdleTimeout"]; at != nil {
			r.Fault(at, path+".unauthenticatedIdleTimeout", noCounterpart+
				"use authenticatedIdleTimeout, which becomes idleTimeout and also applies before authentication", at.Value)
		}
	}
}

// fields reads a mapping of known fields. What has no value is a fault, and is
// not given.
func (r *release) fields(n *yaml.Node, path string, known ...string) map[string]*yaml.Node {
	v := r.Fields(n, path, nil, known...)
	for key, value := range v {
		if value.Kind == yaml.ScalarNode && value.Tag == "!!null" {
			r.Fault(value, resource.Step(path, key), "has no value: set one or leave it out", nil)
			delete(v, key)
		}
	}
	return v
}

// each calls f with the items of a list, which are mappings. Nil: none.
func (r *release) each(n *yaml.Node, path string, f func(n *yaml.Node, path string)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.Fault(n, path, "must be a list", nil)
		return
	}
	for i, item := range n.Content {
		f(item, resource.Item(path, i))
	}
}

// text returns a text; "" after a fault, or where it is nil, which is a fault at
// parent.
func (r *release) text(n, parent *yaml.Node, path string) string {
	switch {
	case n == nil:
		r.Fault(parent, path, "is required", nil)
	case n.Kind != yaml.ScalarNode || n.Value == "":
		r.Fault(n, path, "must be a string", nil)
	default:
		return n.Value
	}
	return ""
}

// flag returns a boolean; false after a fault.
func (r *release) flag(n *yaml.Node, path string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		r.Fault(n, path, "must be true or false", nil)
		return false
	}
	return strings.EqualFold(n.Value, "true")
}

// number returns a whole number within bounds; 0 after a fault.
func (r *release) number(n *yaml.Node, path string, least, most int) int {
	i, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || i < least || i > most {
		r.Fault(n, path, "must be a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most), n.Value)
		return 0
	}
	return i
}

// object adds a resource to a list.
func (r *release) object(list *[]*yaml.Node, from *yaml.Node, kind, name string, spec document.Mapping) {
	o := document.NewMapping(from)
	o.Put(from, "kind", document.Text(from, kind))
	o.Put(from, "name", document.Text(from, name))
	o.Put(from, "spec", spec.Node)
	*list = append(*list, o.Node)
}

// clusterDefinition converts one of the clusters that virtual clusters refer to.
func (r *release) clusterDefinition(n *yaml.Node, path string) {
	v := r.fields(n, path, "name", "bootstrapServers", "tls", "bootstrapServerSelection", "connectTimeout")
	if name := r.text(v["name"], n, path+".name"); name != "" {
		r.physicalCluster(n, path, name, v)
	}
}

// physicalCluster makes a PhysicalCluster of bootstrap servers, and gives these
// in one order.
func (r *release) physicalCluster(n *yaml.Node, path, name string, v map[string]*yaml.Node) (servers string) {
	spec := document.NewMapping(n)
	if text := r.text(v["bootstrapServers"], n, path+".bootstrapServers"); text != "" {
		var each []string
		list := document.List(v["bootstrapServers"])
		for server := range strings.SplitSeq(text, ",") {
			server = strings.Join(strings.Fields(server), "")
			each = append(each, server)
			list.Content = append(list.Content, document.Text(v["bootstrapServers"], server))
		}
		spec.Put(v["bootstrapServers"], "bootstrap", list)
		slices.Sort(each)
		servers = strings.Join(each, ",")
	} else {
		r.invalidClusters[name] = true
		return ""
	}
	if tls := v["tls"]; tls != nil {
		spec.Put(tls, "tls", r.brokerTLS(tls, path+".tls", name+".client"))
	}
	if at := v["connectTimeout"]; at != nil {
		connect := document.NewMapping(at)
		connect.Put(at, "timeout", at)
		spec.Put(at, "connect", connect.Node)
	}
	if at := v["bootstrapServerSelection"]; at != nil {
		r.fields(at, path+".bootstrapServerSelection", "strategy")
		r.warn(at, path+".bootstrapServerSelection", "is ignored: Penstock tries the bootstrap servers in turn until one answers", nil)
	}
	r.object(&r.physical, n, KindPhysical, name, spec)
	return servers
}

// splitPort cuts "host:port". Its faults are for the value at path.
func (r *release) splitPort(n *yaml.Node, path, text string) (host string, port int) {
	host, digits, err := net.SplitHostPort(text)
	port, numErr := strconv.Atoi(digits)
	if err != nil || numErr != nil || host == "" || port < 1 || port > 65535 {
		r.Fault(n, path, "must be host:port", text)
		return "", 0
	}
	return host, port
}
