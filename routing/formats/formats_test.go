package formats

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/routing/formats/document"
	"penstock/routing/formats/kuma"
	"penstock/routing/formats/smi"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

var update = flag.Bool("update", false, "rewrite the expected texts in testdata")

// decode decodes a text as check and apply do.
func decode(file, text string) ([]resource.Object, resource.Faults) {
	return codec.DecodeForeign(file, []byte(text), append(resource.RoutingKinds(), gateway.Kinds()...), All())
}

// eachFile calls do with the files of testdata that match a pattern.
func eachFile(t *testing.T, pattern string, do func(t *testing.T, file, text string)) {
	t.Helper()
	files, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, "testdata/"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			do(t, file, string(data))
		})
	}
}

// golden compares a text with the golden file beside a file (go test -update
// writes it).
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// Each file in testdata/*/bad breaks one rule; the expected faults are beside it.
func TestBadDocumentsMatchExpectedFaults(t *testing.T) {
	eachFile(t, "*/bad/*.yaml", func(t *testing.T, file, text string) {
		objects, faults := decode(filepath.Base(file), text)
		if len(faults) == 0 {
			faults, _ = validate.Objects(objects)
		}
		if len(faults) == 0 {
			t.Errorf("taken without a fault: %d objects", len(objects))
		}
		golden(t, file+".txt", faults.Error()+"\n")
	})
}

// The expected resources of the good files are beside them.
func TestGoodDocumentsMatchExpectedResources(t *testing.T) {
	eachFile(t, "*/good/*.yaml", func(t *testing.T, file, text string) {
		objects, faults := decode(filepath.Base(file), text)
		if len(faults) > 0 || len(objects) == 0 {
			t.Fatalf("%d objects, faults:\n%v", len(objects), faults)
		}
		var out strings.Builder
		for i, o := range objects {
			if i > 0 {
				out.WriteString("---\n")
			}
			out.Write(codec.EncodeYAML(o))
		}
		golden(t, file+".txt", out.String())
		for _, o := range objects {
			checkRoundTrip(t, o)
		}
	})
}

// checkRoundTrip checks that a resource is the same after each format.
func checkRoundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, o resource.Object) {
	t.Helper()
	for _, format := range Names() {
		text, err := Encode(format, o)
		if errors.Is(err, smi.ErrNotSplit) {
			continue
		}
		if err != nil {
			if has(format, &o) || !foreignKind(err) && !hasRollout(&o) {
				t.Fatalf("%s as %s: %v", o.Key, format, err)
			}
			continue
		}
		again, faults := decode("again.yaml", string(text))
		if len(faults) > 0 || len(again) != 1 {
			t.Fatalf("%s as %s: %v\n%s", o.Key, format, faults, text)
		}
		if format != Own && !hasKumaLabels(o.Labels) { // it is in Kuma's format from now on
			again[0].Labels = o.Labels
		}
		o := o
		if format == "smi" { // which says all that a route may leave out
			again[0].Labels, o.Spec = o.Labels, o.Spec.(*resource.MeshTCPRoute).WithDefaults()
			again[0].Spec = again[0].Spec.(*resource.MeshTCPRoute).WithDefaults()
		}
		if !resource.Equal(o, again[0]) {
			t.Fatalf("%s as %s is another when it is taken again:\n%s\n%s", o.Key, format, text, codec.EncodeYAML(again[0]))
		}
	}
}

// has reports whether a format must support a resource.
func has(format string, o *resource.Object) bool {
	switch format {
	case "kuma":
		fromKuma := hasKumaLabels(o.Labels) || o.Labels["k8s.kuma.io/namespace"] != ""
		return (o.Kind == "MeshTCPRoute" || o.Kind == "MeshHTTPRoute" ||
			fromKuma && (o.Kind == resource.KindPermission || o.Kind == resource.KindRateLimit)) && !hasRollout(o)
	case "gateway":
		return gateway.IsKind(o.Kind)
	}
	return true
}

// hasRollout reports whether a route has a rollout, which only Penstock has.
func hasRollout(o *resource.Object) bool {
	r, ok := o.Spec.(*resource.MeshTCPRoute)
	return ok && r.Rollout != nil
}

// foreignKind reports whether a format has no equivalent for a kind.
func foreignKind(err error) bool {
	return errors.Is(err, kuma.ErrKind) || errors.Is(err, gateway.ErrKind)
}

// hasKumaLabels reports whether labels are as on Kuma's documents rather than
// written by hand.
func hasKumaLabels(labels map[string]string) bool {
	_, mesh := labels[resource.LabelMesh]
	_, namespace := labels[document.LabelNamespace]
	form := labels[resource.LabelFormat]
	return mesh && !namespace && (form == resource.FormatKuma || form == resource.FormatKumaKubernetes)
}

// A rollout is Penstock's own: a route with one is not exported as Kuma's, which
// would be another route.
func TestRoutesWithARolloutAreNotExported(t *testing.T) {
	objects, faults := decode("x.yaml", `
kind: MeshTCPRoute
name: canary
spec:
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules:
    - default: {backendRefs: [{kind: MeshService, name: apps}, {kind: MeshService, name: new}]}
  rollout: {backend: {name: new}, steps: [{weight: 100}]}
`)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, format := range Names() {
		text, err := Encode(format, objects[0])
		if format == "gateway" {
			continue // the format lacks the kind
		}
		if (err == nil) != (format == Own) || err != nil && (!errors.Is(err, kuma.ErrKind) && !errors.Is(err, smi.ErrNotSplit) || !strings.Contains(err.Error(), "rollout")) {
			t.Errorf("as %s: %v\n%s", format, err, text)
		}
	}
}
