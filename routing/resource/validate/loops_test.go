package validate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

func TestEndpointsThatAreListenersOfTheirService(t *testing.T) {
	for _, test := range []struct {
		listens, endpoint string
		loops             bool
	}{
		{"127.0.0.1:9443", "127.0.0.1:9443", true},
		{"10.0.0.1:9443", "10.0.0.1:9443", true},
		{":9443", "127.0.0.1:9443", true},
		{"0.0.0.0:9443", "127.0.0.2:9443", true},
		{"[::]:9443", "[::1]:9443", true},
		{":9443", "localhost:9443", true},
		{"unix:/run/edge", "unix:/run/edge", true},
		{":9443", "127.0.0.1:9444", false},
		{":9443", "10.0.0.1:9443", false}, // perhaps another machine's
		{"10.0.0.1:9443", "127.0.0.1:9443", false},
		{"unix:/run/edge", "unix:/run/other", false},
	} {
		service := decode(t, fmt.Sprintf("kind: Service\nname: shop\nspec: {endpoints: [{address: '10.9.9.9:80'}, {address: '%s'}]}", test.endpoint))[0]
		for _, leads := range []string{"service: shop", "protocol: tls, hosts: [{names: [a.example.com], service: shop}]"} {
			listener := decode(t, fmt.Sprintf("kind: Listener\nname: edge\nspec: {address: '%s', %s}", test.listens, leads))[0]
			var want []string
			if test.loops {
				want = []string{"Service/shop spec.endpoints[1].address: is where Listener/edge listens, which leads to this service"}
			}
			both := []resource.Change{resource.Put(service), resource.Put(listener)}
			_, _, warnings := new(validate.Set).With(both)
			wantFaults(t, warnings, want...)
			slices.Reverse(both)
			_, _, warnings = new(validate.Set).With(both)
			wantFaults(t, warnings, want...)

			listed := mustWith(t, new(validate.Set), resource.Put(service)) // the listener comes later
			_, _, warnings = listed.With(both[:1])
			wantFaults(t, warnings, want...)
			listening := mustWith(t, listed, both[0]) // the endpoint comes later
			_, _, warnings = listening.With(both[1:])
			wantFaults(t, warnings, want...)
		}
	}
}

// A listener before another service is no loop: chains of them are in use.
func TestListenersOfOtherServicesMayBeEndpoints(t *testing.T) {
	objects := decode(t, strings.TrimSpace(`
kind: Listener
name: inner
spec: {address: "127.0.0.1:9443", service: inner}
---
kind: Service
name: inner
spec: {endpoints: [{address: "10.0.0.1:80"}]}
---
kind: Service
name: outer
spec: {endpoints: [{address: "127.0.0.1:9443"}]}
---
kind: Listener
name: outer
spec: {address: ":9000", service: outer}
`))
	_, faults, warnings := new(validate.Set).With(puts(objects))
	wantFaults(t, faults)
	wantFaults(t, warnings)
}
