package dataplane

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"penstock/netio"
	"penstock/netio/web"
	"penstock/node/trace"
)

// requestTrace is the place of a request in its trace. The trace is the caller's if that
// has sent a valid traceparent, or begins here. A nil one is for requests without tracing.
type requestTrace struct {
	context   trace.Context // of the caller, or without a SpanID
	continued bool          // it is the caller's
	kept      bool          // its spans were exported
	sampled   bool
	// foreign: the request has a traceparent or a tracestate that is invalid; badState:
	// the latter alone.
	foreign, badState bool
	server, client    trace.SpanID // of the whole request, and of the last attempt
	version           int          // of HTTP: 1 or 2
	minor             int
	secure, grpc      bool

	attempt  time.Time // when the last one began; zero: there was none
	answered time.Time // when its answer began; zero: it did not
	failures []trace.Event
}

// maxFailures bounds the attempts that failed in a span.
const maxFailures = 16

// beginTrace reads the trace context of a request, if there is any tracing.
func (q *request) beginTrace(r *http.Request) {
	if !q.requests.tracing.tracer.Enabled() {
		return
	}
	t := &requestTrace{version: r.ProtoMajor, minor: r.ProtoMinor, secure: q.client.tls != "", grpc: isGRPC(r)}
	parents, states := r.Header[trace.HeaderParent], r.Header[trace.HeaderState]
	if t.context, t.continued = trace.Parse(parents, states); !t.continued {
		t.context.TraceID = trace.NewTraceID()
		t.foreign = len(parents)+len(states) > 0
	}
	t.badState = len(states) > 0 && t.context.State == ""
	t.server, t.client = trace.NewSpanID(), trace.NewSpanID()
	q.trace = t
}

// traceRefused exports the span of a request whose header nobody could read.
func (q *request) traceRefused(o web.Outcome) {
	if q.requests.tracing.tracer.Enabled() {
		q.trace = &requestTrace{context: trace.Context{TraceID: trace.NewTraceID()}, server: trace.NewSpanID(), secure: q.client.tls != ""}
		q.endTrace(&o, q.begun)
	}
}

// outcome returns what the policies decide by about the request.
func (q *request) outcome() trace.Outcome {
	t := q.trace
	return trace.Outcome{
		Listener: q.client.in.Listener, Service: q.flow.service, TraceID: t.context.TraceID,
		Continued: t.continued, Sampled: t.continued && t.context.Sampled(),
	}
}

// sampleTrace decides whether the trace of a request that goes to an endpoint is sampled.
func (q *request) sampleTrace() {
	if q.trace != nil {
		o := q.outcome()
		q.trace.sampled = o.SampledBy(q.requests.tracing.tracer.Policies())
	}
}

// propagateTrace tells the endpoint of the trace: the span of the attempt is the parent of
// what it makes. A request whose trace begins here and is not sampled gets no header.
func (q *request) propagateTrace(h http.Header) {
	t := q.trace
	if t == nil {
		return
	}
	if t.foreign {
		delete(h, trace.HeaderParent)
		delete(h, trace.HeaderState)
	}
	if !t.continued && !t.sampled {
		return
	}
	out := trace.Context{TraceID: t.context.TraceID, SpanID: t.client, Flags: t.flags()}
	h[trace.HeaderParent] = []string{string(out.AppendParent(make([]byte, 0, 55)))}
	switch state := t.context.State; {
	case t.badState:
		delete(h, trace.HeaderState)
	case state != "":
		h[trace.HeaderState] = []string{state}
	}
}

// flags returns the trace flags: those of the caller where the trace is the caller's,
// apart from the decision of this node.
func (t *requestTrace) flags() byte {
	f := byte(trace.FlagRandom)
	if t.continued {
		f = t.context.Flags &^ trace.FlagSampled
	}
	if t.sampled {
		f |= trace.FlagSampled
	}
	return f
}

func (t *requestTrace) beginAttempt(now time.Time) {
	if t != nil {
		t.attempt = now
	}
}

func (t *requestTrace) markAnswered() {
	if t != nil {
		t.answered = time.Now()
	}
}

// traceFailure records an attempt that failed.
func (q *request) traceFailure(err error, now time.Time) {
	if t := q.trace; t != nil && len(t.failures) < maxFailures {
		t.failures = append(t.failures, trace.Event{Name: "attempt failed", At: now, Attrs: []trace.Attr{
			trace.String(trace.KeyEndpoint, q.endpoint), trace.String("error.type", string(requestReason(err))),
		}})
	}
}

// endTrace exports the spans of a request that has ended, if a policy keeps them.
func (q *request) endTrace(o *web.Outcome, now time.Time) {
	if q.trace == nil {
		return
	}
	policies := q.requests.tracing.tracer.Policies()
	out := q.outcome()
	out.Failed = q.failed(o.Status)
	out.Took = now.Sub(q.begun)
	if t := q.trace; t.streams(o.Status) && !t.answered.IsZero() {
		out.Took = t.answered.Sub(q.begun)
	}
	if !out.WantedBy(policies) {
		return
	}
	q.trace.sampled, q.trace.kept = out.SampledBy(policies), true
	spans := []*trace.Span{q.serverSpan(o, now)}
	if !q.trace.attempt.IsZero() {
		spans = append(spans, q.clientSpan(o, now))
	}
	out.Export(policies, spans...)
}

// streams reports whether a request is one that may last for as long as it pleases both
// sides: a call of gRPC, or another protocol.
func (t *requestTrace) streams(status int) bool {
	return t.grpc || status == http.StatusSwitchingProtocols
}

// failed reports whether a request has failed. A client that leaves is no failure.
func (q *request) failed(status int) bool {
	switch q.reason {
	case netio.OK:
		return status >= http.StatusInternalServerError
	case netio.ClientGone, netio.ClientReset:
		return false
	}
	return true
}

// serverSpan makes the span of a whole request.
func (q *request) serverSpan(o *web.Outcome, now time.Time) *trace.Span {
	t := q.trace
	s := &trace.Span{
		TraceID: t.context.TraceID, SpanID: t.server, ParentID: t.context.SpanID, Remote: t.continued, TraceState: t.context.State,
		Flags: t.flags(), Kind: trace.Server, Start: q.begun, End: now, Events: t.failures,
	}
	if !t.answered.IsZero() {
		s.Events = append(s.Events, trace.Event{Name: "answered", At: t.answered})
	}
	s.Links = []trace.Link{q.connectionLink()}
	a := make(attrs, 0, 32)
	s.Name = q.http(&a, o)
	s.Error = q.errorType(o.Status)
	a.text("url.scheme", map[bool]string{false: "http", true: "https"}[t.secure])
	a.text(trace.KeyPath, truncateText(q.path, maxPathText))
	a.server(truncateText(q.host, maxNameText))
	a.text(trace.KeyListener, q.client.in.Listener)
	a.text(trace.KeyService, q.flow.service)
	a.text(trace.KeyEndpoint, q.endpoint)
	if q.decision.Route != "" {
		a.text(trace.KeyRoute, q.decision.Route)
		a = append(a, trace.Int(trace.KeyRule, int64(q.decision.Rule)))
	}
	a.text(trace.KeyPermission, q.rule)
	a.text(trace.KeyReason, string(q.reason))
	a.text(trace.KeyVia, q.client.via)
	a.text(trace.KeyTLS, q.client.tls)
	a.count(trace.KeyAttempts, int64(q.decision.Attempts()))
	a = append(a, trace.Int(trace.KeyConnection, int64(q.client.id)),
		trace.Int("http.request.body.size", o.In), trace.Int("http.response.body.size", o.Out))
	s.Attrs = a
	addClient(s, q.client.addr, q.client.addr, q.client.name(), "")
	if err := errors.Join(q.denial, o.Err); err != nil {
		s.AddClient(trace.String(trace.KeyError, truncateText(err.Error(), maxErrorText)))
	}
	return s
}

// clientSpan makes the span of the last attempt at an endpoint.
func (q *request) clientSpan(o *web.Outcome, now time.Time) *trace.Span {
	t := q.trace
	s := &trace.Span{
		TraceID: t.context.TraceID, SpanID: t.client, ParentID: t.server, TraceState: t.context.State, Flags: t.flags(),
		Kind: trace.Client, Start: t.attempt, End: now,
	}
	a := make(attrs, 0, 16)
	s.Name = q.http(&a, o)
	s.Error = q.errorType(o.Status)
	a.server(q.endpoint)
	if e := q.at.Load(); e != nil && e.Unix == "" {
		a.address("network.peer", e.Addr)
	}
	a.text(trace.KeyService, q.decision.Service())
	if v := q.decision.Via(); v != nil {
		a.text(trace.KeySubset, v.Subset)
	}
	a.count("http.request.resend_count", int64(q.decision.Attempts()-1))
	s.Attrs = a
	return s
}

// errorType says how a request failed; "": it did not.
func (q *request) errorType(status int) string {
	switch {
	case !q.failed(status):
		return ""
	case q.reason != netio.OK:
		return string(q.reason)
	}
	return strconv.Itoa(status)
}

// http adds what is the same for both spans, and returns their name.
func (q *request) http(a *attrs, o *web.Outcome) (name string) {
	t := q.trace
	name = q.method
	switch q.method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect,
		http.MethodOptions, http.MethodTrace:
		a.text(trace.KeyMethod, q.method)
	default: // a client's own, which must not become a name
		name = "HTTP"
		a.text(trace.KeyMethod, "_OTHER")
		a.text("http.request.method_original", truncateText(q.method, maxMethodText))
	}
	a.text("network.protocol.name", "http")
	switch t.version {
	case 0: // it could not be read
	case 1:
		a.text("network.protocol.version", "1."+strconv.Itoa(t.minor))
	default:
		a.text("network.protocol.version", strconv.Itoa(t.version))
	}
	a.count(trace.KeyStatus, int64(o.Status))
	a.text("error.type", q.errorType(o.Status))
	return name
}

// The bounds of a client's texts in a span, in bytes: those of the access log.
const maxPathText, maxMethodText = 1024, 32

// connectionLink names the span of the connection by which the request came, which is in
// a trace of its own: many requests may come by it, of many traces.
func (q *request) connectionLink() trace.Link {
	p := q.requests.tracing.placeOf(trace.IDOf(q.client.hopID), q.client.id)
	if q.client.mesh == nil {
		p.carriesHops(q.requests.tracing.node)
	}
	return trace.Link{TraceID: p.trace, SpanID: p.span}
}
