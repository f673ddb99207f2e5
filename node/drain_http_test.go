package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// A drain moves clients without a failed request: in HTTP/1.1 with the next
// answer, in HTTP/2 with a GOAWAY. After an undo, connections stay open again.
func TestDrainMovesHTTPClients(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2 ", http2), func(t *testing.T) {
			resources := nodetest.WebListener + nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop")) +
				nodetest.WebRoute(nodetest.Rule("/", ""))
			settings := func(c *Config) { c.DrainWait, c.DrainTimeout = 300*time.Millisecond, 2*time.Second }
			nodes := []*testNode{startNode(t, resources, settings), startNode(t, resources, settings)}
			addrs := []string{nodes[0].at(t, "web"), nodes[1].at(t, "web")}
			p := &http.Protocols{}
			p.SetHTTP1(!http2)
			p.SetUnencryptedHTTP2(http2)
			c := nodetest.ClientOf(t, "http://shop.example", &http.Transport{
				Protocols: p,
				DialContext: func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
					for _, addr := range addrs { // the first that listens, as a load balancer does
						if conn, err = new(net.Dialer).DialContext(ctx, network, addr); err == nil {
							return conn, nil
						}
					}
					return nil, err
				},
			})
			var stop atomic.Bool
			var asking sync.WaitGroup
			var requests atomic.Int64
			for range 8 {
				asking.Go(func() {
					for !stop.Load() {
						if got, err := c.Try("POST", "/", "body"); err != nil || got.StatusCode != http.StatusOK {
							t.Errorf("a request failed: %v", err)
							return
						}
						requests.Add(1)
					}
				})
			}
			testkit.WaitFor(t, "requests", func() bool { return requests.Load() > 100 })
			if _, err := rpc.Call[api.DrainResult](t.Context(), nodes[0].client, api.MethodDrain, api.DrainRequest{}); err != nil {
				t.Fatal(err)
			}
			testkit.WaitFor(t, "the drain to end", func() bool { return nodes[0].state.NotReady() == "drained" })
			at := requests.Load()
			testkit.WaitFor(t, "requests at the other node", func() bool { return requests.Load() > at+100 })
			if _, err := rpc.Call[api.DrainResult](t.Context(), nodes[0].client, api.MethodDrain, api.DrainRequest{Undo: true}); err != nil {
				t.Fatal(err)
			}
			stop.Store(true)
			asking.Wait()
			again := nodetest.NewWebClient(t, nodes[0].at(t, "web"), http2)
			total := func() string {
				return nodes[0].metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`)
			}
			again.Do("GET", "/", "")
			before := total()
			for range 5 {
				again.Do("GET", "/", "")
			}
			if after := total(); after != before {
				t.Errorf("%s connections after %s: they are not kept", after, before)
			}
		})
	}
}
