package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"penstock/routing/kubeapi"
	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestEndpointsFollowSlices(t *testing.T) {
	s := start(t)
	absent := provider.Query{Service: "absent"}
	sink := s.follow(nil, web, absent)
	sink.Await(t, web, "none")
	sink.Await(t, absent, "none")

	s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1", "10.0.0.2?", "10.0.0.3-", "10.0.0.4?-"))
	sink.Await(t, web, "10.0.0.1:8080; 10.0.0.2:8080 notReady; 10.0.0.3:8080 terminating; 10.0.0.4:8080 terminating")
	second := aSlice("web-2", "10.0.0.5")
	second.Endpoints[0].Zone, second.Endpoints[0].NodeName = to("zone-a"), to("node-1")
	second.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "web-abc"}
	s.put(second, aSlice("web-1", "10.0.0.1"))
	sink.Await(t, web, "10.0.0.1:8080; 10.0.0.5:8080{node=node-1 pod=web-abc zone=zone-a}")
	s.delete(second)
	sink.Await(t, web, "10.0.0.1:8080")

	// A slice that moves to another service.
	moved := aSlice("web-1", "10.0.0.1")
	moved.Labels[discoveryv1.LabelServiceName] = "absent"
	s.put(aService("absent", "http:80"), moved)
	sink.Await(t, absent, "10.0.0.1:8080")
	sink.Await(t, web, "none")

	s.delete(aService("absent"))
	sink.Await(t, absent, "none")
}

// However many services are wanted, and whatever comes and goes, there is one
// list and one watch of each kind.
func TestWatchesAreShared(t *testing.T) {
	s := start(t)
	var queries []provider.Query
	for i := range 50 {
		name := fmt.Sprintf("web-%d", i)
		slice := aSlice(name, fmt.Sprintf("10.0.0.%d", i+1))
		slice.Labels[discoveryv1.LabelServiceName] = name
		s.put(aService(name, "http:80"), slice)
		queries = append(queries, provider.Query{Service: name})
	}
	sink := s.follow(nil, queries[:10]...)
	sink.Await(t, queries[9], "10.0.0.10:8080")
	sink.Want(queries[5:]...)
	sink.Await(t, queries[49], "10.0.0.50:8080")
	sink.Want(provider.Query{Service: "shop/web-1", Port: "80"})
	sink.Await(t, provider.Query{Service: "shop/web-1", Port: "80"}, "10.0.0.2:8080")
	for _, request := range []string{"list services", "list endpointslices", "watch services", "watch endpointslices"} {
		s.awaitCount(t, request, 1)
		if n := s.count(request); n != 1 {
			t.Errorf("%d requests to %s", n, request)
		}
	}
}

func TestNamespaces(t *testing.T) {
	s := start(t)
	for i, namespace := range []string{"shop", "bank"} {
		service, slice := aService("web", "http:80"), aSlice("web-1", fmt.Sprintf("10.0.0.%d", i+1))
		service.Namespace, slice.Namespace = namespace, namespace
		s.put(service, slice)
	}
	shop, bank, other := provider.Query{Service: "shop/web"}, provider.Query{Service: "bank/web"}, provider.Query{Service: "other/web"}
	for _, test := range []struct {
		namespace  string
		namespaces []string
		answers    map[provider.Query]string // "!" for a failure
	}{
		{"", nil, map[provider.Query]string{
			web: "10.0.0.1:8080", shop: "10.0.0.1:8080", bank: "!namespace \"bank\" of service \"web\" is not watched",
		}},
		{"bank", nil, map[provider.Query]string{web: "10.0.0.2:8080", bank: "10.0.0.2:8080", shop: "!add it to namespaces"}},
		{"", []string{"bank", "shop", "bank"}, map[provider.Query]string{web: "10.0.0.1:8080", bank: "10.0.0.2:8080"}},
		{"", []string{"bank"}, map[provider.Query]string{web: "!is not watched", bank: "10.0.0.2:8080"}},
		{"", []string{AllNamespaces}, map[provider.Query]string{
			web: "10.0.0.1:8080", bank: "10.0.0.2:8080", other: "none",
			{Service: "a/b/c"}: "!use NAME or NAMESPACE/NAME", {Service: "/web"}: "!is not the name", {}: "!is not the name",
			{Service: strings.Repeat("x", 600)}: "!is not the name",
		}},
	} {
		var queries []provider.Query
		for q := range test.answers {
			queries = append(queries, q)
		}
		sink := s.follow(func(c *Config) { c.Namespace, c.Namespaces = test.namespace, test.namespaces }, queries...)
		for q, want := range test.answers {
			if part, failure := strings.CutPrefix(want, "!"); failure {
				sink.AwaitFailure(t, q, part)
			} else {
				sink.Await(t, q, want)
			}
		}
	}
}

// A namespace that cannot be read leaves another one alone, and is answered once
// it can be.
func TestNamespacesFailByThemselves(t *testing.T) {
	s := start(t)
	bank := provider.Query{Service: "bank/web"}
	service, slice := aService("web", "http:80"), aSlice("web-1", "10.0.0.2")
	service.Namespace, slice.Namespace = "bank", "bank"
	s.put(service, slice, aService("web", "http:80"), aSlice("web-1", "10.0.0.1"))
	s.setIntercept(func(w http.ResponseWriter, r *http.Request, _, resource string) bool {
		if resource == "endpointslices" && strings.Contains(r.URL.Path, "/bank/") {
			status(w, http.StatusForbidden, "Forbidden", "endpointslices is forbidden: User \"penstock\" cannot list")
			return true
		}
		return false
	})
	sink := s.follow(func(c *Config) { c.Namespaces = []string{"shop", "bank"} }, web, bank)
	sink.Await(t, web, "10.0.0.1:8080")
	sink.AwaitFailure(t, bank, "403 Forbidden: allow the verbs list and watch on endpointslices of the API group discovery.k8s.io "+
		"in namespace bank (Role); the server says: endpointslices is forbidden: User \"penstock\" cannot list")
	if err := sink.Err(web); err != nil {
		t.Errorf("another namespace failed: %v", err)
	}
	s.put(aSlice("web-1", "10.0.0.3"))
	sink.Await(t, web, "10.0.0.3:8080")
	s.awaitCount(t, "list services", 2)
	if n := s.count("list services"); n != 2 {
		t.Errorf("%d lists of services", n)
	}
	s.setIntercept(nil)
	sink.Await(t, bank, "10.0.0.2:8080")
	if err := sink.Err(bank); err != nil {
		t.Error(err)
	}
}

func TestSelectorIsTheServers(t *testing.T) {
	s := start(t)
	public := map[string]string{"exposed": "yes", discoveryv1.LabelServiceName: "web"}
	service, slice := aService("web", "http:80"), aSlice("web-1", "10.0.0.1")
	service.Labels, slice.Labels = public, public
	s.put(service, slice, aSlice("web-2", "10.0.0.2"), aService("other", "http:80"))
	sink := s.follow(func(c *Config) { c.LabelSelector = "exposed in (yes)" }, web)
	sink.Await(t, web, "10.0.0.1:8080")
	s.put(aSlice("web-2", "10.0.0.3"))
	slice.Endpoints[0].Addresses[0] = "10.0.0.4"
	s.put(slice)
	sink.Await(t, web, "10.0.0.4:8080")
}

func TestLongListsAreReadInPages(t *testing.T) {
	const n = 2*kubeapi.PageSize + 7
	s := start(t)
	s.put(aService("web", "http:80"))
	for i := range n {
		s.put(aSlice(fmt.Sprintf("web-%d", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	sink := s.follow(nil, web)
	sink.AwaitCount(t, web, n)
	if pages := s.count("list endpointslices"); pages != 3 {
		t.Errorf("%d pages of %d objects", pages, n)
	}
	few := s.follow(func(c *Config) { c.MaxObjects = 3*n - 1 }, web)
	few.AwaitFailure(t, web, fmt.Sprintf("there are more than %d objects, endpoints and ports", 3*n-1))
	enough := s.follow(func(c *Config) { c.MaxObjects = 3 * n }, web)
	enough.AwaitCount(t, web, n)
	s.put(aSlice("web-1", "10.0.0.1", "10.1.0.1")) // one more
	enough.AwaitFailure(t, web, "raise maxObjects")
	enough.AwaitCount(t, web, n)
	s.delete(aSlice("web-1"))
	enough.AwaitCount(t, web, n-1)
}

// A connection that is lost costs no new list.
// A bookmark is sent after a change that does not concern the watch.
func TestBookmarksConfirm(t *testing.T) {
	s := start(t)
	s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1"))
	sink := s.follow(nil, web)
	sink.Await(t, web, "10.0.0.1:8080")
	for i := range 3 {
		other := aSlice(fmt.Sprintf("other-%d", i), "10.0.0.2")
		other.Labels[discoveryv1.LabelServiceName] = "other"
		s.put(other)
	}
	sink.AwaitConfirmed(t, web, 1)
	if n := s.count("list endpointslices"); n != 1 {
		t.Errorf("%d lists", n)
	}
}

func TestWatchesResume(t *testing.T) {
	s := start(t)
	s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1"))
	sink := s.follow(nil, web)
	sink.Await(t, web, "10.0.0.1:8080")
	for i := range 5 {
		s.awaitCount(t, "watch services", i+1)
		s.awaitCount(t, "watch endpointslices", i+1)
		s.put(aSlice("web-1", fmt.Sprintf("10.0.1.%d", i)), aService("other"))
		sink.Await(t, web, fmt.Sprintf("10.0.1.%d:8080", i))
		s.CloseClientConnections()
	}
	s.put(aSlice("web-1", "10.0.0.2"))
	sink.Await(t, web, "10.0.0.2:8080")
	if n := s.count("list endpointslices"); n != 1 {
		t.Errorf("%d lists", n)
	}
}

func TestExpiredRevisionsAreListedAgain(t *testing.T) {
	s := start(t)
	s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1"), aSlice("web-2", "10.0.0.2"))
	sink := s.follow(nil, web)
	sink.Await(t, web, "10.0.0.1:8080; 10.0.0.2:8080")
	s.awaitCount(t, "watch services", 1)
	s.awaitCount(t, "watch endpointslices", 1)
	s.forget() // the watches get 410 as an event
	s.awaitCount(t, "watch services", 2)
	s.awaitCount(t, "watch endpointslices", 2)
	s.delete(aSlice("web-2"))
	sink.Await(t, web, "10.0.0.1:8080")
	if n := s.count("list endpointslices"); n != 2 || sink.Err(web) != nil {
		t.Errorf("%d lists, error %v", n, sink.Err(web))
	}

	s.setIntercept(func(w http.ResponseWriter, _ *http.Request, verb, _ string) bool {
		if verb == "watch" {
			status(w, http.StatusGone, "Expired", "the resourceVersion is too old")
		}
		return verb == "watch"
	})
	s.CloseClientConnections()
	sink.AwaitFailure(t, web, "the resourceVersion is too old")
	s.setIntercept(nil)
	s.put(aSlice("web-1", "10.0.0.3"))
	sink.Await(t, web, "10.0.0.3:8080")
}

// Wrong credentials end the run, and the next one reads the kubeconfig again.
func TestCredentialsAreReadAgain(t *testing.T) {
	s := start(t)
	s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1"))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	s.kubeconfig(path, "s3cret-old")
	source := newSource(t, path, nil)
	sink := providertest.NewSink(web)
	err := source.Run(t.Context(), sink)
	if err == nil || !strings.Contains(err.Error(), "refuses the credentials (401 Unauthorized): renew those of kubeconfig "+path) {
		t.Errorf("Run returned %v", err)
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the token is in the error %v", err)
	}
	s.kubeconfig(path, s.token)
	sink.Start(t, source)
	sink.Await(t, web, "10.0.0.1:8080")
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := start(t)
	held := make(chan struct{})
	s.setIntercept(func(_ http.ResponseWriter, r *http.Request, _, _ string) bool {
		held <- struct{}{}
		<-r.Context().Done()
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.source(nil).Run(ctx, providertest.NewSink(web)) }()
	<-held
	<-held
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The lists of a server that is away for a while are read again.
func TestServerReturns(t *testing.T) {
	s := start(t)
	s.put(aService("web", "http:80"), aSlice("web-1", "10.0.0.1"))
	sink := s.follow(nil, web)
	sink.Await(t, web, "10.0.0.1:8080")
	s.setIntercept(func(w http.ResponseWriter, _ *http.Request, _, _ string) bool {
		status(w, http.StatusServiceUnavailable, "ServiceUnavailable", "etcd is away")
		return true
	})
	s.awaitCount(t, "watch endpointslices", 1)
	s.CloseClientConnections()
	sink.AwaitFailure(t, web, "etcd is away")
	s.put(aSlice("web-1", "10.0.0.2"))
	s.setIntercept(nil)
	sink.Await(t, web, "10.0.0.2:8080")
	for deadline := time.After(2 * time.Minute); sink.Err(web) != nil; { // the other kind may still fail
		select {
		case <-deadline:
			t.Fatal(sink.Err(web))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
