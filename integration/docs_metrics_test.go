package integration

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	penstocknode "penstock/node"
	"penstock/node/kinds"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// docs/metrics.md lists the metrics that a node exports after it has carried
// connections, with their types and labels.
func TestDocsMetrics(t *testing.T) {
	inDocs := map[string]bool{}
	row := regexp.MustCompile("(?m)^\\| `(penstock_[a-z_]+)` \\| (\\w+) \\|([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(readDocument(t, "docs/metrics.md"), -1) {
		inDocs[describe(m[1], m[2], strings.Split(strings.NewReplacer("`", "", " ", "").Replace(m[3]), ","))] = true
	}
	var inCode map[string]bool
	scrape(t, func(text string) bool {
		inCode = map[string]bool{}
		types, labels := parseMetrics(text)
		for name, kind := range types {
			if strings.HasPrefix(name, "penstock_") {
				inCode[describe(name, kind, labels[name])] = true
			}
		}
		return maps.Equal(inDocs, inCode)
	})
	checkSame(t, "metric", inDocs, inCode)
}

// describe formats a metric as one line.
func describe(name, kind string, labels []string) string {
	labels = slices.DeleteFunc(slices.Sorted(slices.Values(labels)), func(l string) bool { return l == "" || l == "le" })
	return fmt.Sprintf("%s (%s, labels %v)", name, kind, slices.Compact(labels))
}

var (
	sampleLine = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? `)
	labelName  = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
)

// parseMetrics parses Prometheus' text format into types and labels by name.
func parseMetrics(text string) (types map[string]string, labels map[string][]string) {
	types, labels = map[string]string{}, map[string][]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			types[f[2]] = f[3]
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); types[base] == "histogram" {
				name = base
			}
		}
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			labels[name] = append(labels[name], l[1])
		}
	}
	return types, labels
}

// partnerSpec returns the spec of a TrustBundle whose endpoint answers.
func partnerSpec(t *testing.T) string {
	t.Helper()
	ca := certs.NewCA("web")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"keys": [], "spiffe_sequence": 1}`)
	}))
	s.TLS = ca.Server("127.0.0.1")
	s.StartTLS()
	t.Cleanup(s.Close)
	return fmt.Sprintf("spec: {trustDomain: partner.example, endpoint: {url: %q, profile: https_web, ca: %q}}\n", s.URL, ca.PEM)
}

// scrape starts a node, opens a connection of each kind through it, and reads
// /metrics until whole accepts the text or a deadline passes: some values are
// counted shortly after the answer.
func scrape(t *testing.T, whole func(text string) bool) {
	t.Helper()
	to := testkit.Serve(t, echo)
	front := "unix:" + filepath.Join(t.TempDir(), "front")
	text := fmt.Sprintf("kind: Listener\n"+
		"name: front\n"+
		"spec: {address: %q, service: echo}\n"+
		"---\n"+
		"kind: Service\n"+
		"name: echo\n"+
		"spec: {circuitBreaker: {service: {connections: 1000}}, endpoints: [{address: %q}]}\n", front, to)
	text += "---\n" +
		"kind: MeshTCPRoute\n" +
		"name: canary\n" +
		"spec:\n" +
		"  to: [{targetRef: {kind: MeshService, name: echo}, rules: [{default: {backendRefs: [{kind: MeshService, name: echo}, " +
		"{kind: MeshService, name: next}]}}]}]\n" +
		"  rollout: {backend: {name: next}, steps: [{weight: 1, for: 1h}, {weight: 100}]}\n"
	text += "---\nkind: RateLimit\nname: all\nspec: {concurrent: 1000000, connections: {rate: 1000000}}\n"
	text += "---\nkind: Telemetry\nname: otel\nspec: {otlp: {endpoint: \"127.0.0.1:1\"}, metrics: true}\n"
	text += "---\nkind: Certificate\nname: followed\nspec: {follow: true, certFile: /nowhere/tls.crt, keyFile: /nowhere/tls.key}\n"
	text += "---\nkind: Certificate\nname: held\nspec: {identity: /ns/test/held}\n"
	// Nobody listens there, so the first attempt fails.
	text += "---\n" +
		"kind: Certificate\n" +
		"name: issued\n" +
		"spec: {acme: {directory: \"http://127.0.0.1:1/directory\", names: [a.example.com], agreeToTerms: true}}\n"
	text += "---\n" +
		"kind: TrafficPermission\n" +
		"name: watched\n" +
		"spec: {action: shadowDeny}\n"
	text += "---\nkind: TrustBundle\nname: partner\n" + partnerSpec(t)
	text += loadExample(t)
	kafkaText, bootstrap := kafkaExample(t)
	httpText, web := httpExample(t)
	text += kafkaText + httpText
	objects, faults := codec.Decode("", []byte(text), kinds.All())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	dir := t.TempDir()
	n, err := penstocknode.Start(t.Context(), penstocknode.Config{
		Init: true, DataDir: dir, Cluster: "127.0.0.1:0", Gossip: "127.0.0.1:0", HTTP: "127.0.0.1:0", XDS: "127.0.0.1:0", Resources: objects,
		SPIFFESocket: filepath.Join(dir, "spiffe.sock"),
		AccessLog:    penstocknode.AccessClosed, Version: "test",
		Kubernetes: penstocknode.KubernetesResources{Enabled: true, Kubeconfig: filepath.Join(dir, "kubeconfig")}, // there is none
		ResourceFiles: &penstocknode.ResourceFiles{
			Paths: []string{"/r.yaml"}, Sync: true,
			Read: func() ([]resource.Object, error) { return objects, nil },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*testkit.Patience)
	t.Cleanup(cancel)
	defer n.Stop(ctx)
	// This apply counts in metrics of requests.
	apply := commandOf(t, program(t), nil, text, "apply", "-f", "-", "--addr", "unix:"+filepath.Join(dir, "penstock.sock"))
	if apply.code != 0 {
		t.Fatal(apply.err)
	}
	exchangeOnce(t, strings.TrimPrefix(front, "unix:"))
	kafkaOnce(ctx, t, bootstrap)
	httpOnce(t, web)
	testkit.Poll(testkit.Patience, func() bool { return whole(scrapeOnce(t, "http://"+n.HTTPAddr()+"/metrics")) })
}

// exchangeOnce sends a byte, reads it back and closes gracefully.
func exchangeOnce(t *testing.T, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// loadExample is a service with a server whose load is known.
func loadExample(t *testing.T) string {
	t.Helper()
	cpu := atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "process_cpu_seconds_total %d\ntidb_server_maxprocs 8\nprocess_resident_memory_bytes 1\n"+
			"tidb_server_memory_quota_bytes 4\n", cpu.Add(1))
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "---\nkind: Service\nname: tidb\nspec: {protocol: mysql, balancing: {policy: leastConnections}, mysql: {load: {port: " + port +
		"}}, endpoints: [{address: \"127.0.0.1:1\"}]}\n"
}

func scrapeOnce(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r.Status, err, string(body))
	}
	return string(body)
}
