package node

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/apiserver"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/node/rpc"
	"penstock/routing/formats/crd"
	"penstock/routing/resource"
)

const gatewayGroup = "/apis/gateway.networking.k8s.io/"

// post creates an object from its JSON in the path of its kind.
func (s *apiServer) post(path, apiVersion, kind, name, rest string) {
	s.t.Helper()
	s.Do(http.MethodPost, path, fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q}, %s}`, apiVersion, kind, name, rest))
}

func (s *apiServer) secret(namespace, name string, p certs.Pair) {
	s.t.Helper()
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": %q}, "data": {"tls.crt": %q, "tls.key": %q}}`,
		name, encoded(p.Cert), encoded(p.Key))
	path := "/api/v1/namespaces/" + namespace + "/secrets"
	if code, _ := s.Request(http.MethodGet, path+"/"+name, ""); code == http.StatusNotFound {
		s.Do(http.MethodPost, path, body)
	} else {
		s.Do(http.MethodPut, path+"/"+name, body)
	}
}

// The rights that the command prints are all that a node needs, with the real definitions
// of the Gateway API, and it uses each of them.
func TestPrintedRightsAreEnough(t *testing.T) {
	s := startAPIServer(t)
	s.DefineGateways()
	s.Define(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "meshtcproutes.kuma.io"},
		"spec": map[string]any{
			"group": "kuma.io", "scope": "Namespaced", "names": map[string]any{"kind": "MeshTCPRoute", "plural": "meshtcproutes"},
			"versions": []any{map[string]any{"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	})
	for _, namespace := range []string{"penstock", "shop"} {
		s.Do(http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata": {"name": %q}}`, namespace))
	}
	s.Do(http.MethodPost, "/api/v1/namespaces/penstock/serviceaccounts", `{"metadata": {"name": "penstock"}}`)
	objects := append(crd.Rights(kinds.All(), "penstock", "penstock"), crd.SecretRights(map[string][]string{"shop": {"web-tls"}}, "penstock", "penstock")...)
	for _, o := range objects {
		path := "/apis/rbac.authorization.k8s.io/v1/"
		if in, ok := o["metadata"].(crd.Object)["namespace"]; ok {
			path += "namespaces/" + in.(string) + "/"
		}
		body, _ := json.Marshal(o)
		s.Do(http.MethodPost, path+strings.ToLower(o["kind"].(string))+"s", string(body))
	}
	s.writeAll()
	token := s.AccountToken("penstock", "penstock")
	n := startNode(t, "", func(c *Config) {
		c.Kubernetes = KubernetesResources{Enabled: true, Kubeconfig: s.Kubeconfig(token, "")}
	})
	s.awaitAll(t)
	testkit.WaitFor(t, "all to be known", func() bool { return n.kubernetes.State().Synced })
	if st := n.kubernetes.State(); st.StatusFailed != 0 {
		t.Errorf("%+v", st)
	}
	s.wantSettled(t, n)
	set, _ := n.catalog.InForce()
	if set.Count("MeshTCPRoute") != 1 || set.Count("Gateway") != 1 || set.Count("TLSRoute") != 1 || set.Count("TCPRoute") != 1 || set.Count("Certificate") != 1 {
		t.Error("something is not in force")
	}
	s.wantUsed(t)
	s.wantRefused(t, token)
	s.followSecret(t, n)
}

// writeAll creates an object of each kind.
func (s *apiServer) writeAll() {
	s.t.Helper()
	spec := map[string]string{
		"Service": `{"endpoints": [{"address": "127.0.0.1:7001"}]}`, "Listener": `{"address": "127.0.0.1:0", "service": "shop.web"}`,
	}
	for _, k := range crd.Kinds(kinds.All()) {
		text := spec[k.Name]
		if text == "" {
			text = "{}" // most have a fault, which their status tells
		}
		s.post(kubeShop+k.Plural, crd.APIVersion, k.Name, "web", `"spec": `+text)
	}
	s.post("/apis/kuma.io/v1alpha1/namespaces/shop/meshtcproutes", "kuma.io/v1alpha1", "MeshTCPRoute", "route",
		`"spec": {"targetRef": {"kind": "Mesh"}, "to": [{"targetRef": {"kind": "MeshService", "name": "shop.web"}, "rules": [{"default": {"backendRefs": [{"kind": "MeshService", "name": "shop.web", "weight": 1}]}}]}]}`)
	s.secret("shop", "web-tls", certs.SelfSigned("web.example.com"))
	s.secret("shop", "other", certs.SelfSigned("other.example.com"))
	v1 := "gateway.networking.k8s.io/v1"
	s.post(gatewayGroup+"v1/gatewayclasses", v1, "GatewayClass", "ours", `"spec": {"controllerName": "penstock.internal/gateway"}`)
	s.post(gatewayGroup+"v1/gatewayclasses", v1, "GatewayClass", "theirs", `"spec": {"controllerName": "example.com/other"}`)
	in := gatewayGroup + "v1/namespaces/shop/"
	_, one, _ := strings.Cut(apiserver.FreeAddress(s.t), ":")
	_, two, _ := strings.Cut(apiserver.FreeAddress(s.t), ":")
	s.post(in+"gateways", v1, "Gateway", "edge", fmt.Sprintf(`"spec": {"gatewayClassName": "ours", "listeners": [
		{"name": "tls", "port": %s, "protocol": "TLS", "hostname": "web.example.com", "tls": {"mode": "Terminate", "certificateRefs": [{"name": "web-tls"}]}},
		{"name": "tcp", "port": %s, "protocol": "TCP"}]}`, one, two))
	s.post(in+"gateways", v1, "Gateway", "other", `"spec": {"gatewayClassName": "theirs", "listeners": [{"name": "tcp", "port": 1, "protocol": "TCP"}]}`)
	s.post(gatewayGroup+"v1alpha3/namespaces/shop/tlsroutes", "gateway.networking.k8s.io/v1alpha3", "TLSRoute", "web",
		`"spec": {"parentRefs": [{"name": "edge", "sectionName": "tls"}], "hostnames": ["web.example.com"], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}`)
	s.post(gatewayGroup+"v1alpha2/namespaces/shop/tcproutes", "gateway.networking.k8s.io/v1alpha2", "TCPRoute", "web",
		`"spec": {"parentRefs": [{"name": "edge", "sectionName": "tcp"}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}`)
	for name, parent := range map[string]string{"web": "edge", "theirs": "other"} {
		s.post(in+"httproutes", v1, "HTTPRoute", name, fmt.Sprintf(`"spec": {"parentRefs": [{"name": %q}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}`, parent))
	}
}

// awaitAll waits for the status of each object.
func (s *apiServer) awaitAll(t *testing.T) {
	t.Helper()
	for _, k := range crd.Kinds(kinds.All()) {
		testkit.WaitFor(t, k.Name, func() bool { return s.condition(kubeShop+k.Plural+"/web", "Accepted") != "" })
	}
	testkit.WaitFor(t, "the class", func() bool {
		return strings.HasPrefix(s.condition(gatewayGroup+"v1/gatewayclasses/ours", "Accepted"), "True")
	})
	testkit.WaitFor(t, "the Gateway", func() bool {
		return strings.HasPrefix(s.condition(gatewayGroup+"v1/namespaces/shop/gateways/edge", "Programmed"), "True")
	})
	for _, path := range []string{"v1alpha3/namespaces/shop/tlsroutes", "v1alpha2/namespaces/shop/tcproutes"} {
		testkit.WaitFor(t, path, func() bool {
			_, text := s.Request(http.MethodGet, gatewayGroup+path+"/web", "")
			return strings.Contains(text, `"reason":"Accepted"`) && strings.Contains(text, `"reason":"ResolvedRefs"`)
		})
	}
	testkit.WaitFor(t, "the HTTPRoute", func() bool {
		_, text := s.Request(http.MethodGet, gatewayGroup+"v1/namespaces/shop/httproutes/web", "")
		return strings.Contains(text, `"reason":"NotAllowedByListeners"`) && strings.Contains(text, "an HTTPRoute is not supported")
	})
}

// wantSettled checks that no status is written again though nothing changes.
func (s *apiServer) wantSettled(t *testing.T, n *testNode) {
	t.Helper()
	last, since := uint64(0), time.Now()
	testkit.WaitFor(t, "the statuses to settle", func() bool {
		if now := n.kubernetes.State().StatusWritten; now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second // six passes, if there were something to do
	})
	// Each event makes a pass, which would write again what the server stores otherwise.
	s.Do(http.MethodPatch, kubeShop+"services/web", `{"metadata": {"labels": {"a": "b"}}}`)
	testkit.WaitFor(t, "the label", func() bool {
		set, _ := n.catalog.InForce()
		return len(set.WithLabels("Service", map[string]string{"a": "b"})) == 1
	})
	testkit.WaitFor(t, "a pass", func() bool { return n.kubernetes.State().Synced })
	if now := n.kubernetes.State().StatusWritten; now != last {
		t.Errorf("%d statuses were written that are the same", now-last)
	}
	for _, path := range []string{"gatewayclasses/theirs", "namespaces/shop/gateways/other", "namespaces/shop/httproutes/theirs"} {
		if _, text := s.Request(http.MethodGet, gatewayGroup+"v1/"+path, ""); strings.Contains(text, "penstock.internal/gateway") {
			t.Errorf("%s: an object of another controller has our status: %s", path, text)
		}
	}
}

const account = "system:serviceaccount:penstock:penstock"

// wantUsed compares what the node did with what it may do.
func (s *apiServer) wantUsed(t *testing.T) {
	t.Helper()
	may, did := map[string]bool{}, map[string]bool{}
	for _, o := range append(crd.Rights(kinds.All(), "", ""), crd.SecretRights(map[string][]string{"shop": {"web-tls"}}, "", "")...) {
		rules, _ := o["rules"].([]any)
		for _, r := range rules {
			rule := r.(crd.Object)
			for _, resource := range rule["resources"].([]any) {
				name, sub, _ := strings.Cut(resource.(string), "/")
				if group := rule["apiGroups"].([]any)[0].(string); group != "" {
					name += "." + group
				}
				if sub != "" {
					name += "/" + sub
				}
				for _, verb := range rule["verbs"].([]any) {
					may[verb.(string)+" "+name] = true
				}
			}
		}
	}
	for _, a := range s.Accesses(account) {
		did[a.Verb+" "+a.Resource] = true
		if a.Code == http.StatusForbidden {
			t.Errorf("%s %s was refused", a.Verb, a.Resource)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(may)) {
		if !did[what] {
			t.Errorf("the right to %s is not used", what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(did)) {
		if !may[what] {
			t.Errorf("%s needs a right that the command does not print", what)
		}
	}
}

// wantRefused checks that the token lets nobody do anything else.
func (s *apiServer) wantRefused(t *testing.T, token string) {
	t.Helper()
	for what, body := range map[string]string{
		"GET /api/v1/secrets": "", "GET /api/v1/namespaces/shop/secrets": "", "GET /api/v1/namespaces/shop/secrets/other": "",
		"GET /api/v1/pods": "", "GET /api/v1/nodes": "", "DELETE " + kubeShop + "services/web": "",
		"PATCH " + kubeShop + "services/web": `{"spec": {}}`, "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions": "",
	} {
		method, path, _ := strings.Cut(what, " ")
		if code, text := s.RequestAs(token, method, path, body); code != http.StatusForbidden {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}
}

// followSecret checks that a new certificate comes, and that nothing shows a key.
func (s *apiServer) followSecret(t *testing.T, n *testNode) {
	t.Helper()
	pair := certs.SelfSigned("web.example.com")
	s.secret("shop", "web-tls", pair)
	testkit.WaitFor(t, "the new certificate", func() bool {
		set, _ := n.catalog.InForce()
		o, ok := set.Get(resource.Key{Kind: "Certificate", Name: "shop.web-tls"})
		return ok && o.Spec.(*resource.Certificate).Cert == pair.Cert
	})
	client, err := rpc.Dial(t.Context(), n.AdminAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := rpc.Call[api.GetResult](t.Context(), client, api.MethodGet, api.GetRequest{Kind: "Certificate", Name: "shop.web-tls"})
	if err != nil || len(got.Documents) != 1 {
		t.Fatal(got, err)
	}
	if shown := string(got.Documents[0].Data) + n.lines.String(); !strings.Contains(shown, resource.HiddenSecret) || strings.Contains(shown, strings.Split(pair.Key, "\n")[1]) {
		t.Error("get or the log shows the key, or get does not hide it")
	}
}

// Deleting the definition of a kind deletes its objects, but not their resources.
func TestDeletedDefinitionsKeepResources(t *testing.T) {
	s := startAPIServer(t)
	s.Do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	n := startNode(t, "", func(c *Config) {
		c.Kubernetes = KubernetesResources{Enabled: true, Kubeconfig: s.Kubeconfig(apiserver.Admin, "")}
	})
	for i := range 10 {
		s.post(kubeShop+"services", crd.APIVersion, "Service", fmt.Sprint("s", i), `"spec": {"endpoints": [{"address": "127.0.0.1:7001"}]}`)
	}
	count := func() int {
		set, _ := n.catalog.InForce()
		return set.Count("Service")
	}
	testkit.WaitFor(t, "the services", func() bool { return count() == 10 })
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	s.Do(http.MethodDelete, definitions+"services.penstock.io", "")
	testkit.WaitFor(t, "the definition to be gone", func() bool {
		code, _ := s.Request(http.MethodGet, definitions+"services.penstock.io", "")
		return code == http.StatusNotFound
	})
	testkit.WaitFor(t, "it to be told", func() bool {
		return slices.ContainsFunc(n.kubernetes.State().Problems, func(p string) bool { return strings.Contains(p, "services.penstock.io") })
	})
	if count() != 10 {
		t.Errorf("%d of 10 services are left", count())
	}
}
