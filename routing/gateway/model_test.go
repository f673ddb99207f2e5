package gateway

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// drawObject draws an object from few names and namespaces, so that references
// hit objects that come and go: by namespace, by a dot and to Certificates.
func drawObject(t *rapid.T) resource.Object {
	namespace := rapid.SampledFrom([]string{"", "", "shop", "blog"}).Draw(t, "namespace")
	kind := rapid.SampledFrom([]string{KindGateway, KindTLSRoute, KindTCPRoute, KindGrant, kindCertificate}).Draw(t, "kind")
	name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name")
	reference := rapid.SampledFrom([]string{"a", "shop.a", "blog.a", "x.a"})
	origin := Origin{Namespace: namespace}
	o := resource.Object{Key: resource.Key{Kind: kind, Name: NameOf(namespace, name)}}
	refers := func() (in, to string) {
		return rapid.SampledFrom([]string{"", "", "default", "shop"}).Draw(t, "in"), reference.Draw(t, "to")
	}
	rules := func() []Rule {
		in, to := refers()
		return []Rule{{BackendRefs: []BackendRef{{Namespace: in, Name: to}}}}
	}
	parents := []ParentRef{{Name: "a", Namespace: "default"}, {Name: "a"}}
	switch kind {
	case KindGateway:
		g := &Gateway{Origin: origin, GatewayClassName: "x"}
		for i, hostname := range []string{"a.com", "*.com"} {
			in, to := refers()
			g.Listeners = append(g.Listeners, Listener{
				Name: fmt.Sprint("l", i), Port: 1, Protocol: "TLS", Hostname: hostname,
				Security:      &TLS{CertificateRefs: []CertificateRef{{Namespace: in, Name: to}}},
				AllowedRoutes: &AllowedRoutes{Namespaces: &RouteNamespaces{From: "All"}},
			})
		}
		o.Spec = g
	case KindTLSRoute:
		o.Spec = &TLSRoute{
			Origin: origin, ParentRefs: parents, Rules: rules(),
			Hostnames: rapid.SampledFrom([][]string{nil, {"a.com"}, {"*.com"}}).Draw(t, "hostnames"),
		}
	case KindTCPRoute:
		o.Spec = &TCPRoute{Origin: origin, ParentRefs: parents, Rules: rules()}
	case KindGrant:
		to := rapid.SampledFrom([]string{kindService, kindSecret}).Draw(t, "given")
		g := &ReferenceGrant{Origin: origin, To: []GrantTo{{Kind: to}}}
		for _, kind := range []string{KindGateway, KindTLSRoute, KindTCPRoute} {
			g.From = append(g.From, GrantFrom{Group: Group, Kind: kind, Namespace: "default"})
		}
		o.Spec = g
	case kindCertificate:
		o.Spec = &resource.Certificate{}
	}
	return o
}

// A series of changes yields the same model as its final objects applied at
// once: everything that a change affects is updated.
func TestIncrementalModelMatchesFreshModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model, all := new(Model), map[resource.Key]resource.Object{}
		listeners, destinations := map[string]*resource.Listener{}, map[string]*Destination{}
		for range rapid.IntRange(1, 30).Draw(t, "changes") {
			o := drawObject(t)
			ch := resource.Put(o)
			if all[o.Key] = o; rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
				ch = resource.Delete(o.Key)
				delete(all, o.Key)
			}
			next, changed := model.With([]resource.Change{ch})
			model = next
			maps.Copy(listeners, changed.Listeners)
			maps.Copy(destinations, changed.Destinations)
			maps.DeleteFunc(listeners, func(_ string, l *resource.Listener) bool { return l == nil })
			maps.DeleteFunc(destinations, func(_ string, d *Destination) bool { return d == nil })
		}
		var changes []resource.Change
		for _, o := range all {
			changes = append(changes, resource.Put(o))
		}
		_, want := new(Model).With(changes)
		for name, l := range want.Listeners {
			if listeners[name] == nil || !same(listeners[name], l) {
				t.Fatalf("%s: %+v, want %+v", name, listeners[name], l)
			}
		}
		if len(listeners) != len(want.Listeners) ||
			!reflect.DeepEqual(destinations, want.Destinations) && len(destinations)+len(want.Destinations) > 0 {
			t.Fatalf("%v %v, want %v %v", listeners, destinations, want.Listeners, want.Destinations)
		}
	})
}
