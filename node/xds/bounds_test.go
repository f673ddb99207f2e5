package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"penstock/internal/testkit"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

func TestStreamsOfOneIdentityAreBounded(t *testing.T) {
	const limit = 100
	ts := newTestServer(t, func(c *Config) { c.MaxPerIdentity = limit })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answers := make(chan error, 1000)
	for range 10 {
		client := discoveryv3.NewAggregatedDiscoveryServiceClient(ts.dial())
		for range 50 {
			go func() {
				s, err := client.StreamAggregatedResources(ctx)
				if err == nil {
					err = s.Send(&discoveryv3.DiscoveryRequest{Node: testNode(), TypeUrl: snapshot.Cluster.URL()})
				}
				if err == nil || errors.Is(err, io.EOF) {
					_, err = s.Recv()
				}
				answers <- err
			}()
		}
	}
	served := 0
	for range 500 {
		switch err := testkit.Receive(t, "the answer to a stream", answers); status.Code(err) {
		case codes.OK:
			served++
		case codes.ResourceExhausted:
		default:
			t.Fatal(err)
		}
	}
	counts := ts.Counts()
	if served != limit || counts.Streams != served || ts.refused("identity_streams") != uint64(500-served) {
		t.Errorf("%d streams were served, %d are open, %d were refused", served, counts.Streams, ts.refused("identity_streams"))
	}
	cancel()
	testkit.WaitFor(t, "all streams end", func() bool { return ts.Counts().Streams == 0 })
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if len(ts.held) > 0 {
		t.Errorf("streams of %v are counted still", ts.held)
	}
}

// refused returns how often the server refused something for a reason.
func (ts *testServer) refused(reason string) uint64 {
	for _, c := range ts.Counts().Refused {
		if c.Reason == reason {
			return c.Count
		}
	}
	ts.t.Fatalf("no reason %q", reason)
	return 0
}

func TestStreamsAndConnectionsAreBounded(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.MaxStreams, c.MaxConnections = 2, 2 })
	conn := ts.dial()
	for range 2 {
		if err := ts.ask(conn, cdsRequest()); err != nil {
			t.Fatal(err)
		}
	}
	if err := ts.ask(conn, cdsRequest()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third stream: %v", err)
	}
	if err := ts.ask(ts.dial(), cdsRequest()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second connection: %v", err)
	}
	if err := ts.ask(ts.dial(), cdsRequest()); status.Code(err) != codes.Unavailable {
		t.Errorf("a third connection: %v", err)
	}
	if ts.refused("connections") == 0 || ts.refused("streams") != 2 {
		t.Errorf("%+v", ts.Counts().Refused)
	}
}

func cdsRequest() *discoveryv3.DiscoveryRequest {
	return &discoveryv3.DiscoveryRequest{Node: testNode(), TypeUrl: snapshot.Cluster.URL()}
}

// ask opens an aggregated stream, sends a request and returns the error instead
// of an answer.
func (ts *testServer) ask(conn *grpc.ClientConn, r *discoveryv3.DiscoveryRequest) error {
	ts.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	ts.t.Cleanup(cancel)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err == nil {
		err = s.Send(r)
	}
	if err == nil || errors.Is(err, io.EOF) {
		_, err = s.Recv()
	}
	return err
}

func TestRequestsAreBounded(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.MaxNames, c.MaxName, c.MaxRequest = 10, 20, 1<<20 })
	conn := ts.dial()
	request := func(change func(r *discoveryv3.DiscoveryRequest)) *discoveryv3.DiscoveryRequest {
		r := &discoveryv3.DiscoveryRequest{Node: testNode(), TypeUrl: snapshot.Cluster.URL()}
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		request *discoveryv3.DiscoveryRequest
		code    codes.Code
		part    string
	}{
		"names": {request(func(r *discoveryv3.DiscoveryRequest) {
			for i := range 11 {
				r.ResourceNames = append(r.ResourceNames, fmt.Sprint(i))
			}
		}), codes.Internal, "more than 10 names"},
		"name": {request(func(r *discoveryv3.DiscoveryRequest) { r.ResourceNames = []string{strings.Repeat("x", 21)} }),
			codes.ResourceExhausted, "21 bytes"},
		"bytes": {request(func(r *discoveryv3.DiscoveryRequest) { r.VersionInfo = strings.Repeat("x", 1<<20) }),
			codes.ResourceExhausted, "larger than max"},
		"node": {request(func(r *discoveryv3.DiscoveryRequest) { r.Node.UserAgentName = strings.Repeat("x", maxMessage) }),
			codes.Internal, "the maximum is 262144"},
		"locators": {request(func(r *discoveryv3.DiscoveryRequest) {
			r.ResourceLocators = []*discoveryv3.ResourceLocator{{Name: "x"}}
		}), codes.Internal, "use resource_names"},
		"type":    {request(func(r *discoveryv3.DiscoveryRequest) { r.TypeUrl = "" }), codes.InvalidArgument, "type_url"},
		"no node": {request(func(r *discoveryv3.DiscoveryRequest) { r.Node = nil }), codes.InvalidArgument, "node"},
	} {
		if err := ts.ask(conn, c.request); status.Code(err) != c.code || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ts.ask(conn, cdsRequest()); err != nil {
		t.Error(err)
	}
}

func TestFastRequestsWait(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.RequestRate = 20 })
	s := ts.ads()
	for range 25 {
		if err := s.Send(cdsRequest()); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WaitFor(t, "a request waits", func() bool { return ts.Counts().Delayed > 0 })
}

// A client that opens a window for one response and reads none of it: the next
// response finds no room, and the connection is closed.
func TestClientThatDoesNotRead(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.SendTimeout = 20 * time.Millisecond })
	ts.set(func(w *snapshottest.World) {
		for of := range snapshot.Types {
			w.Put(of, strings.Repeat("n", 300<<10), "1")
		}
	})
	conn, err := grpc.NewClient(ts.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for of := range snapshot.Types {
		err := s.Send(&discoveryv3.DiscoveryRequest{Node: testNode(), TypeUrl: of.URL(), ResourceNames: []string{"*"}})
		if err != nil && !errors.Is(err, io.EOF) { // EOF: it is closed already
			t.Fatal(err)
		}
	}
	testkit.WaitFor(t, "the connection is closed", func() bool { c := ts.Counts(); return c.Stalled == 1 && c.Connections == 0 })
}

func TestChangesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var built []time.Duration
		began := time.Now()
		world := snapshottest.New("web", "web")
		s := New(Config{Build: func() snapshot.Snapshot {
			mu.Lock()
			defer mu.Unlock()
			built = append(built, time.Since(began))
			return world.Snapshot()
		}})
		defer s.Stop(t.Context())
		elapse := func(d time.Duration) { <-time.After(d) }
		elapse(time.Second)
		s.Changed() // at 1s: alone, so it is served after the window
		elapse(time.Second)
		for range 30 { // from 2s, every 40ms: served after the maximum
			s.Changed()
			elapse(40 * time.Millisecond)
		}
		elapse(time.Second)
		mu.Lock()
		defer mu.Unlock()
		ms := time.Millisecond
		if want := []time.Duration{0, 1050 * ms, 2500 * ms, 3020 * ms, 3210 * ms}; !slices.Equal(built, want) {
			t.Errorf("built at %v, want %v", built, want)
		}
	})
}

// FuzzDecode: whatever is decoded keeps the bounds, and is what generated code
// reads.
func FuzzDecode(f *testing.F) {
	for _, m := range []proto.Message{
		&discoveryv3.DiscoveryRequest{Node: testNode(), TypeUrl: snapshot.Route.URL(), ResourceNames: []string{"a", "b"}, ResponseNonce: "1"},
		&discoveryv3.DeltaDiscoveryRequest{
			Node: &corev3.Node{Id: "x"}, ResourceNamesSubscribe: []string{"a"}, ResourceNamesUnsubscribe: []string{"b"},
			InitialResourceVersions: map[string]string{"a": "1"},
		},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, true)
		f.Add(raw, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, delta bool) {
		in := &inbound{delta: delta}
		if in.decode(data, 3) != nil {
			return
		}
		r := &in.request
		if max(len(r.Names), len(r.Subscribe), len(r.Unsubscribe), len(r.Known)) > 3 {
			t.Fatalf("%+v", r)
		}
		if _, ok := snapshot.TypeOf(in.typeURL); ok != (r.Type < snapshot.Types) {
			t.Fatalf("type %v of %q", r.Type, in.typeURL)
		}
	})
}
