package node

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"penstock/netio"
	"penstock/routing"
)

// A request in whose routing there is a fault is counted out again, or a few of
// them would use up --max-requests.
func TestAFaultInRoutingIsCountedOut(t *testing.T) {
	n := startNode(t, webListener+webService("shop", "", newRawServer(t).addr)+webRoute(rule("/", "")))
	h := &requests{flows: n.flows, max: 2} // without what Route needs
	client := &httpClient{in: routing.Input{Listener: "web"}}
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the fault is hidden")
				}
			}()
			h.Route(client, httptest.NewRequest(http.MethodGet, "/", nil))
		}()
		if left := h.active.Load(); left != 0 {
			t.Fatalf("%d requests are under way", left)
		}
	}
	if got := h.refused[slices.Index(requestReasons, netio.Internal)].Load(); got != 3 {
		t.Errorf("%d are counted", got)
	}
}
