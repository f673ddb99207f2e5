package validate

import (
	"net/netip"
	"slices"

	"penstock/routing/resource"
)

// checkServiceLoops warns of endpoints of a service at which a listener listens
// that leads to the service. It is a warning only, as the listener may be one of
// other nodes. Routes are not followed.
func (c *checker) checkServiceLoops(m *member, s *resource.Service) {
	c.loopsChecked[m.Key] = true
	if len(s.Endpoints) == 0 {
		return
	}
	at := map[string][]*member{} // by port
	c.set.eachUser(m.Key, func(user *member) {
		if _, ok := user.Spec.(*resource.Listener); ok {
			port := user.listens[0].port
			at[port] = append(at[port], user)
		}
	})
	c.warnLoops(m, s, at)
}

// checkListenerLoops is checkServiceLoops for the services that a listener names,
// other than those that are checked by themselves.
func (c *checker) checkListenerLoops(m *member, l *resource.Listener) {
	names := []string{l.Service}
	for i := range l.Hosts {
		names = append(names, l.Hosts[i].Service)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		service := c.set.member(resource.Key{Kind: "Service", Name: name})
		if service == nil || c.pending[service.Key] || c.loopsChecked[service.Key] {
			continue
		}
		if s, ok := service.Spec.(*resource.Service); ok {
			c.warnLoops(service, s, map[string][]*member{m.listens[0].port: {m}})
		}
	}
}

// warnLoops warns of the endpoints that are at one of the listeners, which are
// those of each port.
func (c *checker) warnLoops(m *member, s *resource.Service, at map[string][]*member) {
	if len(at) == 0 {
		return
	}
	for i := range s.Endpoints {
		endpoint := addressOf(s.Endpoints[i].Address)
		if endpoint == (listenAddress{}) {
			continue
		}
		for _, l := range at[endpoint.port] {
			if connects(endpoint.host, l.listens[0].host) {
				c.warn(&m.Object, resource.Item("spec.endpoints", i)+".address",
					"is where "+l.String()+" listens, which leads to this service: a node with that listener would connect to itself",
					s.Endpoints[i].Address)
			}
		}
	}
}

// connects reports whether a connection to a host arrives at a listener of the
// same node, as far as their addresses say so; those of nodes are not known here.
func connects(host, listens string) bool {
	if host == listens {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return (err == nil && ip.IsLoopback() || host == "localhost") && (listens == "" || isWildcard(listens))
}
