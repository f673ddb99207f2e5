package providers

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"penstock/node/files"
	"penstock/node/tlsconfig"
	"penstock/routing/provider"
	"penstock/routing/provider/consul"
	"penstock/routing/provider/dns"
	"penstock/routing/provider/etcd"
	"penstock/routing/provider/file"
	"penstock/routing/provider/http"
	"penstock/routing/provider/kubernetes"
	"penstock/routing/provider/xds"
	"penstock/routing/resource"
)

// NewSource returns the source of a provider, whose spec has its defaults. TLS
// takes client certificates from certs. Files in dataDir, the node's data folder, are
// refused; "": there is none.
func NewSource(spec *resource.EndpointProvider, certs *tlsconfig.Store, dataDir string, log *slog.Logger) (provider.Source, error) {
	resolve := func(path string) (string, error) { return files.Resolve(path, dataDir) }
	switch spec.Type {
	case "dns":
		return newDNS(spec)
	case "file":
		return file.New(file.Config{
			Path: spec.File.Path, PollInterval: spec.File.PollInterval.D(), MaxBytes: int64(spec.File.MaxBytes), MaxFiles: spec.File.MaxFiles,
			MaxEndpoints: totalEndpoints(spec), Resolve: resolve, Log: log,
		})
	case "http":
		return newHTTP(spec, certs)
	case "consul":
		return newConsul(spec, certs)
	case "etcd":
		return newEtcd(spec, certs)
	case "kubernetes":
		return newKubernetes(spec, resolve)
	case "xds":
		return newXDS(spec, certs)
	}
	return nil, fmt.Errorf("unknown type %q", spec.Type)
}

// totalEndpoints bounds the endpoints of all services together, for sources that
// get them in one document.
func totalEndpoints(spec *resource.EndpointProvider) int {
	return max(spec.MaxEndpoints, provider.DefaultMaxEndpoints)
}

func newDNS(spec *resource.EndpointProvider) (provider.Source, error) {
	d := spec.DNS
	if d == nil {
		d = (&resource.EndpointProvider{DNS: &resource.DNSProvider{}}).WithDefaults().DNS
	}
	return dns.New(dns.Config{
		Servers: d.Servers, Search: d.Search, Timeout: d.Timeout.D(), MinTTL: d.MinTTL.D(), MaxTTL: max(d.MaxTTL, d.MinTTL).D(),
		NegativeTTL: min(max(d.NegativeTTL, d.MinTTL), max(d.MaxTTL, d.MinTTL)).D(), NDots: d.NDots, UDPSize: d.UDPSize,
		MaxEndpoints: spec.MaxEndpoints,
	})
}

func newHTTP(spec *resource.EndpointProvider, certs *tlsconfig.Store) (provider.Source, error) {
	h := spec.HTTP
	config, err := clientTLS(h.TLS, certs, hostOf(h.URL))
	if err != nil {
		return nil, err
	}
	return http.New(http.Config{
		URL: h.URL, Mode: http.Mode(h.Mode), Interval: h.Interval.D(), Wait: h.Wait.D(), IdleTimeout: h.IdleTimeout.D(),
		Timeout: h.Timeout.D(), Token: string(h.Token), TLS: config,
		MaxBytes: int64(h.MaxBytes), MaxURLs: h.MaxURLs, MaxRequests: h.MaxRequests, MaxEndpoints: totalEndpoints(spec),
	})
}

func newConsul(spec *resource.EndpointProvider, certs *tlsconfig.Store) (provider.Source, error) {
	c := spec.Consul
	if c == nil {
		c = (&resource.EndpointProvider{Consul: &resource.ConsulProvider{}}).WithDefaults().Consul
	}
	config, err := clientTLS(c.TLS, certs, hostOf(c.Address))
	if err != nil {
		return nil, err
	}
	return consul.New(consul.Config{
		Address: c.Address, Token: string(c.Token), TLS: config, Datacenter: c.Datacenter, Namespace: c.Namespace, Partition: c.Partition,
		Tags: c.Tags, WarningReady: c.WarningReady, Stale: c.Stale,
		Wait: c.Wait.D(), Timeout: c.Timeout.D(), MaxBytes: int64(c.MaxBytes), MaxQueries: c.MaxQueries, MaxEndpoints: totalEndpoints(spec),
	})
}

func newEtcd(spec *resource.EndpointProvider, certs *tlsconfig.Store) (provider.Source, error) {
	e := spec.Etcd
	var config *tls.Config
	if e.TLS != nil || strings.HasPrefix(e.Endpoints[0], "https:") {
		var err error
		if config, err = clientTLS(e.TLS, certs, hostOf(e.Endpoints[0])); err != nil {
			return nil, err
		}
		if e.TLS == nil || e.TLS.ServerName == "" {
			config.ServerName = "" // each endpoint's own
		}
	}
	return etcd.New(etcd.Config{
		Endpoints: e.Endpoints, Prefix: e.Prefix, Format: etcd.Format(e.Format), Username: e.Username, Password: string(e.Password), TLS: config,
		Timeout: e.Timeout.D(), MaxKeys: e.MaxKeys,
	})
}

func newKubernetes(spec *resource.EndpointProvider, resolve func(string) (string, error)) (provider.Source, error) {
	k := spec.Kubernetes
	if k == nil {
		k = (&resource.EndpointProvider{Kubernetes: &resource.KubernetesProvider{}}).WithDefaults().Kubernetes
	}
	namespaces := k.Namespaces
	if k.AllNamespaces {
		namespaces = []string{kubernetes.AllNamespaces}
	}
	return kubernetes.New(kubernetes.Config{
		Kubeconfig: k.Kubeconfig, Context: k.Context, AllowExec: k.AllowExec, Namespace: k.Namespace, Namespaces: namespaces,
		LabelSelector: k.LabelSelector, Family: kubernetes.Family(k.Family), Timeout: k.Timeout.D(), MaxBytes: int64(k.MaxBytes),
		MaxObjects: k.MaxObjects, Rate: float64(k.Rate), Resolve: resolve,
	})
}

func newXDS(spec *resource.EndpointProvider, certs *tlsconfig.Store) (provider.Source, error) {
	x := spec.XDS
	var config *tls.Config
	if x.TLS != nil {
		var err error
		if config, err = clientTLS(x.TLS, certs, hostOf(x.Server)); err != nil {
			return nil, err
		}
	}
	metadata := make(map[string]any, len(x.Metadata))
	for k, v := range x.Metadata {
		metadata[k] = v
	}
	return xds.New(xds.Config{
		Server: x.Server, TLS: config, Delta: x.Delta, Separate: x.Separate, Clusters: x.Clusters,
		Node: xds.Node{
			ID: x.NodeID, Cluster: x.Cluster, Region: x.Locality.Region, Zone: x.Locality.Zone, SubZone: x.Locality.SubZone, Metadata: metadata,
		},
		Timeout: x.Timeout.D(), KeepAlive: x.KeepAlive.D(), MaxBytes: int(x.MaxBytes), MaxEndpoints: totalEndpoints(spec),
	})
}

// clientTLS returns the configuration towards a host; nil settings are those of
// the system.
func clientTLS(t *resource.ServiceTLS, certs *tlsconfig.Store, host string) (*tls.Config, error) {
	client, err := tlsconfig.NewClient(cmp.Or(t, &resource.ServiceTLS{}), certs)
	if err != nil {
		return nil, err
	}
	return client.For(host).Clone(), nil
}

// hostOf returns the host of a URL or of host:port.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Hostname()
	}
	host, _, _ := net.SplitHostPort(address)
	return host
}
