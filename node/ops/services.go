package ops

import (
	"fmt"
	"net"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/dataplane"
	"penstock/routing/endpoint"
)

// serviceStatus returns the status of the services and, unless it is to be brief, of their
// endpoints.
func serviceStatus(d *dataplane.Dataplane, now time.Time, brief bool) []api.ServiceStatus {
	out := []api.ServiceStatus{}
	for _, svc := range d.Services() {
		s := api.ServiceStatus{Name: svc.Name(), Endpoints: []api.EndpointStatus{}}
		usable := 0
		for i, e := range svc.Members() {
			if brief {
				if e.Usable(now) && svc.Mismatch(i) == "" {
					usable++
				}
				s.Connections += e.Active()
				continue
			}
			one := endpointStatus(d, svc.Group(), e.Endpoint, now)
			one.Used = svc.Uses(i, now)
			if why := svc.Mismatch(i); why != "" {
				one.Reason = why
			} else if e.Usable(now) {
				usable++
			}
			s.Connections += one.Connections
			s.Endpoints = append(s.Endpoints, one)
		}
		if !brief {
			for _, address := range svc.Unresolved() {
				s.Endpoints = append(s.Endpoints, unresolved(d, address))
			}
		}
		s.State = fmt.Sprintf("%d/%d usable", usable, len(svc.Members())+len(svc.Unresolved()))
		if text := svc.Source(now).Text(); text != "" {
			s.State += "; " + text
		}
		if s.Waiting = svc.Queue().Waiting; s.Waiting > 0 {
			s.State += fmt.Sprintf("; %d in the queue of its circuit breaker", s.Waiting)
		}
		out = append(out, s)
	}
	return out
}

// unresolved returns the status of an endpoint whose host name has no address.
func unresolved(d *dataplane.Dataplane, address string) api.EndpointStatus {
	s := api.EndpointStatus{Address: address, Health: "unresolved"}
	if host, _, err := net.SplitHostPort(address); err == nil {
		if r, ok := d.Resolver.StatusOf(strings.ToLower(host)); ok {
			s.Error = r.Err
		}
	}
	s.Reason = "its host name has no address"
	return s
}

// errorRetention is how long status shows the last error of an endpoint that recovered.
const errorRetention = time.Minute

func endpointStatus(d *dataplane.Dataplane, g *endpoint.Group, e *endpoint.Endpoint, now time.Time) api.EndpointStatus {
	c := g.Condition(e, now)
	s := api.EndpointStatus{Address: e.Address, Health: string(c.State), Connections: e.Active(), Reason: c.Reason, Load: e.Load().String()}
	if e.Addr.IsValid() {
		s.Resolved = e.Addr.String()
	}
	if c.Error != "" && (c.Reason != "" || now.Sub(c.ErrorAt) < errorRetention) {
		s.Error, s.ErrorAt = c.Error, &c.ErrorAt
	}
	if host, _, err := net.SplitHostPort(e.Address); err == nil && e.Unix == "" {
		if r, ok := d.Resolver.StatusOf(host); ok && r.Stale {
			text := fmt.Sprintf("its host name cannot be resolved (%s), its address was resolved %v ago",
				r.Err, now.Sub(r.Answered).Round(time.Second))
			s.Reason = strings.TrimPrefix(s.Reason+"; "+text, "; ")
		}
	}
	return s
}
