package xds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"

	"penstock/internal/testkit"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

func TestRefusedResourcesAreShown(t *testing.T) {
	ts := newTestServer(t, nil)
	s := ts.ads()
	request := cdsRequest()
	request.Node.UserAgentName = "envoy"
	request.Node.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
		Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 34, Patch: 2},
	}}
	if err := s.Send(request); err != nil {
		t.Fatal(err)
	}
	r := must[*discoveryv3.DiscoveryResponse](t)(s.Recv())
	if err := s.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: snapshot.Cluster.URL(), ResponseNonce: r.GetNonce(), ErrorDetail: &statuspb.Status{Message: "no such\nfilter"},
	}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "it is refused", func() bool { s := ts.Status(); return s != nil && s.Refusing == 1 })
	all := ts.Proxies()
	if len(all) != 1 || len(all[0].Types) != 1 {
		t.Fatalf("%+v", all)
	}
	p, k := all[0], all[0].Types[0]
	if p.Service != "web" || p.ID != "envoy-1" || p.Agent != "envoy 1.34.2" || p.Streams != 1 || p.Node != "n1" || p.Since.IsZero() {
		t.Errorf("%+v", p)
	}
	if k.Type != "cluster" || !k.All || k.Accepted != "" || k.Sent != r.GetVersionInfo() || k.Rejected != "no such\nfilter" ||
		k.RejectedAt == nil || k.Behind == nil {
		t.Errorf("%+v", k)
	}
	if got := ts.Status(); len(got.Problems) != 1 || got.Connected != 1 || got.Behind != 0 {
		t.Errorf("%+v", got)
	}
	ts.set(func(w *snapshottest.World) { w.Put(snapshot.Cluster, "a", "1") })
	r = must[*discoveryv3.DiscoveryResponse](t)(s.Recv())
	if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: snapshot.Cluster.URL(), ResponseNonce: r.GetNonce()}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "it is accepted", func() bool {
		k := ts.Proxies()[0].Types[0]
		return !k.Refusing && k.Behind == nil && k.Accepted == r.GetVersionInfo()
	})
}

// announcer records what is announced.
type announcer struct {
	mu    sync.Mutex
	now   map[string]int
	calls int
}

func (a *announcer) Announce(service string, e provider.Endpoint) (withdraw func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	host, _, _ := strings.Cut(e.Address, ":")
	key := fmt.Sprintf("%s %s weight=%d %v", service, strings.Replace(e.Address, host, "HOST", 1), e.Weight, e.Tags)
	a.now[key]++
	a.calls++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.now[key]--; a.now[key] == 0 {
			delete(a.now, key)
		}
	}
}

func (a *announcer) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(a.now)), ", ")
}

func TestProxiesAreAnnounced(t *testing.T) {
	a := &announcer{now: map[string]int{}}
	ts := newTestServer(t, func(c *Config) { c.Announcer = a })
	spec := resource.Announce{Port: 8443, Tags: map[string]string{"v": "1"}, From: []string{"127.0.0.0/8"}}
	ts.set(func(w *snapshottest.World) { w.Announce(&spec).Put(snapshot.Endpoint, "a", "1") })
	testkit.WaitFor(t, "the snapshot is served", func() bool { return ts.Counts().Snapshots >= 2 })

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn := ts.dial()
	open := func(ctx context.Context) {
		t.Helper()
		s, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
		if err != nil {
			t.Fatal(err)
		}
		node := &corev3.Node{Id: "p", Cluster: "web", Locality: &corev3.Locality{Zone: "z1"}}
		if err := s.Send(&discoveryv3.DiscoveryRequest{Node: node, ResourceNames: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		must[*discoveryv3.DiscoveryResponse](t)(s.Recv())
	}
	first, cancelFirst := context.WithCancel(ctx)
	defer cancelFirst()
	open(first)
	open(ctx)
	want := "web HOST:8443 weight=1 map[v:1 zone:z1]"
	if a.text() != want || a.calls != 1 {
		t.Errorf("announced %q by %d calls", a.text(), a.calls)
	}
	if got := ts.Proxies()[0].Announced; !strings.HasSuffix(got, ":8443") {
		t.Errorf("shown as %q", got)
	}
	cancelFirst()
	testkit.WaitFor(t, "one stream is left", func() bool { return ts.Counts().Streams == 1 })
	if a.text() != want {
		t.Errorf("withdrawn with a stream left: %q", a.text())
	}
	// The same settings in a new resource change nothing, others do.
	same := spec
	ts.set(func(w *snapshottest.World) { w.Announce(&same) })
	other := resource.Announce{Port: 9443}
	ts.set(func(w *snapshottest.World) { w.Announce(&other) })
	testkit.WaitFor(t, "the port changes", func() bool { return a.text() == "web HOST:9443 weight=1 map[zone:z1]" })
	elsewhere := resource.Announce{Port: 9443, From: []string{"10.0.0.0/8"}}
	ts.set(func(w *snapshottest.World) { w.Announce(&elsewhere) })
	testkit.WaitFor(t, "its address is not allowed", func() bool { return a.text() == "" })
	ts.set(func(w *snapshottest.World) { w.Announce(&other) })
	testkit.WaitFor(t, "it is allowed again", func() bool { return a.text() != "" })
	cancel()
	testkit.WaitFor(t, "it is withdrawn", func() bool { return a.text() == "" })
}
