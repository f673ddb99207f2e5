package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/dataplane"
	"penstock/node/logs"
	"penstock/node/rpc"
)

// connections has the methods for connections of clients.
type connections struct {
	peers     *Peers
	data      *dataplane.Dataplane
	decisions *decisions
	logs      *logs.Logs
}

func (q *connections) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodConnections, api.RoleReader, q.list)
	rpc.Handle(s, api.MethodConnectionsClose, api.RoleOperator, q.close, rpc.Audited())
	rpc.Handle(s, api.MethodTrace, api.RoleReader, q.trace)
	rpc.Handle(s, api.MethodFlow, api.RoleReader, q.flow)
	rpc.Handle(s, api.MethodConnectionsHere, api.RoleNode, q.here)
	rpc.Handle(s, api.MethodConnectionsCloseHere, api.RoleNode, q.closeHere)
	rpc.Handle(s, api.MethodTraceHere, api.RoleNode, q.traceHere)
	rpc.Handle(s, api.MethodFlowHere, api.RoleNode, q.flowHere)
}

// orders are the values of ConnectionsRequest.Sort.
var orders = map[string]int{
	"": dataplane.NewestFirst, api.SortNewest: dataplane.NewestFirst, api.SortAge: dataplane.OldestFirst,
	api.SortIdle: dataplane.IdlestFirst, api.SortBytes: dataplane.LargestFirst,
}

// list lists the connections of all nodes, or of one.
func (q *connections) list(ctx context.Context, r *api.ConnectionsRequest) (*api.Connections, error) {
	if _, err := queryOf(r); err != nil {
		return nil, err
	}
	members, err := q.peers.named(r.Node)
	if err != nil {
		return nil, err
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	answers, missing := askNodes(ctx, q.peers, members, reportTimeout, func(ctx context.Context, m directory.Member) (*api.Connections, error) {
		return onNode(ctx, q.peers, m, api.MethodConnectionsHere, r, q.here)
	})
	all := &api.Connections{Connections: []api.Connection{}, Missing: missing}
	for _, one := range answers {
		if one != nil {
			all.Total += one.Total
			all.Connections = append(all.Connections, one.Connections...)
		}
	}
	sortConnections(all.Connections, r)
	all.Connections = all.Connections[:min(len(all.Connections), r.Limit)]
	return all, nil
}

// queryOf checks a request.
func queryOf(r *api.ConnectionsRequest) (*dataplane.ConnectionQuery, error) {
	order, ok := orders[r.Sort]
	switch {
	case r.Limit < 1 || r.Limit > api.MaxConnections:
		return nil, api.Errorf(api.Invalid, "invalid limit %d: want 1 to %d", r.Limit, api.MaxConnections)
	case !ok:
		return nil, api.Errorf(api.Invalid, "invalid sort %.64q: want newest, age, idle or bytes", r.Sort)
	case !r.Ended && (r.Failures || r.Reason != ""):
		return nil, api.Errorf(api.Invalid, "only connections that have ended have a reason: ask for those with ended")
	}
	f, err := connectionFilter(&r.ConnectionFilter)
	if err != nil {
		return nil, err
	}
	f.Failures = r.Failures
	return &dataplane.ConnectionQuery{ConnectionFilter: *f, Ended: r.Ended, Order: order, Limit: r.Limit}, nil
}

func connectionFilter(f *api.ConnectionFilter) (*dataplane.ConnectionFilter, error) {
	made := &dataplane.ConnectionFilter{
		Listener: f.Listener, Service: f.Service, Endpoint: f.Endpoint, Who: f.Who, ID: f.ID, Reason: f.Reason,
	}
	if f.Client == "" {
		return made, nil
	}
	if addr, err := netip.ParseAddr(f.Client); err == nil {
		made.Client = netip.PrefixFrom(addr.Unmap().WithZone(""), addr.Unmap().BitLen())
		return made, nil
	}
	network, err := netip.ParsePrefix(f.Client)
	if err != nil {
		return nil, api.Errorf(api.Invalid, "client %.64q: want an IP address or a network, such as 10.1.0.0/16", f.Client)
	}
	made.Client = network.Masked()
	return made, nil
}

// sortConnections sorts connections of several nodes.
func sortConnections(list []api.Connection, r *api.ConnectionsRequest) {
	slices.SortStableFunc(list, func(a, b api.Connection) int {
		first := cmp.Compare(a.Age, b.Age)
		switch {
		case r.Sort == api.SortAge:
			first = -first
		case r.Sort == api.SortIdle:
			first = cmp.Compare(b.Idle, a.Idle)
		case r.Sort == api.SortBytes:
			first = cmp.Compare(b.BytesIn+b.BytesOut, a.BytesIn+a.BytesOut)
		case r.Ended:
			first = b.Ended.Compare(a.Ended)
		}
		return cmp.Or(first, strings.Compare(a.Node, b.Node), cmp.Compare(b.ID, a.ID))
	})
}

// here lists the connections of this node.
func (q *connections) here(ctx context.Context, r *api.ConnectionsRequest) (*api.Connections, error) {
	query, err := queryOf(r)
	if err != nil {
		return nil, err
	}
	found, total, err := q.data.ListConnections(ctx, query)
	if err != nil {
		return nil, err
	}
	list := &api.Connections{Total: total, Connections: make([]api.Connection, len(found))}
	for n, i := range found {
		list.Connections[n] = q.describe(i)
	}
	return list, nil
}

func (q *connections) describe(i *dataplane.ConnectionInfo) api.Connection {
	c := api.Connection{
		ID: i.ID, Node: q.peers.self.Name, Listener: i.Listener, SNI: i.SNI, TLS: i.TLS, Identity: i.Identity, User: i.User, ClientID: i.ClientID,
		Destination: i.Destination, Service: i.Service, Endpoint: i.Endpoint(), Attempts: i.Attempts, Phase: i.Phase,
		BytesIn: i.In, BytesOut: i.Out, Age: i.Age, Idle: i.Idle, Reason: string(i.Reason), Error: i.Error, Ended: i.Ended,
	}
	if i.Via != nil {
		c.Route, c.Subset = i.Via.Route, i.Via.Subset
	}
	if i.Client.IsValid() {
		c.Client = i.Client.String()
	}
	return c
}

// close closes connections, on all nodes or on one.
func (q *connections) close(ctx context.Context, r *api.CloseConnectionsRequest) (*api.ClosedConnections, error) {
	if _, err := q.closingFilter(r); err != nil {
		return nil, err
	}
	if r.ID != 0 && r.Node == "" && q.peers.cluster != nil {
		return nil, api.Errorf(api.Invalid, "id %d: each node counts by itself, so name the node as well", r.ID)
	}
	members, err := q.peers.named(r.Node)
	if err != nil {
		return nil, err
	}
	answers, missing := askNodes(ctx, q.peers, members, reportTimeout, func(ctx context.Context, m directory.Member) (*api.ClosedConnections, error) {
		return onNode(ctx, q.peers, m, api.MethodConnectionsCloseHere, r, q.closeHere)
	})
	sum := &api.ClosedConnections{Missing: missing}
	for _, one := range answers {
		if one != nil {
			sum.Closing += one.Closing
		}
	}
	return sum, nil
}

// closingFilter checks a request.
func (q *connections) closingFilter(r *api.CloseConnectionsRequest) (*dataplane.ConnectionFilter, error) {
	switch {
	case r.ConnectionFilter == api.ConnectionFilter{}:
		return nil, api.Errorf(api.Invalid, "which connections are to be closed? Name a listener, a service, an endpoint, a client, who, a node or an id")
	case r.Reason != "":
		return nil, api.Errorf(api.Invalid, "reason %.64q: connections with a reason have ended already", r.Reason)
	case r.Over < 0 || r.Over > api.MaxCloseWindow:
		return nil, api.Errorf(api.Invalid, "invalid window %v: want 0s to %v", r.Over, api.MaxCloseWindow)
	}
	return connectionFilter(&r.ConnectionFilter)
}

// closeHere closes connections of this node.
func (q *connections) closeHere(ctx context.Context, r *api.CloseConnectionsRequest) (*api.ClosedConnections, error) {
	f, err := q.closingFilter(r)
	if err != nil {
		return nil, err
	}
	n, err := q.data.CloseConnections(ctx, f, r.Over)
	if err != nil {
		return nil, err
	}
	return &api.ClosedConnections{Closing: n}, nil
}

// flow sums up the traffic of all nodes, or of one.
func (q *connections) flow(ctx context.Context, r *api.FlowRequest) (*api.FlowResult, error) {
	members, err := q.peers.named(r.Node)
	if err != nil {
		return nil, err
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	answers, missing := askNodes(ctx, q.peers, members, reportTimeout, func(ctx context.Context, m directory.Member) (*api.FlowResult, error) {
		return onNode(ctx, q.peers, m, api.MethodFlowHere, r, q.flowHere)
	})
	all := &api.FlowResult{At: time.Now(), Missing: missing}
	sums := map[dataplane.StreamKey]*api.Stream{}
	for _, one := range answers {
		if one == nil {
			continue
		}
		all.More += one.More
		for _, s := range one.Streams {
			key := dataplane.StreamKey{Listener: s.Listener, Route: s.Route, Destination: s.Destination, Service: s.Service, Subset: s.Subset, Endpoint: s.Endpoint}
			sum := sums[key]
			if sum == nil {
				sums[key] = &s
				continue
			}
			sum.Connections, sum.InRate, sum.OutRate = sum.Connections+s.Connections, sum.InRate+s.InRate, sum.OutRate+s.OutRate
		}
	}
	all.Streams = make([]api.Stream, 0, len(sums))
	for _, s := range sums {
		all.Streams = append(all.Streams, *s)
	}
	slices.SortFunc(all.Streams, func(a, b api.Stream) int {
		return cmp.Or(
			cmp.Compare(b.Connections, a.Connections), strings.Compare(a.Listener, b.Listener), strings.Compare(a.Destination, b.Destination),
			strings.Compare(a.Route, b.Route), strings.Compare(a.Service, b.Service), strings.Compare(a.Subset, b.Subset), strings.Compare(a.Endpoint, b.Endpoint),
		)
	})
	if n := len(all.Streams); n > api.MaxStreams {
		all.More, all.Streams = all.More+n-api.MaxStreams, all.Streams[:api.MaxStreams]
	}
	return all, nil
}

// flowHere sums up the traffic of this node.
func (q *connections) flowHere(ctx context.Context, r *api.FlowRequest) (*api.FlowResult, error) {
	found, at, err := q.data.Streams(ctx)
	if err != nil {
		return nil, err
	}
	result := &api.FlowResult{At: at, Streams: []api.Stream{}}
	for i := range found {
		s := &found[i]
		switch {
		case r.Service != "" && r.Service != s.Service && r.Service != s.Destination:
		case len(result.Streams) == api.MaxStreams:
			result.More++
		default:
			result.Streams = append(result.Streams, api.Stream{
				Listener: s.Listener, Route: s.Route, Destination: s.Destination, Service: s.Service, Subset: s.Subset, Endpoint: s.Endpoint,
				Connections: s.Connections, InRate: s.InRate, OutRate: s.OutRate,
			})
		}
	}
	return result, nil
}

// trace describes what a connection did, on the node that knows it.
func (q *connections) trace(ctx context.Context, r *api.TraceRequest) (*api.Trace, error) {
	if r.ID == 0 {
		return nil, api.Errorf(api.Invalid, "which connection? Give its id, as penstock connections lists it")
	}
	members, err := q.peers.named(r.Node)
	if err != nil {
		return nil, err
	}
	answers, missing := askNodes(ctx, q.peers, members, reportTimeout, func(ctx context.Context, m directory.Member) (*api.Trace, error) {
		one, err := onNode(ctx, q.peers, m, api.MethodTraceHere, r, q.traceHere)
		var e *api.Error
		if errors.As(err, &e) && e.Code == api.NotFound {
			return nil, nil //nolint:nilnil // it does not know the connection, as most nodes
		}
		return one, err
	})
	var found *api.Trace
	for _, one := range answers {
		if one != nil && found != nil {
			return nil, api.Errorf(api.Invalid, "%s and %s both have a connection %d: name the node as well, as in %[1]s/%[3]d",
				found.Connection.Node, one.Connection.Node, r.ID)
		}
		if one != nil {
			found = one
		}
	}
	switch {
	case found != nil:
		return found, nil
	case len(missing) > 0:
		return nil, api.Errorf(api.Unavailable, "no node that answered knows connection %d; missing are %s", r.ID, strings.Join(missing, "; "))
	}
	return nil, unknownConnection(r.ID)
}

func unknownConnection(id uint64) error {
	return api.Errorf(api.NotFound, "no connection %d is open, and none that ended lately had that id: see penstock connections", id)
}

// traceHere describes what a connection of this node did.
func (q *connections) traceHere(ctx context.Context, r *api.TraceRequest) (*api.Trace, error) {
	query := &dataplane.ConnectionQuery{ConnectionFilter: dataplane.ConnectionFilter{ID: r.ID}, Limit: 1}
	found, _, err := q.data.ListConnections(ctx, query)
	if err == nil && len(found) == 0 {
		query.Ended = true
		found, _, err = q.data.ListConnections(ctx, query)
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, unknownConnection(r.ID)
	}
	i := found[0]
	t := &api.Trace{Connection: q.describe(i), Events: eventsOf(i), Logs: q.logs.OfConnection(i.ID)}
	ask := &api.ExplainRequest{Listener: i.Listener, Tags: i.Tags}
	if i.SNI != "" {
		ask.SNI = &i.SNI
	}
	if addr := i.Client.Addr(); addr.IsValid() {
		ask.Client = addr.String()
	}
	if l, ok := q.data.Router.Table().Listener(i.Listener); ok && checkUser(&api.ExplainRequest{User: i.User}, l) == nil {
		ask.User = i.User
	}
	if decision, err := q.decisions.explain(ask); err == nil { // otherwise its listener is gone
		t.Decision = decision
	}
	return t, nil
}

// eventsOf returns what happened to a connection, in order.
func eventsOf(i *dataplane.ConnectionInfo) []api.TraceEvent {
	began := i.Accepted()
	events := []api.TraceEvent{{Name: api.EventAccepted, At: began, Text: "by listener " + i.Listener}}
	add := func(name string, after time.Duration, text string) {
		if after > 0 {
			events = append(events, api.TraceEvent{Name: name, At: began.Add(after), After: after, Text: text})
		}
	}
	add(api.EventIdentified, i.Times.Identified, whoText(i))
	add(api.EventDecided, i.Times.Decided, wayText(i))
	add(api.EventConnecting, i.Times.Connecting, "")
	connected := "to " + i.Endpoint()
	if i.Attempts > 1 {
		connected += fmt.Sprintf(", attempt %d", i.Attempts)
	}
	if i.Endpoint() == "" {
		connected = "requests are routed one by one"
	}
	add(api.EventConnected, i.Times.Connected, connected)
	add(api.EventFirstIn, i.Times.FirstIn, "")
	add(api.EventFirstOut, i.Times.FirstOut, "")
	slices.SortStableFunc(events, func(a, b api.TraceEvent) int { return cmp.Compare(a.After, b.After) })
	if i.Reason != "" {
		text := string(i.Reason)
		if i.Error != "" {
			text += ": " + i.Error
		}
		if i.Times.Connected == 0 && i.Attempts > 0 {
			text += fmt.Sprintf(" (attempts: %d)", i.Attempts)
		}
		events = append(events, api.TraceEvent{Name: api.EventClosed, At: i.Ended, After: i.Age, Text: text})
	}
	return events
}

// whoText says who the client is.
func whoText(i *dataplane.ConnectionInfo) string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"server name", i.SNI}, {"TLS", i.TLS}, {"identity", i.Identity}, {"user", i.User}, {"client ID", i.ClientID},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+p.value)
		}
	}
	return strings.Join(parts, ", ")
}

// wayText says where the connection goes, and why.
func wayText(i *dataplane.ConnectionInfo) string {
	text := "to " + i.Destination
	if i.Via != nil {
		text = fmt.Sprintf("%s: %s sends it to %s", text, i.Via.Route, i.Service)
		if i.Via.Subset != "" {
			text += " with " + i.Via.Subset
		}
	}
	return text
}
