package validate

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/labels"

	"penstock/routing/resource"
)

// Bounds of what a service or provider names.
const (
	maxEndpointsFrom = 16
	maxServiceText   = 200 // of what a provider calls a service, in bytes
	maxNamespaces    = 100 // of a kubernetes provider
	maxNamespaceName = 63
	maxMetadata      = 64 // entries that an xds provider tells of the node
	maxXDSText       = 1024
)

// validateProvider reports the faults of a provider alone.
func validateProvider(p *resource.EndpointProvider, fault Report) {
	Fields(p, fault)
	settings := map[string]bool{
		"dns": p.DNS != nil, "file": p.File != nil, "http": p.HTTP != nil, "kubernetes": p.Kubernetes != nil,
		"consul": p.Consul != nil, "etcd": p.Etcd != nil, "xds": p.XDS != nil,
	}
	if p.Type == "" {
		fault("type", "is required: "+orList(slices.Sorted(maps.Keys(settings))), nil)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if settings[name] && p.Type != name && p.Type != "" {
			fault(name, fmt.Sprintf("has settings for another type: leave it out, or write type: %s", name), nil)
		}
	}
	validateProviderType(p, fault)
}

func validateProviderType(p *resource.EndpointProvider, fault Report) {
	required := func(path, value, what string) bool {
		if value == "" {
			fault(path, "is required: "+what, nil)
		}
		return value != ""
	}
	switch p.Type {
	case "dns":
		if p.DNS != nil {
			validateDNSProvider(p.DNS, fault)
		}
	case "file":
		file := orZero(p.File)
		if required("file.path", file.Path, "a file or folder on the nodes") && strings.ContainsRune(file.Path, 0) {
			fault("file.path", "must not contain a zero byte", nil)
		}
	case "http":
		h := orZero(p.HTTP)
		if required("http.url", h.URL, "where the list is") {
			validateProviderURL("http.url", h.URL, fault, "http", "https")
		}
		validateProviderTLS("http", h.TLS, fault)
	case "kubernetes":
		validateKubernetesProvider(orZero(p.Kubernetes), fault)
	case "consul":
		c := orZero(p.Consul)
		if c.Address != "" && !strings.HasPrefix(c.Address, "unix:") {
			validateProviderURL("consul.address", c.Address, fault, "http", "https")
		}
		validateProviderTLS("consul", c.TLS, fault)
	case "etcd":
		validateEtcdProvider(orZero(p.Etcd), fault)
	case "xds":
		x := orZero(p.XDS)
		if required("xds.server", x.Server, "host:port of the control plane") {
			validateHostPort("xds.server", x.Server, fault)
		}
		validateXDSProvider(x, fault)
	}
}

// orZero returns the settings, or empty ones, which then lack what is required.
func orZero[T any](settings *T) *T {
	if settings == nil {
		settings = new(T)
	}
	return settings
}

func validateDNSProvider(d *resource.DNSProvider, fault Report) {
	for i, server := range d.Servers {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			host, port = server, "53"
		}
		_, addrErr := netip.ParseAddr(host)
		if n, err := strconv.ParseUint(port, 10, 16); addrErr != nil || err != nil || n == 0 {
			fault(resource.Item("dns.servers", i), "must be an IP address, or IP:port", server)
		}
	}
	for i, domain := range d.Search {
		if message := Host(strings.TrimSuffix(domain, ".")); message != "" {
			fault(resource.Item("dns.search", i), message, domain)
		}
	}
	if d.MinTTL != 0 && d.MaxTTL != 0 && d.MinTTL > d.MaxTTL {
		fault("dns.minTTL", "must not exceed maxTTL", d.MinTTL)
	}
}

func validateEtcdProvider(e *resource.EtcdProvider, fault Report) {
	if len(e.Endpoints) == 0 {
		fault("etcd.endpoints", "is required: the addresses of etcd's servers", nil)
	}
	for i, at := range e.Endpoints {
		if path := resource.Item("etcd.endpoints", i); strings.Contains(at, "://") {
			validateProviderURL(path, at, fault, "http", "https")
		} else {
			validateHostPort(path, at, fault)
		}
	}
	if strings.Trim(e.Prefix, "/") == "" {
		fault("etcd.prefix", "is required: the prefix of the keys", orNil(e.Prefix))
	}
	if (e.Username == "") != (e.Password == "") {
		fault("etcd.username", "goes with password: give both or neither", nil)
	}
	validateProviderTLS("etcd", e.TLS, fault)
}

func validateKubernetesProvider(k *resource.KubernetesProvider, fault Report) {
	if strings.ContainsRune(k.Kubeconfig, 0) {
		fault("kubernetes.kubeconfig", "must not contain a zero byte", nil)
	}
	if k.Context != "" && k.Kubeconfig == "" {
		fault("kubernetes.context", "is one of a kubeconfig: give that too", k.Context)
	}
	if k.AllowExec && k.Kubeconfig == "" {
		fault("kubernetes.allowExec", "is for a kubeconfig: give that too", nil)
	}
	validateNamespace("kubernetes.namespace", k.Namespace, fault)
	if len(k.Namespaces) > maxNamespaces {
		fault("kubernetes.namespaces", fmt.Sprintf("has %d entries; the maximum is %d: use allNamespaces", len(k.Namespaces), maxNamespaces), nil)
	}
	if len(k.Namespaces) > 0 && k.AllNamespaces {
		fault("kubernetes.namespaces", "goes without allNamespaces: leave one out", nil)
	}
	for i, name := range k.Namespaces {
		path := resource.Item("kubernetes.namespaces", i)
		if validateNamespace(path, name, fault); name == "" {
			fault(path, "is empty", nil)
		}
	}
	if _, err := labels.Parse(k.LabelSelector); err != nil {
		fault("kubernetes.labelSelector", "is no label selector: write KEY=VALUE, KEY!=VALUE or KEY in (A, B), joined by commas", k.LabelSelector)
	}
}

func validateNamespace(path, name string, fault Report) {
	if name != "" && (!isName(name, "-") || len(name) > maxNamespaceName) {
		fault(path, "is no name of a namespace", name)
	}
}

// validateXDSProvider reports the faults of what the control plane is told.
func validateXDSProvider(x *resource.XDSProvider, fault Report) {
	text := func(path, text string) {
		if len(text) > maxXDSText || !isText(text) {
			fault("xds."+path, fmt.Sprintf("must be printable text of at most %d bytes", maxXDSText), nil)
		}
	}
	text("nodeId", x.NodeID)
	text("cluster", x.Cluster)
	text("locality.region", x.Locality.Region)
	text("locality.zone", x.Locality.Zone)
	text("locality.subZone", x.Locality.SubZone)
	if len(x.Metadata) > maxMetadata {
		fault("xds.metadata", fmt.Sprintf("has %d entries; the maximum is %d", len(x.Metadata), maxMetadata), nil)
	}
	for _, key := range slices.Sorted(maps.Keys(x.Metadata)) {
		if value := x.Metadata[key]; key == "" || len(key) > maxXDSText || len(value) > maxXDSText || !isText(key) || !isText(value) {
			fault(string(resource.AppendStep([]byte("xds.metadata"), key)),
				fmt.Sprintf("the key and the value must be printable text of at most %d bytes, the key not empty", maxXDSText), nil)
		}
	}
	validateProviderTLS("xds", x.TLS, fault)
}

// isText reports whether a text is printable UTF-8.
func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func validateHostPort(path, address string, fault Report) {
	if message := checkAddress(address, false); message != "" || strings.HasPrefix(address, "unix:") {
		fault(path, "must be host:port or [v6]:port", address)
	}
}

// validateProviderURL reports what is wrong with a URL. It does not show one
// with a password.
func validateProviderURL(path, text string, fault Report, schemes ...string) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		fault(path, "is no URL", nil)
	case u.User != nil:
		fault(path, "must not contain a user or password: use token, which is never shown", nil)
	case !slices.Contains(schemes, u.Scheme) || u.Host == "":
		fault(path, "must begin with "+orList(schemes)+" and name a host: "+schemes[0]+"://host:port/path", text)
	case u.Fragment != "":
		fault(path, "must not have a fragment", text)
	}
}

// validateProviderTLS reports the faults of the TLS settings of a type.
func validateProviderTLS(kind string, t *resource.ServiceTLS, fault Report) {
	if t != nil {
		if t.CAFile != "" {
			fault(kind+".tls.caFile", "is not supported for providers: give ca", t.CAFile)
		}
		if t.CARef != "" {
			fault(kind+".tls.caRef", "is not supported for providers: give ca", t.CARef)
		}
		if len(t.TrustDomains) > 0 {
			fault(kind+".tls.trustDomains", "is not supported for providers: give ca", nil)
		}
		validateServiceTLS(t, func(path, message string, value any) { fault(kind+"."+path, message, value) })
	}
}

// validateEndpointsFrom reports the faults of a service's list of providers.
func validateEndpointsFrom(list []resource.EndpointsFrom, fault Report) {
	if len(list) > maxEndpointsFrom {
		fault("endpointsFrom", fmt.Sprintf("has %d entries; the maximum is %d", len(list), maxEndpointsFrom), nil)
	}
	for i := range list {
		from, path := &list[i], resource.Item("endpointsFrom", i)
		if from.Provider == "" {
			fault(path+".provider", "is required: the name of an EndpointProvider", nil)
		} else {
			Ref(path+".provider", from.Provider, fault)
		}
		validateServiceText(path+".service", from.Service, fault)
		validateServiceText(path+".port", from.Port, fault)
		checkTags(path+".tags", from.Tags, fault)
		checkTags(path+".select", from.Select, fault)
		for j := range i {
			if before := &list[j]; before.Provider == from.Provider && before.Service == from.Service && before.Port == from.Port &&
				maps.Equal(before.Select, from.Select) {
				fault(path, "duplicate, first at spec."+resource.Item("endpointsFrom", j), nil)
			}
		}
	}
}

// validateServiceText reports a text that no provider can understand.
func validateServiceText(path, text string, fault Report) {
	if len(text) > maxServiceText || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd }) {
		fault(path, fmt.Sprintf("must be at most %d bytes, without spaces or control characters", maxServiceText), text)
	}
}
