package routing

import (
	"fmt"
	"slices"
	"testing"

	"penstock/routing/provider"
	"penstock/routing/resource"
)

// Known has what Members has, but for host names: listed, found and announced
// endpoints.
func TestKnownHasAllSources(t *testing.T) {
	w := newDiscovery()
	one := 1
	w.put(t, &resource.Service{
		Endpoints:     []resource.Endpoint{{Address: "10.0.0.1:1", Weight: &one}},
		EndpointsFrom: []resource.EndpointsFrom{{Provider: "registry"}, {Provider: "local"}},
		Discovery:     &resource.Discovery{Announce: &resource.Announce{Port: 1}},
	})
	query := provider.Query{Service: "shop"}
	w.found(provider.Ref{Provider: "registry", Query: query}, "10.0.0.2:1", "shop.example:1 notReady")
	w.found(provider.Ref{Provider: "local", Query: query}, "10.0.0.9:1")
	w.found(provider.Ref{Provider: Announced, Query: query}, "10.0.0.3:1", "10.0.0.1:1 terminating")
	s, _ := w.Table().Service("shop")
	var got []string
	for _, e := range s.Known(&w.directory, func(p string) bool { return p == "local" }) {
		got = append(got, fmt.Sprintf("%s %v", e.Address, e.State))
	}
	want := []string{"10.0.0.1:1 terminating", "10.0.0.2:1 ready", "shop.example:1 notReady", "10.0.0.3:1 ready"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
