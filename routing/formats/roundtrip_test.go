package formats

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// drawRoute draws any valid route.
func drawRoute(t *rapid.T) *resource.MeshTCPRoute {
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9._]{0,20}[a-z0-9])?`)
	tags := rapid.MapOfN(
		rapid.StringMatching(`[!-+\--<>-~]{1,9}`).Filter(noQuote),
		rapid.StringMatching(`[!-+\--<>-~]{1,9}`).Filter(noQuote),
		1, 3,
	)
	target := func(kind string) resource.TargetRef {
		ref := resource.TargetRef{Kind: kind}
		if kind == "MeshService" || kind == "MeshServiceSubset" {
			ref.Name = name.Draw(t, "name")
		}
		if kind == "MeshSubset" || kind == "MeshServiceSubset" {
			ref.Tags = tags.Draw(t, "tags")
		}
		return ref
	}
	r := &resource.MeshTCPRoute{}
	if rapid.Bool().Draw(t, "has a source") {
		ref := target(rapid.SampledFrom([]string{"Mesh", "MeshSubset", "MeshService", "MeshServiceSubset"}).Draw(t, "source"))
		r.TargetRef = &ref
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "destinations") {
		to := resource.RouteTo{TargetRef: target("MeshService"), Rules: []resource.RouteRule{{}}}
		to.TargetRef.Name += fmt.Sprint(i) // all names are different
		for range rapid.IntRange(0, 3).Draw(t, "backends") {
			ref := target(rapid.SampledFrom([]string{"MeshService", "MeshServiceSubset"}).Draw(t, "backend"))
			b := resource.BackendRef{Kind: ref.Kind, Name: ref.Name, Tags: ref.Tags}
			if rapid.Bool().Draw(t, "has a weight") {
				weight := rapid.IntRange(0, 1_000_000).Draw(t, "weight")
				b.Weight = &weight
			}
			to.Rules[0].Default.BackendRefs = append(to.Rules[0].Default.BackendRefs, b)
		}
		r.To = append(r.To, to)
	}
	return r
}

func noQuote(s string) bool {
	for _, r := range s {
		if r == '"' || r == ',' || r == '=' {
			return false
		}
	}
	return true
}

// Any route is the same after any format, whatever form and labels it came with.
func TestRoutesRoundTripInEachFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := resource.Object{
			Key: resource.Key{
				Kind: "MeshTCPRoute",
				Name: rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?`).Draw(t, "route"),
			},
			Spec: drawRoute(t),
		}
		word := rapid.StringMatching(`[A-Za-z0-9]([-A-Za-z0-9._]{0,9}[A-Za-z0-9])?`)
		o.Labels = rapid.MapOfN(word, rapid.OneOf(
			rapid.Just(""), word, rapid.SampledFrom([]string{"true", "null", "1.0", "0x1f", "2001-01-01", "1e3"}),
		), 0, 3).Draw(t, "labels")
		switch form := rapid.SampledFrom([]string{"", "smi", "kuma", "kuma-kubernetes"}).Draw(t, "form"); form {
		case "":
		case "smi":
			o.Labels["penstock/format"] = form
			if rapid.Bool().Draw(t, "has a namespace") {
				o.Labels["penstock/namespace"] = word.Draw(t, "namespace")
			}
		default:
			o.Labels["penstock/format"] = form
			o.Labels["kuma.io/mesh"] = word.Draw(t, "mesh")
			if rapid.Bool().Draw(t, "has a namespace") {
				o.Labels["k8s.kuma.io/namespace"] = word.Draw(t, "namespace")
			}
		}
		if len(o.Labels) == 0 {
			o.Labels = nil
		}
		checkRoundTrip(t, o)
	})
}

// Any file yields faults, or resources that are valid, can be exported and read
// again, and compile to listeners and a status of the Gateway API.
func FuzzDocuments(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("kind: MeshTCPRoute\nname: a\nspec: {to: [{targetRef: {kind: MeshService, name: b}, " +
		"rules: [{default: {backendRefs: [{kind: MeshService, name: c}, {kind: MeshService, name: b}]}}]}], " +
		"rollout: {backend: {name: c}, steps: [{weight: 5, for: 1m}, {weight: 100}]}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, faults := decode("x.yaml", string(data))
		more, warnings := validate.Objects(objects)
		for _, fault := range slices.Concat(faults, more, resource.Faults(warnings)) {
			if strings.ContainsAny(fault.Error(), "\n\r\x00\x1b\x7f\u009b") {
				t.Fatalf("a fault that is not one line of text: %q", fault.Error())
			}
		}
		var changes []resource.Change
		for _, o := range objects {
			validate.Spec(o.Spec, func(path, message string, value any) {
				t.Fatalf("%s is not valid: %s %s (%v)", o.Key, path, message, value)
			})
			changes = append(changes, resource.Put(o))
			if o.Kind == "MeshTCPRoute" || o.Kind == "MeshHTTPRoute" || gateway.IsKind(o.Kind) && o.Format() != "Penstock" {
				checkRoundTrip(t, o)
			}
		}
		set, _, _ := new(validate.Set).With(changes)
		statuses := gateway.NewStatuses(set, nil)
		for o := range set.All("") {
			statuses.Status(&o, 1, time.Time{})
		}
		new(gateway.Model).With(changes)
	})
}
