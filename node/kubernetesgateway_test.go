package node

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/apiserver"
)

// Gateways of Penstock's class and their routes count, and get the status of the
// Gateway API.
func TestGatewaysFromKubernetes(t *testing.T) {
	s := startAPIServer(t)
	const free = `{"type": "object", "x-kubernetes-preserve-unknown-fields": true}`
	for kind, plural := range map[string]string{"GatewayClass": "gatewayclasses", "Gateway": "gateways", "TLSRoute": "tlsroutes"} {
		scope := "Namespaced"
		if kind == "GatewayClass" {
			scope = "Cluster"
		}
		s.Do(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{"metadata": {"name": "%s.gateway.networking.k8s.io",
			"annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}}, "spec": {"group": "gateway.networking.k8s.io", "scope": %q,
			"names": {"kind": %q, "plural": %q}, "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
			"schema": {"openAPIV3Schema": %s}}]}}`, plural, scope, kind, plural, free))
	}
	const group = "/apis/gateway.networking.k8s.io/v1/"
	const in = group + "namespaces/default/"
	testkit.WaitFor(t, "the kinds are served", func() bool {
		_, text := s.Request(http.MethodGet, group, "")
		return strings.Contains(text, "tlsroutes/status") && strings.Contains(text, "gatewayclasses/status") && strings.Contains(text, "gateways/status")
	})
	post := func(path, kind, name, spec string) {
		t.Helper()
		s.Do(http.MethodPost, path, fmt.Sprintf(`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": %q, "metadata": {"name": %q}, "spec": %s}`, kind, name, spec))
	}
	post(group+"gatewayclasses", "GatewayClass", "ours", `{"controllerName": "penstock.internal/gateway"}`)
	post(group+"gatewayclasses", "GatewayClass", "theirs", `{"controllerName": "example.com/other"}`)
	const listeners = `{"gatewayClassName": %q, "listeners": [{"name": "tls", "port": %s, "protocol": "TLS", "tls": {"mode": "Passthrough"}}]}`
	_, port, _ := strings.Cut(apiserver.FreeAddress(t), ":")
	post(in+"gateways", "Gateway", "edge", fmt.Sprintf(listeners, "ours", port))
	post(in+"gateways", "Gateway", "other", fmt.Sprintf(listeners, "theirs", port))
	post(in+"tlsroutes", "TLSRoute", "apps", `{"parentRefs": [{"name": "edge"}], "hostnames": ["a.example.com"], "rules": [{"backendRefs": [{"name": "none", "port": 1}]}]}`)
	n := startNode(t, "", func(c *Config) {
		c.Kubernetes = KubernetesResources{Enabled: true, Kubeconfig: s.Kubeconfig(apiserver.Admin, "")}
	})
	testkit.WaitFor(t, "the class", func() bool { return strings.HasPrefix(s.condition(group+"gatewayclasses/ours", "Accepted"), "True") })
	testkit.WaitFor(t, "the Gateway", func() bool { return strings.HasPrefix(s.condition(in+"gateways/edge", "Programmed"), "True") })
	testkit.WaitFor(t, "the route", func() bool {
		_, text := s.Request(http.MethodGet, in+"tlsroutes/apps", "")
		return strings.Contains(text, `"reason":"BackendNotFound"`) && strings.Contains(text, `"controllerName":"penstock.internal/gateway"`)
	})
	testkit.WaitFor(t, "attached routes", func() bool {
		_, text := s.Request(http.MethodGet, in+"gateways/edge", "")
		return strings.Contains(text, `"attachedRoutes":1`)
	})
	if set, _ := n.catalog.InForce(); set.Count("Gateway") != 1 || s.condition(in+"gateways/other", "Accepted") != "" {
		t.Error("a Gateway of another class counts")
	}
}
