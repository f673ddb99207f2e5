package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
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
func host(name, names string, alpn ...string) resource.Object {
	spec := &resource.Host{Listener: "edge", Names: strings.Fields(names), Service: "apps", ALPN: alpn}
	return resource.Object{Key: key("Host", name), Spec: spec}
}

func TestListenerNamesHaveOneOwner(t *testing.T) {
	s := mustWith(t, new(validate.Set), puts(decode(t, hosted))...)
	for _, c := range []struct {
		host resource.Object
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
		_, faults, _ := s.With([]resource.Change{resource.Put(c.host)})
		if c.want == "" {
			wantFaults(t, faults)
		} else {
			wantFaults(t, faults, c.want)
		}
	}
	edge := decode(t, strings.ReplaceAll(hosted, "a.example.com", "a.example.com, tenant.example.com"))[0]
	_, faults, _ := s.With([]resource.Change{resource.Put(edge)})
	wantFaults(t, faults, "test.yaml:8: Listener/edge spec.hosts[0].names[1]: duplicate, "+
		"first at Host/tenant spec.names[0] (tenant.example.com)")
	// A name may move in one change, in either order.
	for _, changes := range [][]resource.Change{
		{resource.Put(edge), resource.Put(host("tenant", "x.example.com"))},
		{resource.Put(host("tenant", "x.example.com")), resource.Put(edge)},
		{resource.Put(edge), resource.Delete(key("Host", "tenant"))},
		{resource.Put(host("new", "tenant.example.com")), resource.Delete(key("Host", "tenant"))},
	} {
		mustWith(t, s, changes...)
	}
}

func TestResourcesInUseByHostsStay(t *testing.T) {
	s := mustWith(t, new(validate.Set), puts(decode(t, hosted))...)
	for _, c := range []struct {
		key  resource.Key
		want string
	}{
		{key("Listener", "edge"), "Listener/edge: is in use by Host/tenant (spec.listener)"},
		{key("Service", "only"), "Service/only: is in use by Host/tenant (spec.service)"},
	} {
		_, faults, _ := s.With([]resource.Change{resource.Delete(c.key)})
		wantFaults(t, faults, c.want)
	}
	plain := resource.Object{Key: key("Listener", "edge"), Spec: &resource.Listener{Address: ":9443", Service: "apps"}}
	_, faults, _ := s.With([]resource.Change{resource.Put(plain)})
	wantFaults(t, faults, "Listener/edge spec.protocol: must be tls: without TLS there is no server name, "+
		"and it is in use by Host/tenant (spec.listener)")
	s = mustWith(t, s, resource.Delete(key("Host", "tenant")))
	s = mustWith(t, s, resource.Delete(key("Service", "only")), resource.Put(plain))
	_, faults, _ = s.With([]resource.Change{resource.Put(host("new", "a.example.com"))})
	wantFaults(t, faults, "Host/new spec.listener: is not a listener with protocol: tls; without TLS there is no server name (edge)")
	mustWith(t, s, resource.Delete(key("Listener", "edge")))
}

func TestHostNamesWithoutACertificateWarn(t *testing.T) {
	pem := string(readFile(t, "../codec/testdata/good/certificate.yaml"))
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
	s, faults, warnings := new(validate.Set).With(puts(all))
	wantFaults(t, faults)
	wantFaults(t, warnings, "Host/tenant spec.names[1]: no certificate of the listener is valid for this name (other.example.org)")
	_, _, warnings = s.With([]resource.Change{resource.Put(host("new", "b.example.org"))})
	wantFaults(t, warnings, "Host/new spec.names[0]: no certificate of the listener is valid for this name (b.example.org)")
	_, _, warnings = s.With([]resource.Change{resource.Put(all[2]), resource.Put(host("new", "b.example.org"))})
	wantFaults(t, warnings, "Host/new spec.names[0]", "Host/tenant spec.names[1]")
	other := resource.Object{Key: key("Certificate", "a"), Spec: &resource.Certificate{
		Cert: string(readFile(t, "../codec/testdata/pem/b.crt")), Key: resource.Secret(readFile(t, "../codec/testdata/pem/b.key")),
	}}
	_, _, warnings = s.With([]resource.Change{resource.Put(other)})
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
	edge := func(hosts []resource.HostRule) resource.Change {
		return put("Listener", "edge", &resource.Listener{Address: ":1", Protocol: "tls", Hosts: hosts})
	}
	apps := put("Service", "apps", &resource.Service{})
	run := func(name string, s *validate.Set) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				mustWith(b, s, resource.Put(host("new", fmt.Sprintf("new-%d.example.com", i))))
			}
		})
	}
	changes := []resource.Change{edge(nil), apps}
	for i := range many {
		changes = append(changes, resource.Put(host(fmt.Sprintf("tenant-%d", i), fmt.Sprintf("tenant-%d.example.com", i))))
	}
	run("hosts", mustWith(b, new(validate.Set), changes...))
	rules := make([]resource.HostRule, many)
	for i := range rules {
		rules[i] = resource.HostRule{Names: []string{fmt.Sprintf("tenant-%d.example.com", i)}, Service: "apps"}
	}
	run("listener", mustWith(b, new(validate.Set), edge(rules), apps))
}
