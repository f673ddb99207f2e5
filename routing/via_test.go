package routing

import (
	"fmt"
	"testing"

	"penstock/routing/resource"
)

// viaOf returns how often each route and subset chose, for n connections; an established
// connection still says so.
func viaOf(t *testing.T, r *Router, in *Input, n int) map[string]int {
	t.Helper()
	got := map[string]int{}
	for range n {
		d, reason := r.Decide(in)
		if reason != OK {
			t.Fatal(reason)
		}
		if _, reason := d.Next(t0); reason != OK {
			t.Fatal(reason)
		}
		d.Connected(t0)
		text := d.Destination() + " to " + d.Service()
		if via := d.Via(); via != nil {
			text += " by " + via.Route + " " + via.Subset
		}
		got[text]++
	}
	return got
}

func TestADecisionSaysWhatChoseIt(t *testing.T) {
	r := NewRouter(Config{})
	tagged := service(4)
	for i := range tagged.Endpoints {
		tagged.Endpoints[i].Tags = map[string]string{"version": fmt.Sprint("v", i%2), "zone": "a"}
	}
	mustApply(t, r, put("Service", "apps", tagged), put("Service", "other", service(1)), plainTo("apps"))
	in := &Input{Listener: "front"}
	if got, want := fmt.Sprint(viaOf(t, r, in, 10)), "map[apps to apps:10]"; got != want {
		t.Errorf("without a route: %s, want %s", got, want)
	}
	route := routeFor(resource.TargetRef{Kind: kindMesh}, "apps")
	route.To[0].Rules = []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: []resource.BackendRef{
		{Kind: kindMeshServiceSubset, Name: "apps", Tags: map[string]string{"zone": "a", "version": "v1"}, Weight: new(60)},
		{Kind: kindMeshService, Name: "other", Weight: new(30)},
		{Kind: kindMeshService, Name: "apps", Weight: new(10)},
	}}}}
	mustApply(t, r, put("MeshTCPRoute", "canary", route))
	want := "map[apps to apps by MeshTCPRoute/canary :10 apps to apps by MeshTCPRoute/canary version=v1,zone=a:60 apps to other by MeshTCPRoute/canary :30]"
	if got := fmt.Sprint(viaOf(t, r, in, 100)); got != want {
		t.Errorf("with a route: %s, want %s", got, want)
	}
}

func TestADecisionOfAGatewayRouteSaysWhatChoseIt(t *testing.T) {
	r := gatewayRouter(t, fmt.Sprintf(twoServices, "{name: one, weight: 70}, {name: two, weight: 30}"))
	in := &Input{Listener: "edge/443", ServerName: "apps.example.com", HasServerName: true}
	want := "map[TLSRoute/apps to one by TLSRoute/apps :70 TLSRoute/apps to two by TLSRoute/apps :30]"
	if got := fmt.Sprint(viaOf(t, r, in, 100)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
