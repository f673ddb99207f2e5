package dataplane

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"penstock/node/nodetest"
)

// Without a cluster a request for a mesh endpoint goes nowhere: in particular not in the
// clear.
func TestRequestsDoNotGoToTheMeshWithoutACluster(t *testing.T) {
	end := nodetest.NamedServer(t, "cart")
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		fmt.Sprintf("---\nkind: Service\nname: cart\nspec: {mesh: true, endpoints: [{address: %q}]}\n", end)+
		nodetest.WebRoute(nodetest.Rule("/cart", nodetest.To("cart"))))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	if got := c.Do("GET", "/cart", ""); got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got.Text, "mesh_unavailable") {
		t.Errorf("%d %q", got.StatusCode, got.Text)
	}
	if got := c.Do("GET", "/", ""); !strings.HasPrefix(got.Text, "shop ") {
		t.Errorf("%d %q", got.StatusCode, got.Text)
	}
	if got := n.metric(t, `penstock_http_refused_total{reason="mesh_unavailable"}`); got != "1" {
		t.Errorf("counted %q", got)
	}
}
