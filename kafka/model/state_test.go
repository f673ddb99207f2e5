package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"penstock/kafka/filter"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

const base = `
kind: Listener
name: edge
spec: {address: ":9092", protocol: kafka, tls: {}}
---
kind: PhysicalCluster
name: big
spec: {bootstrap: ["beefy:9092"], filters: [{type: Login, config: {user: a}}]}
---
`

// tenantText is a virtual cluster whose MultiTenant has a key.
func tenantText(name, key string) string {
	return fmt.Sprintf(`kind: VirtualCluster
name: %[1]s
spec:
  physicalClusterRef: big
  tls: {certificateRef: t1}
  filters: [{type: MultiTenant, config: {tenantKey: %[2]s}}]
  brokers: {discover: {endpointRef: edge, bootstrap: boot.%[1]s.example.com, sniPattern: "broker-$(nodeId).%[1]s.example.com"}}
`, name, key)
}

func (w *world) virtual(name string) *Virtual {
	v, ok := w.model.Table().Virtual(name)
	if !ok {
		w.t.Fatalf("there is no virtual cluster %s", name)
	}
	return v
}

func (w *world) mustApply(text string) {
	w.t.Helper()
	if got := w.apply(text); strings.Contains(got, ": ") {
		w.t.Fatal(got)
	}
}

// chainOf returns the filters of a version by type.
func chainOf(v *Virtual) map[string]*testFilter {
	m := map[string]*testFilter{}
	for _, l := range v.Chain() {
		m[l.Type] = l.Filter.(*testFilter)
	}
	return m
}

func TestFiltersAreInRequestOrder(t *testing.T) {
	w := newWorld(t)
	w.mustApply(base + tenantText("a", "x"))
	var got []string
	for _, l := range w.virtual("a").Chain() {
		got = append(got, fmt.Sprint(l.Type, " ", l.Physical, " ", l.Implied))
	}
	want := []string{"ApiVersions false true", "BrokerAddress false true", "MultiTenant false false", "Login true false"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(w.virtual("a").Filters()) != 4 {
		t.Error("Filters and Chain differ")
	}
	// One that the physical cluster names is not implied.
	w.mustApply("kind: PhysicalCluster\nname: big\nspec: {bootstrap: ['beefy:9092'], filters: [{type: BrokerAddress}]}")
	got = nil
	for _, l := range w.virtual("a").Chain() {
		got = append(got, fmt.Sprint(l.Type, " ", l.Physical, " ", l.Implied))
	}
	want = []string{"ApiVersions false true", "MultiTenant false false", "BrokerAddress true false"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A filter goes on while its configuration is the same, and is closed when
// neither the table nor a connection has it any more.
func TestFiltersOutliveVersionsAndAreClosedOnce(t *testing.T) {
	w := newWorld(t)
	w.mustApply(base + tenantText("a", "x"))
	first := w.virtual("a")
	if !first.Acquire() {
		t.Fatal("the version in force cannot be acquired")
	}
	before := chainOf(first)
	w.mustApply(tenantText("a", "y"))
	second := w.virtual("a")
	after := chainOf(second)
	if second == first || second.State() != first.State() || first.State().Current() != second {
		t.Fatal("the versions do not share their state")
	}
	for _, typ := range []string{"ApiVersions", "BrokerAddress", "Login"} {
		if before[typ] != after[typ] {
			t.Errorf("%s was provisioned again", typ)
		}
	}
	if before["MultiTenant"] == after["MultiTenant"] || before["MultiTenant"].closed.Load() != 0 {
		t.Error("the filter that changed is the same, or was closed under a connection")
	}
	first.Release()
	if before["MultiTenant"].closed.Load() != 1 || before["Login"].closed.Load() != 0 {
		t.Error("the filter is still open after its last connection")
	}
	if first.Acquire() {
		t.Error("a replaced version can be acquired")
	}

	w.change([]resource.Change{resource.Delete(resource.Key{Kind: KindVirtual, Name: "a"})})
	if !second.State().Removed() || second.State().Current() != nil {
		t.Error("the state does not report the removal")
	}
	for typ, f := range after {
		if f.closed.Load() != 1 {
			t.Errorf("%s was closed %d times", typ, f.closed.Load())
		}
	}
	// One of the same name is another.
	w.mustApply(tenantText("a", "y"))
	if w.virtual("a").State() == second.State() {
		t.Error("a recreated cluster has the state of the removed one")
	}
}

func TestVersionsAcceptConnectionsOfOlderOnes(t *testing.T) {
	w := newWorld(t)
	w.mustApply(base + tenantText("a", "x"))
	first := w.virtual("a")
	w.mustApply(strings.Replace(tenantText("a", "x"), "brokers:", "maxInFlight: 7\n  brokers:", 1))
	second := w.virtual("a")
	if second == first || !second.Accepts(first) || second.Compiled() != first.Compiled() || second.Compiled() == nil {
		t.Error("open connections are not accepted after a change of settings")
	}
	w.mustApply(strings.Replace(tenantText("a", "x"), "brokers:", "unmappedBrokers: fail\n  brokers:", 1))
	failing := w.virtual("a")
	if !failing.Accepts(second) || chainOf(failing)["BrokerAddress"].env.HideUnmapped ||
		!chainOf(second)["BrokerAddress"].env.HideUnmapped || failing.Compiled() == second.Compiled() {
		t.Error("the filters do not see the new unmappedBrokers")
	}
	w.mustApply(tenantText("a", "y"))
	if w.virtual("a").Accepts(second) {
		t.Error("open connections are accepted for another tenant")
	}
	w.mustApply(strings.Replace(tenantText("a", "x"), "filters: [", "filters: [{type: Login}, ", 1))
	if w.virtual("a").Accepts(second) {
		t.Error("open connections are accepted with an additional filter")
	}
}

// Filters keep the address function of their first day, and it tells what
// holds now, also after the cluster is gone.
func TestFiltersSeeTheCurrentAddresses(t *testing.T) {
	w := newWorld(t)
	w.mustApply(base + tenantText("a", "x"))
	address := chainOf(w.virtual("a"))["BrokerAddress"].env.Address
	check := func(want string) {
		t.Helper()
		b, ok := address(3, "b3.internal", 9092)
		if got := fmt.Sprintf("%s:%d %v", b.Host, b.Port, ok); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check("broker-3.a.example.com:9092 true")
	w.mustApply("kind: Listener\nname: edge\nspec: {address: ':9093', protocol: kafka, tls: {}}")
	check("broker-3.a.example.com:9093 true")
	w.change([]resource.Change{resource.Delete(resource.Key{Kind: KindVirtual, Name: "a"})})
	check("broker-3.a.example.com:9093 true")
}

var errProvision = errors.New("not today")

// failing is a filter that cannot be made.
type failing struct{ noConfig }

func (*failing) Provision(filter.Env) (filter.Filter, error) { return nil, errProvision }

// What cannot be made takes no new connections, and what it has goes on.
func TestClusterThatCannotBeCompiledIsLeftOut(t *testing.T) {
	types := append(testTypes(), filter.Type{Name: "Failing", Config: func() filter.Config { return new(failing) }})
	kinds := append(resource.RoutingKinds(), Kinds(types)...)
	m := New(Config{Bind: "127.0.0.1", Types: types})
	apply := func(text string) (Applied, error) {
		t.Helper()
		objects, faults := codec.Decode("", []byte(text), kinds)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		return m.Apply(puts(objects))
	}
	if _, err := apply(base + tenantText("a", "x") + "---\n" + tenantText("b", "x")); err != nil {
		t.Fatal(err)
	}
	before, _ := m.Table().Virtual("a")
	before.Acquire()
	filters := chainOf(before)
	_, err := apply(strings.Replace(tenantText("a", "x"), "filters: [", "filters: [{type: Failing}, ", 1))
	if !errors.Is(err, errProvision) || !strings.Contains(err.Error(), "VirtualCluster/a is left out: filter Failing") {
		t.Errorf("%v", err)
	}
	if _, reason := m.Table().Resolve("edge", "broker-1.a.example.com", true); reason != "no_route" {
		t.Errorf("its names are still routed: %q", reason)
	}
	if _, reason := m.Table().Resolve("edge", "broker-1.b.example.com", true); reason != "" {
		t.Errorf("names of another cluster are no longer routed: %q", reason)
	}
	if before.State().Removed() || filters["MultiTenant"].closed.Load() != 0 {
		t.Error("its open connections cannot continue")
	}
	before.Release()
	if filters["MultiTenant"].closed.Load() != 1 {
		t.Error("its filters are never closed")
	}
	// Mended, it has the same life.
	if _, err := apply(tenantText("a", "x")); err != nil {
		t.Fatal(err)
	}
	after, ok := m.Table().Virtual("a")
	if !ok || after.State() != before.State() {
		t.Error("it has a new state")
	}
	// References to nothing cannot be validated away here.
	if _, err := m.Apply([]resource.Change{resource.Delete(resource.Key{Kind: "Listener", Name: "edge"})}); err == nil {
		t.Error("no error without the listener")
	}
	if _, ok := m.Table().Virtual("a"); ok {
		t.Error("it is served without its listener")
	}
	if _, err := apply(base); err != nil {
		t.Error(err)
	}
	if _, reason := m.Table().Resolve("edge", "broker-1.a.example.com", true); reason != "" {
		t.Errorf("the listener is back: %q", reason)
	}
}

// While versions come and go, whoever acquires one has open filters.
func TestAcquiredFiltersStayOpen(t *testing.T) {
	w := newWorld(t)
	w.mustApply(base + tenantText("a", "x"))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, reason := w.model.Table().Resolve("edge", "broker-1.a.example.com", true)
				if reason != "" || !r.Cluster.Acquire() {
					continue // between two versions
				}
				for _, f := range r.Cluster.Filters() {
					if f.(*testFilter).closed.Load() != 0 {
						t.Error("a filter was closed under a connection")
					}
				}
				r.Cluster.Release()
			}
		})
	}
	for i := range 300 {
		w.mustApply(tenantText("a", fmt.Sprint("k", i%3)))
	}
	close(stop)
	wg.Wait()
}

func TestDiscoverySecretsAreHiddenAndFilledIn(t *testing.T) {
	text := "kind: PhysicalCluster\nname: a\nspec: {bootstrap: ['b:1'], discovery: {sasl: {mechanism: PLAIN, username: u, " +
		"password: %s}}, filters: [{type: Login, config: {user: a, password: f}}]}"
	stored := decode(t, fmt.Sprintf(text, "topsecret"))[0]
	shown := string(codec.EncodeYAML(stored))
	if strings.Contains(shown, "topsecret") || strings.Contains(shown, "password: f") || strings.Count(shown, "(hidden)") != 2 {
		t.Errorf("a secret is shown:\n%s", shown)
	}
	for _, k := range Kinds(testTypes()) {
		if !k.HasSecrets() {
			t.Errorf("%s is not sealed", k.Name)
		}
	}
	again := decode(t, shown)[0]
	if !resource.HasHidden(again) || len(validate.Admit([]resource.Object{again}, t0)) != 2 {
		t.Error("hidden secrets are accepted")
	}
	filled, faults := resource.FillHidden(again, stored)
	if len(faults) > 0 || !resource.Equal(filled, stored) || !resource.HasHidden(again) {
		t.Errorf("not filled in: %v\n%s", faults, codec.EncodeWithSecrets(filled))
	}
	other := decode(t, strings.Replace(shown, "username: u", "username: v", 1))[0]
	if _, faults := resource.FillHidden(other, stored); len(faults) != 1 ||
		!strings.Contains(faults[0].Error(), "spec.discovery.sasl.password") {
		t.Errorf("another user gets the password: %v", faults)
	}
	if _, faults := resource.FillHidden(again, resource.Object{}); len(faults) != 2 {
		t.Errorf("filled in from nothing: %v", faults)
	}
}
