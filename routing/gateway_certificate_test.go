package routing

import (
	"fmt"
	"testing"

	"penstock/routing/resource"
)

// certified is a Certificate for these names, as an object.
func certified(t testing.TB, name string, names ...string) resource.Object {
	return resource.Object{Key: resource.Key{Kind: "Certificate", Name: name}, Spec: certificate(t, names...)}
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

// A listener that has no Certificate to show is not Programmed, so connections
// for it are closed, though the listener beside it could show one.
func TestAListenerWithoutACertificateTakesNoConnections(t *testing.T) {
	r := gatewayRouter(t, fmt.Sprintf(twoTerminating, "{name: secret, namespace: certs}"))
	want := func(what, app, other string) {
		t.Helper()
		for name, where := range map[string]string{"app.example.com": app, "other.example.com": other} {
			if got := whither(r, "edge/443", name, 1); got[where] != 1 {
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
	apply(resource.Put(certified(t, "wild", "*.example.com")))
	want("that of the listener beside it", "no_route", "one")
	apply(resource.Put(certified(t, "certs.secret", "app.example.com")))
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
	broken := certified(t, "certs.secret", "app.example.com")
	broken.Spec.(*resource.Certificate).Cert = "-"
	if _, err := r.Apply([]resource.Change{resource.Put(broken)}, t0); err == nil {
		t.Fatal("a broken certificate is taken")
	}
	want("one that cannot be read", "no_route", "one")
	apply(resource.Put(certified(t, "certs.secret", "app.example.com")))
	want("it is back", "one", "one")
}

// The Certificate of a namespace is not another's by its name with a dot.
func TestADotInACertificateRefIsNoGrant(t *testing.T) {
	r := gatewayRouter(t, fmt.Sprintf(twoTerminating, "{name: certs.secret}"))
	want := func(what, where string) {
		t.Helper()
		if got := whither(r, "edge/443", "app.example.com", 1); got[where] != 1 {
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
	apply(resource.Put(certified(t, "certs.secret", "app.example.com")))
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
