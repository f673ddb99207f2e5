package routing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/routing/formats"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// decodeInput decodes the resources of a scenario, in any format.
func decodeInput(input string) ([]resource.Object, resource.Faults) {
	return codec.DecodeForeign("input", []byte(input), append(resource.RoutingKinds(), gateway.Kinds()...), formats.All())
}

// gateway applies objects like a user: validated together with those before,
// and with the warnings printed. With an argument it deletes one.
func (w *world) gateway(args []string, input string) string {
	var changes []resource.Change
	if len(args) > 0 {
		changes = append(changes, resource.Delete(keyOf(args[0])))
	}
	objects, faults := decodeInput(input)
	for _, o := range objects {
		changes = append(changes, resource.Put(o))
	}
	if w.set == nil {
		w.set = new(validate.Set)
	}
	next, wrong, warnings := w.set.With(changes)
	if faults = append(faults, wrong...); len(faults) > 0 {
		return faults.Error()
	}
	w.set = next
	var b strings.Builder
	for _, x := range warnings {
		fmt.Fprintf(&b, "warning: %v\n", x)
	}
	return b.String() + w.change(changes)
}

// status prints the conditions of a Gateway API object, one per line.
func (w *world) status(key resource.Key) string {
	o, ok := w.set.Get(key)
	if !ok {
		return "there is no such object"
	}
	var b strings.Builder
	line := func(of string, list []gateway.Condition) {
		for _, c := range list {
			fmt.Fprintf(&b, "%s%s %s %s", of, c.Type, c.Status, c.Reason)
			if c.Message != "" {
				b.WriteString(": " + c.Message)
			}
			b.WriteString("\n")
		}
	}
	switch s := gateway.NewStatuses(w.set, nil).Status(&o, 1, w.now).(type) {
	case *gateway.Status:
		line("", s.Conditions)
		for _, l := range s.Listeners {
			var kinds []string
			for _, k := range l.SupportedKinds {
				kinds = append(kinds, k.Kind)
			}
			fmt.Fprintf(&b, "%s: %s, %d attached\n", l.Name, cmp.Or(strings.Join(kinds, " "), "no kinds"), l.AttachedRoutes)
			line("  ", l.Conditions)
		}
	case *gateway.RouteStatus:
		for _, p := range s.Parents {
			fmt.Fprintf(&b, "%s\n", strings.TrimSpace(p.ParentRef.Name+" "+p.ParentRef.SectionName))
			line("  ", p.Conditions)
		}
	}
	return b.String()
}

// gatewayRouter returns a router with the resources in text.
func gatewayRouter(t testing.TB, text string) *Router {
	t.Helper()
	objects, faults := decodeInput(text)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	r := NewRouter(Config{})
	if _, err := r.Apply(puts(objects), t0); err != nil {
		t.Fatal(err)
	}
	return r
}

func puts(objects []resource.Object) []resource.Change {
	changes := make([]resource.Change, len(objects))
	for i, o := range objects {
		changes[i] = resource.Put(o)
	}
	return changes
}

// destinationsOf counts the destinations of n connections for a name.
func destinationsOf(r *Router, listener, name string, n int) map[string]int {
	count := map[string]int{}
	for range n {
		d, reason := r.Decide(&Input{Listener: listener, ServerName: name, HasServerName: name != ""})
		where := string(reason)
		if reason == OK {
			where = d.Service()
			if _, reason := d.Next(t0); reason != OK {
				where = string(reason)
			}
			d.Closed()
		}
		count[where]++
	}
	return count
}

const twoServices = `
kind: Service
name: one
spec: {endpoints: [{address: "127.0.0.1:1"}]}
---
kind: Service
name: two
spec: {endpoints: [{address: "127.0.0.1:2"}]}
---
kind: Service
name: empty
spec: {endpoints: []}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: any
  listeners: [{name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: apps}
spec:
  parentRefs: [{name: edge}]
  hostnames: [apps.example.com]
  rules: [{backendRefs: [%s]}]
`

// Shares as in the Gateway API's conformance suite. An invalid backend keeps
// its share, and those connections are closed.
func TestGatewayRoutesSplitExactly(t *testing.T) {
	for refs, want := range map[string]map[string]int{
		"{name: one, weight: 70}, {name: two, weight: 30}":                  {"one": 700, "two": 300},
		"{name: one}, {name: two}":                                          {"one": 500, "two": 500},
		"{name: one, weight: 999}, {name: two, weight: 1}":                  {"one": 999, "two": 1},
		"{name: one, weight: 1000000}, {name: two, weight: 0}":              {"one": 1000},
		"{name: one, weight: 20}, {name: missing, weight: 80}":              {"one": 200, "no_backend": 800},
		"{name: one, weight: 20}, {name: empty, weight: 80}":                {"one": 200, "no_endpoint": 800},
		"{name: one, weight: 20}, {kind: Pod, name: two, weight: 80}":       {"one": 200, "no_backend": 800},
		"{name: one, weight: 20}, {namespace: shop, name: two, weight: 80}": {"one": 200, "no_backend": 800},
		"{name: missing}":                         {"no_backend": 1000},
		"{name: empty}":                           {"no_endpoint": 1000},
		"{name: one, weight: 0}":                  {"no_backend": 1000},
		"{name: one}, {name: one}":                {"one": 1000},
		"{name: missing, weight: 0}, {name: two}": {"two": 1000},
	} {
		r := gatewayRouter(t, fmt.Sprintf(twoServices, refs))
		got := destinationsOf(r, "edge/443", "apps.example.com", 1000)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", refs, got, want)
		}
		for i := range 10 { // exact in any 1,000 consecutive connections
			destinationsOf(r, "edge/443", "apps.example.com", 37+i)
			if got := destinationsOf(r, "edge/443", "apps.example.com", 1000); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v in the middle, want %v", refs, got, want)
			}
		}
	}
}

// A backend that is added, or gets its first endpoint, takes its share at once.
func TestMissingBackendGetsItsShareOnceCreated(t *testing.T) {
	r := gatewayRouter(t, fmt.Sprintf(twoServices, "{name: one, weight: 1}, {name: late, weight: 4}"))
	apply := func(text string) {
		t.Helper()
		objects, faults := decodeInput(text)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if _, err := r.Apply(puts(objects), t0); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want map[string]int) {
		t.Helper()
		if got := destinationsOf(r, "edge/443", "apps.example.com", 1000); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	want(map[string]int{"one": 200, "no_backend": 800})
	apply("kind: Service\nname: late\nspec: {endpoints: []}\n")
	want(map[string]int{"one": 200, "no_endpoint": 800})
	apply("kind: Service\nname: late\nspec: {endpoints: [{address: \"127.0.0.1:9\"}]}\n")
	want(map[string]int{"one": 200, "late": 800})
	if _, err := r.Apply([]resource.Change{resource.Delete(resource.Key{Kind: "Service", Name: "late"})}, t0); err != nil {
		t.Fatal(err)
	}
	want(map[string]int{"one": 200, "no_backend": 800})
}

// Applied lists the listeners of a Gateway when they are added or removed. The
// table's services do not include those that represent routes.
func TestGatewayListenersAreListeners(t *testing.T) {
	r := gatewayRouter(t, fmt.Sprintf(twoServices, "{name: one}"))
	l, ok := r.Table().Listener("edge/443")
	if !ok || !l.RunsHere() || l.Spec().Address != ":443" || l.Spec().TLS.Mode != "passthrough" {
		t.Fatalf("%v %+v", ok, l)
	}
	for s := range r.Table().Services() {
		if strings.Contains(s.Name(), "/") {
			t.Errorf("%s is among the services", s.Name())
		}
	}
	objects, _ := decodeInput("kind: Service\nname: one\nspec: {endpoints: []}\n")
	done, err := r.Apply(puts(objects), t0)
	if err != nil || len(done.Listeners) > 0 {
		t.Errorf("listeners %v are others after a change of a service: %v", done.Listeners, err)
	}
	done, err = r.Apply([]resource.Change{resource.Delete(resource.Key{Kind: "Gateway", Name: "edge"})}, t0)
	if _, there := done.Table.Listener("edge/443"); err != nil || there || fmt.Sprint(done.Listeners) != "[edge/443]" {
		t.Errorf("after its Gateway went: %v %v %v", there, done.Listeners, err)
	}
}

// manyRoutes returns n TLSRoutes at one Gateway.
func manyRoutes(t testing.TB, n int) []resource.Object {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, twoServices, "{name: one}")
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {name: r%d}\nspec:\n"+
			"  parentRefs: [{name: edge}]\n  hostnames: [r%d.example.com]\n"+
			"  rules: [{backendRefs: [{name: one, weight: 1}, {name: two, weight: 1}]}]\n", i, i)
	}
	objects, faults := decodeInput(b.String())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return objects
}

// BenchmarkChangeOneOf1000TLSRoutes changes one of 1000 TLSRoutes of a Gateway.
func BenchmarkChangeOneOf1000TLSRoutes(b *testing.B) {
	objects := manyRoutes(b, 1000)
	r := NewRouter(Config{})
	if _, err := r.Apply(puts(objects), t0); err != nil {
		b.Fatal(err)
	}
	one := objects[len(objects)-500]
	var specs [2]*gateway.TLSRoute
	for i := range specs {
		s := *one.Spec.(*gateway.TLSRoute)
		s.Hostnames = []string{fmt.Sprintf("other%d.example.com", i)}
		specs[i] = &s
	}
	for i := 0; b.Loop(); i++ {
		one.Spec = specs[i%2]
		if _, err := r.Apply([]resource.Change{resource.Put(one)}, t0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApply1000TLSRoutes applies 1000 TLSRoutes at once.
func BenchmarkApply1000TLSRoutes(b *testing.B) {
	changes := puts(manyRoutes(b, 1000))
	for b.Loop() {
		if _, err := NewRouter(Config{}).Apply(changes, t0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDecideTLSRoute routes a connection by a TLSRoute. Goal: as fast as
// by a policy.
func BenchmarkDecideTLSRoute(b *testing.B) {
	r := NewRouter(Config{})
	if _, err := r.Apply(puts(manyRoutes(b, 1000)), t0); err != nil {
		b.Fatal(err)
	}
	in := Input{Listener: "edge/443", ServerName: "r500.example.com", HasServerName: true}
	b.ReportAllocs()
	for b.Loop() {
		if _, reason := r.Decide(&in); reason != OK {
			b.Fatal(reason)
		}
	}
}

// A status is JSON in the form of the Gateway API.
func TestStatusHasGatewayAPIForm(t *testing.T) {
	objects, _ := decodeInput(fmt.Sprintf(twoServices, "{name: one}"))
	set, faults, _ := new(validate.Set).With(puts(objects))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	o, _ := set.Get(resource.Key{Kind: "TLSRoute", Name: "apps"})
	text, err := json.Marshal(gateway.NewStatuses(set, nil).Status(&o, 7, time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)))
	want := `{"parents":[{"parentRef":{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"edge"},` +
		`"controllerName":"penstock.internal/gateway","conditions":[` +
		`{"type":"Accepted","status":"True","observedGeneration":7,` +
		`"lastTransitionTime":"2026-01-31T12:00:00Z","reason":"Accepted","message":""},` +
		`{"type":"ResolvedRefs","status":"True","observedGeneration":7,` +
		`"lastTransitionTime":"2026-01-31T12:00:00Z","reason":"ResolvedRefs","message":""}]}]}`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
}

// Two routes of one TCP listener are both accepted, as in the conformance
// suite, and the status says that the later one gets no connections.
func TestLaterOfTwoRoutesStaysAccepted(t *testing.T) {
	const route = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {name: %s}\n" +
		"spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: one}]}]}\n"
	objects, faults := decodeInput("apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge}\n" +
		"spec: {gatewayClassName: any, listeners: [{name: tcp, port: 25, protocol: TCP}]}\n" +
		fmt.Sprintf(route, "a") + fmt.Sprintf(route, "b"))
	set, wrong, _ := new(validate.Set).With(puts(objects))
	if faults = append(faults, wrong...); len(faults) > 0 {
		t.Fatal(faults)
	}
	statuses := gateway.NewStatuses(set, nil)
	for name, problem := range map[string]string{
		"a": "[there is no Service one]",
		"b": "[at edge it is Accepted, but TCPRoute/a takes precedence for all connections by hostname, age or name: " +
			"this route gets no connections here there is no Service one]",
	} {
		o, _ := set.Get(resource.Key{Kind: "TCPRoute", Name: name})
		status := statuses.Status(&o, 1, t0)
		if c := status.(*gateway.RouteStatus).Parents[0].Conditions[0]; c.Status != "True" || c.Reason != "Accepted" {
			t.Errorf("%s: %+v", name, c)
		}
		words := strings.ReplaceAll(fmt.Sprint(gateway.Problems(status)), "at edge it is not ResolvedRefs (BackendNotFound): ", "")
		if words != problem {
			t.Errorf("%s: %s, want %s", name, words, problem)
		}
	}
	o, _ := set.Get(resource.Key{Kind: "Gateway", Name: "edge"})
	if n := statuses.Status(&o, 1, t0).(*gateway.Status).Listeners[0].AttachedRoutes; n != 2 {
		t.Errorf("%d routes are attached", n)
	}
}
