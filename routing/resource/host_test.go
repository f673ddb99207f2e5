package resource

import (
	"fmt"
	"strings"
	"testing"
)

const hosted = `
kind: Listener
name: edge
spec:
  address: ":9443"
  protocol: tls
  hosts:
  - {names: [a.example.com], service: apps}
  - {names: [b.example.com], service: apps, alpn: [h2]}
---
kind: Service
name: apps
spec: {}
---
kind: Service
name: only
spec: {}
---
kind: Host
name: tenant
spec: {listener: edge, names: [tenant.example.com, "*.bücher.example"], service: only}
`

// host returns a Host of edge with these names, for all protocols or for some.
func host(name, names string, alpn ...string) Object {
	return Object{Key: Key{"Host", name}, Spec: &Host{Listener: "edge", Names: strings.Fields(names), Service: "apps", ALPN: alpn}}
}

func TestListenerNamesHaveOneOwner(t *testing.T) {
	s := mustWith(t, new(Set), puts(decode(t, hosted))...)
	for _, c := range []struct {
		host Object
		want string
	}{
		{host("new", "new.example.com"), ""},
		{
			host("new", "x.example.com A.Example.com"),
			"Host/new spec.names[1]: duplicate, first at Listener/edge spec.hosts[0].names[0] (A.Example.com)",
		},
		{
			host("new", "*.xn--bcher-kva.example"),
			"Host/new spec.names[0]: duplicate, first at Host/tenant spec.names[1] (*.xn--bcher-kva.example)",
		},
		{host("tenant", "tenant.example.com"), ""}, // its own name
		{host("new", "tenant.example.com", "h2"), ""},
		{host("new", "b.example.com"), ""},
		{host("new", "b.example.com", "h3", "http/1.1"), ""},
		{
			host("new", "b.example.com", "h3", "h2"),
			"Host/new spec.names[0]: duplicate, first at Listener/edge spec.hosts[1].names[0] (b.example.com)",
		},
	} {
		_, faults, _ := s.With([]Change{Put(c.host)})
		if c.want == "" {
			wantFaults(t, faults)
		} else {
			wantFaults(t, faults, c.want)
		}
	}
	edge := decode(t, strings.ReplaceAll(hosted, "a.example.com", "a.example.com, tenant.example.com"))[0]
	_, faults, _ := s.With([]Change{Put(edge)})
	wantFaults(t, faults, "test.yaml:8: Listener/edge spec.hosts[0].names[1]: duplicate, "+
		"first at Host/tenant spec.names[0] (tenant.example.com)")
	// A name may move in one change, in either order.
	for _, changes := range [][]Change{
		{Put(edge), Put(host("tenant", "x.example.com"))},
		{Put(host("tenant", "x.example.com")), Put(edge)},
		{Put(edge), Delete(Key{"Host", "tenant"})},
		{Put(host("new", "tenant.example.com")), Delete(Key{"Host", "tenant"})},
	} {
		mustWith(t, s, changes...)
	}
}

func TestResourcesInUseByHostsStay(t *testing.T) {
	s := mustWith(t, new(Set), puts(decode(t, hosted))...)
	for _, c := range []struct {
		key  Key
		want string
	}{
		{Key{"Listener", "edge"}, "Listener/edge: is in use by Host/tenant (spec.listener)"},
		{Key{"Service", "only"}, "Service/only: is in use by Host/tenant (spec.service)"},
	} {
		_, faults, _ := s.With([]Change{Delete(c.key)})
		wantFaults(t, faults, c.want)
	}
	plain := Object{Key: Key{"Listener", "edge"}, Spec: &Listener{Address: ":9443", Service: "apps"}}
	_, faults, _ := s.With([]Change{Put(plain)})
	wantFaults(t, faults, "Listener/edge spec.protocol: must be tls: without TLS there is no server name, "+
		"and it is in use by Host/tenant (spec.listener)")
	s = mustWith(t, s, Delete(Key{"Host", "tenant"}))
	s = mustWith(t, s, Delete(Key{"Service", "only"}), Put(plain))
	_, faults, _ = s.With([]Change{Put(host("new", "a.example.com"))})
	wantFaults(t, faults, "Host/new spec.listener: is not a listener with protocol: tls; without TLS there is no server name (edge)")
	mustWith(t, s, Delete(Key{"Listener", "edge"}))
}

func TestHostNamesWithoutACertificateWarn(t *testing.T) {
	pem := string(readFile(t, "testdata/good/certificate.yaml"))
	all := decode(t, pem+`---
kind: Service
name: apps
spec: {}
---
kind: Listener
name: edge
spec: {address: ":1", protocol: tls, tls: {mode: terminate, certificateRefs: [a]}}
---
kind: Host
name: tenant
spec: {listener: edge, names: [a.example.com, other.example.org], service: apps}
`)
	s, faults, warnings := new(Set).With(puts(all))
	wantFaults(t, faults)
	wantFaults(t, warnings, "Host/tenant spec.names[1]: no certificate of the listener is valid for this name (other.example.org)")
	_, _, warnings = s.With([]Change{Put(host("new", "b.example.org"))})
	wantFaults(t, warnings, "Host/new spec.names[0]: no certificate of the listener is valid for this name (b.example.org)")
	_, _, warnings = s.With([]Change{Put(all[2]), Put(host("new", "b.example.org"))})
	wantFaults(t, warnings, "Host/new spec.names[0]", "Host/tenant spec.names[1]")
	other := Object{Key: Key{"Certificate", "a"}, Spec: &Certificate{
		Cert: string(readFile(t, "testdata/pem/b.crt")), Key: Secret(readFile(t, "testdata/pem/b.key")),
	}}
	_, _, warnings = s.With([]Change{Put(other)})
	wantFaults(t, warnings, "Host/tenant spec.names[0]", "Host/tenant spec.names[1]")
	for _, w := range warnings {
		if w.Line == 0 {
			t.Errorf("%v has no line", w)
		}
	}
}

// The cost of a change of one name among 100,000, in Hosts and in the listener.
func BenchmarkOneHostOf100000(b *testing.B) {
	const many = 100_000
	edge := func(hosts []HostRule) Change {
		return Put(Object{Key: Key{"Listener", "edge"}, Spec: &Listener{Address: ":1", Protocol: "tls", Hosts: hosts}})
	}
	apps := Put(Object{Key: Key{"Service", "apps"}, Spec: &Service{}})
	run := func(name string, s *Set) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				mustWith(b, s, Put(host("new", fmt.Sprintf("new-%d.example.com", i))))
			}
		})
	}
	changes := []Change{edge(nil), apps}
	for i := range many {
		changes = append(changes, Put(host(fmt.Sprintf("tenant-%d", i), fmt.Sprintf("tenant-%d.example.com", i))))
	}
	run("hosts", mustWith(b, new(Set), changes...))
	rules := make([]HostRule, many)
	for i := range rules {
		rules[i] = HostRule{Names: []string{fmt.Sprintf("tenant-%d.example.com", i)}, Service: "apps"}
	}
	run("listener", mustWith(b, new(Set), edge(rules), apps))
}
