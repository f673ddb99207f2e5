package routing

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"penstock/routing/resource"
)

// edgeTexts shows edges as "from > to".
func edgeTexts(list []TopologyEdge) (texts []string) {
	for i := range list {
		e := &list[i]
		text := fmt.Sprintf("%s %s > %s %s", e.From.Kind, e.From.Text(), e.To.Kind, e.To.Text())
		if len(e.Hosts) > 0 {
			text += " for " + strings.Join(e.Hosts, ",")
		}
		if e.Policy != "" {
			text += fmt.Sprintf(" by %s from %s: %d, %.2g", e.Policy, e.Source, e.Weight, e.Share)
		}
		texts = append(texts, text)
	}
	return texts
}

func TestTopology(t *testing.T) {
	t.Parallel()
	r := NewRouter(Config{})
	web := service(1)
	web.Discovery = &resource.Discovery{Upstreams: []resource.Upstream{{Service: "apps"}}, Announce: &resource.Announce{Port: 80}}
	split := &resource.MeshTCPRoute{To: []resource.RouteTo{{
		TargetRef: resource.TargetRef{Kind: kindMeshService, Name: "apps"},
		Rules: []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: []resource.BackendRef{
			{Kind: kindMeshServiceSubset, Name: "apps", Tags: map[string]string{"version": "v1"}, Weight: new(90)},
			{Kind: kindMeshService, Name: "other", Weight: new(10)},
		}}}},
	}}}
	apps := service(2)
	apps.Endpoints[0].Tags = map[string]string{"version": "v1"}
	mustApply(t, r,
		put("Service", "apps", apps), put("Service", "other", service(1)), put("Service", "web", web),
		put("Listener", "edge", &resource.Listener{
			Address: ":9443", Protocol: "tls", Service: "other", Hosts: []resource.HostRule{{Names: []string{"b.example", "a.example"}, Service: "apps"}},
		}),
		put("MeshTCPRoute", "canary", split),
	)
	got, ok := r.Table().Topology(&TopologyQuery{}, t0)
	if !ok || got.Truncated || len(got.Listeners) != 1 || len(got.Services) != 3 {
		t.Fatalf("got %+v", got)
	}
	want := `listener edge > service apps for a.example,b.example
listener edge > service other
service apps > subset apps {version=v1} by canary from Mesh: 90, 0.9
service apps > service other by canary from Mesh: 10, 0.1
proxies web > service apps`
	if text := strings.Join(edgeTexts(got.Edges), "\n"); text != want {
		t.Errorf("the edges are\n%s\nwant\n%s", text, want)
	}
	data, err := json.Marshal(got.Services)
	if err != nil {
		t.Fatal(err)
	}
	services := `[{"name":"apps","protocol":"tcp","endpoints":2,"usable":2,"sources":["service"],"policies":["canary"]},` +
		`{"name":"other","protocol":"tcp","endpoints":1,"usable":1,"sources":["service"]},` +
		`{"name":"web","protocol":"tcp","endpoints":1,"usable":1,"sources":["service","announced"]}]`
	if string(data) != services {
		t.Errorf("the services are\n%s\nwant\n%s", data, services)
	}

	got, _ = r.Table().Topology(&TopologyQuery{Service: "web"}, t0)
	if len(got.Services) != 1 || len(got.Listeners) != 0 || len(got.Edges) != 1 {
		t.Errorf("of web: %+v", got)
	}
	if _, ok := r.Table().Topology(&TopologyQuery{Service: "nobody"}, t0); ok {
		t.Error("a service that does not exist is described")
	}
	if got, _ = r.Table().Topology(&TopologyQuery{Limit: 5}, t0); !got.Truncated || len(got.Services)+len(got.Listeners)+len(got.Edges) > 6 {
		t.Errorf("with a limit of 5: %+v", got)
	}
	if got, _ = r.Table().Topology(&TopologyQuery{ServicesOnly: true}, t0); len(got.Services) != 3 || len(got.Edges) != 0 {
		t.Errorf("the services alone: %+v", got)
	}
}

func BenchmarkTopologyOf10000Services(b *testing.B) {
	r := NewRouter(Config{})
	var batch []resource.Change
	l := &resource.Listener{Address: ":1", Protocol: "tls"}
	for i := range 10_000 {
		name := fmt.Sprintf("service-%d", i)
		batch = append(batch, put("Service", name, service(3)))
		l.Hosts = append(l.Hosts, rule(name+".example", name))
	}
	mustApply(b, r, append(batch, put("Listener", "edge", l))...)
	for _, only := range []bool{true, false} {
		b.Run(map[bool]string{true: "services", false: "whole"}[only], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = r.Table().Topology(&TopologyQuery{ServicesOnly: only}, t0)
			}
		})
	}
}
