package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestListedFaultsAreBounded(t *testing.T) {
	_, faults := Decode("x.yaml", []byte(
		"kind: Service\nname: a\nspec:\n"+strings.Repeat("  x: 1\n", 5)+"  endpoints:\n"+strings.Repeat("  - {}\n", 5000),
	), resource.RoutingKinds())
	if len(faults) != resource.MaxFaults+1 || !strings.Contains(faults[resource.MaxFaults].Message, "more than 1000 faults") {
		t.Errorf("%d faults, the last %v", len(faults), faults[len(faults)-1])
	}
	_, faults = Decode("x.yaml", []byte(
		"kind: Service\nname: "+strings.Repeat("a", 1<<20)+"\nspec: {"+strings.Repeat("b", 1<<20)+": c}",
	), resource.RoutingKinds())
	for _, f := range faults {
		if len(f.Error()) > 1000 {
			t.Errorf("a fault of %d bytes", len(f.Error()))
		}
	}
}

func TestDocumentMarkersOfAllKinds(t *testing.T) {
	one := "kind: Service\nname: %s\nspec: {}\n"
	a, b, c := fmt.Sprintf(one, "a"), fmt.Sprintf(one, "b"), fmt.Sprintf(one, "c")
	for name, text := range map[string]string{
		"plain":           a + "---\n" + b + "---\n" + c,
		"leading":         "---\n" + a + "---\n" + b + "---\n" + c + "---\n",
		"byte order mark": "\ufeff" + a + "---\n" + b + "---\n" + c,
		"carriage return": strings.ReplaceAll(a+"---\n"+b+"---\n"+c, "\n", "\r\n"),
		"old Macs":        strings.ReplaceAll(a+"---\n"+b+"---\n"+c, "\n", "\r"),
		"ends":            a + "...\n---\n" + b + "...\n---\n" + c,
		"comments":        "# a\n" + a + "--- # b\n" + b + "---\t# c\n" + c,
		"list": "- {kind: Service, name: a, spec: {}}\n- {kind: Service, name: b, spec: {}}\n---\n" +
			"[{kind: Service, name: c, spec: {}}]",
		"JSON": `{"kind": "Service", "name": "a", "spec": {}}{"kind": "Service", "name": "b", "spec": {}}` + "\n" +
			`{"kind": "Service", "name": "c", "spec": {}}`,
		"quoted YAML": `{"kind": Service, name: a, spec: {}}` + "\n---\n" + b + "---\n" + c,
	} {
		objects, faults := Decode("", []byte(text), resource.RoutingKinds())
		names := ""
		for _, o := range objects {
			names += o.Name
		}
		if names != "abc" || len(faults) > 0 {
			t.Errorf("%s: %q, %v", name, names, faults)
		}
	}
}

func TestLineOfFindsThePathOrItsParent(t *testing.T) {
	o := decode(t, `# first line
---
kind: Listener
name: edge
spec:
  address: ":1"
  protocol: tls
  tags:
    "a.b": c
  hosts:
  - names:
    - a.example.com
    - b.example.com
    service: apps
  tls:
    mode: terminate
    certificateRefs:
    - one
    - two
`)[0]
	for path, want := range map[string]int{
		"": 3, "name": 3, "spec": 6, "spec.address": 6, "spec.hosts[0].names[1]": 12, "spec.hosts[0].service": 14,
		"spec.tls.certificateRefs[1]": 19, "spec.tls.alpn": 16, `spec.tags["a.b"]`: 9,
	} {
		if got := o.LineOf(path); got != want {
			t.Errorf("%q is in line %d, want %d", path, got, want)
		}
	}
}

func TestFilesAreRelativeToTheResource(t *testing.T) {
	files := map[string]string{
		"/conf/a.crt": string(readFile(t, "testdata/pem/a.crt")),
		"/conf/a.key": string(readFile(t, "testdata/pem/a.key")),
		"/keys/b.key": string(readFile(t, "testdata/pem/b.key")),
		"/conf/empty": "", "/conf/text": "hello",
		"/conf/huge": strings.Repeat("a", MaxPEMFile+1),
	}
	read := func(name string, limit int) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("no such file or directory")}
		}
		return []byte(text[:min(len(text), limit+1)]), nil
	}
	load := func(kind, spec string) (resource.Object, resource.Faults) {
		o := decode(t, "kind: "+kind+"\nname: a\nspec: "+spec)[0]
		return o, LoadFiles(&o, "/conf", read)
	}
	o, faults := load("Certificate", "{certFile: a.crt, keyFile: a.key}")
	wantFaults(t, faults)
	want := resource.Certificate{Cert: files["/conf/a.crt"], Key: resource.Secret(files["/conf/a.key"])}
	if got := *o.Spec.(*resource.Certificate); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if again := LoadFiles(&o, "/conf", read); len(again) > 0 || len(validate.Admit([]resource.Object{o}, time.Now())) > 0 {
		t.Error("still files to read")
	}
	o, faults = load("Service", "{tls: {ca: a.crt}}")
	wantFaults(t, faults)
	if got := o.Spec.(*resource.Service).TLS.CA; got != files["/conf/a.crt"] {
		t.Errorf("ca: %s", got)
	}
	for _, c := range []struct{ kind, spec, want string }{
		{"Certificate", "{certFile: a.crt, keyFile: /keys/b.key}", "spec.key: does not belong to the first certificate of cert (/keys/b.key)"},
		{
			"Certificate", "{certFile: a.key, keyFile: a.key}",
			"test.yaml:3: Certificate/a spec.cert: contains a private key; only certificates are allowed (/conf/a.key)",
		},
		{"Certificate", "{certFile: gone, keyFile: a.key}", "spec.certFile: cannot be read: no such file or directory (/conf/gone)"},
		{"Service", "{tls: {ca: empty}}", "spec.tls.ca: is empty (/conf/empty)"},
		{"Service", "{tls: {ca: text}}", "spec.tls.ca: contains no PEM (/conf/text)"},
		{"Service", "{tls: {ca: huge}}", "spec.tls.ca: is larger than 1024 KiB (/conf/huge)"},
		{
			"Listener",
			"{address: ':1', protocol: tls, tls: {mode: terminate, certificateRefs: [a], clientAuth: {ca: a.key}}}",
			"spec.tls.clientAuth.ca: contains a private key; only certificates are allowed (/conf/a.key)",
		},
	} {
		_, faults := load(c.kind, c.spec)
		wantFaults(t, faults, c.want)
	}
}

// For any input the decoder ends soon, and what it accepts keeps its meaning in
// every written form.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{
		"testdata/good/*.yaml", "testdata/good/*.json", "testdata/bad/*.yaml", "testdata/bad/*.json",
		"testdata/http/good/*.yaml", "testdata/http/bad/*.yaml",
	} {
		for _, file := range glob(f, pattern) {
			f.Add(readFile(f, file))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		started := time.Now()
		for _, file := range []string{"", "x.json"} {
			objects, faults := Decode(file, data, resource.RoutingKinds())
			if took := time.Since(started); took > 10*time.Second {
				t.Fatalf("it took %v", took)
			}
			for _, fault := range faults {
				if strings.ContainsAny(fault.Error(), "\n\r\x00\x1b\x7f\u009b") {
					t.Fatalf("a fault of several lines: %q", fault.Error())
				}
			}
			for _, o := range objects {
				checkRoundTrip(t, o)
			}
			validate.Objects(objects)
		}
	})
}

func manyNames(n int) []byte {
	var b bytes.Buffer
	b.WriteString("kind: Listener\nname: edge\nspec:\n  address: ':9443'\n  protocol: tls\n  hosts:\n")
	for i := range n {
		if i%10 == 0 {
			fmt.Fprintf(&b, "  - service: s%d\n    names:\n", i/10)
		}
		fmt.Fprintf(&b, "    - host-%d.apps.example.com\n", i)
	}
	return b.Bytes()
}

func manyServices(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `kind: Service
name: service-%d
spec:
  balancing: {policy: leastConnections}
  healthCheck: {type: tcp, interval: 2s}
  endpoints:
  - {address: "10.0.0.1:%d", tags: {version: v1}}
  - {address: "10.0.0.2:%d", tags: {version: v2}, weight: 2}
---
`, i, i%65000+1, i%65000+1)
	}
	return b.Bytes()
}

func BenchmarkDecode10000Services(b *testing.B) {
	data := manyServices(10_000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, faults := Decode("x.yaml", data, resource.RoutingKinds()); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}

func BenchmarkListenerOf100000Names(b *testing.B) {
	data := manyNames(100_000)
	objects, faults := Decode("", data, resource.RoutingKinds())
	if len(faults) > 0 {
		b.Fatal(faults)
	}
	stored := EncodeWithSecrets(objects[0])
	run := func(name string, do func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
		})
	}
	run("yaml", func() { Decode("x.yaml", data, resource.RoutingKinds()) })
	run("json", func() { Decode("", stored, resource.RoutingKinds()) })
	run("restore", func() {
		if _, err := Restore(stored, resource.RoutingKinds()); err != nil {
			b.Fatal(err)
		}
	})
	run("validate", func() {
		validate.Spec(objects[0].Spec, func(path, message string, _ any) { b.Fatal(path, message) })
	})
	run("encode", func() { EncodeWithSecrets(objects[0]) })
	services, _ := Decode("", manyServices(1), resource.RoutingKinds())
	changes := []resource.Change{}
	for i := range 10_000 {
		key := resource.Key{Kind: "Service", Name: fmt.Sprint("s", i)}
		changes = append(changes, resource.Put(resource.Object{Key: key, Spec: services[0].Spec}))
	}
	with := func(set *validate.Set, changes ...resource.Change) *validate.Set {
		next, faults, _ := set.With(changes)
		if len(faults) > 0 {
			b.Fatal(faults)
		}
		return next
	}
	set := with(new(validate.Set), append(changes, resource.Put(objects[0]))...)
	run("with", func() { with(set, resource.Put(objects[0])) })
}
