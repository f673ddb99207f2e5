package routing

import (
	"fmt"
	"strings"
	"testing"

	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// certified returns a Certificate object for these names.
func certified(name string, names ...string) resource.Object {
	return resource.Object{Key: resource.Key{Kind: "Certificate", Name: name}, Spec: certificate(names...)}
}

const twoTerminating = `
kind: Service
name: one
spec: {endpoints: [{address: "127.0.0.1:1"}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: any
  listeners:
  - {name: app, port: 443, protocol: TLS, hostname: app.example.com, tls: {certificateRefs: [%s]}}
  - {name: rest, port: 443, protocol: TLS, hostname: "*.example.com", tls: {certificateRefs: [{name: wild}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: r}
spec: {parentRefs: [{name: edge}], hostnames: [app.example.com, other.example.com], rules: [{backendRefs: [{name: one}]}]}
`

// A listener without a usable Certificate is not Programmed: its connections
// are closed, even if another listener has a certificate for them.
func TestListenerWithoutCertificateRefusesConnections(t *testing.T) {
	r := gatewayRouter(t, fmt.Sprintf(twoTerminating, "{name: secret, namespace: certs}"))
	want := func(what, app, other string) {
		t.Helper()
		for name, where := range map[string]string{"app.example.com": app, "other.example.com": other} {
			if got := destinationsOf(r, "edge/443", name, 1); got[where] != 1 {
				t.Errorf("%s: %s leads to %v, want %s", what, name, got, where)
			}
		}
	}
	apply := func(changes ...resource.Change) {
		t.Helper()
		if _, err := r.Apply(changes, t0); err != nil {
			t.Fatal(err)
		}
	}
	want("no certificate at all", "no_route", "no_route")
	apply(resource.Put(certified("wild", "*.example.com")))
	want("that of the listener beside it", "no_route", "one")
	apply(resource.Put(certified("certs.secret", "app.example.com")))
	want("one that it may not refer to", "no_route", "one")
	grant, _ := decodeInput(`
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: certs}
spec: {from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: default}], to: [{group: "", kind: Secret}]}
`)
	apply(puts(grant)...)
	want("one that it may refer to", "one", "one")
	apply(resource.Delete(resource.Key{Kind: "Certificate", Name: "certs.secret"}))
	want("it is gone", "no_route", "one")
	broken := certified("certs.secret", "app.example.com")
	broken.Spec.(*resource.Certificate).Cert = "-"
	if _, err := r.Apply([]resource.Change{resource.Put(broken)}, t0); err == nil {
		t.Fatal("a broken certificate is taken")
	}
	want("one that cannot be read", "no_route", "one")
	apply(resource.Put(certified("certs.secret", "app.example.com")))
	want("it is back", "one", "one")
}

// A certificateRef without a namespace needs a grant as well, if its name has
// the form of a Certificate in another namespace.
func TestDotInCertificateRefIsNoGrant(t *testing.T) {
	r := gatewayRouter(t, fmt.Sprintf(twoTerminating, "{name: certs.secret}"))
	want := func(what, where string) {
		t.Helper()
		if got := destinationsOf(r, "edge/443", "app.example.com", 1); got[where] != 1 {
			t.Errorf("%s: %v, want %s", what, got, where)
		}
	}
	apply := func(changes ...resource.Change) {
		t.Helper()
		if _, err := r.Apply(changes, t0); err != nil {
			t.Fatal(err)
		}
	}
	grant := func(kind string) []resource.Change {
		objects, _ := decodeInput(`
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: g, namespace: certs}
spec: {from: [{group: gateway.networking.k8s.io, kind: ` + kind + `, namespace: default}], to: [{group: "", kind: Secret, name: secret}]}
`)
		return puts(objects)
	}
	apply(resource.Put(certified("certs.secret", "app.example.com")))
	want("there is no such namespace", "one")
	apply(grant("TLSRoute")...)
	want("there is, and it grants that to others", "no_route")
	apply(grant("Gateway")...)
	want("granted", "one")
	apply(grant("TLSRoute")...)
	want("to others again", "no_route")
	apply(resource.Delete(resource.Key{Kind: "ReferenceGrant", Name: "certs.g"}))
	want("there is no such namespace any more", "one")
}

// Names that no Certificate covers are reported when a resource is applied and
// in the status. A listener without any covered name is not Programmed.
func TestNameWithoutCertificateIsReported(t *testing.T) {
	objects, faults := decodeInput(fmt.Sprintf(twoTerminating, "{name: own}"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	set, faults, _ := new(validate.Set).With(puts(objects))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	with := func(list ...resource.Object) (told []string) {
		t.Helper()
		next, faults, warnings := set.With(puts(list))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, w := range warnings {
			told = append(told, w.Path+": "+w.Message)
		}
		set = next
		return told
	}
	listener := func(i int) gateway.Condition {
		t.Helper()
		o, _ := set.Get(resource.Key{Kind: "Gateway", Name: "edge"})
		for _, c := range gateway.NewStatuses(set, nil).Status(&o, 1, t0).(*gateway.Status).Listeners[i].Conditions {
			if c.Type == "Programmed" {
				return c
			}
		}
		t.Fatal("Programmed is not told")
		return gateway.Condition{}
	}
	const words = ": no Certificate at port 443 is valid for "
	has := func(what string, told []string, want string) {
		t.Helper()
		if len(told) != 1 || !strings.HasPrefix(told[0], want) {
			t.Errorf("%s: %q, want %q", what, told, want)
		}
	}
	has("both", with(certified("own", "other.example.org"), certified("wild", "other.example.com")),
		"Gateway/edge spec.listeners[0].tls.certificateRefs"+words+"app.example.com")
	if c := listener(0); c.Status != "False" || !strings.Contains(c.Message, "app.example.com") {
		t.Errorf("a listener that nothing gets into: %+v", c)
	}
	if c := listener(1); c.Status != "True" || c.Message != "" {
		t.Errorf("a listener whose names are covered: %+v", c)
	}
	if told := with(certified("own", "app.example.com")); len(told) > 0 {
		t.Errorf("a Certificate for the name: %q", told)
	}
	route, _ := decodeInput(`
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: more}
spec: {parentRefs: [{name: edge}], hostnames: [one.example.com, two.example.com], rules: [{backendRefs: [{name: one}]}]}
`)
	has("a route with other names", with(route...), "TLSRoute/more spec.parentRefs[0]"+words+"one.example.com, two.example.com")
	if c := listener(1); c.Status != "True" || !strings.Contains(c.Message, "one.example.com, two.example.com") {
		t.Errorf("a listener of which some names are covered: %+v", c)
	}
	if told := with(certified("wild", "*.example.com")); len(told) > 0 || listener(1).Message != "" {
		t.Errorf("a Certificate for all of them: %q, %+v", told, listener(1))
	}
}
