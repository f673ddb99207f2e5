package xds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// inVirtualTime runs a test whose clock stands still while anything can happen.
func inVirtualTime(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

// elapse lets virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }

// controlPlane is go-control-plane's server on a network.
type controlPlane struct {
	*network
	cache   cache.SnapshotCache
	version int

	mu       sync.Mutex
	requests []string // that it got
}

func newControlPlane(t *testing.T, ads bool) *controlPlane {
	c := &controlPlane{network: newNetwork(t), cache: cache.NewSnapshotCache(ads, cache.IDHash{}, nil)}
	c.restart()
	return c
}

// restart starts the server, with the same resources.
func (c *controlPlane) restart() {
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	handler := serverv3.NewServer(ctx, c.cache, serverv3.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			c.record(r.GetTypeUrl(), &request{names: r.GetResourceNames(), version: r.GetVersionInfo(), nonce: r.GetResponseNonce(),
				fault: r.GetErrorDetail().GetMessage()})
			return nil
		},
		StreamDeltaRequestFunc: func(_ int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			c.record(r.GetTypeUrl(), &request{subscribe: r.GetResourceNamesSubscribe(), unsubscribe: r.GetResourceNamesUnsubscribe(),
				known: r.GetInitialResourceVersions(), nonce: r.GetResponseNonce(), fault: r.GetErrorDetail().GetMessage()})
			return nil
		},
	})
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, handler)
	endpointservice.RegisterEndpointDiscoveryServiceServer(server, handler)
	clusterservice.RegisterClusterDiscoveryServiceServer(server, handler)
	c.start(server)
}

func (c *controlPlane) record(typeURL string, r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, typeURL[strings.LastIndexByte(typeURL, '.')+1:]+" "+r.String())
}

// asked returns the requests since the last call.
func (c *controlPlane) asked() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.requests
	c.requests = nil
	return asked
}

// serve replaces all resources.
func (c *controlPlane) serve(resources ...types.Resource) {
	c.t.Helper()
	byType := map[string][]types.Resource{}
	for _, r := range resources {
		of := endpointType
		if _, isCluster := r.(*clusterv3.Cluster); isCluster {
			of = clusterType
		}
		byType[of] = append(byType[of], r)
	}
	c.version++
	snapshot, err := cache.NewSnapshot(fmt.Sprintf("v%d", c.version), byType)
	if err == nil {
		err = c.cache.SetSnapshot(context.Background(), "edge-1", snapshot)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func edsCluster(name, service string) *clusterv3.Cluster {
	c := &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	if service != "" {
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{ServiceName: service}
	}
	return c
}

func TestEndpointsFollowTheControlPlane(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		c := newControlPlane(t, false)
		c.serve(simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80"), simple("other", "10.0.2.1:80"))
		sink := providertest.NewSink(web, shop)
		sink.Start(t, c.source(variant))
		sink.Await(t, web, "10.0.0.1:80")
		sink.Await(t, shop, "10.0.1.1:80")
		c.serve(assign("web", in("a", 0, 0, at("10.0.0.1:80", 3, corev3.HealthStatus_DRAINING))), simple("shop", "10.0.1.1:80", "10.0.1.2:80"))
		sink.Await(t, web, "10.0.0.1:80*3{zone=a} terminating")
		sink.Await(t, shop, "10.0.1.1:80; 10.0.1.2:80")
		c.serve(assign("web"), simple("shop", "10.0.1.1:80"))
		sink.Await(t, web, "none")
		sink.Await(t, shop, "10.0.1.1:80")
	})
}

// Queries come and go on one stream, without a new answer to the others.
func TestQueriesComeAndGo(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		c := newControlPlane(t, false)
		c.serve(simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80"))
		sink := providertest.NewSink()
		sink.Start(t, c.source(variant))
		synctest.Wait()
		if c.dials != 0 {
			t.Error("it connects without a query")
		}
		sink.Want(web)
		sink.Await(t, web, "10.0.0.1:80")
		sink.Want(web, shop)
		sink.Await(t, shop, "10.0.1.1:80")
		sink.Want(shop)
		synctest.Wait()
		c.serve(simple("web", "10.0.0.2:80"), simple("shop", "10.0.1.2:80"))
		sink.Await(t, shop, "10.0.1.2:80")
		if got := sink.Text(web); got != "10.0.0.1:80" {
			t.Errorf("web is %q though nobody wants it", got)
		}
		sink.Want(web, shop)
		sink.Await(t, web, "10.0.0.2:80")
		if c.dials != 1 {
			t.Errorf("%d connections, want 1", c.dials)
		}
		sink.Want()
		synctest.Wait()
		sink.Want(shop)
		synctest.Wait()
		if c.dials != 2 {
			t.Errorf("%d connections, want 2", c.dials)
		}
	})
}

// What the control plane is told, word for word.
func TestRequests(t *testing.T) {
	for delta, want := range map[bool][]string{
		false: {
			"ClusterLoadAssignment names=shop,web",
			"ClusterLoadAssignment names=shop,web version=v1 nonce=1",
			"ClusterLoadAssignment names=shop,web version=v2 nonce=2",
			"ClusterLoadAssignment names=web version=v2 nonce=2",
		},
		true: {
			"ClusterLoadAssignment subscribe=shop,web",
			"ClusterLoadAssignment nonce=1",
			"ClusterLoadAssignment nonce=2",
			"ClusterLoadAssignment unsubscribe=shop",
		},
	} {
		inVirtualTime(t, func(t *testing.T) {
			c := newControlPlane(t, false)
			c.serve(simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80"))
			sink := providertest.NewSink(shop, web)
			sink.Start(t, c.source(func(cfg *Config) { cfg.Delta = delta }))
			sink.Await(t, web, "10.0.0.1:80")
			synctest.Wait()
			c.serve(simple("web", "10.0.0.2:80"), simple("shop", "10.0.1.1:80"))
			sink.Await(t, web, "10.0.0.2:80")
			synctest.Wait()
			sink.Want(web)
			if got := c.asked(); !slices.Equal(got, want) {
				t.Errorf("delta %v:\n%s\nwant\n%s", delta, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// With Clusters, CDS says which EDS resource a cluster has.
func TestClusters(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		c := newControlPlane(t, false)
		c.serve(edsCluster("web", "web-v1"), edsCluster("shop", ""), &clusterv3.Cluster{
			Name: "static", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS},
		}, simple("web-v1", "10.0.0.1:80"), simple("web-v2", "10.0.0.2:80"), simple("shop", "10.0.1.1:80"), simple("static", "10.0.2.1:80"))
		static, missing := provider.Query{Service: "static"}, provider.Query{Service: "missing"}
		sink := providertest.NewSink(web, shop, static, missing)
		sink.Start(t, c.source(func(cfg *Config) { variant(cfg); cfg.Clusters = true }))
		sink.Await(t, web, "10.0.0.1:80")
		sink.Await(t, shop, "10.0.1.1:80")
		sink.AwaitFailure(t, static, `cluster "static" is of type "STRICT_DNS"; only clusters of type EDS have endpoints in EDS`)
		sink.AwaitFailure(t, missing, `lists no cluster "missing": check the name, and what it serves to node "edge-1"`)

		c.serve(edsCluster("web", "web-v2"), edsCluster("missing", "shop"), simple("web-v2", "10.0.0.2:80"), simple("shop", "10.0.1.1:80"))
		sink.Await(t, web, "10.0.0.2:80")
		sink.Await(t, missing, "10.0.1.1:80")
		sink.Await(t, shop, "none") // the cluster was removed
		c.serve(edsCluster("shop", "*"), edsCluster("web", "shop"), edsCluster("missing", "shop"), simple("shop", "10.0.1.1:80"))
		sink.Await(t, web, "10.0.1.1:80") // the resource has not changed
		sink.AwaitFailure(t, shop, `cluster "shop" has the service name "*", which cannot be asked for`)
		c.serve(edsCluster("shop", ""), edsCluster("web", "shop"), simple("shop", "10.0.1.2:80"))
		sink.Await(t, shop, "10.0.1.2:80")
		sink.Await(t, web, "10.0.1.2:80")
		sink.Await(t, missing, "none")
		sink.Want(missing) // it is gone already
		synctest.Wait()
		if err := sink.Err(missing); err != nil || sink.Text(missing) != "none" {
			t.Errorf("%v, %q", err, sink.Text(missing))
		}
	})
}

// A resource that goes away is removed in the delta variant. In the state of the
// world its absence says nothing.
func TestRemovedResources(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		c := newControlPlane(t, false)
		c.serve(simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80"))
		sink := providertest.NewSink(web, shop)
		source := c.source(variant)
		sink.Start(t, source)
		sink.Await(t, web, "10.0.0.1:80")
		sink.Await(t, shop, "10.0.1.1:80")
		c.serve(simple("shop", "10.0.1.2:80"))
		sink.Await(t, shop, "10.0.1.2:80")
		synctest.Wait()
		want := "10.0.0.1:80"
		if source.cfg.Delta {
			want = "none"
		}
		if got := sink.Text(web); got != want || sink.Err(web) != nil {
			t.Errorf("%q, %v, want %q", got, sink.Err(web), want)
		}
		c.serve(simple("web", "10.0.0.3:80"), simple("shop", "10.0.1.2:80"))
		sink.Await(t, web, "10.0.0.3:80")
	})
}

// A source that runs again continues with what it knows.
func TestReconnect(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		c := newControlPlane(t, false)
		c.serve(edsCluster("web", "web-v1"), edsCluster("shop", ""), simple("web-v1", "10.0.0.1:80"), simple("shop", "10.0.1.1:80"))
		source := c.source(func(cfg *Config) { variant(cfg); cfg.Clusters = true })
		in := newInForce()
		runner := provider.NewRunner(provider.Config{Source: source, Apply: in.apply, HoldFor: -1})
		runner.Want([]provider.Query{web, shop})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go runner.Run(ctx)
		in.await(t, "10.0.0.1:80 10.0.1.1:80")
		c.asked()

		c.stop()
		synctest.Wait()
		if s := runner.Status().Queries[0]; !s.Stale || !strings.Contains(s.Err, "is not available") {
			t.Errorf("%+v", s)
		}
		c.restart()
		elapse(10 * time.Second) // more than the pause of the runner
		got := c.asked()
		want := []string{"Cluster version=v1", "ClusterLoadAssignment names=shop,web-v1 version=v1"}
		if source.cfg.Delta {
			versions := map[string]string{}
			for name, v := range source.eds.known {
				versions[name] = v
			}
			want = []string{
				(&request{known: source.cds.known}).String(),
				(&request{subscribe: []string{"shop", "web-v1"}, known: versions}).String(),
			}
			want[0], want[1] = "Cluster "+want[0], "ClusterLoadAssignment "+want[1]
		}
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("requests\n%s\nwant\n%s", strings.Join(got, "\n"), w)
			}
		}
		// The control plane may stay silent about what the client has. That counts as
		// an answer when it was due.
		elapse(DefaultTimeout)
		for _, s := range runner.Status().Queries {
			if s.Stale {
				t.Errorf("%+v", s)
			}
		}
		c.serve(edsCluster("web", "web-v1"), edsCluster("shop", ""), simple("web-v1", "10.0.0.2:80"), simple("shop", "10.0.1.1:80"))
		in.await(t, "10.0.0.2:80 10.0.1.1:80")
	})
}

// inForce is what a runner has applied.
type inForce struct {
	mu        sync.Mutex
	addresses map[string]bool
	changed   chan struct{}
}

func newInForce() *inForce {
	return &inForce{addresses: map[string]bool{}, changed: make(chan struct{}, 1)}
}

func (f *inForce) apply(_ context.Context, changes []provider.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range changes {
		for _, e := range c.Put {
			f.addresses[e.Address] = true
		}
		for _, a := range c.Gone {
			delete(f.addresses, a)
		}
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
	return nil
}

func (f *inForce) await(t *testing.T, want string) {
	t.Helper()
	for over := time.After(time.Hour); ; { // of virtual time
		f.mu.Lock()
		var list []string
		for a := range f.addresses {
			list = append(list, a)
		}
		f.mu.Unlock()
		slices.Sort(list)
		got := strings.Join(list, " ")
		if got == want {
			return
		}
		select {
		case <-f.changed:
		case <-over:
			t.Fatalf("%q is in force, want %q", got, want)
		}
	}
}

// go-control-plane repeats a response that is refused at once, for ever.
func TestRefusalsAreRare(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlPlane(t, false)
		c.serve(simple("web", "web.example.com:80"))
		sink := providertest.NewSink(web)
		sink.Start(t, c.source(nil))
		sink.AwaitFailure(t, web, `the address "web.example.com" is not an IP address, which EDS requires`)
		elapse(time.Minute)
		if n := len(c.asked()); n < 50 || n > 70 {
			t.Errorf("%d requests within a minute, want one each second", n)
		}
		c.serve(simple("web", "10.0.0.1:80"))
		sink.Await(t, web, "10.0.0.1:80")
	})
}

// go-control-plane's cache for ADS, as Envoy uses it, answers only requests for
// all that it has: the error says what to do, and delta does not need it.
func TestCacheForADS(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlPlane(t, true)
		c.serve(simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80"))
		sink := providertest.NewSink(web)
		sink.Start(t, c.source(nil))
		sink.AwaitFailure(t, web, "has sent no endpoints within 15s: check what it serves to node \"edge-1\"; "+
			"if it answers only when all its clusters are asked for, set delta")
		sink.Want(web, shop)
		sink.Await(t, web, "10.0.0.1:80")

		sink = providertest.NewSink(web)
		sink.Start(t, c.source(func(cfg *Config) { cfg.Delta = true }))
		sink.Await(t, web, "10.0.0.1:80")
	})
}

func TestUnknownNode(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlPlane(t, false)
		c.serve(simple("web", "10.0.0.1:80"))
		sink := providertest.NewSink(web)
		sink.Start(t, c.source(func(cfg *Config) { cfg.Node.ID, cfg.Delta = "edge-2", true }))
		sink.AwaitFailure(t, web, `has sent no endpoints within 15s: check what it serves to node "edge-2"`)
	})
}

func TestUnknownNames(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		c := newControlPlane(t, false)
		c.serve(simple("web", "10.0.0.1:80"))
		missing := provider.Query{Service: "missing"}
		sink := providertest.NewSink(web, missing)
		sink.Start(t, c.source(variant))
		sink.Await(t, web, "10.0.0.1:80")
		sink.AwaitFailure(t, missing, `has sent no endpoints for "missing" within 15s: check the name`)
		c.serve(simple("web", "10.0.0.1:80"), simple("missing", "10.0.0.2:80"))
		sink.Await(t, missing, "10.0.0.2:80")
	})
}

func TestInvalidQueries(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlPlane(t, false)
		c.serve(simple("web", "10.0.0.1:80"))
		bad := map[string]provider.Query{
			"the name of one cluster is required":           {Service: "*"},
			`service "": the name of one`:                   {},
			"leave it out":                                  {Service: "web", Port: "http"},
			"has 1025 bytes; the maximum is 1024":           {Service: strings.Repeat("x", maxName+1)},
			`service "web\xff" is not UTF-8`:                {Service: "web\xff"},
			`has sent no endpoints for "we\x1b[31m" within`: {Service: "we\x1b[31m"},
		}
		queries := []provider.Query{web}
		for _, q := range bad {
			queries = append(queries, q)
		}
		sink := providertest.NewSink(queries...)
		sink.Start(t, c.source(nil))
		sink.Await(t, web, "10.0.0.1:80")
		for want, q := range bad {
			sink.AwaitFailure(t, q, want)
		}
	})
}
