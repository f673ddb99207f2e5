package dataplane

import (
	"log/slog"
	"sync"

	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/resource"
)

// clients makes and caches the TLS towards endpoints: of services, and of listeners
// that have their own. Each has sessions of its own, so none is resumed under other
// settings. Its methods are safe for concurrent use.
type clients struct {
	log   *slog.Logger
	certs *tlsconfig.Store
	mesh  *tlsconfig.Client
	mu    sync.Mutex
	m     map[resource.Key]client
}

// client is the TLS of one version of a service or a listener.
type client struct {
	tls    *resource.ServiceTLS
	config *tlsconfig.Client
}

// of returns the TLS for a version of a service; nil: none.
func (c *clients) of(service string, spec *resource.Service) *tlsconfig.Client {
	if spec.Mesh {
		return c.mesh
	}
	if spec.TLS == nil {
		return nil
	}
	return c.get(resource.Key{Kind: "Service", Name: service}, spec.TLS)
}

// originate returns a listener's own TLS, and forgets that of its earlier version; nil:
// none.
func (c *clients) originate(listener string, t *resource.ServiceTLS) *tlsconfig.Client {
	key := resource.Key{Kind: "Listener", Name: listener}
	if t == nil {
		c.remove(key)
		return nil
	}
	return c.get(key, t)
}

// towards returns the TLS of connections from a listener, whose own is t, to a service;
// nil: none.
func (c *clients) towards(listener string, t *resource.ServiceTLS, s *routing.Service) *tlsconfig.Client {
	if t != nil {
		return c.originate(listener, t)
	}
	return c.of(s.Name(), s.Spec())
}

func (c *clients) get(of resource.Key, t *resource.ServiceTLS) *tlsconfig.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.m[of]
	if ok && old.tls == t {
		return old.config
	}
	made, err := tlsconfig.NewClient(t, c.certs)
	if err != nil {
		c.log.Error("invalid tls towards endpoints: it trusts none", "of", of.String(), "error", err)
	}
	c.m[of] = client{t, made}
	return made
}

func (c *clients) remove(of resource.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, of)
}
