package accesslog

import (
	"encoding/hex"
	"log/slog"
	"net/netip"
	"time"

	"penstock/node/trace"
)

// Event is the kind of a line.
type Event uint8

// The events, and the messages of their lines.
const (
	Connected Event = iota // "connection opened": connected to the endpoint
	Ongoing                // "connection open": written periodically
	Closed                 // "connection closed"
	Requested              // "request": answered or abandoned
)

func (e Event) String() string {
	return [...]string{"connection opened", "connection open", "connection closed", "request"}[e]
}

// Record is one line. Empty fields are omitted.
type Record struct {
	Event    Event
	At       time.Time
	ID       uint64
	Listener string
	Client   netip.AddrPort
	SNI      string // as the client sent it
	TLS      string // version of TLS with the client, such as "1.3"; "": no TLS that the node terminates
	Identity string // of the client's verified certificate: its SPIFFE ID or its subject
	Service  string
	Endpoint string
	Reason   string // why it ended
	Error    error  // the error behind Reason
	In, Out  uint64 // bytes from the client, from the endpoint
	Duration time.Duration
	Connect  time.Duration // time to connect to the endpoint
	Attempts int           // to connect
	// ClientID, Software and Principal are of Kafka clients: the names that
	// they send, and the user that they authenticated as.
	ClientID, Software, Principal string
	// Hop joins the lines of a connection on both nodes of a mesh: the ID of the
	// connection at the client, in hex. Via is where it came from, on the node behind:
	// "node/listener/destination".
	Hop, Via string
	// Permission is the TrafficPermission that denied it, Shadow the first shadowDeny
	// that would have.
	Permission, Shadow string
	// Requests is the number of requests on a connection whose requests are
	// routed individually. Request is set for Requested only.
	Requests int64
	Request  *Request
	// TraceID and SpanID name the span of the connection or request; zero: there is none.
	TraceID trace.ID
	SpanID  trace.SpanID
	// Sampled is the number of records that this one stands for; 0: itself alone. Sinks
	// set it.
	Sampled int
}

// Request describes an HTTP request. Method, Host, Path and Proto come from the client;
// the log truncates them.
type Request struct {
	Method, Host string
	Path         string // without the query, which may hold secrets
	Proto        string // such as "HTTP/1.1"
	Status       int    // 0: the client got no answer
	Route        string // the route that decided; "": none
	Rule         int    // index of its rule; -1: none matched
}

// The bounds of what clients choose, in bytes.
const (
	// maxSNI bounds the server name or Host. Clients can send anything; a valid name has
	// at most 253 bytes.
	maxSNI = 256
	// maxIdentity bounds a client's identity: a SPIFFE ID has at most so many.
	maxIdentity = 2048
	// maxName bounds the names that Kafka clients send.
	maxName = 512
	// maxMethod and maxPath bound the method and path of a request.
	maxMethod, maxPath = 32, 1024
	// maxError bounds the text of an error: it may quote the peer.
	maxError = 512
)

// truncate bounds the fields that clients choose.
func (r *Record) truncate() {
	r.SNI = truncate(r.SNI, maxSNI)
	r.Identity = truncate(r.Identity, maxIdentity)
	r.ClientID = truncate(r.ClientID, maxName)
	r.Software = truncate(r.Software, maxName)
	r.Principal = truncate(r.Principal, maxName)
	if q := r.Request; q != nil {
		q.Method = truncate(q.Method, maxMethod)
		q.Proto = truncate(q.Proto, maxMethod)
		q.Host = truncate(q.Host, maxSNI)
		q.Path = truncate(q.Path, maxPath)
	}
}

// Failed reports whether the record is about a connection or request that failed.
func (r *Record) Failed() bool {
	switch {
	case r.Event == Connected || r.Event == Ongoing:
		return false
	case r.Request != nil:
		return failedRequest(r.Reason, r.Request.Status)
	}
	return !Ordinary(r.Reason)
}

func failedRequest(reason string, status int) bool {
	return !Ordinary(reason) || status == 0 || status >= 500
}

// Ordinary reports whether connections that end for this reason have not failed: those
// under "In order" in docs/reasons.md, but for a revoked identity.
func Ordinary(reason string) bool {
	switch reason {
	case "", "client_fin", "upstream_fin", "drained", "shutdown", "endpoint_removed", "acme_challenge",
		"idle_timeout", "half_closed_timeout", "max_age", "closed_by_operator":
		return true
	}
	return false
}

// Fields are the names of the values of a line, in their order in one with all of them.
var Fields = []string{
	"time", "level", "msg", "id", "listener", "client", "sni", "tls", "identity", "method", "host", "path", "status", "route", "rule",
	"service", "endpoint", "clientID", "software", "principal", "hop", "via", "reason", "permission", "shadowDeny", "error", "in", "out",
	"duration", "requests", "connect", "attempts", "proto", "trace", "span", "sampled",
}

// AppendAttrs appends the values of the record but for its time and message. Those that
// are empty are left out.
func (r *Record) AppendAttrs(to []slog.Attr) []slog.Attr {
	text := func(key, value string) {
		if value != "" {
			to = append(to, slog.String(key, value))
		}
	}
	to = append(to, slog.Uint64("id", r.ID), slog.String("listener", r.Listener))
	if r.Client.IsValid() {
		to = append(to, slog.String("client", r.Client.String()))
	}
	text("sni", r.SNI)
	text("tls", r.TLS)
	text("identity", r.Identity)
	if q := r.Request; q != nil {
		text("method", q.Method)
		text("host", q.Host)
		text("path", q.Path)
		to = append(to, slog.Int("status", q.Status))
		if q.Route != "" {
			to = append(to, slog.String("route", q.Route), slog.Int("rule", q.Rule))
		}
	}
	text("service", r.Service)
	text("endpoint", r.Endpoint)
	text("clientID", r.ClientID)
	text("software", r.Software)
	text("principal", r.Principal)
	text("hop", r.Hop)
	text("via", r.Via)
	text("reason", r.Reason)
	text("permission", r.Permission)
	text("shadowDeny", r.Shadow)
	text("error", r.errorText())
	return r.appendNumbers(to)
}

func (r *Record) appendNumbers(to []slog.Attr) []slog.Attr {
	if r.Event != Connected {
		to = append(to, slog.Uint64("in", r.In), slog.Uint64("out", r.Out), slog.Duration("duration", r.Duration))
	}
	if r.Requests > 0 {
		to = append(to, slog.Int64("requests", r.Requests))
	}
	switch {
	case r.Attempts > 0 && r.Request != nil: // without connect: the connection may be older
		to = append(to, slog.Int("attempts", r.Attempts))
	case r.Attempts > 0:
		to = append(to, slog.Duration("connect", r.Connect), slog.Int("attempts", r.Attempts))
	}
	if q := r.Request; q != nil && q.Proto != "" {
		to = append(to, slog.String("proto", q.Proto))
	}
	if r.TraceID != (trace.ID{}) {
		to = append(to, slog.String("trace", hex.EncodeToString(r.TraceID[:])), slog.String("span", hex.EncodeToString(r.SpanID[:])))
	}
	if r.Sampled > 1 {
		to = append(to, slog.Int("sampled", r.Sampled))
	}
	return to
}

// errorText returns the text of the error, cut to maxError bytes; "": there is none.
func (r *Record) errorText() string {
	if r.Error == nil {
		return ""
	}
	why := r.Error.Error()
	return why[:min(len(why), maxError)]
}
