package validate

import (
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// checkHost checks a Host against its listener and other claims to its names.
func (c *checker) checkHost(m *member, h *resource.Host) {
	for i, name := range h.Names {
		c.checkClaims(m, h.Listener, resource.Item("spec.names", i), name, h.ALPN)
	}
	at := c.set.member(resource.Key{Kind: "Listener", Name: h.Listener})
	if at == nil {
		return // reported as a missing reference
	}
	l, ok := at.Spec.(*resource.Listener)
	if ok {
		c.checkProtocols(m, "spec.service", h.Service, l)
	}
	if !ok || c.pending[at.Key] || c.hostsRefused[at.Key] {
		return // reported when the listener is checked
	}
	if !hasServerNames(l) {
		c.fault(&m.Object, "spec.listener", "is not a listener with protocol: tls; without TLS there is no server name", h.Listener)
	} else if l.TLS != nil && l.TLS.Mode == "terminate" && !c.coverageChecked[m.Key] {
		c.coverageChecked[m.Key] = true
		c.warnUncovered(m, at, "spec.names", h.Names)
	}
}

// hasServerNames reports whether clients of a listener can send server names that it
// routes by.
func hasServerNames(l *resource.Listener) bool {
	return l.Protocol == "tls" || l.Protocol == resource.ProtocolMySQL && l.TLS != nil
}

// checkHostsOf checks a listener that has Hosts.
func (c *checker) checkHostsOf(m *member, l *resource.Listener) {
	if c.concernsMySQL(m) {
		c.set.eachUser(m.Key, func(user *member) {
			if h, ok := user.Spec.(*resource.Host); ok && c.unchanged(user) {
				c.checkProtocols(user, "spec.service", h.Service, l)
			}
		})
	}
	if !hasServerNames(l) {
		c.hostsRefused[m.Key] = true
		why := "without TLS there is no server name, and it is in use by " + formatUsers(c.set.Users(m.Key))
		if l.Protocol == resource.ProtocolMySQL {
			c.fault(&m.Object, "spec.tls", "is required: "+why, nil)
		} else {
			c.fault(&m.Object, "spec.protocol", "must be tls: "+why, orNil(l.Protocol))
		}
	}
	for i := range l.Hosts {
		for j, name := range l.Hosts[i].Names {
			c.checkClaims(m, m.Name, resource.Item(resource.Item("spec.hosts", i)+".names", j), name, l.Hosts[i].ALPN)
		}
	}
}

// checkClaims reports a name that another object has as well. Of two objects
// that are checked together, the later one gets the fault.
func (c *checker) checkClaims(m *member, listener, path, name string, alpn []string) {
	canonical, err := hostname.ParsePattern(name)
	if err != nil {
		return // reported by Validate
	}
	var rival *claim
	var first resource.Key
	x, _ := c.set.names.Get(listener, canonical)
	for ; x != nil; x = x.next {
		owner := x.owner(listener)
		if owner == m.Key || c.pending[owner] || !x.conflicts(alpn) {
			continue
		}
		if rival == nil || owner.Compare(first) < 0 {
			rival, first = x, owner
		}
	}
	if rival != nil {
		c.fault(&m.Object, path, "duplicate, first at "+first.String()+" "+c.claimPath(first, canonical, rival.alpn), name)
	}
}

// claimPath returns the path of a name in the object that has it.
func (c *checker) claimPath(owner resource.Key, canonical string, alpn []string) string {
	paths, ok := c.places[owner]
	if !ok {
		paths = map[string]string{}
		c.places[owner] = paths
		note := func(path string, names, alpn []string) {
			for i, name := range names {
				if canonical, err := hostname.ParsePattern(name); err == nil {
					paths[placeKey(canonical, alpn)] = resource.Item(path, i)
				}
			}
		}
		switch spec := c.set.member(owner).Spec.(type) {
		case *resource.Host:
			note("spec.names", spec.Names, spec.ALPN)
		case *resource.Listener:
			for i := range spec.Hosts {
				note(resource.Item("spec.hosts", i)+".names", spec.Hosts[i].Names, spec.Hosts[i].ALPN)
			}
		}
	}
	return paths[placeKey(canonical, alpn)]
}

// placeKey distinguishes the rules of one name, whose protocols differ.
func placeKey(canonical string, alpn []string) string {
	if len(alpn) == 0 {
		return canonical
	}
	return canonical + "\x00" + alpn[0]
}
