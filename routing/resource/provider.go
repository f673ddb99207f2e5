package resource

import (
	"iter"
	"reflect"
)

// KindProvider is the kind of EndpointProvider.
const KindProvider = "EndpointProvider"

// EndpointProvider is an outside place that knows the endpoints of services.
// Services use it by endpointsFrom.
type EndpointProvider struct {
	// Type is dns, file, http, kubernetes, consul, etcd or xds. Required. The
	// field of that name holds its settings.
	Type string `yaml:"type" oneof:"dns file http kubernetes consul etcd xds"`
	// Scope is cluster (the leader asks, and all nodes get what it finds) or node
	// (each node asks by itself, as for local files). Default cluster.
	Scope string `yaml:"scope" default:"cluster" oneof:"cluster node"`
	// MaxStale is how long endpoints count while the provider does not answer.
	// Default 0, for ever; up to 8760h.
	MaxStale Duration `yaml:"maxStale" range:"0..8760h"`
	// Hold delays answers that would remove most endpoints of a service at once.
	Hold ProviderHold `yaml:"hold"`
	// MaxEndpoints is the number of endpoints of one service that are used, the
	// first ones by address. Default 10000, 1..100,000.
	MaxEndpoints int `yaml:"maxEndpoints" default:"10000" range:"1..100000"`
	// ChangesPerSecond is how many endpoints may change in the long run. Default
	// 1000, 1..100,000.
	ChangesPerSecond int `yaml:"changesPerSecond" default:"1000" range:"1..100000"`

	// DNS asks name servers for A, AAAA and SRV records.
	DNS *DNSProvider `yaml:"dns"`
	// File follows a file or folder of each node that asks.
	File *FileProvider `yaml:"file"`
	// HTTP asks a server for a JSON list.
	HTTP *HTTPProvider `yaml:"http"`
	// Kubernetes watches EndpointSlices.
	Kubernetes *KubernetesProvider `yaml:"kubernetes"`
	// Consul asks Consul's health API.
	Consul *ConsulProvider `yaml:"consul"`
	// Etcd watches the keys below a prefix.
	Etcd *EtcdProvider `yaml:"etcd"`
	// XDS is another control plane, asked by the endpoint discovery service (EDS).
	XDS *XDSProvider `yaml:"xds"`
}

// ProviderHold delays answers that would remove most endpoints of a service.
type ProviderHold struct {
	// Share is the percentage of a service's endpoints that one answer may remove
	// at once. Default 50, 0..100.
	Share *int `yaml:"share" default:"50" range:"0..100"`
	// For is how long the removals of a larger answer wait, unless another answer
	// comes first. Default 30s, up to 24h; 0 is none.
	For *Duration `yaml:"for" default:"30s" range:"0..24h"`
}

// DNSProvider asks name servers. The service of endpointsFrom is a host name, and
// its port a number; or it is the name of SRV records ("_http._tcp.example.com").
type DNSProvider struct {
	// Servers are the name servers in the order in which they are tried, IP:port
	// or an IP address with port 53; at most 16. Left out: those of
	// /etc/resolv.conf, with its search list.
	Servers []string `yaml:"servers"`
	// Search lists the domains that complete a short name; at most 32. Left out:
	// that of /etc/resolv.conf, or none with servers.
	Search []string `yaml:"search"`
	// Timeout is how long one server has to answer one question. Default 2s,
	// 100ms..30s.
	Timeout Duration `yaml:"timeout" default:"2s" range:"100ms..30s"`
	// MinTTL is the shortest time that an answer counts. Default 5s, 1s..1h.
	MinTTL Duration `yaml:"minTTL" default:"5s" range:"1s..1h"`
	// MaxTTL is the longest time that an answer counts. Default 5m, 1s..24h.
	MaxTTL Duration `yaml:"maxTTL" default:"5m" range:"1s..24h"`
	// NegativeTTL is the longest time that the answer counts that there are no
	// records. Default 30s, 1s..24h.
	NegativeTTL Duration `yaml:"negativeTTL" default:"30s" range:"1s..24h"`
	// NDots is the number of dots from which on a name is looked up as it is before
	// Search, 1..15. Left out: that of /etc/resolv.conf, or 1 with servers.
	NDots int `yaml:"ndots" range:"1..15"`
	// UDPSize is the largest answer by UDP, in bytes; larger ones come by TCP.
	// Default 1232, 512..4096.
	UDPSize int `yaml:"udpSize" default:"1232" range:"512..4096"`
}

// FileProvider follows a file or folder.
type FileProvider struct {
	// Path is a YAML or JSON file, or a folder of them, on the nodes that read it.
	// A relative path is taken from the folder of the resource's file. Required.
	Path string `yaml:"path"`
	// PollInterval is how often the path is read for changes that inotify does not
	// report. Default 10s, 1s..1h.
	PollInterval Duration `yaml:"pollInterval" default:"10s" range:"1s..1h"`
	// MaxBytes bounds the file, or all files of the folder together. Default
	// 16MiB, 1KiB..1GiB.
	MaxBytes Size `yaml:"maxBytes" default:"16MiB" range:"1KiB..1GiB"`
	// MaxFiles bounds the files of the folder. Default 1000, 1..100,000.
	MaxFiles int `yaml:"maxFiles" default:"1000" range:"1..100000"`
}

// HTTPProvider asks a server for a JSON list.
type HTTPProvider struct {
	// URL is asked; {service} and {port} in it are replaced. Required.
	URL string `yaml:"url"`
	// Mode is poll (ask at each interval), longPoll (the server holds the request
	// until something changes) or sse (server-sent events). Default poll.
	Mode string `yaml:"mode" default:"poll" oneof:"poll longPoll sse"`
	// Interval is the time between two requests of poll, 10 % more or less. Default
	// 10s, 100ms..24h.
	Interval Duration `yaml:"interval" default:"10s" range:"100ms..24h"`
	// Wait is how long longPoll lets the server hold a request. Default 1m, 1s..10m.
	Wait Duration `yaml:"wait" default:"1m" range:"1s..10m"`
	// IdleTimeout is how long sse may be silent before the node connects again.
	// Default 1m, 1s..1h.
	IdleTimeout Duration `yaml:"idleTimeout" default:"1m" range:"1s..1h"`
	// Timeout bounds a request with its answer. Default 10s, 100ms..10m.
	Timeout Duration `yaml:"timeout" default:"10s" range:"100ms..10m"`
	// Token is sent as "Authorization: Bearer TOKEN". It is never shown.
	Token Secret `yaml:"token"`
	// MaxBytes bounds an answer, after decompression. Default 16MiB, 1KiB..1GiB.
	MaxBytes Size `yaml:"maxBytes" default:"16MiB" range:"1KiB..1GiB"`
	// MaxURLs bounds the different URLs, which is how many requests longPoll and
	// sse hold open. Default 1000, 1..10,000.
	MaxURLs int `yaml:"maxURLs" default:"1000" range:"1..10000"`
	// MaxRequests bounds the requests of poll at the same time. Default 32, 1..1000.
	MaxRequests int `yaml:"maxRequests" default:"32" range:"1..1000"`
	// TLS configures https. Left out: the system's CAs.
	TLS *ServiceTLS `yaml:"tls"`
}

// KubernetesProvider watches Services and EndpointSlices. The service of
// endpointsFrom is the name of a Service, or NAMESPACE/NAME, and its port the name
// or number of one of the Service's TCP ports.
type KubernetesProvider struct {
	// Kubeconfig is a file on the nodes. A relative path is taken from the folder of
	// the resource's file. Left out: the service account of the pod that a node runs
	// in.
	Kubeconfig string `yaml:"kubeconfig"`
	// Context is the kubeconfig's context. Left out: its current one.
	Context string `yaml:"context"`
	// AllowExec permits a kubeconfig that runs a command to get credentials. The
	// command runs as the node's user. Default false.
	AllowExec bool `yaml:"allowExec"`
	// Namespace is that of services that are named without one. Default: that of the
	// kubeconfig's context or of the pod, otherwise "default".
	Namespace string `yaml:"namespace"`
	// Namespaces are those whose services can be used, at most 100. Left out:
	// Namespace alone.
	Namespaces []string `yaml:"namespaces"`
	// AllNamespaces watches the whole Kubernetes cluster, which takes a ClusterRole.
	// Default false.
	AllNamespaces bool `yaml:"allNamespaces"`
	// LabelSelector picks Services and EndpointSlices, as kubectl's -l does. Empty:
	// all.
	LabelSelector string `yaml:"labelSelector"`
	// Family restricts the endpoints to IPv4 or IPv6. Left out: both.
	Family string `yaml:"family" oneof:"IPv4 IPv6"`
	// Timeout bounds each answer to a list, and the time until a watch begins.
	// Default 15s, 100ms..5m.
	Timeout Duration `yaml:"timeout" default:"15s" range:"100ms..5m"`
	// MaxBytes bounds an answer to a list, which has at most 250 objects, and an
	// event of a watch. Default 32MiB, 1KiB..1GiB.
	MaxBytes Size `yaml:"maxBytes" default:"32MiB" range:"1KiB..1GiB"`
	// MaxObjects bounds the Services, EndpointSlices, endpoints and ports that are
	// held of each kind in each namespace. Default 500000, 1..10,000,000.
	MaxObjects int `yaml:"maxObjects" default:"500000" range:"1..10000000"`
	// Rate bounds the requests per second, beyond 50 at once. Default 20, 1..10,000.
	Rate int `yaml:"rate" default:"20" range:"1..10000"`
}

// ConsulProvider asks Consul's health API with blocking queries. The service of
// endpointsFrom is the name of a service in Consul.
type ConsulProvider struct {
	// Address is that of an agent or server: http://host:port, https://host:port
	// or unix:PATH. Default http://127.0.0.1:8500.
	Address string `yaml:"address" default:"http://127.0.0.1:8500"`
	// Token is the ACL token; it needs service:read and node:read. It is never
	// shown.
	Token Secret `yaml:"token"`
	// Datacenter is where the services are. Left out: the agent's.
	Datacenter string `yaml:"datacenter"`
	// Namespace is that of the services, in Consul Enterprise.
	Namespace string `yaml:"namespace"`
	// Partition is that of the services, in Consul Enterprise.
	Partition string `yaml:"partition"`
	// Tags lists the tags that an instance must have, all of them; at most 16.
	Tags []string `yaml:"tags"`
	// WarningReady uses instances whose worst check is a warning too. Default false.
	WarningReady bool `yaml:"warningReady"`
	// Stale lets any server answer, even one without a leader. Default false.
	Stale bool `yaml:"stale"`
	// Wait is how long Consul may hold a query while nothing changes. Default 5m,
	// 1s..9m.
	Wait Duration `yaml:"wait" default:"5m" range:"1s..9m"`
	// Timeout bounds a query beyond Wait. Default 10s, 100ms..10m.
	Timeout Duration `yaml:"timeout" default:"10s" range:"100ms..10m"`
	// MaxBytes bounds an answer. Default 64MiB, 1KiB..1GiB.
	MaxBytes Size `yaml:"maxBytes" default:"64MiB" range:"1KiB..1GiB"`
	// MaxQueries bounds the services that are asked for, each of which holds a
	// request open. Default 1000, 1..10,000.
	MaxQueries int `yaml:"maxQueries" default:"1000" range:"1..10000"`
	// TLS configures https. Left out: the system's CAs.
	TLS *ServiceTLS `yaml:"tls"`
}

// EtcdProvider watches the keys below a prefix.
type EtcdProvider struct {
	// Endpoints are etcd's servers, host:port or URLs. Required.
	Endpoints []string `yaml:"endpoints"`
	// Prefix is that of the keys. Required.
	Prefix string `yaml:"prefix"`
	// Format is json (PREFIX/SERVICE/ANY: {address, tags, weight}) or tidb (TiDB's
	// topology: PREFIX/ADDRESS/info and /ttl). Default json.
	Format string `yaml:"format" default:"json" oneof:"json tidb"`
	// Username and Password authenticate. The password is never shown.
	Username string `yaml:"username"`
	// Password belongs to Username.
	Password Secret `yaml:"password"`
	// Timeout bounds a request, and is the time between two checks that etcd still
	// answers. Default 5s, 100ms..1m.
	Timeout Duration `yaml:"timeout" default:"5s" range:"100ms..1m"`
	// MaxKeys bounds the keys below the prefix. Default 100000, 1..1,000,000.
	MaxKeys int `yaml:"maxKeys" default:"100000" range:"1..1000000"`
	// TLS configures TLS. Left out: plain text, unless an endpoint is https.
	TLS *ServiceTLS `yaml:"tls"`
}

// XDSProvider is another control plane. The service of endpointsFrom is the name
// of a cluster there.
type XDSProvider struct {
	// Server is host:port of its gRPC. Required.
	Server string `yaml:"server"`
	// NodeID identifies this proxy there. Most control planes select by it what they
	// serve. Default penstock.
	NodeID string `yaml:"nodeId" default:"penstock"`
	// Cluster is the service that this proxy belongs to, as the server knows it.
	Cluster string `yaml:"cluster"`
	// Locality is where this proxy is, as the server knows it.
	Locality XDSLocality `yaml:"locality"`
	// Metadata is told to the server, which may select by it; at most 64 entries.
	Metadata map[string]string `yaml:"metadata"`
	// Delta uses the incremental variant, which sends only what changed. Default
	// false.
	Delta bool `yaml:"delta"`
	// Separate opens a stream for each type of resources instead of an aggregated
	// one (ADS). Default false.
	Separate bool `yaml:"separate"`
	// Clusters asks CDS for the clusters first, whose EDS resources may have other
	// names (eds_cluster_config.service_name). Default false.
	Clusters bool `yaml:"clusters"`
	// Timeout bounds connecting, sending a request, and waiting for its answer.
	// Default 15s, 100ms..10m.
	Timeout Duration `yaml:"timeout" default:"15s" range:"100ms..10m"`
	// KeepAlive is the time without traffic after which the connection is checked.
	// Many servers close connections that are checked more often than every 5m.
	// Default 5m, 10s..1h.
	KeepAlive Duration `yaml:"keepAlive" default:"5m" range:"10s..1h"`
	// MaxBytes bounds a response. Default 16MiB, 1KiB..1GiB.
	MaxBytes Size `yaml:"maxBytes" default:"16MiB" range:"1KiB..1GiB"`
	// TLS configures TLS, with the client certificate if the server asks for one.
	// Left out: plain text.
	TLS *ServiceTLS `yaml:"tls"`
}

// XDSLocality is where a proxy is.
type XDSLocality struct {
	// Region is the largest unit.
	Region string `yaml:"region"`
	// Zone is part of Region.
	Zone string `yaml:"zone"`
	// SubZone is part of Zone.
	SubZone string `yaml:"subZone"`
}

// EndpointsFrom names endpoints that a provider finds.
type EndpointsFrom struct {
	// Provider is an EndpointProvider. Required.
	Provider string `yaml:"provider"`
	// Service is what the provider calls the service. Default the name of the
	// Service.
	Service string `yaml:"service"`
	// Port is the name or number of the port, for providers whose services have
	// several.
	Port string `yaml:"port"`
	// Tags are added to each endpoint; they win over the provider's.
	Tags map[string]string `yaml:"tags"`
	// Select uses only the endpoints that have all of these tags.
	Select map[string]string `yaml:"select"`
}

// Refs lists the certificates that the provider presents.
func (p *EndpointProvider) Refs() []Ref {
	var refs []Ref
	for path, t := range p.tls() {
		if t.CertificateRef != "" {
			refs = append(refs, Ref{Key: Key{"Certificate", t.CertificateRef}, Path: "spec." + path + ".certificateRef"})
		}
	}
	return refs
}

// Files lists the files of the provider's CAs.
func (p *EndpointProvider) Files() []FileRef {
	var files []FileRef
	for path, t := range p.tls() {
		files = append(files, CAFile("spec."+path+".ca", &t.CA)...)
	}
	return files
}

// Paths lists the paths on nodes that the provider names.
func (p *EndpointProvider) Paths() []*string {
	var paths []*string
	if p.File != nil {
		paths = append(paths, &p.File.Path)
	}
	if p.Kubernetes != nil {
		paths = append(paths, &p.Kubernetes.Kubeconfig)
	}
	return paths
}

// tls yields the TLS settings with their paths. Validation admits at most one.
func (p *EndpointProvider) tls() iter.Seq2[string, *ServiceTLS] {
	return func(yield func(string, *ServiceTLS) bool) {
		switch {
		case p.HTTP != nil && p.HTTP.TLS != nil:
			yield("http.tls", p.HTTP.TLS)
		case p.Consul != nil && p.Consul.TLS != nil:
			yield("consul.tls", p.Consul.TLS)
		case p.Etcd != nil && p.Etcd.TLS != nil:
			yield("etcd.tls", p.Etcd.TLS)
		case p.XDS != nil && p.XDS.TLS != nil:
			yield("xds.tls", p.XDS.TLS)
		}
	}
}

// VerifiesIdentities reports whether the provider's TLS has Verify.
func (p *EndpointProvider) VerifiesIdentities() bool {
	for _, t := range p.tls() {
		if t.Verify != nil {
			return true
		}
	}
	return false
}

// WithDefaults returns a copy of a provider with all defaults filled in.
func (p *EndpointProvider) WithDefaults() *EndpointProvider {
	out := *p
	fill(reflect.ValueOf(&out).Elem())
	return &out
}
