package routing

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// userOracle applies the documented rules for a mysql listener literally: by user name, an
// exact one before the longest pattern; by server name; the listener's service.
func userOracle(l *resource.Listener, in *Input) (service string, reason Reason) {
	if in.HasServerName && strings.Contains(in.ServerName, "..") {
		return "", BadServerName
	}
	best := -1
	for _, rule := range l.MySQL.Users {
		for _, name := range rule.Names {
			prefix, isPattern := strings.CutSuffix(name, "*")
			switch {
			case !isPattern && name == in.User:
				return rule.Service, OK
			case isPattern && strings.HasPrefix(in.User, prefix) && len(prefix) > best:
				best, service = len(prefix), rule.Service
			}
		}
	}
	if best >= 0 {
		return service, OK
	}
	if in.HasServerName {
		for _, rule := range l.Hosts {
			for _, name := range rule.Names {
				if name == in.ServerName {
					return rule.Service, OK
				}
			}
		}
	}
	if l.Service == "" {
		return "", NoRoute
	}
	return l.Service, OK
}

func TestUsersAgreeWithOracle(t *testing.T) {
	services := []string{"s-0", "s-1", "s-2"}
	userNames := []string{"", "a", "ab", "abc", "b", "*", "a*b"}
	patterns := []string{"a", "ab", "abc", "b", "*", "a*", "ab*", "abc*", "b*"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(list []string, what string) string { return rapid.SampledFrom(list).Draw(t, what) }
		r := NewRouter(Config{})
		var changes []resource.Change
		for _, name := range services {
			changes = append(changes, put("Service", name, &resource.Service{
				Protocol: "mysql", Endpoints: []resource.Endpoint{{Address: "127.0.0.1:4000"}},
			}))
		}
		for range 2 { // the second listener replaces the first
			l := &resource.Listener{Protocol: "mysql", Service: draw(append(services, ""), "service"),
				TLS: &resource.ListenerTLS{Mode: "terminate", CertificateRefs: []string{"a"}}}
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom(patterns), rapid.ID).Draw(t, "patterns") {
				l.MySQL.Users = append(l.MySQL.Users, resource.UserRule{Names: []string{name}, Service: draw(services, "user's")})
			}
			if rapid.Bool().Draw(t, "hosts") {
				l.Hosts = []resource.HostRule{{Names: []string{"db.example.com"}, Service: draw(services, "host's")}}
			}
			if _, err := r.Apply(append(changes, put("Listener", "db", l)), t0); err != nil {
				t.Fatal(err)
			}
			changes = nil
			for range 8 {
				in := &Input{Listener: "db", User: draw(userNames, "user")}
				in.ServerName = draw([]string{"", "db.example.com", "other.example.com", "a..b"}, "server name")
				in.HasServerName = in.ServerName != ""
				want, closed := userOracle(l, in)
				d, reason := r.Decide(in)
				if d.Destination() != want || reason != closed {
					t.Fatalf("%+v: %q (%s), want %q (%s)", in, d.Destination(), reason, want, closed)
				}
				if e := r.Explain(in, t0); e.Destination != want || e.Reason != closed {
					t.Fatalf("%+v: explain says %q (%s), want %q (%s)", in, e.Destination, e.Reason, want, closed)
				}
			}
		}
	})
}
