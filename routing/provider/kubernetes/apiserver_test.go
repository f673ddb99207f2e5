package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"penstock/internal/testkit/apiserver"
	"penstock/routing/kubeapi"
	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// cluster is a real API server. There is no controller: the tests write the EndpointSlices.
type cluster struct {
	*apiserver.Server
	t *testing.T
}

func (c *cluster) put(o item) {
	c.t.Helper()
	path := "/api/v1/namespaces/shop/services"
	if _, ok := o.(*discoveryv1.EndpointSlice); ok {
		path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
	}
	body, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	name := o.GetObjectMeta().GetName()
	if code, _ := c.Request(http.MethodGet, path+"/"+name, ""); code == http.StatusNotFound {
		c.Do(http.MethodPost, path, string(body))
	} else {
		c.Do(http.MethodPut, path+"/"+name, string(body))
	}
}

// source returns a source that reads with a token.
func (c *cluster) source(token string, adapt func(*Config)) *Source {
	return newSource(c.t, c.Kubeconfig(token, "shop"), adapt)
}

func TestRealAPIServer(t *testing.T) {
	c := &cluster{apiserver.Start(t), t}
	c.Do(http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "shop"}}`)

	refused := providertest.NewSink(web)
	refused.Start(t, c.source("s3cret-wrong", nil))
	refused.AwaitFailure(t, web, "refuses the credentials (401 Unauthorized)")

	sink := providertest.NewSink(web)
	sink.Start(t, c.source(apiserver.Reader, nil))
	sink.AwaitFailure(t, web, `403 Forbidden: allow the verbs list and watch on `)
	if err := sink.Err(web); !strings.Contains(err.Error(), `User "reader" cannot list resource`) || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/"
	c.Do(http.MethodPost, rbac+"roles", `{"metadata": {"name": "endpoints"}, "rules": [
		{"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
		{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]}`)
	c.Do(http.MethodPost, rbac+"rolebindings", `{"metadata": {"name": "endpoints"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "endpoints"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]}`)
	sink.Await(t, web, "none")

	c.put(aService("web", "http:80"))
	first := aSlice("web-1", "10.0.0.1", "10.0.0.2?", "10.0.0.3-")
	first.Endpoints[0].Zone, first.Endpoints[0].NodeName = to("zone-a"), to("node-1")
	c.put(first)
	sink.Await(t, web, "10.0.0.1:8080{node=node-1 zone=zone-a}; 10.0.0.2:8080 notReady; 10.0.0.3:8080 terminating")
	c.put(aSlice("web-1", "10.0.0.2"))
	c.put(aSlice("web-2", "10.0.0.4"))
	sink.Await(t, web, "10.0.0.2:8080; 10.0.0.4:8080")
	c.Do(http.MethodDelete, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-1", "")
	sink.Await(t, web, "10.0.0.4:8080")

	all := provider.Query{Service: "shop/web", Port: "http"}
	everywhere := providertest.NewSink(all)
	everywhere.Start(t, c.source(apiserver.Admin, func(cfg *Config) { cfg.Namespaces = []string{AllNamespaces} }))
	everywhere.Await(t, all, "10.0.0.4:8080")

	c.Stop()
	sink.AwaitFailure(t, web, "connection refused")
	c.Restart()
	c.put(aSlice("web-2", "10.0.0.5"))
	sink.Await(t, web, "10.0.0.5:8080")
	everywhere.Await(t, all, "10.0.0.5:8080")
	c.pages(t)
}

// pages reads a list of several pages.
func (c *cluster) pages(t *testing.T) {
	t.Helper()
	const n = kubeapi.PageSize + 3
	for i := range n {
		c.put(aSlice(fmt.Sprintf("many-%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	sink := providertest.NewSink(web)
	sink.Start(t, c.source(apiserver.Reader, nil))
	sink.AwaitCount(t, web, n+1)
}
