package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"penstock/cmd/manifests"
	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/node/trust"
)

// helmVersion is the version that setup.sh installs.
const helmVersion = "3.22.0"

// helm runs helm with the chart, and returns its output and its errors.
func helm(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	program := filepath.Join(realkafka.Peers(), "helm-"+helmVersion, "helm")
	if _, err := os.Stat(program); err != nil {
		testkit.NotTested(t, "%v; make setup installs it", err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func chartFolder(t *testing.T) string { return filepath.Join(root(t), "deploy/helm/penstock") }

// chartValues are sets of values that together reach every branch of the templates.
var chartValues = map[string]string{
	"defaults": "",
	"all": `
fullnameOverride: edge
replicas: 5
image: {repository: "registry.example:5000/penstock", tag: v1}
imagePullSecrets: [{name: pull}]
listeners: [{name: https, port: 443, containerPort: 8443, nodePort: 30443}, {name: db, port: 6000}]
service: {type: NodePort, annotations: {a: b}, externalTrafficPolicy: Local}
resourceFiles: {"a.yaml": "kind: Service\nname: a\nspec: {}\n"}
settings: {memory-budget: 128, access-log: "off", pprof: true}
nodeTags: {zone: topology.kubernetes.io/zone, tier: tier}
token: {existingSecret: mine, ttl: 100h}
tls: {clients: {secretName: c}, servers: {secretName: s}, sql: {secretName: q}, http: {secretName: h}}
storage: {size: 2Gi, storageClass: fast}
podLabels: {tier: front}
podAnnotations: {a: "1"}
nodeSelector: {disk: ssd}
tolerations: [{key: edge, operator: Exists}]
affinity: {nodeAffinity: {}}
priorityClassName: high
podDisruptionBudget: {maxUnavailable: 2}
serviceAccount: {name: account, annotations: {owner: me}}
networkPolicy: {clusterFrom: [{podSelector: {matchLabels: {role: ops}}}], httpFrom: [{namespaceSelector: {}}]}
serviceMonitor: {enabled: true, labels: {team: a}, tlsConfig: {insecureSkipVerify: true}}
`,
	"least": `
replicas: 1
expect: 1
listenAddress: "::"
topologySpread: []
networkPolicy: {enabled: false}
podDisruptionBudget: {enabled: false}
serviceAccount: {create: false}
service: {type: LoadBalancer, loadBalancerClass: metal, loadBalancerSourceRanges: [10.0.0.0/8]}
listeners: [{name: tls, port: 8443}]
`,
}

// The command prints the objects of the chart as Helm does.
func TestManifestsAreTheChart(t *testing.T) {
	if out, errs, err := helm(t, "lint", "--strict", chartFolder(t)); err != nil {
		t.Errorf("helm lint: %v\n%s%s", err, out, errs)
	}
	for name, text := range chartValues {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, err := helm(t, "template", "rel", chartFolder(t), "-n", "shop", "-f", file, "--kube-version", "1.34.2")
		if err != nil {
			t.Fatalf("%s: %s", name, errs)
		}
		r := command(t, "", "kubernetes", "manifests", "--name", "rel", "--namespace", "shop", "--new-token", "--values", file)
		if r.code != 0 {
			t.Fatalf("%s: %s", name, r.err)
		}
		want, got := objectsOf(t, out), objectsOf(t, r.out)
		if len(want) < 6 || len(want) != len(got) {
			t.Errorf("%s: %d objects, Helm has %d", name, len(got), len(want))
		}
		for key, object := range want {
			if !reflect.DeepEqual(object, got[key]) {
				t.Errorf("%s: %s differs:\n%s\nHelm has\n%s", name, key, asJSON(got[key]), asJSON(object))
			}
		}
	}
}

// objectsOf returns the objects of YAML documents by kind and name. It checks the token
// of the Secret, which each rendering makes anew, and removes it.
func objectsOf(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	objects := map[string]map[string]any{}
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o map[string]any
		if err := d.Decode(&o); err == io.EOF {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o) == 0 {
			continue
		}
		if o["kind"] == "Secret" {
			var secret struct{ Data struct{ Token []byte } }
			if err := json.Unmarshal([]byte(asJSON(o)), &secret); err != nil {
				t.Fatal(err)
			}
			if token, err := trust.ParseToken(string(secret.Data.Token)); err != nil || token.Kind != trust.Expect {
				t.Errorf("the token of the Secret: %v", err)
			}
			delete(o, "data")
		}
		objects[fmt.Sprint(o["kind"], "/", o["metadata"].(map[string]any)["name"])] = o
	}
}

func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// Wrong values are refused, by Helm and by the command, and both name the value.
func TestWrongValuesOfTheChart(t *testing.T) {
	for text, says := range map[string]string{
		"replicas: -1":    "replicas",
		"replicas: three": "replicas",
		"replica: 3":      "replica",
		"replicas: 1":     "set expect to 1",
		"podDisruptionBudget: {maxUnavailable: 2}":     "would take the majority",
		"storage: {size: big}":                         "size",
		"service: {type: Ingress}":                     "type",
		"listeners: [{name: web, port: 70000}]":        "port",
		"tls: {clients: {secret: a}}":                  "secret",
		"resourceFiles: {notes.txt: a}":                "notes.txt",
		"token: {ttl: forever}":                        "ttl",
		"nodeTags: {\"a=b\": tier}":                    "a=b",
		"fullnameOverride: " + strings.Repeat("a", 46): "fullnameOverride",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, errs, err := helm(t, "template", "rel", chartFolder(t), "-f", file, "--kube-version", "1.34.2"); err == nil || !strings.Contains(errs, says) {
			t.Errorf("helm, %s: %v %s%.200s", text, err, errs, out)
		}
		if r := command(t, "", "kubernetes", "manifests", "--values", file); r.code != 2 || !strings.Contains(r.err, says) {
			t.Errorf("manifests, %s: %d %s", text, r.code, r.err)
		}
	}
	if _, err := manifests.Render(manifests.Release{Name: strings.Repeat("a", 46)}, nil); err == nil {
		t.Error("a name that is too long is taken")
	}
}
