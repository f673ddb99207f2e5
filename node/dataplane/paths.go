package dataplane

import (
	"crypto/tls"
	"net"
	"sync"

	"penstock/netio"
	"penstock/netio/proxyproto"
	"penstock/node/tlsconfig"
	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// path holds the netio profiles for the connections of a flow, by one version of
// its service.
type path struct {
	spec *resource.Service
	// originate is the TLS of the listener in place of the service's; nil: none.
	originate *resource.ServiceTLS
	profile   netio.Profile
	client    *tlsconfig.Client // nil: no TLS

	mu     sync.Mutex
	byHost map[string]*netio.Profile // with TLS: by host of the endpoint
}

// newPath makes the path of a flow from a service's spec with its defaults.
func newPath(f *Flow, spec *resource.Service, client *tlsconfig.Client) *path {
	p := &path{spec: spec, client: client, profile: netio.Profile{
		ConnectTimeout:    spec.Connect.Timeout.D(),
		IdleTimeout:       spec.IdleTimeout.D(),
		HalfClosedTimeout: spec.HalfClosedTimeout.D(),
		MaxAge:            spec.MaxAge.D(),
		SendProxy:         proxyVersion(spec),
		Meter:             f.meter,
	}}
	if sendsIdentity(spec) {
		p.profile.ProxyTLVs = func(c *netio.Conn) []proxyproto.TLV {
			shown := provenBy(c)
			return shown.tlvs()
		}
	}
	if client != nil {
		p.byHost = map[string]*netio.Profile{}
	}
	return p
}

// profileFor returns the profile for an endpoint. With TLS there is one for each
// host, because TLS verifies the host.
func (p *path) profileFor(e *endpoint.Endpoint) *netio.Profile {
	if p.client == nil {
		return &p.profile
	}
	host := hostOf(e)
	config := p.client.For(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	profile := p.byHost[host]
	if profile == nil || profile.TLS != config {
		profile = p.withTLS(config)
		p.byHost[host] = profile
	}
	return profile
}

func (p *path) withTLS(config *tls.Config) *netio.Profile {
	profile := p.profile
	profile.TLS = config
	return &profile
}

// hostOf returns the host of an endpoint as configured; "" for unix sockets.
func hostOf(e *endpoint.Endpoint) string {
	if e.Unix != "" {
		return ""
	}
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return ""
	}
	return host
}

// sendsIdentity reports whether PROXY headers to a service have the SPIFFE ID.
func sendsIdentity(spec *resource.Service) bool {
	return spec.ProxyProtocol != nil && spec.ProxyProtocol.ClientIdentity
}

func proxyVersion(spec *resource.Service) proxyproto.Version {
	if spec.ProxyProtocol == nil {
		return proxyproto.None
	}
	if spec.ProxyProtocol.Send == "v1" {
		return proxyproto.V1
	}
	return proxyproto.V2
}
