package node

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"penstock/node/admin"
	"penstock/routing"
	"penstock/routing/endpoint"
)

// serviceStatus tells how the services' endpoints do.
func (n *Node) serviceStatus() []admin.ServiceStatus {
	now := time.Now()
	out := []admin.ServiceStatus{}
	for _, svc := range n.data.Services() {
		s := admin.ServiceStatus{Name: svc.Name(), Endpoints: []admin.EndpointStatus{}}
		usable := 0
		known := map[string]bool{}
		for i, e := range svc.Members() {
			one := n.endpointStatus(svc.Group(), e.Endpoint, now)
			one.Used = svc.Uses(i, now)
			if e.Usable(now) {
				usable++
			}
			known[e.Address] = true
			s.Connections += one.Connections
			s.Endpoints = append(s.Endpoints, one)
		}
		for _, e := range svc.Spec().Endpoints {
			if !known[e.Address] {
				known[e.Address] = true
				s.Endpoints = append(s.Endpoints, n.unresolved(e.Address))
			}
		}
		s.State = fmt.Sprintf("%d/%d usable", usable, len(s.Endpoints))
		if text := svc.Source(now).Text(); text != "" {
			s.State += "; " + text
		}
		out = append(out, s)
	}
	return out
}

// unresolved is an endpoint whose host name has no address yet.
func (n *Node) unresolved(address string) admin.EndpointStatus {
	s := admin.EndpointStatus{Address: address, Health: "unresolved"}
	if host, _, err := net.SplitHostPort(address); err == nil {
		if r, ok := n.data.Resolver.StatusOf(strings.ToLower(host)); ok {
			s.Error = r.Err
		}
	}
	s.Reason = "its host name has no address"
	return s
}

// recently is how long the last error of an endpoint that has recovered is shown.
const recently = time.Minute

func (n *Node) endpointStatus(g *endpoint.Group, e *endpoint.Endpoint, now time.Time) admin.EndpointStatus {
	c := g.Condition(e, now)
	s := admin.EndpointStatus{Address: e.Address, Health: string(c.State), Connections: e.Active(), Reason: c.Reason}
	if e.Addr.IsValid() {
		s.Resolved = e.Addr.String()
	}
	if c.Error != "" && (c.Reason != "" || now.Sub(c.ErrorAt) < recently) {
		s.Error, s.ErrorAt = c.Error, &c.ErrorAt
	}
	if host, _, err := net.SplitHostPort(e.Address); err == nil && e.Unix == "" {
		if r, ok := n.data.Resolver.StatusOf(host); ok && r.Stale {
			text := fmt.Sprintf("its host name cannot be looked up (%s), and its address is %v old", r.Err, now.Sub(r.Answered).Round(time.Second))
			s.Reason = strings.TrimPrefix(s.Reason+"; "+text, "; ")
		}
	}
	return s
}

// inputOf is the connection that a request describes.
func inputOf(r *admin.ExplainRequest) (routing.Input, error) {
	in := routing.Input{Listener: r.Listener, ALPN: r.ALPN, Tags: r.Tags}
	if r.SNI != nil {
		in.ServerName, in.HasServerName = *r.SNI, true
	}
	if r.Client != "" {
		addr, err := netip.ParseAddr(r.Client)
		if err != nil {
			return in, admin.Errorf(admin.Invalid, "client %q: want an IP address", r.Client)
		}
		in.Client = addr
	}
	return in, nil
}

// explain asks the table how it would decide.
func (n *Node) explain(r *admin.ExplainRequest) (*routing.Explanation, error) {
	in, err := inputOf(r)
	if err != nil {
		return nil, err
	}
	table := n.data.Router.Table()
	if n.data.Kafka.Table().Has(r.Listener) {
		e := n.data.Kafka.Explain(r.Listener, in.ServerName, in.HasServerName)
		return &e, nil
	}
	if _, ok := table.Listener(r.Listener); !ok {
		return nil, admin.Errorf(admin.NotFound, "there is no Listener %q", r.Listener)
	}
	if q := requestOf(r.Request); q != nil {
		e := table.ExplainRequest(&in, q, time.Now())
		return &e, nil
	}
	e := table.Explain(&in, time.Now())
	return &e, nil
}

// requestOf is the request that is asked about; nil: none is.
func requestOf(r *admin.HTTPRequest) *routing.Request {
	if r == nil {
		return nil
	}
	return routing.NewRequest(r.Method, r.Path, r.Host, r.Headers)
}
