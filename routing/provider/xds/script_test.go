package xds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// peer is a stream of a control plane that a test plays, for what
// go-control-plane never does.
type peer struct {
	t      *testing.T
	stream grpc.ServerStream
	method string
}

// play starts a control plane whose streams are played by a function.
func (n *network) play(stream func(p *peer) error) {
	n.start(grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		return stream(&peer{n.t, s, method})
	})))
}

// hears waits for a request in the state of the world, and compares it.
func (p *peer) hears(want string) *discoveryv3.DiscoveryRequest {
	p.t.Helper()
	r := &discoveryv3.DiscoveryRequest{}
	if err := p.stream.RecvMsg(r); err != nil {
		p.t.Errorf("no request: %v, want %q", err, want)
		return r
	}
	got := &request{names: r.GetResourceNames(), version: r.GetVersionInfo(), nonce: r.GetResponseNonce(), fault: r.GetErrorDetail().GetMessage()}
	p.compare(got, want)
	return r
}

// hearsDelta is hears for the delta variant.
func (p *peer) hearsDelta(want string) {
	p.t.Helper()
	r := &discoveryv3.DeltaDiscoveryRequest{}
	if err := p.stream.RecvMsg(r); err != nil {
		p.t.Errorf("no request: %v, want %q", err, want)
		return
	}
	p.compare(&request{subscribe: r.GetResourceNamesSubscribe(), unsubscribe: r.GetResourceNamesUnsubscribe(),
		known: r.GetInitialResourceVersions(), nonce: r.GetResponseNonce(), fault: r.GetErrorDetail().GetMessage()}, want)
}

// compare compares a request, of whose fault want has a part.
func (p *peer) compare(got *request, want string) {
	p.t.Helper()
	start, fault, refused := strings.Cut(want, " fault=")
	detail := got.fault
	got.fault = ""
	if got.String() != start || refused != (detail != "") || !strings.Contains(detail, fault) {
		p.t.Errorf("request %q with the fault %q, want %q", got, detail, want)
	}
}

func (p *peer) says(m proto.Message) {
	p.t.Helper()
	if err := p.stream.SendMsg(m); err != nil {
		p.t.Error(err)
	}
}

// waits keeps the stream open until the client ends it.
func (p *peer) waits() error {
	<-p.stream.Context().Done()
	return nil
}

// world returns a response in the state of the world.
func world(version, nonce string, resources ...proto.Message) *discoveryv3.DiscoveryResponse {
	r := &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: nonce, TypeUrl: endpointType}
	for _, m := range resources {
		r.Resources = append(r.Resources, pack(m))
	}
	return r
}

func pack(m proto.Message) *anypb.Any {
	if packed, ok := m.(*anypb.Any); ok {
		return packed
	}
	packed, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return packed
}

// A response of which a part is invalid is refused, but its valid part is used;
// what is invalid keeps its last version.
func TestRefusals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		next := make(chan bool)
		n.play(func(p *peer) error {
			p.hears("names=shop,web")
			p.says(world("1", "n1", simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80")))
			p.hears("names=shop,web version=1 nonce=n1")
			<-next
			p.says(world("2", "n2", simple("web", "web.example.com:80"), simple("shop", "10.0.1.2:80")))
			p.hears(`names=shop,web version=1 nonce=n2 fault=ClusterLoadAssignment "web", which is refused: locality "", endpoint 0: the address "web.example.com"`)
			<-next
			p.says(world("3", "n3", simple("shop", "10.0.1.3:80")))
			p.hears("names=shop,web version=3 nonce=n3")
			<-next
			p.says(world("4", "n4", simple("web", "10.0.0.4:80")))
			p.hears("names=shop,web version=4 nonce=n4")
			<-next
			p.says(world("5", "n5", simple("web", "10.0.0.5:80"), simple("web", "10.0.0.6:80")))
			p.hears("names=shop,web version=4 nonce=n5 fault=it is in the response twice")
			return p.waits()
		})
		sink := providertest.NewSink(web, shop)
		sink.Start(t, n.source(nil))
		sink.Await(t, web, "10.0.0.1:80")
		sink.Await(t, shop, "10.0.1.1:80")
		next <- true
		sink.AwaitFailure(t, web, "the address \"web.example.com\" is not an IP address")
		sink.Await(t, shop, "10.0.1.2:80")
		sink.Await(t, web, "10.0.0.1:80")
		next <- true
		sink.Await(t, shop, "10.0.1.3:80")
		if sink.Err(web) == nil {
			t.Error("the failure of web ended with an answer to shop")
		}
		next <- true
		sink.Await(t, web, "10.0.0.4:80")
		next <- true
		sink.AwaitFailure(t, web, "twice")
		synctest.Wait()
	})
}

func TestDeltaRefusals(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		of := func(nonce string, removed []string, resources ...proto.Message) *discoveryv3.DeltaDiscoveryResponse {
			r := &discoveryv3.DeltaDiscoveryResponse{Nonce: nonce, TypeUrl: endpointType, RemovedResources: removed}
			for i, m := range resources {
				name := []string{"web", "shop"}[i]
				resource := &discoveryv3.Resource{Name: name, Version: nonce}
				if m != nil {
					resource.Resource = pack(m)
				}
				r.Resources = append(r.Resources, resource)
			}
			return r
		}
		first := true
		n.play(func(p *peer) error {
			if !first { // the refused version of web is not one that the client knows
				p.hearsDelta("subscribe=shop,web known=shop:n2,web:n1")
				return p.waits()
			}
			first = false
			p.hearsDelta("subscribe=shop,web")
			p.says(of("n1", nil, simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80")))
			p.hearsDelta("nonce=n1")
			p.says(of("n2", nil, &anypb.Any{TypeUrl: endpointType, Value: []byte{0xff}}, simple("shop", "10.0.1.2:80")))
			p.hearsDelta(`nonce=n2 fault=ClusterLoadAssignment "web", which is refused: `)
			p.says(of("n3", nil, &anypb.Any{TypeUrl: clusterType}, nil)) // nil is a heartbeat
			p.hearsDelta(`nonce=n3 fault=it is of type "` + clusterType + `"`)
			return status.Error(codes.Unavailable, "moving")
		})
		source := n.source(func(c *Config) { c.Delta = true })
		sink := providertest.NewSink(web, shop)
		if err := source.Run(t.Context(), sink); err == nil || !strings.Contains(err.Error(), `is not available: "moving"`) {
			t.Error(err)
		}
		if got := sink.Text(web) + " " + sink.Text(shop); got != "10.0.0.1:80 10.0.1.2:80" || sink.Err(web) == nil || sink.Err(shop) != nil {
			t.Errorf("%s, %v, %v", got, sink.Err(web), sink.Err(shop))
		}
		sink.Start(t, source)
		elapse(DefaultTimeout)
	})
}

// Each response is answered with its own nonce, also if another has come
// meanwhile; a changed subscription carries the last nonce.
func TestNonces(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			if r := p.hears("names=web"); r.GetNode().GetId() != "edge-1" || r.GetNode().GetCluster() != "edge" ||
				r.GetNode().GetLocality().GetZone() != "a" || r.GetNode().GetMetadata().AsMap()["tier"] != "front" {
				t.Errorf("node %v", r.GetNode())
			}
			p.says(world("1", "n1", simple("web", "10.0.0.1:80")))
			p.says(world("2", "n2", simple("web", "10.0.0.2:80")))
			if r := p.hears("names=web version=1 nonce=n1"); r.GetNode() != nil {
				t.Error("a later request has the node")
			}
			p.hears("names=web version=2 nonce=n2")
			p.hears("names=shop,web version=2 nonce=n2")
			p.says(world("2", "n3", simple("shop", "10.0.1.1:80")))
			p.hears("names=shop,web version=2 nonce=n3")
			return p.waits()
		})
		sink := providertest.NewSink(web)
		sink.Start(t, n.source(nil))
		sink.Await(t, web, "10.0.0.2:80")
		sink.Want(web, shop)
		sink.Await(t, shop, "10.0.1.1:80")
		sink.Await(t, web, "10.0.0.2:80")
		synctest.Wait()
	})
}

// A connection that stands confirms what is known, each keepAlive; not what the
// control plane has refused to give.
func TestSilentConnectionsConfirm(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			p.hears("names=shop,web")
			p.says(world("1", "n1", simple("web", "10.0.0.1:80")))
			p.hears("names=shop,web version=1 nonce=n1")
			return p.waits()
		})
		sink := providertest.NewSink(shop, web)
		sink.Start(t, n.source(nil))
		sink.Await(t, web, "10.0.0.1:80")
		<-time.After(25*time.Minute + time.Second)
		sink.AwaitConfirmed(t, web, 5)
		sink.AwaitFailure(t, shop, "has sent no endpoints")
	})
}

// What was not asked for is ignored: names, and whole types, to which an answer
// would subscribe.
func TestUnaskedResources(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			p.hears("names=shop,web")
			p.says(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "c1", TypeUrl: clusterType, Resources: []*anypb.Any{pack(edsCluster("web", ""))}})
			p.says(world("1", "n1", simple("other", "other.example.com:80"), simple("web", "10.0.0.1:80")))
			p.hears("names=shop,web version=1 nonce=n1")
			return p.waits()
		})
		sink := providertest.NewSink(web, shop)
		sink.Start(t, n.source(nil))
		sink.Await(t, web, "10.0.0.1:80")
		sink.AwaitFailure(t, shop, `has sent no endpoints for "shop" within 15s`)
	})
}

func TestResponsesOfAnotherType(t *testing.T) {
	variants(t, func(t *testing.T, variant func(*Config)) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			// Both variants have the type in field 4.
			p.says(&discoveryv3.DiscoveryResponse{Nonce: "n1", TypeUrl: "type.googleapis.com/other\x00"})
			return p.waits()
		})
		sink := providertest.NewSink(web)
		sink.Start(t, n.source(variant))
		sink.AwaitFailure(t, web, `within 15s, but a response of the type "type.googleapis.com/other\x00", which nobody asked for`)
	})
}

// A resource whose name cannot be read may be any: all queries fail, until a
// response is whole.
func TestNamelessResources(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		next := make(chan bool)
		n.play(func(p *peer) error {
			p.hears("names=shop,web")
			p.says(world("1", "n1", simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80")))
			p.hears("names=shop,web version=1 nonce=n1")
			for i, bad := range []proto.Message{
				&anypb.Any{TypeUrl: endpointType, Value: []byte{0xff}}, &anypb.Any{TypeUrl: "other"}, assign(""),
			} {
				<-next
				p.says(world("2", "n2", bad))
				p.hears("names=shop,web version=1 nonce=n2 fault=" + []string{"of unknown name", `of type "other"`, "it has no name"}[i])
			}
			<-next
			p.says(world("3", "n3", simple("web", "10.0.0.3:80")))
			p.hears("names=shop,web version=3 nonce=n3")
			return p.waits()
		})
		sink := providertest.NewSink(web, shop)
		sink.Start(t, n.source(nil))
		sink.Await(t, web, "10.0.0.1:80")
		for _, want := range []string{"of unknown name that is refused", `it is of type "other"`, "it has no name"} {
			next <- true
			sink.AwaitFailure(t, web, want)
			sink.AwaitFailure(t, shop, want)
			sink.Await(t, shop, "10.0.1.1:80")
		}
		next <- true
		sink.Await(t, web, "10.0.0.3:80")
		synctest.Wait()
		if err := sink.Err(shop); err != nil {
			t.Error(err)
		}
	})
}

// In the state of the world, resources may be wrapped. One without a body is a
// heartbeat.
func TestWrappedResources(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			p.hears("names=shop,web")
			p.says(world("1", "n1", &discoveryv3.Resource{Name: "web", Resource: pack(simple("web", "10.0.0.1:80"))}))
			p.hears("names=shop,web version=1 nonce=n1")
			p.says(world("1", "n2", &discoveryv3.Resource{Name: "web"}, simple("shop", "10.0.1.1:80")))
			p.hears("names=shop,web version=1 nonce=n2")
			return p.waits()
		})
		sink := providertest.NewSink(web, shop)
		sink.Start(t, n.source(nil))
		sink.Await(t, shop, "10.0.1.1:80")
		sink.Await(t, web, "10.0.0.1:80")
		synctest.Wait()
	})
}

// A control plane may say why it has no resource.
func TestResourceErrors(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		reason := func(name string) []*discoveryv3.ResourceError {
			return []*discoveryv3.ResourceError{{
				ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: status.New(codes.PermissionDenied, "not for you\n").Proto(),
			}}
		}
		n.play(func(p *peer) error {
			p.hears("")
			p.says(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "c1", TypeUrl: clusterType,
				Resources: []*anypb.Any{pack(edsCluster("web", ""))}, ResourceErrors: reason("shop")})
			p.hears("version=1 nonce=c1")
			p.hears("names=web")
			p.says(&discoveryv3.DiscoveryResponse{VersionInfo: "1", Nonce: "n1", TypeUrl: endpointType, ResourceErrors: reason("web")})
			p.hears("names=web version=1 nonce=n1")
			return p.waits()
		})
		sink := providertest.NewSink(web, shop)
		sink.Start(t, n.source(func(c *Config) { c.Clusters = true }))
		sink.AwaitFailure(t, shop, `has an error for "shop": "not for you\n"`)
		sink.AwaitFailure(t, web, `has an error for "web": "not for you\n"`)
		synctest.Wait()
	})
}

// A cluster that is refused keeps what was known of it, and none is taken for
// removed by a response that is not valid whole.
func TestRefusedClusters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		next := make(chan bool)
		clusters := func(version string, resources ...proto.Message) *discoveryv3.DiscoveryResponse {
			r := world(version, "c"+version, resources...)
			r.TypeUrl = clusterType
			return r
		}
		n.play(func(p *peer) error {
			p.hears("")
			p.says(clusters("1", edsCluster("web", ""), edsCluster("shop", "")))
			p.hears("version=1 nonce=c1")
			p.hears("names=shop,web")
			p.says(world("1", "n1", simple("web", "10.0.0.1:80"), simple("shop", "10.0.1.1:80")))
			p.hears("names=shop,web version=1 nonce=n1")
			<-next
			p.says(clusters("2", &discoveryv3.Resource{Name: "web", Resource: &anypb.Any{TypeUrl: clusterType, Value: []byte{0xff}}}))
			p.hears(`version=1 nonce=c2 fault=Cluster "web", which is refused`)
			<-next
			p.says(world("2", "n2", simple("web", "10.0.0.2:80")))
			p.hears("names=shop,web version=2 nonce=n2")
			<-next
			p.says(clusters("3"))
			p.hears("version=3 nonce=c3")
			p.hears("version=2 nonce=n2")
			return p.waits()
		})
		sink := providertest.NewSink(web, shop)
		sink.Start(t, n.source(func(c *Config) { c.Clusters = true }))
		sink.Await(t, web, "10.0.0.1:80")
		sink.Await(t, shop, "10.0.1.1:80")
		next <- true
		sink.AwaitFailure(t, web, `sent the Cluster "web", which is refused`)
		next <- true
		sink.Await(t, web, "10.0.0.2:80")
		next <- true
		sink.Await(t, web, "none")
		sink.Await(t, shop, "none")
		synctest.Wait()
	})
}

func TestTooManyClusters(t *testing.T) {
	s := &session{Source: &Source{cfg: Config{MaxEndpoints: DefaultMaxEndpoints}, clusters: map[string]cluster{}}}
	s.cds = subscription{typeURL: clusterType, known: map[string]string{}}
	for i := range maxClusters {
		s.clusters[fmt.Sprint(i)] = cluster{}
	}
	r := &response{resources: []resource{{body: pack(&clusterv3.Cluster{Name: "one more"})}}}
	if got := s.updateClusters(r).String(); !strings.Contains(got, "there are more than 100000 clusters") {
		t.Error(got)
	}
}

// Endpoints that come before anything was asked for are not answered: that would
// ask for all of them.
func TestEndpointsBeforeClusters(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			p.hears("")
			p.says(world("1", "n1", simple("web", "10.0.0.1:80")))
			r := world("1", "c1", edsCluster("web", ""))
			r.TypeUrl = clusterType
			p.says(r)
			p.hears("version=1 nonce=c1")
			p.hears("names=web")
			p.says(world("1", "n2", simple("web", "10.0.0.2:80")))
			p.hears("names=web version=1 nonce=n2")
			return p.waits()
		})
		sink := providertest.NewSink(web)
		sink.Start(t, n.source(func(c *Config) { c.Clusters = true }))
		sink.Await(t, web, "10.0.0.2:80")
		synctest.Wait()
	})
}

// A name that the control plane never had is an error: a service is not emptied
// by a control plane that has just started.
func TestRemovedBeforeKnown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		n := newNetwork(t)
		n.play(func(p *peer) error {
			p.hearsDelta("subscribe=web")
			p.says(&discoveryv3.DeltaDiscoveryResponse{Nonce: "n1", TypeUrl: endpointType, RemovedResources: []string{"web", "other"}})
			p.hearsDelta("nonce=n1")
			return p.waits()
		})
		sink := providertest.NewSink(web)
		sink.Start(t, n.source(func(c *Config) { c.Delta = true }))
		sink.AwaitFailure(t, web, `has no endpoints under the name "web": check the name, and what it serves to node "edge-1"`)
		synctest.Wait()
		if sink.Reports() != 0 {
			t.Errorf("%d reports", sink.Reports())
		}
	})
}

// scramblingSink changes what it is given, as a sink may.
type scramblingSink struct{ *providertest.Sink }

func (s scramblingSink) Report(q provider.Query, endpoints []provider.Endpoint) {
	s.Sink.Report(q, slices.Clone(endpoints))
	clear(endpoints)
}

// Each query gets endpoints of its own, also later ones.
func TestSinksKeepTheirEndpoints(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := newControlPlane(t, false)
		c.serve(edsCluster("web", "shop"), edsCluster("shop", ""), simple("shop", "10.0.0.1:80"))
		sink := scramblingSink{providertest.NewSink(web)}
		source := c.source(func(c *Config) { c.Clusters = true })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go source.Run(ctx, sink)
		sink.Await(t, web, "10.0.0.1:80")
		sink.Want(web, shop)
		sink.Await(t, shop, "10.0.0.1:80")
		sink.Await(t, web, "10.0.0.1:80")
	})
}
