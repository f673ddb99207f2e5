package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Each warning and each message of a condition is below a kilobyte, however much
// users have written.
func TestMessagesAreShort(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 60)+".", 3)
	names := func(domain string) (list []string) {
		for i := range maxHostnames {
			list = append(list, fmt.Sprintf("%sh%04d.%s", long, i, domain))
		}
		return list
	}
	g := &Gateway{GatewayClassName: "x"}
	for i := range maxListeners {
		l := Listener{Name: fmt.Sprintf("%sl%d", long, i), Port: 443 + i/2, Protocol: "TLS", Security: &TLS{Mode: "Passthrough"}}
		if i == 0 {
			l.Hostname = long + "example.net"
			l.AllowedRoutes = &AllowedRoutes{Kinds: []RouteKind{{Kind: KindTLSRoute}, {Kind: strings.Repeat("K", 2000)}}}
		}
		g.Listeners = append(g.Listeners, l)
	}
	far := &Gateway{GatewayClassName: "x", Listeners: g.Listeners[:2], Addresses: []Address{
		{Type: strings.Repeat("T", 2000), Value: strings.Repeat("v", 2000)},
	}}
	route := func(at string, names []string) *TLSRoute {
		return &TLSRoute{ParentRefs: []ParentRef{{Name: at}}, Hostnames: names, Rules: []Rule{{BackendRefs: []BackendRef{
			{Name: strings.Repeat("n", 250), Kind: strings.Repeat("K", 2000), Group: strings.Repeat("g", 2000)},
		}}}}
	}
	one := &Gateway{GatewayClassName: "x", Listeners: []Listener{
		{Name: "tls", Port: 1, Protocol: "TLS", Hostname: "*.example.com", Security: &TLS{Mode: "Passthrough"}},
	}}
	var changes []resource.Change
	put := func(kind, name string, spec resource.Spec) {
		changes = append(changes, resource.Put(resource.Object{Key: resource.Key{Kind: kind, Name: name}, Spec: spec}))
	}
	put(KindGateway, "edge", g)
	put(KindGateway, "far", far)
	put(KindGateway, "one", one)
	put(KindTLSRoute, "elsewhere", route("one", names("example.org")))
	put(KindTLSRoute, "first", route("one", names("example.com")))
	put(KindTLSRoute, "second", route("one", names("example.com")))
	put(KindTLSRoute, "third", route("edge", nil))
	set, faults, warnings := new(validate.Set).With(changes)
	if len(faults) > 0 || len(warnings) == 0 {
		t.Fatal(faults, warnings)
	}
	const most = 1 << 10
	for _, w := range warnings {
		if n := len(w.Message); n >= most {
			t.Errorf("a warning of %d bytes: %s", n, w.Message[:200])
		}
	}
	statuses, seen := NewStatuses(set, nil), ""
	check := func(list []Condition) {
		for _, c := range list {
			if n := len(c.Message); n >= most {
				t.Errorf("a message of %d bytes: %s", n, c.Message[:200])
			}
			seen += c.Message + "\n"
		}
	}
	for i := range changes {
		switch s := statuses.Status(&changes[i].Object, 1, time.Time{}).(type) {
		case *Status:
			check(s.Conditions)
			for _, l := range s.Listeners {
				check(l.Conditions)
			}
		case *RouteStatus:
			for _, p := range s.Parents {
				check(p.Conditions)
			}
		}
	}
	for _, more := range []string{
		"TLSRoute/first takes precedence for ", "and 1022 more by hostname", "in common with " + names("example.org")[0], "and 60 more",
	} {
		if !strings.Contains(seen, more) {
			t.Errorf("no message has %q", more)
		}
	}
}
