package codec

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// sameObject fails unless b equals a, apart from where it was read.
func sameObject(t testing.TB, how string, a, b resource.Object) {
	t.Helper()
	dropEmpty(reflect.ValueOf(a.Spec))
	dropEmpty(reflect.ValueOf(b.Spec))
	if a.Key != b.Key || a.Version != b.Version || !maps.Equal(a.Labels, b.Labels) || !reflect.DeepEqual(a.Spec, b.Spec) {
		t.Errorf("%s: %v is not the same afterwards:\n%+v\n%+v", how, a.Key, a.Spec, b.Spec)
	}
	if !resource.Equal(a, b) {
		t.Errorf("%s: %v is the same and not Equal", how, a.Key)
	}
}

// dropEmpty sets empty lists and maps to nil: no written form distinguishes
// them.
func dropEmpty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			dropEmpty(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			dropEmpty(v.Field(i))
		}
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 && v.CanSet() {
			v.SetZero()
		}
		for i := 0; v.Kind() == reflect.Slice && i < v.Len(); i++ {
			dropEmpty(v.Index(i))
		}
	}
}

// checkRoundTrip encodes and decodes an object in each of its written forms.
func checkRoundTrip(t testing.TB, o resource.Object) {
	t.Helper()
	stored := EncodeWithSecrets(o)
	back, err := Restore(stored, resource.RoutingKinds())
	if err != nil {
		t.Fatalf("%v: %v\n%s", o.Key, err, stored)
	}
	sameObject(t, "stored", o, back)
	if again := EncodeWithSecrets(back); string(again) != string(stored) {
		t.Errorf("two forms of one content:\n%s\n%s", stored, again)
	}
	for name, data := range map[string][]byte{"x.yaml": EncodeYAML(o), "x.json": EncodeJSON(o)} {
		objects, faults := Decode(name, data, resource.RoutingKinds())
		if len(faults) > 0 || len(objects) != 1 {
			t.Fatalf("%s of %v: %d objects, %v\n%s", name, o.Key, len(objects), faults, data)
		}
		got, faults := resource.FillHidden(objects[0], o)
		if len(faults) > 0 {
			t.Fatalf("%s of %v: %v", name, o.Key, faults)
		}
		sameObject(t, name, o, got)
	}
}

func TestGoodFilesRoundTripInEveryForm(t *testing.T) {
	for _, file := range append(glob(t, "testdata/good/*.yaml"), glob(t, "testdata/good/*.json")...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, faults := Decode(file, data, resource.RoutingKinds())
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, o := range objects {
			checkRoundTrip(t, o)
		}
	}
}

func TestStoredFormHoldsOnlyWhatTheUserWrote(t *testing.T) {
	o := decode(t, `
kind: Listener
name: edge
spec:
  protocol: tls
  address: ":1"
  tls: {}
  timeouts: {hello: 90s}
  tags: {b: x, a: y}
  proxyProtocol: {accept: [127.0.0.1]}
  limits: {}
`)[0]
	want := `{"kind":"Listener","name":"edge","spec":{"address":":1","protocol":"tls","tls":{},` +
		`"proxyProtocol":{"accept":["127.0.0.1/32"]},"timeouts":{"hello":"1m30s"},"tags":{"a":"y","b":"x"}}}`
	if got := string(EncodeWithSecrets(o)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	odd := resource.Object{Key: o.Key, Spec: &resource.Service{HealthCheck: &resource.HealthCheck{Send: "\n\x00\x1f\"\\é\u2028"}}}
	var back struct {
		Spec struct{ HealthCheck struct{ Send string } }
	}
	err := json.Unmarshal(EncodeWithSecrets(odd), &back)
	if err != nil || back.Spec.HealthCheck.Send != odd.Spec.(*resource.Service).HealthCheck.Send {
		t.Errorf("%v, %q in %s", err, back.Spec.HealthCheck.Send, EncodeWithSecrets(odd))
	}
}

func TestYAMLHasTheOrderOfTheManual(t *testing.T) {
	o := decode(t, `{"kind": "Service", "name": "a", "spec": {`+
		`"endpoints": [{"weight": 2, "address": "127.0.0.1:80", "tags": {"version": "1"}}], `+
		`"connect": {"attempts": 2}, "idleTimeout": "60m"}}`)[0]
	want := `kind: Service
name: a
spec:
  connect:
    attempts: 2
  idleTimeout: 1h
  endpoints:
    - address: 127.0.0.1:80
      weight: 2
      tags:
        version: "1"
`
	if got := string(EncodeYAML(o)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestEqualComparesWrittenContent(t *testing.T) {
	one := func(spec string) resource.Object { return decode(t, "kind: Service\nname: a\nspec: "+spec)[0] }
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{resolve: 60s, endpoints: []}`, `{"resolve": "1m"}`, true},
		{`{connect: {}}`, `{}`, true},
		{"{}\nlabels: {team: a}", "{}\nlabels: {\"team\": \"a\"}", true},
		{"{}\nlabels: {team: a}", "{}\nlabels: {team: b}", false},
		{"{}\nlabels: {team: \"\"}", `{}`, false},
		{"{}\nlabels: {}", `{}`, true},
		{`{tls: {}}`, `{}`, false},
		{`{protocol: tcp}`, `{}`, false},
		{`{endpoints: [{address: "a:1"}, {address: "b:1"}]}`, `{endpoints: [{address: "b:1"}, {address: "a:1"}]}`, false},
	} {
		if got := resource.Equal(one(c.a), one(c.b)); got != c.want {
			t.Errorf("Equal(%s, %s) = %v", c.a, c.b, got)
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const text = "top-secret-text"
	o := resource.Object{Key: resource.Key{Kind: "Certificate", Name: "a"}, Spec: &resource.Certificate{Cert: "c", Key: text}}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "spec", o.Spec, "key", resource.Secret(text))
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "spec", o.Spec, "key", resource.Secret(text))
	asJSON, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{
		log.String(), string(asJSON), string(asYAML), string(EncodeJSON(o)), string(EncodeYAML(o)), resource.Show(resource.Secret(text)),
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} { // vet refuses %p and %w of a text
		certificate := *o.Spec.(*resource.Certificate)
		shown = append(shown, fmt.Sprintf(verb, resource.Secret(text)), fmt.Sprintf(verb, o.Spec), fmt.Sprintf(verb, certificate))
	}
	hexText := fmt.Sprintf("%x", text)
	for _, s := range shown {
		if strings.Contains(s, text) || strings.Contains(strings.ToLower(s), hexText) {
			t.Errorf("the secret is in %s", s)
		}
	}
	if !strings.Contains(string(EncodeYAML(o)), "key: (hidden)") {
		t.Errorf("no sign of the secret in\n%s", EncodeYAML(o))
	}
	if !strings.Contains(string(EncodeWithSecrets(o)), text) {
		t.Error("the stored form lost the secret")
	}
}

// No fault shows a key that was put into a wrong place.
func TestFaultsNeverShowSecrets(t *testing.T) {
	key, err := os.ReadFile("testdata/pem/a.key")
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Split(string(key), "\n")[1]
	quoted := fmt.Sprintf("%q", key)
	for _, text := range []string{
		"kind: Certificate\nname: a\nspec: {keey: " + quoted + "}",
		"kind: Certificate\nname: a\nspec: {cert: " + quoted + ", key: x}",
		"kind: Certificate\nname: a\nspec: {certFile: " + quoted + ", keyFile: " + quoted + ", key: " + quoted + "}",
		"kind: Certificate\nname: a\nkey: " + quoted + "\nspec: {}",
		"kind: Certificate\nname: " + quoted + "\nspec: {}",
		"kind: " + quoted + "\nname: a\nspec: {}",
		"kind: Certificate\nname: a\nspec: {? " + quoted + " : x}",
		"kind: Certificate\nname: a\nspec: {key: {" + quoted + ": x}}",
		"kind: Listener\nname: a\nspec: {address: " + quoted + ", tags: {? " + quoted + " : a b, k: " + quoted + "}}",
		"kind: Service\nname: a\nspec: {resolve: " + quoted + ", connect: {attempts: " + quoted + "}, " +
			"tls: {ca: " + quoted + ", alpn: [" + quoted + ", " + quoted + "]}}",
		"kind: Certificate\nname: a\nspec: {certFile: x, key: |\n" + string(key),
		"kind: Certificate\nname: a\nspec: {certFile: x, key: " + strings.Replace(quoted, body[:8], "!!!!!!!!", 1) + "}",
	} {
		_, faults := Decode("x.yaml", []byte(text), resource.RoutingKinds())
		if len(faults) == 0 {
			t.Errorf("no fault in %s", text)
		}
		for _, f := range faults {
			if s := fmt.Sprintf("%+v %s", f, f.Error()); strings.Contains(s, body[8:24]) {
				t.Errorf("the key is in %s", s)
			}
		}
	}
}

func TestHiddenSecretsAreFilledInForTheSameCertificateOnly(t *testing.T) {
	data, err := os.ReadFile("testdata/good/certificate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stored := decode(t, string(data))[0]
	shown := decode(t, string(EncodeYAML(stored)))[0]
	if !resource.HasHidden(shown) || resource.HasHidden(stored) {
		t.Fatalf("hidden: %v of what was shown, %v of what is stored", resource.HasHidden(shown), resource.HasHidden(stored))
	}
	filled, faults := resource.FillHidden(shown, stored)
	if len(faults) > 0 || !resource.Equal(filled, stored) || !resource.HasHidden(shown) {
		t.Errorf("filled in wrongly: %v", faults)
	}
	if faults := validate.Admit([]resource.Object{shown}, time.Now()); len(faults) != 1 {
		t.Errorf("a hidden key is admitted: %v", faults)
	}
	if faults := validate.Admit([]resource.Object{filled}, time.Now()); len(faults) != 0 {
		t.Errorf("a key that is filled in is not admitted: %v", faults)
	}
	if _, faults := resource.FillHidden(shown, resource.Object{}); len(faults) != 1 {
		t.Error("filled in from nothing")
	}
	other := *stored.Spec.(*resource.Certificate)
	other.Cert += "\n"
	if _, faults := resource.FillHidden(shown, resource.Object{Key: stored.Key, Spec: &other}); len(faults) != 1 {
		t.Error("filled in from another certificate")
	}
}

func TestLabelsAreEncodedInOneForm(t *testing.T) {
	o := decode(t, "kind: Service\nname: a\nspec: {}\nlabels: {zone: 1.10, app.example.com/part-of: shop}")[0]
	stored := string(EncodeWithSecrets(o))
	if want := `{"kind":"Service","name":"a","labels":{"app.example.com/part-of":"shop","zone":"1.10"},"spec":{}}`; stored != want {
		t.Errorf("%s\nwant\n%s", stored, want)
	}
	shown := string(EncodeYAML(o))
	if want := "kind: Service\nname: a\nlabels:\n  app.example.com/part-of: shop\n  zone: \"1.10\"\nspec: {}\n"; shown != want {
		t.Errorf("%s\nwant\n%s", shown, want)
	}
	if back, err := Restore(
		[]byte(`{"kind":"Service","name":"a","labels":{"of a later version":"~"},"spec":{}}`), resource.RoutingKinds(),
	); err != nil || len(back.Labels) != 1 {
		t.Errorf("an admitted object is refused: %v, %v", back.Labels, err)
	}
}
