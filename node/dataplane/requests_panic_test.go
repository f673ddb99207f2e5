package dataplane

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"penstock/netio"
	"penstock/netio/budget"
	"penstock/node/nodetest"
	"penstock/routing"
)

// A panic while routing releases the request's place. Otherwise a few such requests
// would use up --max-requests.
func TestRoutingPanicReleasesRequest(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", newRawServer(t).addr)+nodetest.WebRoute(nodetest.Rule("/", "")))
	h := &requests{flows: n.flows, places: budget.New(budget.Config{Limit: 10}), memory: unlimitedMemory{}} // without what Route needs
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
		if left := h.places.Used(); left != 0 {
			t.Fatalf("%d requests are under way", left)
		}
	}
	if got := h.refused[slices.Index(requestReasons, netio.Internal)].Load(); got != 3 {
		t.Errorf("%d are counted", got)
	}
}

// unlimitedMemory is an unlimited memory budget.
type unlimitedMemory struct{}

func (unlimitedMemory) Take(*budget.Holder, budget.Owner, *budget.Party, int64) bool { return true }
func (unlimitedMemory) Give(*budget.Holder, int64)                                   {}
