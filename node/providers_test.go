package node

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing"
)

// registry is an HTTP server whose lists of endpoints a test gives, by service.
type registry struct {
	url     string
	mu      sync.Mutex
	answers map[string]http.HandlerFunc
}

func newRegistry(t *testing.T) *registry {
	r := &registry{answers: map[string]http.HandlerFunc{}}
	l := testkit.Listen(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		answer := r.answers[req.URL.Path]
		r.mu.Unlock()
		if answer == nil {
			answer = http.NotFound
		}
		answer(w, req)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	r.url = "http://" + l.Addr().String()
	return r
}

func (r *registry) answer(service string, answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers["/"+service] = answer
}

func (r *registry) list(service string, addresses ...string) {
	r.answer(service, text(listOf(addresses...)))
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
}

func listOf(addresses ...string) string {
	var items []string
	for _, a := range addresses {
		items = append(items, fmt.Sprintf("{\"address\": %q}", a))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// resources returns the provider and services that use it.
func (r *registry) resources(settings string, services ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kind: EndpointProvider\nname: registry\n"+
		"spec: {type: http, hold: {for: 0s}, %shttp: {url: '%s/{service}', interval: 100ms, timeout: 5s}}\n", settings, r.url)
	for _, s := range services {
		fmt.Fprintf(&b, "---\nkind: Service\nname: %s\nspec: {endpointsFrom: [{provider: registry}]}\n", s)
	}
	return b.String()
}

func (n *testNode) endpoints(t *testing.T, service string) api.Endpoints {
	t.Helper()
	all, err := rpc.Call[api.Endpoints](t.Context(), n.client, api.MethodEndpoints, api.EndpointsRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return *all
}

// addresses returns those of a service's endpoints, joined by spaces.
func (n *testNode) addresses(t *testing.T, service string) string {
	t.Helper()
	var list []string
	for _, e := range n.endpoints(t, service) {
		list = append(list, e.Address)
	}
	return strings.Join(list, " ")
}

func (n *testNode) awaitAddresses(t *testing.T, service, want string) {
	t.Helper()
	testkit.WaitFor(t, service+" to have the endpoints "+want, func() bool { return n.addresses(t, service) == want })
}

// query returns what status says of a service of the only provider.
func (n *testNode) query(t *testing.T, service string) api.ProviderQuery {
	t.Helper()
	for _, p := range n.mustStatus(t).Providers {
		for _, q := range p.Services {
			if q.Service == service {
				return q
			}
		}
	}
	return api.ProviderQuery{}
}

// A listener that leads to a service, directly or by a route, is no endpoint of
// it; as soon as it leads elsewhere, it is one.
func TestOwnListenersAreNoEndpoints(t *testing.T) {
	t.Parallel()
	edge, front, good := testkit.FreeAddress(t), testkit.FreeAddress(t), nodetest.NewBackend(t, "good").At()
	_, port, _ := net.SplitHostPort(edge)
	r := newRegistry(t)
	r.list("shop", edge, "[::1]:"+port, front, good)
	n := startNode(t, r.resources("", "shop")+fmt.Sprintf(`---
kind: Service
name: front
spec: {endpoints: [{address: %q}]}
---
kind: Listener
name: front
spec: {address: %q, service: front}
---
kind: Listener
name: edge
spec: {address: "0.0.0.0:%s", service: shop}
`, good, front, port))
	n.awaitAddresses(t, "shop", strings.Join(sorted(front, good, "[::1]:"+port), " ")) // IPv6 is not that listener's
	for range 5 {
		if got := nodetest.Attempt(edge); got == "" {
			t.Error("no answer")
		}
	}
	q := n.query(t, "shop")
	if want := edge + " is the listener edge of this node: it would connect to itself"; q.Unused != 1 || q.Endpoints != 3 || q.Fault != want {
		t.Errorf("%+v", q)
	}
	n.waitMetric(t, `penstock_provider_unused_endpoints{provider="registry"}`, "1")

	route := `kind: MeshTCPRoute
name: reroute
spec: {to: [{targetRef: {kind: MeshService, name: front}, rules: [{default: {backendRefs: [{kind: MeshService, name: shop}]}}]}]}
`
	n.mustApply(t, route)
	n.awaitAddresses(t, "shop", strings.Join(sorted(good, "[::1]:"+port), " "))
	n.mustDelete(t, "MeshTCPRoute", "reroute")
	n.awaitAddresses(t, "shop", strings.Join(sorted(front, good, "[::1]:"+port), " "))
	n.mustDelete(t, "Listener", "edge")
	n.awaitAddresses(t, "shop", strings.Join(sorted(edge, front, good, "[::1]:"+port), " "))
	if q := n.query(t, "shop"); q.Unused != 0 || q.Fault != "" {
		t.Errorf("%+v", q)
	}
}

// Whatever a provider answers, the last good answer stays in force, status says
// why, and the provider recovers.
func TestBadAnswersOfProviders(t *testing.T) {
	t.Parallel()
	good := nodetest.NewBackend(t, "good").At()
	hundredMB := strings.Repeat(" ", 1<<20)
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"100 MB": {func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				if _, err := w.Write([]byte(hundredMB)); err != nil {
					return
				}
			}
		}, "the answer has more than maxBytes (16777216): raise it, or serve smaller lists"},
		"half an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`[{"address": "10.0.0.1:80"}, {"addr`))
		}, "the answer cannot be read to its end: unexpected EOF"},
		"half a document": {text(`[{"address": "10.0.0.1:80"}`), "the answer is not a list of endpoints"},
		"a wrong type":    {text(`[{"address": 10}]`), `"/0/address"`},
		"another type":    {text(`<html>`), "the answer is not a list of endpoints"},
		"an error":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }, "418"},
		"never":           {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no complete answer within 1s (timeout)"},
		"no end": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("["))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "no complete answer within 1s (timeout)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			r.list("shop", good)
			timeout := "timeout: 5m" // a large answer may take long on a busy machine
			if strings.Contains(test.want, "within 1s") {
				timeout = "timeout: 1s"
			}
			n := startNode(t, strings.Replace(r.resources("", "shop"), "timeout: 5s", timeout, 1))
			n.awaitAddresses(t, "shop", good)
			r.answer("shop", test.answer)
			testkit.WaitFor(t, "status to say "+test.want, func() bool {
				q := n.query(t, "shop")
				return q.Stale && strings.Contains(q.Error, test.want)
			})
			if got := n.addresses(t, "shop"); got != good {
				t.Errorf("the endpoints are %s", got)
			}
			if n.metric(t, `penstock_provider_stale_services{provider="registry"}`) != "1" {
				t.Error("the metric does not say stale")
			}
			r.list("shop", "10.0.0.2:80")
			n.awaitAddresses(t, "shop", "10.0.0.2:80")
		})
	}
}

// Of 100,000 endpoints, the first maxEndpoints are used, and the rest is counted.
// Endpoints with odd characters are left out one by one; the same address in two
// services is one of each.
func TestOddAnswersOfProviders(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf("10.%d.%d.%d:80", i>>16, i>>8&255, i&255)
	}
	r.list("many", many...)
	r.list("a", "10.0.0.1:80", "10.0.0.1:80", "10.0.0.1:080")
	r.list("b", "10.0.0.1:80")
	r.answer("odd", text(`[{"address": "caf\u00e9.example.com:80"}, {"address": "a b:80"}, {"address": "\u0000:80"}, {"address": "10.0.0.1"},
		{"address": "10.0.0.9:80", "tags": {"": "x"}}, {"address": "10.0.0.9:81", "tags": {"k": "a\u0001b"}}, {"address": "../../etc:80"},
		{"address": "10.0.0.2:80", "tags": {"t\u00e4g": "\"{}<>' \u2603"}}]`))
	n := startNode(t, r.resources("changesPerSecond: 100000, ", "many", "a", "b", "odd"))
	n.awaitAddresses(t, "a", "10.0.0.1:80")
	n.awaitAddresses(t, "b", "10.0.0.1:80")
	n.awaitAddresses(t, "odd", "10.0.0.2:80")
	if q := n.query(t, "odd"); q.Unused != 7 || q.Stale || !strings.Contains(q.Fault, `address "café.example.com:80": host must be`) {
		t.Errorf("%+v", q)
	}
	if tags := n.endpoints(t, "odd")[0].Tags; tags["täg"] != "\"{}<>' \u2603" {
		t.Errorf("tags %v", tags)
	}
	testkit.WaitFor(t, "the first 10,000 endpoints", func() bool { return len(n.endpoints(t, "many")) == 10_000 })
	if q := n.query(t, "many"); q.Unused != 90_000 || q.Endpoints != 10_000 {
		t.Errorf("%+v", q)
	}
	n.waitMetric(t, `penstock_provider_endpoints{provider="registry"}`, "10003")
}

// A provider that answers differently each time changes no more endpoints than
// changesPerSecond, beyond a burst of maxEndpoints, however often it is asked.
func TestProvidersThatAnswerDifferentlyEachTime(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	var answers atomic.Int64
	r.answer("shop", func(w http.ResponseWriter, req *http.Request) {
		list := make([]string, 50)
		for i := range list {
			list[i] = fmt.Sprintf("10.%d.%d.%d:80", rand.IntN(256), rand.IntN(256), i)
		}
		answers.Add(1)
		text(listOf(list...))(w, req)
	})
	began := time.Now()
	n := startNode(t, r.resources("maxEndpoints: 50, changesPerSecond: 20, ", "shop"))
	changes := func() (total int) {
		_, _ = fmt.Sscan(n.metric(t, `penstock_provider_changes_total{provider="registry"}`), &total)
		return total
	}
	testkit.WaitFor(t, "changes beyond the burst", func() bool { return changes() > 60 && answers.Load() > 10 })
	total := changes()
	if most := 50 + 20*(time.Since(began).Seconds()+1); float64(total) > most {
		t.Errorf("%d changes after %d answers, want at most %.0f", total, answers.Load(), most)
	}
	if got := len(n.endpoints(t, "shop")); got > 150 {
		t.Errorf("%d endpoints", got)
	}
}

// Explain names the source of each endpoint, as get endpoints does.
func TestExplainNamesTheSourceOfEndpoints(t *testing.T) {
	t.Parallel()
	good := nodetest.NewBackend(t, "good").At()
	r := newRegistry(t)
	r.list("shop", good, "10.0.0.7:80")
	n := startNode(t, r.resources("", "shop")+`---
kind: Listener
name: edge
spec: {address: "127.0.0.1:0", service: shop}
`)
	n.awaitAddresses(t, "shop", strings.Join(sorted(good, "10.0.0.7:80"), " "))
	n.mustApply(t, strings.Replace(r.resources("", "shop"), "{endpointsFrom",
		"{endpoints: [{address: '10.0.0.7:80'}, {address: '10.0.0.8:80'}], endpointsFrom", 1))
	x, err := rpc.Call[routing.Explanation](t.Context(), n.client, api.MethodExplain, api.ExplainRequest{Listener: "edge"})
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]api.Endpoint{}
	for _, e := range n.endpoints(t, "shop") {
		listed[e.Address] = e
	}
	for _, step := range x.Steps {
		for _, e := range step.Endpoints {
			want := listed[e.Address]
			if e.Source != want.Source || !slices.Equal(e.AlsoFrom, want.AlsoFrom) || (e.Since == nil) != (want.Since == nil) {
				t.Errorf("explain: %+v, get endpoints: %+v", e, want)
			}
		}
	}
	if e := listed[good]; e.Source != "registry" || e.Since == nil {
		t.Errorf("%+v", e)
	}
	for _, want := range []string{
		good + " weight 1, unchecked, 0 active, from registry since 2",
		"10.0.0.7:80 weight 1, unchecked, 0 active, also from registry\n",
		"10.0.0.8:80 weight 1, unchecked, 0 active\n",
	} {
		if !strings.Contains(x.Text(), want) {
			t.Errorf("explain lacks %q:\n%s", want, x.Text())
		}
	}
}

func sorted(addresses ...string) []string { return slices.Sorted(slices.Values(addresses)) }
