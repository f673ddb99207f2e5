package resource

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

// DNSProvider asks name servers. The service of endpointsFrom is a host name, or
// the name of SRV records ("_http._tcp.example.com").
type DNSProvider struct {
	// Servers are asked in order, each host:port or a host with port 53. Left out:
	// those of /etc/resolv.conf, with its search list.
	Servers []string `yaml:"servers"`
	// Search lists the domains that names without a dot are tried in. Left out:
	// that of /etc/resolv.conf, or none with servers.
	Search []string `yaml:"search"`
	// Timeout bounds one question to one server. Default 2s, 100ms..1m.
	Timeout Duration `yaml:"timeout" default:"2s" range:"100ms..1m"`
	// MinTTL and MaxTTL bound how long an answer counts. Default 1s, 1s..24h.
	MinTTL Duration `yaml:"minTTL" default:"1s" range:"1s..24h"`
	// MaxTTL is the longest time between two questions. Default 5m, 1s..24h.
	MaxTTL Duration `yaml:"maxTTL" default:"5m" range:"1s..24h"`
}

// FileProvider follows a file or folder.
type FileProvider struct {
	// Path is a YAML or JSON file, or a folder of them. A relative path is taken
	// from the folder of the resource's file. Required.
	Path string `yaml:"path"`
}

// HTTPProvider asks a server for a JSON list.
type HTTPProvider struct {
	// URL is asked; {service} and {port} in it are replaced. Required.
	URL string `yaml:"url"`
	// Mode is poll (asked every interval), longPoll (the server holds the request
	// until something changes) or sse (server-sent events). Default poll.
	Mode string `yaml:"mode" default:"poll" oneof:"poll longPoll sse"`
	// Interval is the time between two requests of poll. Default 10s, 1s..1h.
	Interval Duration `yaml:"interval" default:"10s" range:"1s..1h"`
	// Timeout bounds a request of poll, and how long the server may be silent
	// otherwise. Default 10s, 100ms..1h.
	Timeout Duration `yaml:"timeout" default:"10s" range:"100ms..1h"`
	// Headers are sent with each request. Their values are secrets.
	Headers []ProviderHeader `yaml:"headers"`
	// TLS configures https. Left out: the system's CAs.
	TLS *ServiceTLS `yaml:"tls"`
}

// ProviderHeader is a header of a request.
type ProviderHeader struct {
	// Name is the header's name. Required.
	Name string `yaml:"name"`
	// Value is its value. It is never shown. Required.
	Value Secret `yaml:"value"`
}

// KubernetesProvider watches EndpointSlices. The service of endpointsFrom is the
// name of a Service, or NAMESPACE/NAME.
type KubernetesProvider struct {
	// Kubeconfig is a file on the nodes. Left out: the service account of the pod
	// that a node runs in.
	Kubeconfig string `yaml:"kubeconfig"`
	// Context is the kubeconfig's context. Left out: its current one.
	Context string `yaml:"context"`
	// Namespace is that of services without one, and the only one that is
	// watched, unless AllNamespaces is set. Default: that of the kubeconfig's
	// context or of the pod, otherwise "default".
	Namespace string `yaml:"namespace"`
	// AllNamespaces watches the whole Kubernetes cluster. Default false.
	AllNamespaces bool `yaml:"allNamespaces"`
	// LabelSelector picks EndpointSlices, as kubectl's -l does. Empty: all.
	LabelSelector string `yaml:"labelSelector"`
}

// ConsulProvider asks Consul's health API with blocking queries. The service of
// endpointsFrom is the name of a service in Consul.
type ConsulProvider struct {
	// Address is the agent or server: host:port, or a URL with http, https or
	// unix. Required.
	Address string `yaml:"address"`
	// Token is the ACL token. It is never shown.
	Token Secret `yaml:"token"`
	// Datacenter, Namespace and Partition are passed on. Left out: the agent's.
	Datacenter string `yaml:"datacenter"`
	// Namespace is Consul Enterprise's.
	Namespace string `yaml:"namespace"`
	// Partition is Consul Enterprise's.
	Partition string `yaml:"partition"`
	// Tags lists the tags that an instance must have, all of them.
	Tags []string `yaml:"tags"`
	// AllowStale lets any server answer, not just the leader. Default false.
	AllowStale bool `yaml:"allowStale"`
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
	// TLS configures TLS. Left out: plain text, unless an endpoint is https.
	TLS *ServiceTLS `yaml:"tls"`
}

// XDSProvider is another control plane. The service of endpointsFrom is the name
// of a cluster there (of its EDS service, if that differs).
type XDSProvider struct {
	// Server is host:port of its gRPC. Required.
	Server string `yaml:"server"`
	// NodeID and Cluster identify this proxy there. Default penstock.
	NodeID string `yaml:"nodeId" default:"penstock"`
	// Cluster is the service that this proxy belongs to, as the server knows it.
	Cluster string `yaml:"cluster"`
	// Delta uses incremental xDS. Default false.
	Delta bool `yaml:"delta"`
	// TLS configures TLS. Left out: plain text.
	TLS *ServiceTLS `yaml:"tls"`
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
