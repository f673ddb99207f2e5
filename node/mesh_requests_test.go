package node

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// webPair is a meshPair whose near node routes requests to the service one by one. The
// far one reads them too, and the program behind it answers who the client is.
func webPair(t *testing.T, protocol, more string) meshPair {
	t.Helper()
	p := newMeshPair(t, nodetest.NewBackend(t, "b"))
	program := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s", r.Header.Get("X-Forwarded-Client-Cert"), r.Header.Get("X-Forwarded-For"))
	})
	p.apply(t, nodetest.WebService("shop-local", "", program)+
		nodetest.WebService("shop", ", mesh: true, protocol: "+protocol+more, p.inside())+
		nodetest.WebRoute(nodetest.Rule("/", ""))+fmt.Sprintf(`---
kind: Listener
name: inside
spec:
  address: %q
  protocol: mesh
  nodes: {side: far}
  hosts: [{names: [shop], service: shop-local}]
  http: {forwardClientCert: true}
---
kind: Listener
name: web
spec: {address: "127.0.0.1:0", service: shop, nodes: {side: near}, tags: {protocol: http, team: a}}
`, p.inside()))
	return p
}

// Requests of two clients that come to one node at the same time, on kept connections,
// arrive as those of their own client: the other node's permissions and the program see
// nobody else.
func TestMeshRequestsNeverComeAsAnotherClients(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http", "http2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			p := webPair(t, protocol, "")
			web, ca := issue(t.Context(), t, p.near.client, "/ns/shop/web")
			batch, _ := issue(t.Context(), t, p.near.client, "/ns/shop/batch")
			id := "spiffe://" + p.near.cluster.Identity().ClusterID + "/ns/shop/"
			edge := certs.NewCA("test CA")
			p.apply(t, nodetest.Certificate("edge", edge.Issue("edge.example"))+fmt.Sprintf(`---
kind: Listener
name: secured
spec:
  address: "127.0.0.1:0"
  protocol: tls
  service: shop
  nodes: {side: near}
  tags: {protocol: http}
  tls: {mode: terminate, certificateRefs: [edge], alpn: [h2, http/1.1], clientAuth: {mode: require, ca: %q}}
---
kind: TrafficPermission
name: web
spec: {to: [{services: [shop-local], http: [{paths: [/web]}]}], from: [{identities: [%q]}], action: allow}
---
kind: TrafficPermission
name: batch
spec: {to: [{services: [shop-local], http: [{paths: [/batch]}]}], from: [{identities: [%q]}], action: allow}
`, ca, id+"web", id+"batch"))
			var all sync.WaitGroup
			for i := range 8 {
				cert, own, other := web, "web", "batch"
				if i%2 == 1 {
					cert, own, other = batch, other, own
				}
				protocols := &http.Protocols{}
				protocols.SetHTTP1(i < 4)
				protocols.SetHTTP2(i >= 4)
				c := nodetest.ClientOf(t, "https://"+p.near.at(t, "secured"), &http.Transport{
					Protocols: protocols,
					TLSClientConfig: &tls.Config{
						RootCAs: edge.Pool, ServerName: "edge.example", Certificates: []tls.Certificate{cert},
					},
				})
				for range 2 { // two at once on each client
					all.Go(func() {
						for range 10 {
							if got := c.Do("GET", "/"+own, ""); got.Text != "URI="+id+own+" 127.0.0.1" {
								t.Errorf("%s: %d %q", own, got.StatusCode, got.Text)
							}
							if got := c.Do("POST", "/"+other, "body"); got.StatusCode != http.StatusForbidden {
								t.Errorf("%s at /%s: %d %q", own, other, got.StatusCode, got.Text)
							}
						}
					})
				}
			}
			all.Wait()
			joined := regexp.MustCompile(`msg=request .*hop=([0-9a-f]{32})`)
			testkit.WaitFor(t, "lines of requests that join", func() bool {
				near := joined.FindStringSubmatch(p.near.lines.String())
				return near != nil && regexp.MustCompile(`msg=request .*hop=`+near[1]+` via=[0-9a-f]+/secured/shop`).MatchString(p.far.lines.String())
			})
		})
	}
}

// A client's connection to the mesh is kept for its next request, and ends with it.
func TestMeshRequestsKeepTheirConnection(t *testing.T) {
	t.Parallel()
	p := webPair(t, "http", "")
	conn, err := net.Dial("tcp", p.near.at(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for range 3 {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	open := `penstock_connections{listener="inside",service="shop-local"}`
	if now, all := p.far.metric(t, open), p.far.metric(t, `penstock_routed_connections_total{listener="inside",service="shop-local"}`); now != "1" || all != "1" {
		t.Errorf("%s connections, %s in all, want one", now, all)
	}
	conn.Close()
	testkit.WaitFor(t, "its end", func() bool { return p.far.metric(t, open) == "0" })
}

// A change of the client's tags counts for the next request on its connection.
func TestMeshRequestsCarryTheTagsOfTheMoment(t *testing.T) {
	t.Parallel()
	p := webPair(t, "http2", "")
	p.apply(t, `
kind: TrafficPermission
name: team
spec: {to: [{services: [shop-local], http: [{paths: [/]}]}], from: [{tags: {team: a}}], action: deny}
`)
	c := nodetest.NewWebClient(t, p.near.at(t, "web"), true)
	for _, x := range []struct {
		team string
		want int
	}{{"a", http.StatusForbidden}, {"b", http.StatusOK}, {"a", http.StatusForbidden}} {
		p.apply(t, fmt.Sprintf("kind: Listener\nname: web\nspec: {address: %q, service: shop, nodes: {side: near}, tags: {protocol: http, team: %s}}\n",
			p.near.at(t, "web"), x.team))
		if got := c.Do("GET", "/", ""); got.StatusCode != x.want {
			t.Errorf("team %s: %d %q, want %d", x.team, got.StatusCode, got.Text, x.want)
		}
	}
}

// A WebSocket goes through both nodes.
func TestMeshRequestsSwitchProtocols(t *testing.T) {
	t.Parallel()
	p := webPair(t, "http", "")
	talk := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, both)
	})
	p.apply(t, nodetest.WebService("shop-local", "", talk)+`---
kind: TrafficPermission
name: read
spec: {to: [{services: [shop-local], http: [{paths: [/talk]}]}], action: allow}
`)
	conn, err := net.Dial("tcp", p.near.at(t, "web"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	_, _ = io.WriteString(conn, "GET /talk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v", resp)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Errorf("%q %v", line, err)
	}
}

// Clients that the other node refuses have its endpoint ejected for nobody.
func TestMeshRefusalOfRequestsIsNoFailureOfTheEndpoint(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http", "http2"} {
		p := webPair(t, protocol, ", ejection: {failures: 1, duration: 1h}")
		p.apply(t, strings.Replace(nodetest.WebService("shop-local", "", nodetest.NamedServer(t, "shop")), "protocol: http", "protocol: tcp", 1)+`---
kind: Listener
name: refused
spec: {address: "127.0.0.1:0", service: shop, nodes: {side: near}, tags: {protocol: http, team: b}}
---
kind: TrafficPermission
name: team
spec: {to: [{services: [shop-local]}], from: [{tags: {team: a}}], action: allow}
`)
		refused := nodetest.NewWebClient(t, p.near.at(t, "refused"), false)
		for _, method := range []string{"GET", "POST", "GET"} {
			if got := refused.Do(method, "/", ""); got.StatusCode != http.StatusBadGateway {
				t.Errorf("refused: %d %q", got.StatusCode, got.Text)
			}
		}
		if got := nodetest.NewWebClient(t, p.near.at(t, "web"), false).Do("GET", "/", ""); got.StatusCode != http.StatusOK {
			t.Errorf("%s: another client got %d %q", protocol, got.StatusCode, got.Text)
		}
	}
}
