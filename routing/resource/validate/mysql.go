package validate

import (
	"fmt"
	"regexp"
	"strings"

	"penstock/routing/resource"
)

// Bounds of names in MySQL's protocol. MySQL's user names have at most 32 characters,
// MariaDB's 80; its version is at most 60 bytes.
const (
	maxUser          = 320
	maxServerVersion = 60
	maxCredentials   = 64
)

// serverVersion is what drivers parse of a version: three numbers, and anything after.
var serverVersion = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,5}([^0-9].*)?$`)

// validateMySQLListener reports fields that a mysql listener cannot have.
func validateMySQLListener(l *resource.Listener, fault Report) {
	if t := l.TLS; t != nil {
		if t.Mode != "terminate" {
			fault("tls.mode", "must be terminate with protocol: mysql: TLS begins after the server's greeting, so it cannot be passed through", orNil(t.Mode))
		} else {
			validateListenerTLS(t, fault)
		}
	}
	const why = "requires tls; without TLS there is no server name"
	if len(l.Hosts) > 0 && l.TLS == nil {
		fault("hosts", why, nil)
	}
	if l.NoServerName != "" {
		fault("noServerName", "is not allowed with protocol: mysql: clients without a server name go to service", l.NoServerName)
	}
	if l.MySQL.RequireTLS && l.TLS == nil {
		fault("mysql.requireTLS", "requires tls: without it no client could log in", true)
	}
	if v := l.MySQL.ServerVersion; v != "" && (len(v) > maxServerVersion || !printable(v) || !serverVersion.MatchString(v)) {
		fault("mysql.serverVersion", fmt.Sprintf("must begin with three numbers, as in 8.0.11-TiDB-v8.5.0, "+
			"and have at most %d printable ASCII characters: drivers parse it", maxServerVersion), v)
	}
	validateUsers(l.MySQL.Users, fault)
}

func validateUsers(users []resource.UserRule, fault Report) {
	seen := map[string]string{}
	for i := range users {
		rule, path := &users[i], resource.Item("mysql.users", i)
		if len(rule.Names) == 0 {
			fault(path+".names", "is required: the user names of the rule", nil)
		}
		checkServiceRef(path+".service", rule.Service, fault)
		for j, name := range rule.Names {
			at := resource.Item(path+".names", j)
			prefix, _ := resource.UserPrefix(name)
			switch before, twice := seen[name]; {
			case name == "":
				fault(at, "must not be empty: clients without a user name go by hosts and service", name)
			case len(name) > maxUser || strings.ContainsRune(name, 0):
				fault(at, fmt.Sprintf("must have at most %d bytes, none of them zero", maxUser), name)
			case strings.Contains(prefix, "*"):
				fault(at, `can have "*" only at its end, where it stands for any characters`, name)
			case twice:
				fault(at, "duplicate, first at spec."+before, name)
			default:
				seen[name] = at
			}
		}
	}
}

// validateMySQLService reports fields that a mysql service cannot have.
func validateMySQLService(s *resource.Service, fault Report) {
	if s.MySQL.RequireTLS && s.TLS == nil {
		fault("mysql.requireTLS", "requires tls, which says how the servers are verified", true)
	}
	validateCredentials(&s.MySQL, fault)
	if s.MySQL.Load != nil {
		validateLoad(s, fault)
	}
	if h := s.HealthCheck; h != nil && h.Type == "tls" && h.Port == 0 && h.PortTag == "" {
		fault("healthCheck.type", "must be tcp, http or mysql with protocol: mysql, whose servers speak before TLS begins", h.Type)
	}
}

// validateLoad reports the faults of how the load of servers is read and used.
func validateLoad(s *resource.Service, fault Report) {
	l, policy := s.MySQL.Load, s.Balancing.Policy
	if policy != "leastConnections" && policy != "random" {
		fault("mysql.load", "requires balancing.policy: leastConnections, or random, with which sessions only move: "+
			"others choose servers whatever they have to do", nil)
	}
	if l.Path != "" && !isPath(l.Path) {
		fault("mysql.load.path", "must begin with / and be printable ASCII without spaces", l.Path)
	}
	if l.PortTag != "" {
		if message := tagFault(l.PortTag, "any"); message != "" {
			fault("mysql.load.portTag", message, l.PortTag)
		}
	}
	if l.CPU.Ignore && l.Memory.Ignore {
		fault("mysql.load", "ignores both cpu and memory: leave it out", nil)
	}
}

// validateCredentials reports the faults of the users whose sessions move by a login.
func validateCredentials(m *resource.ServiceMySQL, fault Report) {
	switch reconnects := m.Move == "reconnect"; {
	case reconnects && len(m.Credentials) == 0:
		fault("mysql.credentials", "is required with move: reconnect: no session could move", nil)
	case !reconnects && len(m.Credentials) > 0:
		fault("mysql.credentials", "requires move: reconnect", nil)
	case len(m.Credentials) > maxCredentials:
		fault("mysql.credentials", fmt.Sprintf("has more than %d users", maxCredentials), len(m.Credentials))
	}
	seen := map[string]string{}
	for i := range m.Credentials {
		c, path := &m.Credentials[i], resource.Item("mysql.credentials", i)
		switch before, twice := seen[c.User]; {
		case c.User == "":
			fault(path+".user", "is required", nil)
		case len(c.User) > maxUser || strings.ContainsRune(c.User, 0):
			fault(path+".user", fmt.Sprintf("must have at most %d bytes, none of them zero", maxUser), c.User)
		case twice:
			fault(path+".user", "duplicate, first at spec."+before, c.User)
		default:
			seen[c.User] = path + ".user"
		}
		if c.PasswordFile == "" {
			fault(path+".passwordFile", "is required: a file on each node", nil)
		}
		followedPath(path+".passwordFile", c.PasswordFile, fault)
	}
}

// printable reports whether a text is printable ASCII.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// Only mysql listeners lead to mysql services, and to no others. A fault is reported
// where the service is named if that is part of the change, and else at what changes.

// checkListenerProtocol reports the services of a listener that do not speak its
// protocol.
func (c *checker) checkListenerProtocol(m *member, l *resource.Listener) {
	for _, r := range m.references() {
		if r.Kind == "Service" {
			c.checkProtocols(m, r.Path, r.Name, l)
		}
	}
}

// checkProtocols reports a service that does not speak the protocol of the listener that
// leads to it. m is what names the service: the listener or a Host.
func (c *checker) checkProtocols(m *member, path, name string, l *resource.Listener) {
	to := c.set.member(resource.Key{Kind: "Service", Name: name})
	if to == nil {
		return // reported as missing
	}
	if s, ok := to.Spec.(*resource.Service); ok && !fits(l, s) {
		c.fault(&m.Object, path, protocolFault(l, s), name)
	}
}

// checkServiceProtocol reports the listeners and Hosts that lead to a service and do not
// speak its protocol.
func (c *checker) checkServiceProtocol(m *member, s *resource.Service) {
	if !c.concernsMySQL(m) {
		return
	}
	c.set.eachUser(m.Key, func(user *member) {
		at := user
		if h, ok := user.Spec.(*resource.Host); ok {
			at = c.set.member(resource.Key{Kind: "Listener", Name: h.Listener})
		}
		if at == nil || !c.unchanged(user) || !c.unchanged(at) {
			return
		}
		if l, ok := at.Spec.(*resource.Listener); ok && !fits(l, s) {
			c.fault(&m.Object, "spec.protocol", "does not fit "+user.String()+": it "+protocolFault(l, s), orNil(s.Protocol))
		}
	})
}

// unchanged reports whether the object is not part of the change.
func (c *checker) unchanged(m *member) bool { return c.before.member(m.Key) == m }

// concernsMySQL reports whether a listener or service speaks MySQL's protocol, or did so
// before the change. Otherwise the unchanged ones that refer to it fit, and are not
// visited.
func (c *checker) concernsMySQL(m *member) bool {
	return speaksMySQL(m) || speaksMySQL(c.before.member(m.Key))
}

func speaksMySQL(m *member) bool {
	if m == nil {
		return false
	}
	switch spec := m.Spec.(type) {
	case *resource.Listener:
		return spec.Protocol == resource.ProtocolMySQL
	case *resource.Service:
		return spec.Protocol == resource.ProtocolMySQL
	}
	return false
}

func fits(l *resource.Listener, s *resource.Service) bool {
	return (l.Protocol == resource.ProtocolMySQL) == (s.Protocol == resource.ProtocolMySQL)
}

func protocolFault(l *resource.Listener, s *resource.Service) string {
	if l.Protocol == resource.ProtocolMySQL {
		return "is a service with protocol: " + orTCP(s.Protocol) + "; a mysql listener leads to services with protocol: mysql only"
	}
	return "is a service with protocol: mysql, which only listeners with protocol: mysql lead to, not " + orTCP(l.Protocol)
}

func orTCP(protocol string) string {
	if protocol == "" {
		return "tcp"
	}
	return protocol
}
