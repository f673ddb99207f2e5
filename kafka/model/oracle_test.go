package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

var t0 = time.Unix(1_700_000_000, 0)

// changes draws resources of few names, so that they meet.
type changes struct{}

func (changes) draw(t *rapid.T) resource.Change {
	n := rapid.IntRange(0, 2).Draw(t, "n")
	kind := rapid.SampledFrom([]string{kindListener, KindPhysical, KindVirtual, KindVirtual, KindVirtual}).Draw(t, "kind")
	if kind != KindVirtual && rapid.IntRange(0, 2).Draw(t, "seldom") > 0 {
		kind = KindVirtual
	}
	k := resource.Key{Kind: kind, Name: strings.ToLower(kind[:1]) + strconv.Itoa(n)}
	if rapid.IntRange(0, 5).Draw(t, "delete") == 0 {
		return resource.Delete(k)
	}
	var spec resource.Spec
	switch kind {
	case kindListener:
		l := &resource.Listener{Protocol: "kafka", Address: rapid.SampledFrom([]string{":90", "10.0.0.1:91", "0.0.0.0:92"}).Draw(t, "address")}
		if rapid.IntRange(0, 3).Draw(t, "tls") > 0 {
			l.TLS = &resource.ListenerTLS{}
		}
		spec = l
	case KindPhysical:
		spec = drawPhysical(t)
	default:
		spec = drawVirtual(t)
	}
	return resource.Put(resource.Object{Key: k, Spec: spec})
}

func drawPhysical(t *rapid.T) *PhysicalCluster {
	p := &PhysicalCluster{types: newTypes(testTypes())}
	n := rapid.IntRange(0, 2).Draw(t, "brokers")
	if n == 0 {
		p.Bootstrap = []string{"seed:1"}
	}
	for i := range n {
		p.Brokers = append(p.Brokers, PhysicalBroker{Name: fmt.Sprint("b", i),
			Address: fmt.Sprintf("host%d:%d", i, rapid.IntRange(1, 2).Draw(t, "port"))})
	}
	return p
}

func drawVirtual(t *rapid.T) *VirtualCluster {
	v := &VirtualCluster{PhysicalClusterRef: "p" + fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "physical")), types: newTypes(testTypes())}
	listener := func() string { return "l" + fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "listener")) }
	v.TLS = &VirtualTLS{CertificateRef: "t1"}
	if rapid.Bool().Draw(t, "tenant") {
		v.Filters = []Filter{{Type: "MultiTenant", Config: &tenant{TenantKey: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "key")}}}
	}
	domain := rapid.SampledFrom([]string{".t1.x", ".t2.x"}).Draw(t, "domain")
	switch rapid.IntRange(0, 2).Draw(t, "form") {
	case 0:
		for i := range rapid.IntRange(1, 2).Draw(t, "brokers") {
			b := VirtualBroker{Name: fmt.Sprint("v", i), EndpointRef: listener(), PhysicalBrokerRef: fmt.Sprint("b", i),
				Advertise: fmt.Sprintf("adv%d:1", i)}
			b.SNIMatchAddress = rapid.SampledFrom([]string{"", "a-0", "a-1", "B-0", "*.c"}).Draw(t, "sni")
			if b.SNIMatchAddress != "" {
				b.SNIMatchAddress += domain
			}
			v.Brokers.List = append(v.Brokers.List, b)
		}
	case 1:
		pattern := rapid.SampledFrom([]string{"a-$(nodeId)", "b-$(nodeId)", "$(nodeId)-0"}).Draw(t, "pattern")
		v.Brokers.Discover = &Discover{EndpointRef: listener(),
			Bootstrap: rapid.SampledFrom([]string{"boot", "boot2"}).Draw(t, "boot") + domain, SNIPattern: pattern + domain}
	default:
		first := rapid.IntRange(90, 96).Draw(t, "first")
		v.Brokers.Discover = &Discover{BootstrapPort: first, FirstNodeID: rapid.IntRange(0, 1).Draw(t, "node"),
			BrokerPorts: PortRange{uint16(first + 1), uint16(first + 1 + rapid.IntRange(0, 2).Draw(t, "ports"))}}
		v.Brokers.Discover.Address = rapid.SampledFrom([]string{"", "10.0.0.1"}).Draw(t, "at")
	}
	return v
}

// ground is what the changes begin with.
const ground = `
kind: Listener
name: l0
spec: {address: ":90", protocol: kafka, tls: {}}
---
kind: Listener
name: l1
spec: {address: "10.0.0.1:91", protocol: kafka, tls: {}}
---
kind: Listener
name: l2
spec: {address: "0.0.0.0:92", protocol: kafka}
---
kind: PhysicalCluster
name: p0
spec: {brokers: [{name: b0, address: "host0:1"}]}
---
kind: PhysicalCluster
name: p1
spec: {brokers: [{name: b0, address: "host0:1"}, {name: b1, address: "host1:1"}]}
---
kind: PhysicalCluster
name: p2
spec: {bootstrap: ["seed:1"]}
`

func decodeAll(text string) []resource.Object {
	objects, _ := codec.Decode("", []byte(text), testKinds())
	return objects
}

// oracle finds where a connection goes by looking at every resource.
func oracle(set *validate.Set, listener, name string, has bool) string {
	var found []string
	l, _ := set.Get(resource.Key{Kind: kindListener, Name: listener})
	spec, _ := l.Spec.(*resource.Listener)
	for o := range set.All(KindVirtual) {
		v := o.Spec.(*VirtualCluster)
		for i := range v.Brokers.List {
			b := &v.Brokers.List[i]
			sni := strings.ToLower(b.SNIMatchAddress)
			suffix, wild := strings.CutPrefix(sni, "*")
			hit := spec != nil && (spec.TLS == nil || has && (sni == name || wild && strings.HasSuffix(name, suffix) && name != suffix[1:]))
			if b.EndpointRef == listener && hit {
				found = append(found, o.Name+" "+b.Name)
			}
		}
		d := v.Brokers.Discover
		if d == nil {
			continue
		}
		for n := range 4 {
			node := strconv.Itoa(n)
			if d.EndpointRef == listener && has && strings.Replace(d.SNIPattern, "$(nodeId)", node, 1) == name && d.SNIPattern != "" {
				found = append(found, o.Name+" "+node)
			}
			if at := n - d.FirstNodeID; at >= 0 && at < d.BrokerPorts.Len() && listener == PortName(o.Name, int(d.BrokerPorts.First)+at) {
				found = append(found, o.Name+" "+node)
			}
		}
		if d.EndpointRef == listener && has && d.Bootstrap == name && name != "" || d.BootstrapPort != 0 &&
			listener == PortName(o.Name, d.BootstrapPort) {
			found = append(found, o.Name+" bootstrap")
		}
	}
	switch {
	case len(found) > 1:
		return "ambiguous: " + strings.Join(found, ", ")
	case len(found) == 1:
		return found[0]
	case spec == nil:
		return "no_listener"
	case spec.TLS != nil && !has:
		return "no_sni"
	}
	return "no_route"
}

// dump writes down all that a model leads to.
func dump(m *Model) string {
	var lines []string
	table := m.Table()
	for _, listener := range []string{"l0", "l1", "l2"} {
		for _, name := range names() {
			lines = append(lines, listener+" "+name+" "+led(table, listener, name, name != ""))
		}
	}
	for p := range table.Listeners() {
		lines = append(lines, fmt.Sprint(p, led(table, p.Name, "", false)))
	}
	for v := range table.Virtuals() {
		for n := range int32(3) {
			b, ok := v.Address(n, fmt.Sprint("host", n), 1)
			lines = append(lines, fmt.Sprint("address ", v.Name(), n, b, ok))
		}
		for _, l := range v.Chain() {
			lines = append(lines, fmt.Sprint("filter ", v.Name(), l.Type, l.Filter.(*testFilter).name))
		}
		for _, b := range v.Brokers() {
			targets, reason := v.Targets(b)
			lines = append(lines, fmt.Sprint("broker ", v.Name(), b.Name(), targets, reason, v.Advertised(b)))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func names() (all []string) {
	for _, domain := range []string{".t1.x", ".t2.x"} {
		for _, label := range []string{"a-0", "a-1", "a-3", "b-0", "0-0", "1-0", "z.c", "c", "y.z.c", "boot", "boot2", "a-00"} {
			all = append(all, label+domain)
		}
	}
	return append(all, "")
}

func led(t *Table, listener, name string, has bool) string {
	r, reason := t.Resolve(listener, name, has)
	if reason != "" {
		return string(reason)
	}
	return r.Cluster.Name() + " " + r.Broker.Name()
}

// A model that changes by and by leads where a look at all resources says, and
// to the same as one that is made of them at once; whatever the set lets
// through compiles, and leads each connection to one broker at most.
func TestModelMatchesReferenceImplementation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		made := counted{}
		set := new(validate.Set).Next(puts(certificates()))
		m := New(Config{Bind: "127.0.0.1", Types: testTypes()})
		begin := puts(decodeAll(ground))
		set = set.Next(begin)
		if _, err := m.Apply(begin); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			var batch []resource.Change
			seen := map[resource.Key]bool{}
			for range rapid.IntRange(1, 4).Draw(t, "changes") {
				if ch := (changes{}).draw(t); !seen[ch.Key] {
					seen[ch.Key] = true
					batch = append(batch, ch)
				}
			}
			next, faults, _ := set.With(batch)
			if len(faults) > 0 {
				continue
			}
			set = next
			if _, err := m.Apply(batch); err != nil {
				t.Fatal(err)
			}
			made.look(m)
			table := m.Table()
			for _, listener := range []string{"l0", "l1", "l2"} {
				for _, name := range names() {
					if got, want := led(table, listener, name, name != ""), oracle(set, listener, name, name != ""); got != want {
						t.Fatalf("%s %s: %s, want %s", listener, name, got, want)
					}
				}
			}
			for p := range table.Listeners() {
				if got, want := led(table, p.Name, "", false), oracle(set, p.Name, "", false); got != want {
					t.Fatalf("%v: %s, want %s", p, got, want)
				}
			}
		}
		fresh := New(Config{Bind: "127.0.0.1", Types: testTypes()})
		if _, err := fresh.Apply(puts(slices.Collect(set.All("")))); err != nil {
			t.Fatal(err)
		}
		if a, b := dump(m), dump(fresh); a != b {
			t.Fatalf("one by one:\n%s\nall at once:\n%s", a, b)
		}
		var rest []resource.Change
		for o := range set.All("") {
			rest = append(rest, resource.Delete(o.Key))
		}
		if _, err := m.Apply(rest); err != nil {
			t.Fatal(err)
		}
		left := m.Table()
		if left.virtual.Len()+left.physical.Len()+left.listeners.Len()+left.ports.Len()+left.states.Len()+left.users.Len() > 0 {
			t.Fatalf("something is left: %+v", left)
		}
		made.check(t)
	})
}

// counted has all filters that were made: those of every version that was in
// force.
type counted map[*testFilter]bool

func (c counted) look(m *Model) {
	for v := range m.Table().Virtuals() {
		for _, f := range v.Filters() {
			c[f.(*testFilter)] = true
		}
	}
}

func (c counted) check(t *rapid.T) {
	for f := range c {
		if f.closed.Load() != 1 {
			t.Fatalf("filter %s of %s was closed %d times", f.name, f.env.VirtualCluster, f.closed.Load())
		}
	}
}

// tenants makes a model of many virtual clusters of six brokers each on one
// listener and one physical cluster, and gives the change of one of them.
func tenants(b testing.TB, clusters int) (w *world, change func(i int, limit int) resource.Change) {
	b.Helper()
	w = newWorld(b)
	physical := &PhysicalCluster{types: newTypes(testTypes())}
	for i := range 6 {
		physical.Brokers = append(physical.Brokers, PhysicalBroker{Name: fmt.Sprint("b", i), Address: fmt.Sprintf("host%d:9092", i)})
	}
	change = func(i, limit int) resource.Change {
		v := &VirtualCluster{
			PhysicalClusterRef: "big", TLS: &VirtualTLS{CertificateRef: "t1"}, types: physical.types, MaxInFlight: limit,
			Filters: []Filter{{Type: "MultiTenant", Config: &tenant{TenantKey: fmt.Sprint("t", i)}}},
		}
		for j := range 6 {
			v.Brokers.List = append(v.Brokers.List, VirtualBroker{
				Name: fmt.Sprint("broker-", j), EndpointRef: "edge", PhysicalBrokerRef: fmt.Sprint("b", j),
				SNIMatchAddress: fmt.Sprintf("broker-%d.t%d.example.com", j, i),
			})
		}
		return resource.Put(resource.Object{Key: resource.Key{Kind: KindVirtual, Name: fmt.Sprint("t", i)}, Spec: v})
	}
	all := []resource.Change{
		resource.Put(resource.Object{Key: resource.Key{Kind: kindListener, Name: "edge"},
			Spec: &resource.Listener{Address: ":9092", Protocol: "kafka", TLS: &resource.ListenerTLS{}}}),
		resource.Put(resource.Object{Key: resource.Key{Kind: KindPhysical, Name: "big"}, Spec: physical}),
	}
	for i := range clusters {
		all = append(all, change(i, 1))
	}
	w.mustChange(all...)
	return w, change
}

func (w *world) mustChange(changes ...resource.Change) {
	w.t.Helper()
	next, faults, _ := w.set.With(changes)
	if len(faults) > 0 {
		w.t.Fatal(faults)
	}
	w.set = next
	if _, err := w.model.Apply(changes); err != nil {
		w.t.Fatal(err)
	}
}

// One of a thousand virtual clusters of six brokers changes; the goal is 10 ms
// for all that a node does about it.
func BenchmarkChangeOneOf1000(b *testing.B) {
	w, change := tenants(b, 1000)
	b.Run("check", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			if _, faults, _ := w.set.With([]resource.Change{change(i%1000, i)}); len(faults) > 0 {
				b.Fatal(faults)
			}
		}
	})
	b.Run("compile", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			i++
			if _, err := w.model.Apply([]resource.Change{change(i%1000, i)}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	w, _ := tenants(b, 1000)
	w.mustApply("kind: PhysicalCluster\nname: found\nspec: {bootstrap: ['b:1']}\n---\n" +
		strings.Replace(tenantText("disco", "x"), "big", "found", 1))
	for name, sni := range map[string]string{"exact": "broker-3.t500.example.com", "numbered": "broker-3.disco.example.com"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			table := w.model.Table()
			for b.Loop() {
				if _, reason := table.Resolve("edge", sni, true); reason != "" {
					b.Fatal(reason)
				}
			}
		})
	}
}

// What all tenants have in common changes: each is looked at, and keeps its
// filters.
func BenchmarkChangePhysicalOf1000(b *testing.B) {
	w, _ := tenants(b, 1000)
	o, _ := w.set.Get(resource.Key{Kind: KindPhysical, Name: "big"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.model.Apply([]resource.Change{resource.Put(o)}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad1000(b *testing.B) {
	for b.Loop() {
		tenants(b, 1000)
	}
}
