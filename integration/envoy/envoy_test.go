package envoy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// mesh is what the tests of the Envoys share: a cluster, three Envoys of three
// services, and the services that they reach.
type mesh struct {
	*cluster
	web, mobile, batch *proxy
	tcp, http          map[string]string // addresses of the backends, by version
	// where the Envoy of each service listens for shop (TCP) and api (HTTP)
	shop, api map[string]string
	extra     map[string]string // more of a service's discovery
}

func startMesh(t *testing.T) *mesh {
	t.Helper()
	requireEnvoy(t)
	m := &mesh{
		cluster: startCluster(t), tcp: map[string]string{}, http: map[string]string{}, shop: map[string]string{}, api: map[string]string{},
		extra: map[string]string{},
	}
	for _, version := range []string{"v1", "v2", "v3"} {
		m.tcp[version], m.http[version] = tcpBackend(t, version), httpBackend(t, version)
	}
	ports, err := process.FreePorts(6)
	if err != nil {
		t.Fatal(err)
	}
	for i, service := range []string{"web", "mobile", "batch"} {
		m.shop[service], m.api[service] = fmt.Sprint("127.0.0.1:", ports[2*i]), fmt.Sprint("127.0.0.1:", ports[2*i+1])
	}
	m.applyServices()
	m.web, m.mobile, m.batch = startEnvoy(t, m.cluster, "web"), startEnvoy(t, m.cluster, "mobile", "--delta"), startEnvoy(t, m.cluster, "batch")
	return m
}

// applyServices applies the resources, with what the test has changed.
func (m *mesh) applyServices() {
	m.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "kind: Service\nname: shop\nspec: {endpoints: %s}\n", endpoints("v1", m.tcp["v1"], "v2", m.tcp["v2"]))
	fmt.Fprintf(&b, "---\nkind: Service\nname: api\nspec: {protocol: http, endpoints: %s}\n", endpoints("v1", m.http["v1"], "v2", m.http["v2"]))
	fmt.Fprintf(&b, "---\nkind: Service\nname: hidden\nspec: {endpoints: %s}\n", endpoints("v1", m.tcp["v1"]))
	for _, service := range []string{"web", "mobile", "batch"} {
		fmt.Fprintf(&b, "---\nkind: Service\nname: %s\nspec:\n  protocol: http\n  discovery:\n    upstreams:\n"+
			"    - {service: shop, address: %q}\n    - {service: api, address: %q}\n%s", service, m.shop[service], m.api[service], m.extra[service])
	}
	b.WriteString(splits(75, 25))
	m.apply(b.String())
}

// splits returns the routes: weights for shop, and for api a header that decides.
func splits(v1, v2 int) string {
	return fmt.Sprintf(`---
kind: MeshTCPRoute
name: shop
spec:
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - default:
        backendRefs:
        - {kind: MeshServiceSubset, name: shop, weight: %d, tags: {version: v1}}
        - {kind: MeshServiceSubset, name: shop, weight: %d, tags: {version: v2}}
---
kind: MeshHTTPRoute
name: api
spec:
  targetRef: {kind: MeshService, name: web}
  to:
  - targetRef: {kind: MeshService, name: api}
    rules:
    - matches: [{path: {type: PathPrefix, value: /}, headers: [{name: x-version, value: new}]}]
      default: {backendRefs: [{kind: MeshServiceSubset, name: api, tags: {version: v2}}]}
    - matches: [{path: {type: PathPrefix, value: /}}]
      default: {backendRefs: [{kind: MeshServiceSubset, name: api, tags: {version: v1}}]}
`, v1, v2)
}

// request returns what an HTTP server answers, with its status unless that is 200.
func request(ctx context.Context, addr string, header http.Header) string {
	status, body := fetchWith(ctx, "http://"+addr+"/", header)
	if status != http.StatusOK {
		return fmt.Sprint(status, " ", body)
	}
	return body
}

func TestEnvoys(t *testing.T) {
	m := startMesh(t)
	t.Run("follow splits", m.followSplits)
	t.Run("follow HTTP routes", m.followHTTPRoutes)
	t.Run("see no more than they may", m.seeNoMore)
	t.Run("lose no request when endpoints change", m.changeEndpoints)
	t.Run("get the certificates of their service", m.getCertificates)
	t.Run("show what they refuse", m.showRefusals)
	t.Run("are endpoints while they are connected", m.announce)
	t.Run("follow renewed certificates", m.renew)
	t.Run("go on at another node", m.surviveNode)
}

const calls = 2000

func (m *mesh) followSplits(t *testing.T) {
	for service, addr := range m.shop {
		testkit.WaitFor(t, "the listener of "+service, func() bool { return connect(addr) != "" })
		wantShares(t, service, shares(calls, func() string { return connect(addr) }), map[string]int{"v1": 75, "v2": 25})
	}
	m.apply(strings.TrimPrefix(splits(0, 100), "---\n"))
	for service, addr := range m.shop {
		testkit.WaitFor(t, "v1 to get nothing of "+service, func() bool { return shares(50, func() string { return connect(addr) })["v2"] == 50 })
	}
	m.apply(strings.TrimPrefix(splits(75, 25), "---\n"))
}

func (m *mesh) followHTTPRoutes(t *testing.T) {
	newer := http.Header{"X-Version": {"new"}}
	for header, want := range map[string]string{"": "v1", "new": "v2"} {
		h := newer
		if header == "" {
			h = nil
		}
		testkit.WaitFor(t, "the route of header "+header, func() bool { return request(t.Context(), m.api["web"], h) == want })
		if got := shares(100, func() string { return request(t.Context(), m.api["web"], h) }); got[want] != 100 {
			t.Errorf("header %q: %v, want %s alone", header, got, want)
		}
	}
	// The route is for connections from web; others get the service as it is.
	got := shares(calls, func() string { return request(t.Context(), m.api["mobile"], newer) })
	wantShares(t, "mobile", got, map[string]int{"v1": 50, "v2": 50})
}

func (m *mesh) seeNoMore(t *testing.T) {
	for _, p := range []*proxy{m.web, m.mobile, m.batch} {
		dump := p.get("/config_dump?include_eds") + p.get("/clusters")
		if !strings.Contains(dump, "shop") {
			t.Errorf("the Envoy of %s does not see shop:\n%s", p.service, dump)
		}
		for _, name := range []string{"hidden", "upstream/web"} {
			if strings.Contains(dump, name) {
				t.Errorf("the Envoy of %s sees %s", p.service, name)
			}
		}
	}
	// Only the routes of web name the header.
	for p, want := range map[*proxy]bool{m.web: true, m.mobile: false} {
		if got := strings.Contains(p.get("/config_dump"), "x-version"); got != want {
			t.Errorf("the Envoy of %s sees the route of web: %v", p.service, got)
		}
	}
}

// changeEndpoints adds and removes an endpoint while requests go on.
func (m *mesh) changeEndpoints(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range 4 {
		running.Go(func() {
			for ctx.Err() == nil {
				answer := request(t.Context(), m.api["batch"], nil)
				mu.Lock()
				got[answer]++
				mu.Unlock()
			}
		})
	}
	count := func(version string) int {
		mu.Lock()
		defer mu.Unlock()
		return got[version]
	}
	of := func(versions ...string) string {
		var list []string
		for _, v := range versions {
			list = append(list, v, m.http[v])
		}
		return fmt.Sprintf("kind: Service\nname: api\nspec: {protocol: http, endpoints: %s}\n", endpoints(list...))
	}
	for range 3 {
		before := count("v3")
		m.apply(of("v1", "v2", "v3"))
		testkit.WaitFor(t, "the new endpoint to be used", func() bool { return count("v3") > before+10 })
		m.apply(of("v1", "v2"))
		testkit.WaitFor(t, "the endpoint to be gone from the Envoy", func() bool {
			return !strings.Contains(m.batch.get("/clusters"), m.http["v3"])
		})
	}
	cancel()
	running.Wait()
	for answer, n := range got {
		if _, ok := m.http[answer]; !ok {
			t.Errorf("%d requests failed: %s", n, answer)
		}
	}
	late := count("v3")
	if got := shares(100, func() string { return request(t.Context(), m.api["batch"], nil) }); got["v3"] > 0 || late == 0 {
		t.Errorf("an endpoint that is gone gets requests: %v", got)
	}
}
