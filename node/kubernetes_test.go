package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/apiserver"
	"penstock/node/kinds"
	"penstock/routing/formats/crd"
)

// apiServer is a real API server with Penstock's kinds.
type apiServer struct {
	*apiserver.Server
	t *testing.T
}

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{apiserver.Start(t), t}
	for _, d := range crd.Definitions(kinds.All()) {
		s.Define(d)
	}
	return s
}

// condition returns "STATUS REASON MESSAGE" of a condition of an object.
func (s *apiServer) condition(path, what string) string {
	_, text := s.Request(http.MethodGet, path, "")
	var o struct {
		Metadata struct{ Generation int64 }
		Status   struct {
			Conditions []struct {
				Type, Status, Reason, Message string
				ObservedGeneration            int64
			}
		}
	}
	_ = json.Unmarshal([]byte(text), &o)
	for _, c := range o.Status.Conditions {
		if c.Type == what && c.ObservedGeneration == o.Metadata.Generation {
			return c.Status + " " + c.Reason + " " + c.Message
		}
	}
	return ""
}

const kubeShop = "/apis/penstock.io/v1alpha1/namespaces/shop/"

func TestResourcesFromKubernetes(t *testing.T) {
	s := startAPIServer(t)
	s.Do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)
	const head = `{"apiVersion": "penstock.io/v1alpha1", "kind": %q, "metadata": {"name": %q}, "spec": %s}`
	service := fmt.Sprintf(head, "Service", "web", `{"endpoints": [{"address": "127.0.0.1:7001"}]}`)
	if code, text := s.Request(http.MethodPost, kubeShop+"services?fieldValidation=Strict",
		strings.Replace(service, "endpoints", "endpoint", 1)); code != http.StatusBadRequest {
		t.Errorf("an unknown field: %d %s", code, text)
	}
	if code, text := s.Request(http.MethodPost, kubeShop+"services", strings.Replace(service, `[{"address": "127.0.0.1:7001"}]`, `"x"`, 1)); code != http.StatusUnprocessableEntity {
		t.Errorf("a field of a wrong type: %d %s", code, text)
	}
	// The listener refers to a service that comes later.
	s.Do(http.MethodPost, kubeShop+"listeners", fmt.Sprintf(head, "Listener", "edge", `{"address": "127.0.0.1:0", "service": "shop.web"}`))
	n := startNode(t, "", func(c *Config) {
		c.Kubernetes = KubernetesResources{Enabled: true, Kubeconfig: s.Kubeconfig(apiserver.Admin, "")}
	})
	testkit.WaitFor(t, "the listener without a service is refused", func() bool {
		return strings.HasPrefix(s.condition(kubeShop+"listeners/edge", "Accepted"), "False Invalid Listener/shop.edge spec.service: there is no such Service (shop.web)")
	})
	s.Do(http.MethodPost, kubeShop+"services", service)
	for _, path := range []string{"services/web", "listeners/edge"} {
		testkit.WaitFor(t, path, func() bool {
			return s.condition(kubeShop+path, "Accepted") == "True Accepted " && s.condition(kubeShop+path, "Programmed") == "True Programmed "
		})
	}
	has := func(kind, name string) bool {
		set, _ := n.catalog.InForce()
		for o := range set.All(kind) {
			if o.Name == name {
				return true
			}
		}
		return false
	}
	if !has("Service", "shop.web") || !has("Listener", "shop.edge") {
		t.Error("the resources are not in force")
	}
	// A change with faults is told, holds up no other object, and leaves what is.
	s.Do(http.MethodPatch, kubeShop+"services/web", `{"spec": {"endpoints": [{"address": "nonsense"}]}}`)
	s.Do(http.MethodPost, kubeShop+"services", fmt.Sprintf(head, "Service", "other", `{"endpoints": [{"address": "127.0.0.1:7002"}]}`))
	testkit.WaitFor(t, "the bad change is told", func() bool {
		return strings.HasPrefix(s.condition(kubeShop+"services/web", "Accepted"), "False Invalid Service/shop.web spec.endpoints[0].address: ")
	})
	testkit.WaitFor(t, "the other object", func() bool { return has("Service", "shop.other") })
	s.Do(http.MethodPatch, kubeShop+"services/other", `{"spec": {"endpoints": [{"address": "nonsense"}]}}`)
	testkit.WaitFor(t, "the other bad change is told", func() bool {
		return strings.HasPrefix(s.condition(kubeShop+"services/other", "Accepted"), "False Invalid ")
	})
	if !has("Service", "shop.web") || !has("Service", "shop.other") {
		t.Error("a bad change deleted the resource")
	}
	s.Do(http.MethodPatch, kubeShop+"services/other", `{"spec": {"endpoints": [{"address": "127.0.0.1:7003"}]}}`)
	// While the API server is away, nothing is deleted; what was deleted meanwhile is then.
	s.Stop()
	testkit.WaitFor(t, "its absence is told", func() bool { return len(n.kubernetes.State().Problems) > 1 })
	s.Restart()
	if !has("Service", "shop.other") || !has("Listener", "shop.edge") {
		t.Error("resources went while the API server was away")
	}
	s.Do(http.MethodDelete, kubeShop+"services/web", "")
	s.Do(http.MethodDelete, kubeShop+"listeners/edge", "")
	testkit.WaitFor(t, "both are deleted", func() bool { return !has("Service", "shop.web") && !has("Listener", "shop.edge") })
	testkit.WaitFor(t, "all is known", func() bool { st := n.kubernetes.State(); return st.Synced && st.Refused == 0 && st.Objects == 1 })
	written := n.kubernetes.State().StatusWritten
	s.Do(http.MethodPatch, kubeShop+"services/other", `{"metadata": {"labels": {"a": "b"}}}`)
	testkit.WaitFor(t, "the label", func() bool {
		set, _ := n.catalog.InForce()
		return len(set.WithLabels("Service", map[string]string{"a": "b"})) == 1
	})
	if again := n.kubernetes.State().StatusWritten; again != written {
		t.Errorf("%d statuses were written that are the same", again-written)
	}
}
