package gateway

import (
	"testing"

	"penstock/routing/resource"
)

// Validation refuses such a name; if one is stored all the same, it must not
// stand for every name.
func TestInvalidHostnameDoesNotMatchEveryName(t *testing.T) {
	tls := func(hostname string) *Gateway {
		return &Gateway{GatewayClassName: "x", Listeners: []Listener{
			{Name: "tls", Hostname: hostname, Port: 443, Protocol: "TLS", Security: &TLS{Mode: "Passthrough"}},
		}}
	}
	route := func(names ...string) *TLSRoute {
		return &TLSRoute{ParentRefs: []ParentRef{{Name: "edge"}}, Hostnames: names, Rules: []Rule{{BackendRefs: []BackendRef{{Name: "apps"}}}}}
	}
	for name, c := range map[string]struct {
		gateway *Gateway
		route   *TLSRoute
		leads   bool
	}{
		"what can be read":       {tls("*.example.com"), route("a.example.com"), true},
		"no name":                {tls(""), route(), true},
		"of a route":             {tls(""), route("a..example.com"), false},
		"of a listener":          {tls("*.*.example.com"), route(), false},
		"of a listener and both": {tls("-"), route("-"), false},
	} {
		_, changed := new(Model).With([]resource.Change{
			resource.Put(resource.Object{Key: resource.Key{Kind: KindGateway, Name: "edge"}, Spec: c.gateway}),
			resource.Put(resource.Object{Key: resource.Key{Kind: KindTLSRoute, Name: "apps"}, Spec: c.route}),
		})
		leads := false
		for _, l := range changed.Listeners {
			leads = leads || l != nil && (l.Service != "" || len(l.Hosts) > 0 && l.Hosts[0].Service != "")
		}
		if leads != c.leads {
			t.Errorf("%s: leads somewhere: %v", name, leads)
		}
	}
}
