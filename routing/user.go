package routing

import (
	"slices"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// users maps the user names of a mysql listener's clients to services: an exact name
// first, then the longest pattern.
type users struct {
	exact    map[string]string // user name -> service
	prefixes map[string]string // what user names begin with -> service
	lengths  []int             // of the prefixes, longest first
}

func newUsers(rules []resource.UserRule) (u users) {
	if len(rules) == 0 {
		return u
	}
	u.exact, u.prefixes = map[string]string{}, map[string]string{}
	for i := range rules {
		for _, name := range rules[i].Names {
			prefix, isPattern := resource.UserPrefix(name)
			if !isPattern {
				u.exact[name] = rules[i].Service
				continue
			}
			u.prefixes[prefix] = rules[i].Service
			if !slices.Contains(u.lengths, len(prefix)) {
				u.lengths = append(u.lengths, len(prefix))
			}
		}
	}
	slices.SortFunc(u.lengths, func(a, b int) int { return b - a })
	return u
}

// match returns the pattern that decides for a user name, and its service.
func (u *users) match(user string) (pattern, service string, ok bool) {
	if service, ok = u.exact[user]; ok {
		return user, service, true
	}
	for _, n := range u.lengths {
		if n <= len(user) {
			if service, ok = u.prefixes[user[:n]]; ok {
				return user[:n] + "*", service, true
			}
		}
	}
	return "", "", false
}

// speaksMySQL reports whether the listener's clients speak MySQL's protocol, and so say
// who they are before they are routed.
func (l *Listener) speaksMySQL() bool { return l.spec.Protocol == resource.ProtocolMySQL }

// mysqlDestination is destination for a mysql listener: by user name, then by server
// name, then the listener's service. A server name that cannot be interpreted reaches
// none of them.
func (l *Listener) mysqlDestination(in *Input, tr *trace) (string, Reason) {
	if _, valid := hostname.CheckSNI(in.ServerName); in.HasServerName && !valid {
		tr.name(in)
		return l.byName(in, tr)
	}
	pattern, service, ok := l.users.match(in.User)
	tr.user(in, l, pattern, service)
	if ok {
		return service, OK
	}
	tr.name(in)
	if !in.HasServerName {
		return l.defaultService(tr, "no server name was sent")
	}
	return l.byName(in, tr)
}
