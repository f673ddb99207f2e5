package resource

// Discovery says which proxies are those of a service, what they may see by xDS,
// and whether a connected proxy is an endpoint of the service.
type Discovery struct {
	// Identities are those of the service's proxies, from their certificates: SPIFFE
	// IDs, in which a final "/*" stands for any path below, and common names of
	// certificates without one. At most 64. Default: the identity in the
	// certificates that "penstock xds bootstrap --for" issues for the service.
	Identities []string `yaml:"identities"`
	// Upstreams are the services that the proxies may reach. They see no other. At
	// most 10,000.
	Upstreams []Upstream `yaml:"upstreams"`
	// Certificates are the Certificates, keys included, that the proxies may get by
	// SDS. At most 64.
	Certificates []string `yaml:"certificates"`
	// Announce makes each connected proxy an endpoint of the service, for as long as
	// its stream lives. Left out: none is.
	Announce *Announce `yaml:"announce"`
}

// EveryService stands for all services in Upstream.
const EveryService = "*"

// Upstream is a service that a proxy may reach.
type Upstream struct {
	// Service is the name of a Service, or "*" for every one. Required.
	Service string `yaml:"service"`
	// Address is where the proxy listens for connections to the service, IP:port,
	// such as 127.0.0.1:9001. Left out: the proxy gets no listener for it.
	Address string `yaml:"address"`
}

// Announce says how a connected proxy becomes an endpoint.
type Announce struct {
	// Port is the port of the endpoint, 1..65535. Required. Its IP address is that
	// from which the proxy is connected.
	Port int `yaml:"port" range:"1..65535"`
	// From are the networks from which proxies are accepted as endpoints, as
	// prefixes. Left out: any.
	From []string `yaml:"from"`
	// Tags are those of the endpoints.
	Tags map[string]string `yaml:"tags"`
}
