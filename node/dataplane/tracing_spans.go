package dataplane

import (
	"net"
	"net/netip"
	"strconv"
	"time"

	"penstock/node/accesslog"
	"penstock/node/trace"
	"penstock/routing"
)

// maxErrorText bounds the text of an error in a span, in bytes: it may quote the peer.
const maxErrorText = 512

// flagsOf returns the flags of a span whose trace begins on a node.
func flagsOf(sampled bool) byte {
	if sampled {
		return trace.FlagSampled | trace.FlagRandom
	}
	return trace.FlagRandom
}

// attrs collects the attributes of a span, by the semantic conventions of OpenTelemetry
// where these have a name.
type attrs []trace.Attr

// text adds a text that is not empty.
func (a *attrs) text(key, value string) {
	if value != "" {
		*a = append(*a, trace.String(key, value))
	}
}

// count adds a number that is not 0.
func (a *attrs) count(key string, n int64) {
	if n != 0 {
		*a = append(*a, trace.Int(key, n))
	}
}

// address adds an address and its port.
func (a *attrs) address(key string, at netip.AddrPort) {
	if at.IsValid() {
		*a = append(*a, trace.String(key+".address", at.Addr().Unmap().String()), trace.Int(key+".port", int64(at.Port())))
	}
}

// server adds a host and a port, as a client has named them or a resource has.
func (a *attrs) server(hostPort string) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = hostPort
	}
	a.text("server.address", host)
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		a.count("server.port", int64(n))
	}
}

// network adds what an address says of the network.
func (a *attrs) network(at netip.AddrPort) {
	if !at.IsValid() {
		a.text("network.transport", "unix")
		return
	}
	a.text("network.transport", "tcp")
	if at.Addr().Unmap().Is4() {
		a.text("network.type", "ipv4")
	} else {
		a.text("network.type", "ipv6")
	}
}

// via adds what chose the endpoints.
func (a *attrs) via(v *routing.Via) {
	if v != nil {
		a.text(trace.KeyRoute, v.Route)
		a.text(trace.KeySubset, v.Subset)
	}
}

// connectionSpan makes the span of a whole connection.
func (e *ending) connectionSpan(r *accesslog.Record, sampled bool) *trace.Span {
	s := &trace.Span{
		TraceID: e.trace, SpanID: e.span, ParentID: e.parent, Remote: e.parent != trace.SpanID{}, Flags: flagsOf(sampled),
		Kind: trace.Server, Name: "tcp " + e.Listener, Start: e.accepted, End: e.at, Events: e.events(r.Reason),
	}
	a := make(attrs, 0, 32)
	if e.Failed {
		s.Error = r.Reason
		a.text("error.type", r.Reason)
	}
	a.network(e.peer)
	a.address("network.local", e.local)
	if r.SNI != "" {
		a.text("server.address", truncateText(r.SNI, maxNameText))
		a.count("server.port", int64(e.local.Port()))
	} else {
		a.address("server", e.local)
	}
	if r.TLS != "" {
		a.text("tls.protocol.name", "tls")
		a.text(trace.KeyTLS, r.TLS)
	}
	a.text(trace.KeySNI, truncateText(r.SNI, maxNameText))
	a.text(trace.KeyReason, r.Reason)
	e.common(&a, r)
	a.text(trace.KeyEndpoint, r.Endpoint)
	a.count(trace.KeyAttempts, int64(r.Attempts))
	a = append(a, trace.Int(trace.KeyBytesIn, int64(r.In)), trace.Int(trace.KeyBytesOut, int64(r.Out)))
	a.count(trace.KeyRequests, r.Requests)
	a.text(trace.KeyPermission, r.Permission)
	a.text(trace.KeyHop, r.Hop)
	a.text(trace.KeyVia, r.Via)
	if r.ClientID != "" || r.Software != "" {
		a.text("messaging.system", "kafka")
		a.text(trace.KeyKafkaClientID, r.ClientID)
		a.text(trace.KeyKafkaSoftware, r.Software)
	}
	s.Attrs = a
	addClient(s, e.peer, r.Client, r.Identity, r.Principal)
	if r.Error != nil {
		s.AddClient(trace.String(trace.KeyError, truncateText(r.Error.Error(), maxErrorText)))
	}
	return s
}

// common adds what all spans of a connection have.
func (e *ending) common(a *attrs, r *accesslog.Record) {
	a.text(trace.KeyListener, r.Listener)
	a.text(trace.KeyService, r.Service)
	a.text(trace.KeyDestination, e.destination)
	a.via(e.via)
	*a = append(*a, trace.Int(trace.KeyConnection, int64(r.ID)))
}

// addClient adds who a client is.
func addClient(s *trace.Span, peer, client netip.AddrPort, identity, user string) {
	var a attrs
	a.address("client", client)
	a.address("network.peer", peer)
	a.text(trace.KeyIdentity, truncateText(identity, maxIdentityText))
	a.text(trace.KeyKafkaPrincipal, user)
	s.AddClient(a...)
}

// The bounds of other texts of peers, in bytes: those of the access log.
const (
	maxNameText     = 256
	maxIdentityText = 2048
)

// truncateText bounds a text.
func truncateText(s string, n int) string { return s[:min(len(s), n)] }

// connectSpan makes the span of connecting to an endpoint, which ends once it has taken
// the connection.
func (e *ending) connectSpan(r *accesslog.Record, sampled bool) *trace.Span {
	s := &trace.Span{
		TraceID: e.trace, SpanID: e.connect, ParentID: e.span, Flags: flagsOf(sampled), Kind: trace.Client, Name: "connect",
		Start: e.accepted.Add(e.times.Connecting), End: e.accepted.Add(e.times.Connected),
	}
	a := make(attrs, 0, 12)
	e.common(&a, r)
	a.text(trace.KeyEndpoint, r.Endpoint)
	a.server(r.Endpoint)
	a.count(trace.KeyAttempts, int64(r.Attempts))
	a.text(trace.KeyHop, r.Hop)
	s.Attrs = a
	return s
}

// events are what has happened to a connection, as far as it came.
func (e *ending) events(why string) []trace.Event {
	list := make([]trace.Event, 0, 8)
	list = append(list, trace.Event{Name: trace.EventAccepted, At: e.accepted})
	for _, one := range [...]struct {
		name  string
		after time.Duration
	}{
		{trace.EventIdentified, e.times.Identified}, {trace.EventDecided, e.times.Decided}, {trace.EventConnecting, e.times.Connecting},
		{trace.EventConnected, e.times.Connected}, {trace.EventFirstIn, e.times.FirstIn}, {trace.EventFirstOut, e.times.FirstOut},
	} {
		if one.after > 0 {
			list = append(list, trace.Event{Name: one.name, At: e.accepted.Add(one.after)})
		}
	}
	return append(list, trace.Event{Name: trace.EventClosed, At: e.at, Attrs: []trace.Attr{trace.String(trace.KeyReason, why)}})
}
