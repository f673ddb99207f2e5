package ops

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"penstock/node/api"
	"penstock/node/dataplane"
	"penstock/node/nodetest"
	"penstock/routing"
	"penstock/routing/discovery"
	"penstock/routing/resource"
)

// An endpoint whose host name cannot be looked up any more keeps its address, and
// status shows the error and the age of the address. For one that never had an
// address, status shows the reason.
func TestStatusReportsFailedLookups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
			if down.Load() || host == "never.example.com" {
				return nil, errors.New("server misbehaving")
			}
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		}
		resolver := discovery.New(discovery.Config{Lookup: lookup})
		defer resolver.Close()
		router := routing.NewRouter(routing.Config{Hosts: resolver})
		plane := &dataplane.Dataplane{Router: router, Resolver: resolver}
		var changes []resource.Change
		for _, o := range nodetest.Objects(t, "kind: Service\nname: apps\nspec: {endpoints: [{address: \"Apps.example.com:80\"}, "+
			"{address: \"10.0.0.9:80\"}, {address: \"never.example.com:80\"}]}\n") {
			changes = append(changes, resource.Put(o))
		}
		if _, err := router.Apply(changes, time.Now()); err != nil {
			t.Fatal(err)
		}
		resolver.Set([]discovery.Name{
			{Host: "Apps.example.com", Interval: 10 * time.Second}, {Host: "never.example.com", Interval: 10 * time.Second},
		})
		after := func(d time.Duration) map[string]api.EndpointStatus {
			<-time.After(d)
			synctest.Wait()
			router.Resolved([]string{"apps.example.com"}, time.Now())
			all := map[string]api.EndpointStatus{}
			for _, e := range serviceStatus(plane, time.Now(), false)[0].Endpoints {
				all[e.Address] = e
			}
			return all
		}

		all := after(time.Second)
		if e := all["Apps.example.com:80"]; e.Resolved != "10.0.0.1:80" || e.Reason != "" {
			t.Errorf("while DNS answers: %+v", e)
		}
		if e := all["never.example.com:80"]; e.Health != "unresolved" || e.Error != "server misbehaving" || e.Reason == "" {
			t.Errorf("a name that never had an address: %+v", e)
		}
		down.Store(true)
		all = after(time.Minute)
		e := all["Apps.example.com:80"]
		age, found := strings.CutPrefix(e.Reason, "its host name cannot be resolved (server misbehaving), its address was resolved ")
		if old, err := time.ParseDuration(strings.TrimSuffix(age, " ago")); !found || err != nil ||
			old < 50*time.Second || old > time.Minute+time.Second {
			t.Errorf("after a minute without DNS: %+v", e)
		}
		if e.Resolved != "10.0.0.1:80" || e.Health != "unchecked" {
			t.Errorf("its address is not kept: %+v", e)
		}
		if e := all["10.0.0.9:80"]; e.Reason != "" {
			t.Errorf("an endpoint without a name: %+v", e)
		}
		down.Store(false)
		if e := after(time.Minute)["Apps.example.com:80"]; e.Reason != "" {
			t.Errorf("once DNS answers again: %+v", e)
		}
	})
}
