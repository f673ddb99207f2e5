package routing

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/routing/balance"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// discoveryWorld is a router whose service shop may use providers.
type discoveryWorld struct {
	*Router
	directory provider.Directory
	hosts     lookup
}

type lookup map[string][]netip.Addr

func (l lookup) Lookup(host string) ([]netip.Addr, bool) {
	addrs, ok := l[host]
	return addrs, ok
}

func newDiscovery() *discoveryWorld {
	w := &discoveryWorld{hosts: lookup{}}
	w.Router = NewRouter(Config{Discovered: &w.directory, Hosts: w.hosts})
	return w
}

func (w *discoveryWorld) put(t testing.TB, s *resource.Service) {
	t.Helper()
	change := resource.Put(resource.Object{Key: resource.Key{Kind: "Service", Name: "shop"}, Spec: s})
	if _, err := w.Apply([]resource.Change{change}, t0); err != nil {
		t.Fatal(err)
	}
}

// found puts endpoints in force: "address", then any of "key=value", "priority=N",
// "terminating" and "notReady".
func (w *discoveryWorld) found(ref provider.Ref, list ...string) Applied {
	u := provider.Update{Ref: ref}
	for _, old := range w.directory.Lookup(ref) {
		u.Gone = append(u.Gone, old.Address)
	}
	for _, text := range list {
		words := strings.Fields(text)
		e := provider.Endpoint{Address: words[0], Weight: 1}
		for _, word := range words[1:] {
			switch k, v, isTag := strings.Cut(word, "="); {
			case k == "priority":
				e.Priority, _ = strconv.Atoi(v)
			case isTag:
				e.Tags = map[string]string{k: v}
			case word == "terminating":
				e.State = provider.Terminating
			default:
				e.State = provider.NotReady
			}
		}
		u.Put = append(u.Put, provider.NewFound(e, t0))
		u.Gone = slices.DeleteFunc(u.Gone, func(a string) bool { return a == e.Address })
	}
	w.directory.Apply([]provider.Update{u})
	return w.Discovered([]provider.Ref{ref}, t0)
}

// members checks the endpoints of shop: "address*weight", then its tags.
func (w *discoveryWorld) members(t *testing.T, want ...string) {
	t.Helper()
	s, ok := w.Table().Service("shop")
	if !ok {
		t.Fatal("there is no service shop")
	}
	var got []string
	for _, m := range s.Members() {
		text := fmt.Sprintf("%v*%d", m.Addr, m.Weight)
		if len(m.Tags) > 0 {
			text += " " + strings.TrimPrefix(fmt.Sprint(m.Tags), "map")
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("members %q, want %q", got, want)
	}
}

func fromProviders(names ...string) []resource.EndpointsFrom {
	var list []resource.EndpointsFrom
	for _, name := range names {
		list = append(list, resource.EndpointsFrom{Provider: name})
	}
	return list
}

func shopRef(name string) provider.Ref {
	return provider.Ref{Provider: name, Query: provider.Query{Service: "shop"}}
}

func TestEndpointsOfProvidersAreMerged(t *testing.T) {
	w := newDiscovery()
	w.found(shopRef("a"), "10.0.0.1:80", "10.0.0.2:80 version=v1")
	w.put(t, &resource.Service{
		Endpoints:     []resource.Endpoint{{Address: "10.0.0.9:80"}, {Address: "10.0.0.1:80", Weight: new(5)}},
		EndpointsFrom: fromProviders("a", "b"),
	})
	w.members(t, "10.0.0.9:80*1", "10.0.0.1:80*5", "10.0.0.2:80*1 [version:v1]")
	if done := w.found(shopRef("b"), "10.0.0.2:80 version=v2", "10.0.0.3:80"); !slices.Equal(done.Services, []string{"shop"}) {
		t.Errorf("changed services: %v", done.Services)
	}
	w.members(t, "10.0.0.9:80*1", "10.0.0.1:80*5", "10.0.0.2:80*1 [version:v1]", "10.0.0.3:80*1")
	if done := w.found(shopRef("c"), "10.0.0.4:80"); len(done.Services) != 0 {
		t.Errorf("a provider that no service uses changed %v", done.Services)
	}
	w.put(t, &resource.Service{EndpointsFrom: fromProviders("b")})
	w.members(t, "10.0.0.2:80*1 [version:v2]", "10.0.0.3:80*1")
	if done := w.found(shopRef("a"), "10.0.0.5:80"); len(done.Services) != 0 {
		t.Errorf("a provider that the service no longer uses changed %v", done.Services)
	}
	w.found(shopRef("b"))
	w.members(t)
}

func TestTerminatingEndpointsGetNoConnections(t *testing.T) {
	w := newDiscovery()
	w.put(t, &resource.Service{Endpoints: []resource.Endpoint{{Address: "10.0.0.1:80"}}, EndpointsFrom: fromProviders("a", "b")})
	w.found(shopRef("a"), "10.0.0.1:80 terminating", "10.0.0.2:80", "10.0.0.3:80 notReady", "10.0.0.4:80")
	w.found(shopRef("b"), "10.0.0.2:80 notReady", "10.0.0.4:80 terminating")
	w.members(t, "10.0.0.1:80*0", "10.0.0.2:80*1", "10.0.0.3:80*0", "10.0.0.4:80*0")
	s, _ := w.Table().Service("shop")
	before := s.Members()[2].Endpoint
	w.found(shopRef("a"), "10.0.0.3:80")
	w.members(t, "10.0.0.1:80*1", "10.0.0.3:80*1", "10.0.0.2:80*0", "10.0.0.4:80*0")
	s, _ = w.Table().Service("shop")
	if s.Members()[1].Endpoint != before {
		t.Error("an endpoint that is ready again lost its state")
	}
}

// TestPrioritiesOfProviders: priorities that providers report count beside those of
// the service's own endpoints.
func TestPrioritiesOfProviders(t *testing.T) {
	w := newDiscovery()
	w.put(t, &resource.Service{Endpoints: []resource.Endpoint{{Address: "10.0.0.9:80", Backup: true}}, EndpointsFrom: fromProviders("a")})
	w.found(shopRef("a"), "10.0.0.1:80 priority=1", "10.0.0.2:80")
	levels := func() (got []int) {
		s, _ := w.Table().Service("shop")
		for _, m := range s.Members() {
			got = append(got, m.Level)
		}
		return got
	}
	if got, want := levels(), []int{balance.Backup, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("levels %v, want %v", got, want)
	}
	w.found(shopRef("a"), "10.0.0.1:80", "10.0.0.2:80 priority=2")
	if got, want := levels(), []int{balance.Backup, 0, 2}; !slices.Equal(got, want) {
		t.Errorf("levels after the change %v, want %v", got, want)
	}
}

func TestTagsOfEndpointsFrom(t *testing.T) {
	w := newDiscovery()
	from := resource.EndpointsFrom{
		Provider: "a", Service: "web", Tags: map[string]string{"source": "a"}, Select: map[string]string{"version": "v1"},
	}
	w.put(t, &resource.Service{EndpointsFrom: []resource.EndpointsFrom{from}})
	ref := provider.Ref{Provider: "a", Query: provider.Query{Service: "web"}}
	w.found(ref, "10.0.0.1:80 version=v1", "10.0.0.2:80 version=v2", "10.0.0.3:80")
	w.members(t, "10.0.0.1:80*1 [source:a version:v1]")
}

func TestHostNamesOfProvidersAreResolved(t *testing.T) {
	w := newDiscovery()
	w.hosts["web.example.com"] = []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}
	w.put(t, &resource.Service{EndpointsFrom: fromProviders("a")})
	if done := w.found(shopRef("a"), "web.example.com:80"); !done.Hosts {
		t.Error("the host names are not reported as changed")
	}
	w.members(t, "10.1.0.1:80*1", "10.1.0.2:80*1")
	for host, every := range w.Table().Hosts() {
		if host != "web.example.com" || every != 10*time.Second {
			t.Errorf("%s is looked up every %v", host, every)
		}
	}
	w.hosts["web.example.com"] = w.hosts["web.example.com"][:1]
	w.Resolved([]string{"web.example.com"}, t0)
	w.members(t, "10.1.0.1:80*1")
	if done := w.found(shopRef("a"), "10.0.0.1:80"); !done.Hosts {
		t.Error("a host name that is no longer needed is not reported")
	}
	for host := range w.Table().Hosts() {
		t.Errorf("%s is still looked up", host)
	}
}

func BenchmarkOneOfTenThousandDiscovered(b *testing.B) {
	w := newDiscovery()
	u := provider.Update{Ref: shopRef("a")}
	for i := range 10_000 {
		e := provider.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1), Weight: 1}
		u.Put = append(u.Put, provider.NewFound(e, t0))
	}
	w.directory.Apply([]provider.Update{u})
	w.put(b, &resource.Service{EndpointsFrom: fromProviders("a")})
	for i := 0; b.Loop(); i++ {
		f := u.Put[5000]
		f.Weight = i%2 + 1
		w.directory.Apply([]provider.Update{{Ref: u.Ref, Put: []provider.Found{f}}})
		if done := w.Discovered([]provider.Ref{u.Ref}, t0); len(done.Services) != 1 {
			b.Fatal("the service did not change")
		}
	}
}
