package ops

import (
	"context"
	"net/netip"
	"time"

	"penstock/node/api"
	"penstock/routing"
	"penstock/routing/resource"
)

// inputOf returns the connection that a request describes.
func inputOf(r *api.ExplainRequest) (routing.Input, error) {
	in := routing.Input{Listener: r.Listener, ALPN: r.ALPN, User: r.User, Tags: r.Tags}
	if r.SNI != nil {
		in.ServerName, in.HasServerName = *r.SNI, true
	}
	if r.Client != "" {
		addr, err := netip.ParseAddr(r.Client)
		if err != nil {
			return in, api.Errorf(api.Invalid, "client %q: want an IP address", r.Client)
		}
		in.Client = addr
	}
	return in, nil
}

// checkUser returns an error for a user name at a listener whose clients have none.
func checkUser(r *api.ExplainRequest, l *routing.Listener) error {
	if r.User != "" && l.Spec().Protocol != resource.ProtocolMySQL {
		return api.Errorf(api.Invalid, "user %q: clients of listener %q have no user name, which is for listeners with protocol: mysql", r.User, r.Listener)
	}
	return nil
}

// explain returns how this node's routing table decides about a connection or
// request.
func (d *decisions) explain(r *api.ExplainRequest) (*routing.Explanation, error) {
	in, err := inputOf(r)
	if err != nil {
		return nil, err
	}
	table := d.data.Router.Table()
	if d.data.Kafka.Table().HasListener(r.Listener) {
		return d.explainKafka(&in, r.Kafka)
	}
	if r.Kafka != nil {
		return nil, api.Errorf(api.Invalid, "%q is no listener of Kafka: a request to Kafka goes to a Listener with protocol kafka, or to a port of a VirtualCluster", r.Listener)
	}
	l, ok := table.Listener(r.Listener)
	if !ok {
		return nil, api.Errorf(api.NotFound, "there is no Listener %q", r.Listener)
	}
	if err := checkUser(r, l); err != nil {
		return nil, err
	}
	if q := requestOf(r.Request); q != nil {
		e := table.ExplainRequest(&in, q, time.Now())
		return &e, nil
	}
	e := table.Explain(&in, time.Now())
	return &e, nil
}

// requestOf converts the HTTP request of an admin request; nil: there is none.
func requestOf(r *api.HTTPRequest) *routing.Request {
	if r == nil {
		return nil
	}
	return routing.NewRequest(r.Method, r.Path, r.Host, r.Headers)
}

// explainHere runs explain on the requested node.
func (d *decisions) explainHere(ctx context.Context, r *api.ExplainRequest) (*routing.Explanation, error) {
	if passed, err := d.peers.Forward(ctx, r.Node); passed {
		return nil, err
	}
	return d.explain(r)
}
