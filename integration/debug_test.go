package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// readBundle returns the files of a debug bundle, profiles decompressed.
func readBundle(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		root, path, ok := strings.Cut(h.Name, "/")
		if !ok || !strings.HasPrefix(root, "penstock-debug-") || h.Mode != 0o600 || strings.Contains(path, "..") {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".gz") {
			inner, err := gzip.NewReader(bytes.NewReader(data))
			if err == nil {
				data, err = io.ReadAll(inner)
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		files[path] = string(data)
	}
}

// planted is part of every secret of the test.
const planted = "pLaNtEd"

// secretResources are resources with a secret of each kind. The addresses lead nowhere,
// so that there are errors about them too.
func secretResources(p pair, port, backend string) string {
	return certificate("cert", p) + fmt.Sprintf(`---
kind: Listener
name: web
spec: {address: ":%s", service: shop, tags: {protocol: http}}
---
kind: Service
name: shop
spec:
  protocol: http
  endpoints: [{address: %q}]
  endpointsFrom: [{provider: consul, service: shop}]
---
kind: MeshHTTPRoute
name: shop
spec:
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - matches: [{headers: [{name: x-key, value: %[3]sMatch}], path: {type: PathPrefix, value: /}}]
      default:
        filters:
        - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: authorization, value: "Bearer %[3]sSet"}], add: [{name: x-a, value: %[3]sAdd}]}}
        - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: set-cookie, value: %[3]sCookie}]}}
---
kind: EndpointProvider
name: consul
spec: {type: consul, consul: {address: "http://127.0.0.1:1", token: %[3]sConsul}}
---
kind: EndpointProvider
name: http
spec: {type: http, http: {url: "http://127.0.0.1:1/{service}", token: %[3]sHTTP}}
---
kind: EndpointProvider
name: etcd
spec: {type: etcd, etcd: {endpoints: ["127.0.0.1:1"], prefix: /p, username: u, password: %[3]sEtcd}}
---
kind: Certificate
name: acme
spec:
  acme:
    directory: "http://127.0.0.1:1/directory"
    names: [a.example.com]
    agreeToTerms: true
    externalAccount: {kid: me, hmac: %[3]sHMACofTheAccount0000}
---
kind: PhysicalCluster
name: kafka
spec:
  bootstrap: ["127.0.0.1:1"]
  discovery: {sasl: {mechanism: PLAIN, username: u, password: %[3]sKafka}}
`, port, backend, planted)
}

// The bundle has what every node knows, names the node that does not answer, and has no
// secret.
func TestDebugBundleOfACluster(t *testing.T) {
	t.Parallel()
	f := &cluster{t: t}
	prefix := newNetwork()
	for i := range 3 {
		m := f.add(fmt.Sprintf("n%d", i+1), fmt.Sprint(prefix, i+1))
		m.inside = []string{"env", "DB_PASSWORD=" + planted + "Environment"}
		if i == 0 {
			m.launch("--init")
			f.join = m.joinFlags()
		} else {
			m.launch(f.join...)
		}
	}
	f.waitSettled(3)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "shop") }))
	defer backend.Close()
	ca := newAuthority(t, "ca")
	p := ca.issue("secret.example.com")
	f.members[0].apply(secretResources(p, "9100", backend.Listener.Addr().String()))
	operator := f.members[0].token("--name", "operator", "--role", "operator")
	admin := f.members[0].token("--name", "admin", "--role", "admin")
	for _, m := range f.members { // a request with secrets of its own
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.ip+":9100/?key="+planted+"Query", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Key", planted+"Match")
		req.Header.Set("Cookie", planted+"CookieOfTheClient")
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		_ = resp.Body.Close()
	}
	at := f.members[0]
	name := filepath.Join(t.TempDir(), "b.tar.gz")
	if r := at.remote(operator, "", "debug", "bundle", name); r.code != 1 || !strings.Contains(r.err, "requires role admin") {
		t.Errorf("an operator: %d %s", r.code, r.err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Error("a command that failed left a file", err)
	}
	f.members[2].kill()
	f.waitMissing(at, "n3")
	r := at.remote(admin, "", "debug", "bundle", name, "--cpu", "100ms", "-o", "json")
	if r.code != 0 || !strings.Contains(r.err, "warning: nodes/n3 is missing: n3 (unreachable)") {
		t.Fatalf("%d %s", r.code, r.err)
	}
	checkBundle(t, name, r.out, append(strings.Split(strings.TrimSpace(p.Key), "\n")[1:3], planted, secretOf(t, admin), secretOf(t, operator),
		secretOf(t, f.join[3])))
	if again := at.remote(admin, "", "debug", "bundle", name, "--cpu", "0s"); again.code != 1 || !strings.Contains(again.err, "--force overwrites it") {
		t.Errorf("a file that exists: %d %s", again.code, again.err)
	}
	if again := at.remote(admin, "", "debug", "bundle", name, "--cpu", "0s", "--force"); again.code != 0 || !strings.Contains(again.out, name+" saved: ") {
		t.Errorf("with --force: %d %s", again.code, again.err)
	}
	if files := readBundle(t, name); files["nodes/n1/cpu.pb.gz"] != "" || files["nodes/n1/heap.pb.gz"] == "" {
		t.Error("a profile that was not asked for")
	}
	if got := at.must("audit"); !strings.Contains(got, " debug ") || !strings.Contains(got, "a CPU profile of 100ms") {
		t.Errorf("the audit log does not have the act:\n%s", got)
	}
}

// waitMissing waits until a node sees that another one does not answer.
func (f *cluster) waitMissing(at *member, name string) {
	f.t.Helper()
	testkit.WaitFor(f.t, at.name+" to miss "+name, func() bool {
		list, _ := at.membersSeen()
		for _, m := range list {
			if m.Name == name {
				return m.State == "unreachable"
			}
		}
		return false
	})
}

// secretOf returns a part of a token that only its holder knows: its end.
func secretOf(t *testing.T, token string) string {
	t.Helper()
	if len(token) < 60 {
		t.Fatalf("a token of %d bytes", len(token))
	}
	return token[len(token)-20:]
}

// checkBundle checks the bundle of n1 and n2, and looks for secrets in it.
func checkBundle(t *testing.T, name, report string, secrets []string) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 300<<10 {
		t.Errorf("%v, mode %v, %d bytes, want at most 300 KiB", err, info.Mode(), info.Size())
	}
	files := readBundle(t, name)
	for path, text := range files {
		if len(text) == 0 {
			t.Errorf("%s is empty", path)
		}
		for _, s := range secrets {
			if at := strings.Index(text, s); at >= 0 {
				t.Errorf("%s has a secret: %.200q", path, text[max(0, at-80):])
			}
		}
		if !strings.Contains(files["README.md"], "`"+path+"`") && path != "README.md" {
			t.Errorf("README.md does not say what %s is", path)
		}
	}
	for path, want := range map[string]string{
		"README.md":      "- `nodes/n3`: n3 (unreachable): ",
		"status.json":    `"name": "n2"`,
		"members.json":   `"name": "n3"`,
		"version.json":   `"go": "go1.`,
		"topology.json":  `"shop"`,
		"limits.json":    `"node": "n1"`,
		"rollouts.json":  "[]",
		"sessions.json":  `"n3: unreachable"`,
		"endpoints.json": backendService,
		"audit.jsonl":    `"act":"token.create"`,

		"config/Certificate.json":      `"key": "(hidden)"`,
		"config/MeshHTTPRoute.json":    `"value": "(hidden)"`,
		"config/EndpointProvider.json": `"token": "(hidden)"`,
		"config/PhysicalCluster.json":  `"password": "(hidden)"`,

		"telemetry.jsonl": `"metric":"penstock_`,
	} {
		if !strings.Contains(files[path], want) {
			t.Errorf("%s lacks %q: %.500s", path, want, files[path])
		}
	}
	for _, n := range []string{"n1", "n2"} {
		for path, want := range map[string]string{
			"about.json": `"name": "` + n + `"`, "settings.json": `"value": "(hidden)"`, "metrics.prom": "penstock_ready 1",
			"goroutines.txt": "goroutine profile", "heap.pb.gz": "inuse_space", "cpu.pb.gz": "nanoseconds",
		} {
			if n == "n1" && path == "settings.json" {
				want = `"name": "init"` // it has no token
			}
			if !strings.Contains(files["nodes/"+n+"/"+path], want) {
				t.Errorf("%s of %s lacks %q: %.500s", path, n, want, files["nodes/"+n+"/"+path])
			}
		}
	}
	var said struct {
		Bytes int64                   `json:"bytes"`
		Files []struct{ Path string } `json:"files"`
	}
	if err := json.Unmarshal([]byte(report), &said); err != nil || said.Bytes != info.Size() || len(said.Files) != len(files) {
		t.Errorf("the command says %d bytes and %d files, there are %d and %d: %v", said.Bytes, len(said.Files), info.Size(), len(files), err)
	}
	var status api.Status
	if err := json.Unmarshal([]byte(files["status.json"]), &status); err != nil || len(status.Nodes) != 3 {
		t.Errorf("%+v, %v", status, err)
	}
	t.Logf("the bundle has %d bytes in %d files", info.Size(), len(files))
}

// backendService is in the list of endpoints.
const backendService = `"service": "shop"`
