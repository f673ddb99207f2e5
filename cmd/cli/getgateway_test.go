package cli

import (
	"strings"
	"testing"

	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// References are shown under their local names: apps of the namespace shop is
// shop.apps.
func TestGatewayRouteColumns(t *testing.T) {
	origin := gateway.Origin{Namespace: "shop"}
	parents := []gateway.ParentRef{{Name: "edge", SectionName: "tls"}, {Name: "edge", Namespace: "default"}}
	rules := []gateway.Rule{{BackendRefs: []gateway.BackendRef{
		{Name: "apps"},
		{Name: "apps", Namespace: "default"},
		{Name: "apps", Namespace: "blog"},
	}}}
	for spec, want := range map[resource.Spec]string{
		&gateway.TLSRoute{
			Origin: origin, ParentRefs: parents, Rules: rules, Hostnames: []string{"a.b"},
		}: "shop.edge/tls,edge | a.b | shop.apps:1 apps:1 blog.apps:1",
		&gateway.TCPRoute{
			Origin: origin, ParentRefs: parents, Rules: rules,
		}: "shop.edge/tls,edge | shop.apps:1 apps:1 blog.apps:1",
	} {
		o := resource.Object{Spec: spec}
		row := tcpRouteRow
		if _, ok := spec.(*gateway.TLSRoute); ok {
			row = tlsRouteRow
		}
		if got := strings.Join(row(o), " | "); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
