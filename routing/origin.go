package routing

import (
	"slices"
	"time"

	"penstock/routing/provider"
	"penstock/routing/resource"
)

// FromService is the Source of endpoints that the Service lists.
const FromService = "service"

// Origin is where an address of a service comes from.
type Origin struct {
	// Source is the provider that the endpoint comes from, or FromService. AlsoFrom
	// are the other providers that report it.
	Source   string
	AlsoFrom []string
	// Since is when the provider reported the address first; zero for FromService.
	Since time.Time
	State provider.State
}

// Origins returns where the addresses of the service come from.
func (s *Service) Origins(d Discovered) map[string]Origin { return originsOf(s.name, s.spec, d) }

func originsOf(name string, s *resource.Service, d Discovered) map[string]Origin {
	origins := make(map[string]Origin, len(s.Endpoints))
	for i := range s.Endpoints {
		origins[s.Endpoints[i].Address] = Origin{Source: FromService}
	}
	for from, f := range foundOf(name, s, d) {
		o, known := origins[f.Address]
		switch {
		case !known:
			o = Origin{Source: from, Since: f.Since, State: f.State}
		case o.Source != from && !slices.Contains(o.AlsoFrom, from):
			o.AlsoFrom = append(o.AlsoFrom, from)
		}
		if f.State == provider.Terminating {
			o.State = f.State
		}
		origins[f.Address] = o
	}
	return origins
}
