package routing

import (
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// A route stored under laxer validation stays in effect, except for matches
// that no request can fit.
func TestStoredHTTPRouteThatBecameInvalidStillApplies(t *testing.T) {
	const stored = `{"kind":"MeshHTTPRoute","name":"shop","spec":{"to":[{"targetRef":{"kind":"MeshService","name":"shop"},"rules":[
{"matches":[{"path":{"type":"PathPrefix","value":"/100%"}}],"default":{"backendRefs":[{"kind":"MeshService","name":"shop"}]}},
{"matches":[{"path":{"type":"Exact","value":"/a/%2e%2e"}}]},
{"matches":[{"path":{"type":"PathPrefix","value":"/cart"}}],"default":{"backendRefs":[{"kind":"MeshService","name":"cart"}]}}]}]}}`
	o, err := codec.Restore([]byte(stored), resource.RoutingKinds())
	if err != nil {
		t.Fatal(err)
	}
	shop, cart := service(1), service(1)
	shop.Protocol = "http"
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "shop", shop), put("Service", "cart", cart), resource.Put(o),
		put("Listener", "front", &resource.Listener{Service: "shop", Protocol: "tcp", Tags: map[string]string{"protocol": "http"}}))
	for path, want := range map[string]int{"/cart/7": 2, "/": NoRule} {
		a, reason := r.Table().Request(&Input{Listener: "front"}, "shop", NewRequest("GET", path, "", nil))
		if a.Route != "shop" || a.Rule != want || reason != OK {
			t.Errorf("%s: %s rules[%d] %q, want %d", path, a.Route, a.Rule, reason, want)
		}
		a.Closed()
	}
	e := r.Table().ExplainRequest(&Input{Listener: "front"}, NewRequest("GET", "/cart", "", nil), t0)
	if e.Rule == nil || *e.Rule != 2 || e.Service != "cart" {
		t.Errorf("explained as\n%s", e.Text())
	}
}
