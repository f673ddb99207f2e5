package translate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/translate"
	"penstock/routing"
	"penstock/routing/provider"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

var now = time.Unix(1_700_000_000, 0)

// world is a router with providers and what is made of it.
type world struct {
	t         testing.TB
	router    *routing.Router
	directory *provider.Directory
	local     map[string]bool
	certs     map[string]*resource.Certificate
	builder   *translate.Builder
	index     uint64
	snap      snapshot.Snapshot
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, directory: &provider.Directory{}, local: map[string]bool{}, certs: map[string]*resource.Certificate{}}
	w.router = routing.NewRouter(routing.Config{Discovered: w.directory})
	w.builder = w.newBuilder()
	w.update()
	return w
}

func (w *world) newBuilder() *translate.Builder {
	return translate.New(translate.Config{
		TrustDomain: "cluster.test", Discovered: w.directory,
		Local:       func(name string) bool { return w.local[name] },
		Certificate: func(name string) *resource.Certificate { return w.certs[name] },
	})
}

// apply applies resources, which must be valid on their own.
func (w *world) apply(text string) snapshot.Snapshot {
	w.t.Helper()
	objects, faults := codec.Decode("test.yaml", []byte(text), resource.RoutingKinds())
	if len(faults) > 0 {
		w.t.Fatal(faults)
	}
	changes := make([]resource.Change, len(objects))
	for i, o := range objects {
		validate.Spec(o.Spec, func(path, message string, value any) { w.t.Fatalf("%s %s: %s (%v)", o.Key, path, message, value) })
		changes[i] = resource.Put(o)
		if c, ok := o.Spec.(*resource.Certificate); ok {
			w.certs[o.Name] = c
		}
	}
	return w.change(changes...)
}

func (w *world) change(changes ...resource.Change) snapshot.Snapshot {
	w.t.Helper()
	if _, err := w.router.Apply(changes, now); err != nil {
		w.t.Fatal(err)
	}
	return w.update()
}

func (w *world) update() snapshot.Snapshot {
	w.index++
	w.snap = w.builder.Update(w.router.Table(), w.index)
	return w.snap
}

// found sets what a provider found.
func (w *world) found(ref provider.Ref, endpoints ...provider.Endpoint) snapshot.Snapshot {
	u := provider.Update{Ref: ref}
	for _, f := range w.directory.Lookup(ref) {
		u.Gone = append(u.Gone, f.Address)
	}
	for _, e := range endpoints {
		u.Put = append(u.Put, provider.NewFound(e, now))
	}
	u.Gone = slices.DeleteFunc(u.Gone, func(a string) bool {
		return slices.ContainsFunc(endpoints, func(e provider.Endpoint) bool { return e.Address == a })
	})
	w.directory.Apply([]provider.Update{u})
	w.router.Discovered([]provider.Ref{ref}, now)
	return w.update()
}

// decode returns the message of a resource, which must be valid by the rules of
// Envoy's protocol.
func decode(t testing.TB, r *snapshot.Resource) proto.Message {
	t.Helper()
	var packed anypb.Any
	if err := proto.Unmarshal(r.Any, &packed); err != nil {
		t.Fatal(err)
	}
	m, err := packed.UnmarshalNew()
	if err != nil {
		t.Fatalf("%s: %v", r.Name, err)
	}
	checkValid(t, r.Name, m)
	return m
}

func names(list []*snapshot.Resource) string {
	all := make([]string, len(list))
	for i, r := range list {
		all[i] = r.Name
	}
	return strings.Join(all, " ")
}
