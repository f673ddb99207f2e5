package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"penstock/internal/testkit/apiserver"
	"penstock/node/kinds"
	"penstock/routing/formats/crd"
)

// serviceMonitors is what the Prometheus operator defines, as far as the chart uses it.
// Unknown fields are refused.
const serviceMonitors = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [selector, endpoints]
            properties:
              selector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}}
              endpoints:
                type: array
                items:
                  type: object
                  properties:
                    port: {type: string}
                    path: {type: string}
                    interval: {type: string, pattern: '^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$'}
                    scheme: {type: string, enum: [http, https]}
                    tlsConfig: {type: object, properties: {insecureSkipVerify: {type: boolean}, serverName: {type: string}}}
`

// resourcePaths has the paths of the kinds of the chart's objects, in a namespace.
var resourcePaths = map[string]string{
	"Secret": "/api/v1/namespaces/%s/secrets", "ConfigMap": "/api/v1/namespaces/%s/configmaps", "Service": "/api/v1/namespaces/%s/services",
	"ServiceAccount": "/api/v1/namespaces/%s/serviceaccounts", "StatefulSet": "/apis/apps/v1/namespaces/%s/statefulsets",
	"Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles", "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
	"ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"PodDisruptionBudget":      "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
	"NetworkPolicy":            "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies",
	"ServiceMonitor":           "/apis/monitoring.coreos.com/v1/namespaces/%s/servicemonitors",
	"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}

// pathOf returns the path that an object is created at.
func pathOf(t *testing.T, o map[string]any) string {
	t.Helper()
	path := resourcePaths[fmt.Sprint(o["kind"])]
	if path == "" {
		t.Fatalf("the kind %v is not known here", o["kind"])
	}
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, o["metadata"].(map[string]any)["namespace"])
	}
	return path
}

const dryRun = "?dryRun=All&fieldValidation=Strict"

// documentsOf decodes YAML documents.
func documentsOf(t *testing.T, text string) (list []map[string]any) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o map[string]any
		switch err := d.Decode(&o); {
		case err == io.EOF:
			return list
		case err != nil:
			t.Fatal(err)
		case len(o) > 0:
			list = append(list, o)
		}
	}
}

// The API server takes each object of the chart, without a field that it does not know,
// and pods in a namespace for restricted ones only.
func TestAPIServerTakesTheChart(t *testing.T) {
	s := apiserver.Start(t)
	s.Define(documentsOf(t, serviceMonitors)[0])
	s.Do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}`)
	s.Do(http.MethodPost, "/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata": {"name": "high"}, "value": 1000}`)
	for _, account := range []string{"p", "account", "default"} {
		s.Request(http.MethodPost, "/api/v1/namespaces/shop/serviceaccounts", fmt.Sprintf(`{"metadata": {"name": %q}}`, account))
	}
	for name, values := range chartValues {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		r := command(t, "", "kubernetes", "manifests", "--name", "p", "--namespace", "shop", "--new-token", "--values", file)
		if r.code != 0 {
			t.Fatal(r.err)
		}
		for _, o := range documentsOf(t, r.out) {
			code, text := s.Request(http.MethodPost, pathOf(t, o)+dryRun, asJSON(o))
			exists := code == http.StatusConflict && o["kind"] == "ServiceAccount"
			if code != http.StatusCreated && !exists {
				t.Errorf("%s, %s: %d %s", name, o["kind"], code, text)
			}
		}
		set := statefulSetOf(t, values)
		pod := map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": "p-0", "labels": set.Spec.Template.Labels}, "spec": set.Spec.Template.Spec,
		}
		var plain map[string]any
		if err := json.Unmarshal([]byte(asJSON(pod)), &plain); err != nil {
			t.Fatal(err)
		}
		spec := plain["spec"].(map[string]any)
		volumes, _ := spec["volumes"].([]any)
		spec["volumes"] = append(volumes, map[string]any{"name": "data", "emptyDir": map[string]any{}}) // of the claim
		if code, text := s.Request(http.MethodPost, "/api/v1/namespaces/shop/pods"+dryRun, asJSON(plain)); code != http.StatusCreated {
			t.Errorf("%s: a pod: %d %s", name, code, text)
		}
	}
	wantDefinitionsTaken(t, s)
}

// wantDefinitionsTaken checks the output of kubernetes crds, and that the definitions take
// the examples of the documentation.
func wantDefinitionsTaken(t *testing.T, s *apiserver.Server) {
	t.Helper()
	r := command(t, "", "kubernetes", "crds", "--namespace", "shop", "--secret", "shop/web-tls", "--secret", "blog/*")
	if r.code != 0 {
		t.Fatal(r.err)
	}
	s.Do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "blog"}}`)
	for _, o := range documentsOf(t, r.out) {
		if o["kind"] == "CustomResourceDefinition" {
			s.Define(o)
		} else if code, text := s.Request(http.MethodPost, pathOf(t, o)+dryRun, asJSON(o)); code != http.StatusCreated {
			t.Errorf("%s: %d %s", o["kind"], code, text)
		}
	}
	for _, bad := range []string{"web-tls", "shop/", "/a", "*/a", "shop/a*", "a/b/c"} {
		if r := command(t, "", "kubernetes", "crds", "--secret", bad); r.code != 2 || !strings.Contains(r.err, "want NAMESPACE/NAME") {
			t.Errorf("--secret %s: %d %s", bad, r.code, r.err)
		}
	}
	plurals := map[string]string{}
	for _, k := range crd.Kinds(kinds.All()) {
		plurals[k.Name] = k.Plural
	}
	taken := 0
	files, _ := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			for _, o := range documentsOf(t, block) {
				kind, _ := o["kind"].(string)
				if plurals[kind] == "" || o["apiVersion"] != nil || o["spec"] == nil {
					continue
				}
				body := map[string]any{"apiVersion": crd.APIVersion, "kind": kind, "metadata": map[string]any{"name": "example"}, "spec": o["spec"]}
				if code, text := s.Request(http.MethodPost, "/apis/"+crd.APIVersion+"/namespaces/shop/"+plurals[kind]+dryRun, asJSON(body)); code != http.StatusCreated {
					t.Errorf("%s, %s %v: %d %s", filepath.Base(file), kind, o["name"], code, text)
				}
				taken++
			}
		}
	}
	if taken < 30 {
		t.Errorf("only %d examples were tried", taken)
	}
}
