package node

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

const twoRoutes = `
---
kind: MeshTCPRoute
name: everyone
spec:
  to: [{targetRef: {kind: MeshService, name: apps}, rules: [{default: {backendRefs: [` +
	`{kind: MeshService, name: apps, weight: 3}, {kind: MeshService, name: nobody}]}}]}]
---
kind: MeshTCPRoute
name: web
spec:
  targetRef: {kind: MeshService, name: web}
  to: [{targetRef: {kind: MeshService, name: apps}, rules: [{default: {}}]}]
`

// The admin method, whole and in pages, and HTTP return the same answer.
func TestEffectiveRoutes(t *testing.T) {
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b"))+twoRoutes)
	ctx := context.Background()
	whole, err := rpc.Call[api.EffectiveResult](ctx, n.client, api.MethodEffective, api.EffectiveRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(whole.Destinations) != 1 || whole.More != nil || len(whole.Destinations[0].Sources) != 2 {
		t.Fatalf("got %+v", whole)
	}
	web, everyone := whole.Destinations[0].Sources[0], whole.Destinations[0].Sources[1]
	if web.Policy != "web" || len(web.Losers) != 1 || web.Losers[0].Policy != "everyone" || web.Losers[0].Why == "" {
		t.Errorf("of MeshService web: %+v", web)
	}
	if everyone.Policy != "everyone" || len(everyone.Backends) != 2 || everyone.Backends[0].Share != 1 || everyone.Backends[1].Skipped == "" {
		t.Errorf("of Mesh: %+v", everyone)
	}
	part, err := rpc.Call[api.EffectiveResult](ctx, n.client, api.MethodEffective, api.EffectiveRequest{Limit: 1})
	if err != nil || part.More == nil || len(part.Destinations[0].Sources) != 1 {
		t.Fatalf("the first part: %+v, %v", part, err)
	}
	rest, err := rpc.Call[api.EffectiveResult](ctx, n.client, api.MethodEffective, api.EffectiveRequest{After: *part.More})
	if err != nil || rest.More != nil || rest.Destinations[0].Sources[0].Policy != "everyone" {
		t.Fatalf("the rest: %+v, %v", rest, err)
	}
	for path, status := range map[string]int{
		"/v1/effective-routes": 200, "/v1/effective-routes?destination=apps&limit=1": 200,
		"/v1/effective-routes?destination=nobody-at-all": 404, "/v1/effective-routes?limit=many": 400, "/v1/effective-routes?limit=-1": 400,
		"/v1/effective-routes?afterDestination=apps&afterSources=1": 200,
	} {
		resp, err := http.Get("http://" + n.HTTPAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		var got api.EffectiveResult
		err = json.NewDecoder(resp.Body).Decode(&got)
		resp.Body.Close()
		if err != nil || resp.StatusCode != status || status == 200 && (len(got.Destinations) != 1 || got.Destinations[0].Destination != "apps") {
			t.Errorf("%s: %d, want %d: %+v, %v", path, resp.StatusCode, status, got, err)
		}
	}
}
