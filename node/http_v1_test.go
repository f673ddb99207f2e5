package node

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"penstock/node/api"
	"penstock/node/nodetest"
)

// /v1 changes resources as commands do, and refuses the same changes.
func TestV1ChangesResources(t *testing.T) {
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	call := func(method, path, media, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.HTTPAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if media != "" {
			req.Header.Set("Content-Type", media)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	const more = `{"kind":"Service","name":"more","spec":{"endpoints":[{"address":"127.0.0.1:9"}]}}`
	for _, c := range []struct {
		name, method, path, media, body string
		status                          int
		says                            string
	}{
		{"a form's media type", "PUT", "/v1/services/more", "text/plain", more, 400, "Content-Type"},
		{"another name", "PUT", "/v1/services/other", "application/json", more, 400, "other"},
		{"no kind", "PUT", "/v1/nonsense/more", "application/json", more, 404, "nonsense"},
		{"not a document", "PUT", "/v1/services/more", "application/json", "{", 400, "error"},
		{"faults", "PUT", "/v1/services/more", "application/json", strings.Replace(more, "127.0.0.1:9", "x", 1), 400, "endpoints[0].address"},
		{"a dry run", "PUT", "/v1/services/more?dryRun", "application/json", more, 200, `"created"`},
		{"not there yet", "GET", "/v1/services/more", "", "", 404, "more"},
		{"a new one", "PUT", "/v1/services/more", "application/json", more, 200, `"created"`},
		{"the same again, as YAML", "PUT", "/v1/service/more", "application/yaml", more, 200, `"unchanged"`},
		{"what is there", "GET", "/v1/Service/more", "", "", 200, "127.0.0.1:9"},
		{"deleting what is in use", "DELETE", "/v1/services/apps", "", "", 409, "Listener/edge"},
		{"deleting", "DELETE", "/v1/services/more", "", "", 200, `"more"`},
		{"twice", "DELETE", "/v1/services/more", "", "", 404, "more"},
		{"a method that is none", "POST", "/v1/services/more", "application/json", more, 405, ""},
	} {
		if status, text := call(c.method, c.path, c.media, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, status, text, c.status, c.says)
		}
	}
}

// The answer lists every fault of a body with its place. Documents of other
// formats are converted, and a refusal names the resource that results.
func TestV1ReportsEveryFaultAndAcceptsOtherFormats(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	call := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.HTTPAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/yaml")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	const demo = "useIoUring: true\nvirtualClusters:\n- name: demo\n  targetCluster: {bootstrapServers: \"127.0.0.1:9092\"}\n" +
		"  gateways:\n  - {name: default, portIdentifiesNode: {bootstrapAddress: \"127.0.0.1:19192\"}}\n"
	const split = "apiVersion: split.smi-spec.io/v1alpha2\nkind: TrafficSplit\nmetadata: {name: canary}\n" +
		"spec: {service: apps, backends: [{service: more, weight: 1}]}\n"
	status, text := call("POST", "/v1/apply", serviceA+
		"---\nkind: Service\nname: b\nspec:\n  nonsense: 1\n  balancing: {policy: fastest}\n  endpoints: [{weight: 1}]\n")
	var refusal struct {
		Code   string      `json:"code"`
		Faults []api.Fault `json:"faults"`
	}
	if err := json.Unmarshal([]byte(text), &refusal); err != nil || status != 400 || refusal.Code != "invalid" {
		t.Fatalf("%d %s, %v", status, text, err)
	}
	want := []string{"spec.nonsense", "spec.balancing.policy", "spec.endpoints[0].address"}
	if len(refusal.Faults) != len(want) {
		t.Fatalf("faults %+v, want %v", refusal.Faults, want)
	}
	for i, f := range refusal.Faults {
		if f.Key != "Service/b" || f.Path != want[i] || f.Document != 2 || f.Line != 8+i || f.Message == "" {
			t.Errorf("fault %+v, want %s of document 2", f, want[i])
		}
	}
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"several resources", "POST", "/v1/apply", serviceA + "---\n" + serviceB, 200, `"name":"b","action":"created"`},
		{"a dry run", "POST", "/v1/apply?dryRun", serviceC, 200, `"created"`},
		{"nothing", "POST", "/v1/apply", "", 400, `"faults":[{"key":"","path":"","message":"the body contains no resource"}]`},
		{
			"SMI, faulty", "POST", "/v1/apply", strings.Replace(split, "weight: 1", "weight: -1", 1), 400,
			`"key":"TrafficSplit/canary","path":"spec.backends[0].weight"`,
		},
		{"SMI, taken", "PUT", "/v1/meshtcproutes/canary", strings.Replace(split, "more", "a", 1), 200, `"created"`},
		{
			"SMI under another name", "PUT", "/v1/meshtcproutes/other", strings.Replace(split, "more", "a", 1), 400,
			"MeshTCPRoute/canary (converted from SMI)",
		},
		{
			"a warning of the format", "POST", "/v1/apply?dryRun", demo, 200,
			`"warnings":[{"key":"useIoUring","path":"","message":"is ignored: Penstock uses epoll"`,
		},
		{"an unknown format", "POST", "/v1/apply", "apiVersion: v2\nkind: Odd\n", 400, "is not known; known versions are"},
	} {
		if status, text := call(c.method, c.path, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, status, text, c.status, c.says)
		}
	}
}

func TestValidateRefusesUnsafeSettings(t *testing.T) {
	base := Config{Cluster: "127.0.0.1:1", HTTP: "127.0.0.1:2", Gossip: "127.0.0.1:3", DataDir: "d"}
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   string // part of the fault; "": no fault
	}{
		{"loopback", func(*Config) {}, ""},
		{"others in the clear", func(c *Config) { c.HTTP = "10.0.0.1:2" }, "--http-insecure"},
		{"others in the clear, meant", func(c *Config) { c.HTTP, c.HTTPInsecure = "10.0.0.1:2", true }, ""},
		{"others by TLS", func(c *Config) { c.HTTP, c.HTTPCert, c.HTTPKey = "10.0.0.1:2", "c", "k" }, ""},
		{"client certificates without TLS", func(c *Config) { c.HTTPCA = "ca" }, "--http-ca: requires --http-cert"},
		{"half of TLS", func(c *Config) { c.HTTPCert = "c" }, "give both"},
		{"all addresses", func(c *Config) { c.Cluster = "0.0.0.0:1" }, "--advertise"},
		{"no gossip", func(c *Config) { c.Gossip = "" }, "--gossip"},
		{"init and join", func(c *Config) { c.Init, c.Join = true, []string{"x:1"} }, "--init"},
		{"expect without token, as once the cluster is there", func(c *Config) { c.Expect = 3 }, ""},
		{"dev and init", func(c *Config) { c.Dev, c.Init = true, true }, "--dev"},
		{"no folder", func(c *Config) { c.DataDir = "" }, "--data-dir"},
	} {
		cfg := base
		c.change(&cfg)
		faults := strings.Join(cfg.Validate(), "; ")
		if (faults == "") != (c.says == "") || !strings.Contains(faults, c.says) {
			t.Errorf("%s: %q, want %q in it", c.name, faults, c.says)
		}
	}
}
