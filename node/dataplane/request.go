package dataplane

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"penstock/netio"
	"penstock/netio/ports"
	"penstock/netio/proxyproto"
	"penstock/netio/web"
	"penstock/node/accesslog"
	"penstock/routing"
	"penstock/routing/endpoint"
	"penstock/routing/health"
	"penstock/routing/resource"
)

// request is one request, from its header to the end of its answer. It implements
// web.UpstreamSelector with the endpoints that its Decision returns.
type request struct {
	requests           *requests
	client             *httpClient
	method, host, path string // as the client wrote them
	proto              string // such as "HTTP/1.1"
	begun              time.Time

	decision  routing.RequestDecision
	spec      *resource.Service                 // the service it is routed to; nil: none
	flow      *Flow                             // the flow that counts it; nil: none yet
	endpoint  string                            // the last one that was tried
	at        atomic.Pointer[endpoint.Endpoint] // the same
	responded bool                              // an endpoint has begun its answer
	reason    netio.Reason                      // why the node refused it or it failed; OK: neither
	normal    string                            // path in normal form; "": it has none
	rule      string                            // the permission that denied it
	denial    error                             // says why it was denied; nil: it was not
	trace     *requestTrace                     // nil: there is no tracing

	place  place
	header header
}

var _ web.UpstreamSelector = (*request)(nil)

// maxTries bounds the endpoints that are tried. Decision.Next enforces the lower
// bound of the service.
const maxTries = 1000

// joinFlow adds the request to the flow of its service. It makes no new flow for a
// service that is gone, because no later change would remove it.
func (q *request) joinFlow(table *routing.Table) {
	if s, ok := table.Service(q.decision.Service()); ok {
		q.spec = s.Spec()
	}
	service := q.decision.Service()
	if service == "" {
		service = q.decision.Destination()
	}
	if _, ok := q.requests.router.Table().Service(service); !ok {
		service = ""
	}
	q.flow = q.requests.flows.get(q.client.in.Listener, service)
	q.flow.requests.active.Add(1)
}

// refuse makes the node itself answer, with the reason.
func (q *request) refuse(plan web.Disposition, status int, why netio.Reason) web.Disposition {
	q.reason = why
	plan.Answer = &web.Answer{Status: status, Body: reasonText(why) + "\n"}
	return plan
}

// isGRPC reports whether a request is a gRPC call. Its streams may be silent on
// both sides for any time before an answer begins, and have their own deadlines
// and pings (gRPC over HTTP/2, "Requests").
func isGRPC(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	kind, _, _ = strings.Cut(strings.TrimSpace(kind), "+")
	return r.ProtoMajor == 2 && strings.EqualFold(kind, "application/grpc")
}

// forward completes the plan of a request that goes to endpoints.
func (q *request) forward(plan web.Disposition, path string, rules *resource.ListenerHTTP) web.Disposition {
	a := &q.decision
	plan.Upstreams, plan.Attempts, plan.Timeout = q, maxTries, q.spec.HTTP.Timeout.D()
	plan.Begun, plan.Upgrades = q.begin, q.spec.HTTP.Protocols()
	q.sampleTrace()
	forwardCert := rules.ForwardClientCert && (q.client.cert != nil || q.client.spiffe() != "")
	plan.Request = func(out *http.Request) {
		host, newPath := a.Rewrite(path)
		if host != "" {
			out.Host = host
		}
		switch {
		case newPath != "":
			setPath(out.URL, newPath)
		case out.URL.RawPath != "" && out.URL.RawPath != out.URL.EscapedPath():
			// The path contains unescaped characters that need escaping: net/url
			// would escape all of it again, and turn %2F into a slash.
			setPath(out.URL, path)
		}
		if forwardCert {
			q.client.forwardCert(out.Header, rules.ForwardClientCertMode)
		}
		q.propagateTrace(out.Header)
		a.RequestHeaders(out.Header)
	}
	plan.Response = func(h http.Header) { a.ResponseHeaders(h) }
	// The connection ends at its maximum age; ask the client to close it before.
	if age := q.maxAge(); age > 0 && time.Since(q.client.since) > age-age/5 {
		plan.Last = true
	}
	return plan
}

// maxAge returns the maximum age of the client's connection; 0: none.
func (q *request) maxAge() time.Duration {
	if s, ok := q.requests.router.Table().Service(q.client.destination); ok {
		return s.Spec().MaxAge.D()
	}
	return 0
}

// rawPath returns the path as the client wrote it.
func rawPath(u *url.URL) string {
	if u.RawPath != "" {
		return u.RawPath
	}
	return u.EscapedPath()
}

// setPath sets a path in normal form. A path that cannot be decoded, from a
// resource stored before validation refused it, changes nothing.
func setPath(u *url.URL, path string) {
	if plain, err := url.PathUnescape(path); err == nil {
		u.Path, u.RawPath = plain, path
	}
}

// Next implements web.UpstreamSelector. As with connections (plan.Next), a failure
// for lack of resources on this node does not count against the endpoint.
func (q *request) Next(ctx context.Context, err error) (web.Target, bool) {
	if err != nil && requestReason(err) == netio.LimitFiles {
		return web.Target{}, false
	}
	now := time.Now()
	if err != nil && requestReason(err) == netio.LimitPorts {
		q.decision.RecordLocalFault(health.ErrorText(ports.Explain(err)), now)
	} else if q.refusedByMesh(err) {
		q.decision.RecordLocalFault(health.ErrorText(err), now)
	} else if err != nil {
		q.decision.RecordFault(requestFailure(err), health.ErrorText(err), now)
	}
	if err != nil {
		q.traceFailure(err, now)
	}
	e, reason := q.decision.Next(now)
	if reason == routing.Overflow {
		e, reason = q.wait(ctx, now)
	}
	if reason != routing.OK {
		if err == nil || q.decision.BudgetSpent() || reason == routing.Overflow || reason == routing.QueueTimeout {
			q.reason = netio.Reason(reason)
		}
		return web.Target{}, false
	}
	q.endpoint = EndpointName(e)
	q.at.Store(e)
	q.trace.beginAttempt(now)
	t := web.Target{Address: e.Addr.String()}
	if q.spec.Mesh {
		if t.Profile, q.reason = q.requests.hop(q); q.reason != netio.OK {
			return web.Target{}, false
		}
		return t, true
	}
	t.Profile = q.requests.profiles.of(q.decision.Service(), q.spec, hostOf(e))
	if e.Unix != "" {
		t.Address = "unix:" + e.Unix
	}
	if v := proxyVersion(q.spec); v != proxyproto.None {
		h := q.client.proxy
		if sendsIdentity(q.spec) {
			h.Custom = q.client.tlvs()
		}
		t.Preface = proxyproto.Append(nil, v, h)
	}
	return t, true
}

// wait waits for a slot of the circuit breaker. The reason is Overflow as well if
// the request ends meanwhile, which then has a reason of its own.
func (q *request) wait(ctx context.Context, now time.Time) (*endpoint.Endpoint, routing.Reason) {
	woken := make(chan struct{}, 1)
	wake := func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for {
		left, reason := q.decision.Enqueue(now, wake)
		if reason != routing.OK {
			return nil, reason
		}
		if left > 0 {
			timer := time.NewTimer(left)
			select {
			case <-woken:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			if ctx.Err() != nil {
				return nil, routing.Overflow // done leaves the queue
			}
		}
		now = time.Now()
		if e, reason := q.decision.Next(now); reason != routing.Overflow {
			return e, reason
		}
	}
}

// requestFailure returns how an endpoint failed a request.
func requestFailure(err error) endpoint.Failure {
	switch requestReason(err) {
	case netio.ConnectTimeout:
		return endpoint.ConnectTimedOut
	case netio.UpstreamTLS:
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return endpoint.ConnectTimedOut
		}
		return endpoint.ConnectFailed
	case netio.ConnectRefused, netio.ConnectError:
		return endpoint.ConnectFailed
	}
	return endpoint.NoAnswer
}

// Reached implements web.UpstreamSelector.
func (q *request) Reached() { q.decision.Reached(time.Now()) }

// Answered implements web.UpstreamSelector.
func (q *request) Answered() {
	q.responded = true
	q.trace.markAnswered()
	q.decision.Connected(time.Now())
}

// Refusal implements web.UpstreamSelector.
func (q *request) Refusal(err error) string {
	if q.reason == netio.OK {
		q.reason = requestReason(err)
	}
	return reasonText(q.reason)
}

// done releases and reports a request that has ended.
func (q *request) done(o web.Outcome) {
	h, now := q.requests, time.Now()
	q.release()
	if q.reason == netio.OK {
		q.reason = requestReason(o.Err)
	}
	defer q.client.requests.end(q.reason == netio.ClientGone || q.reason == netio.ClientReset)
	if !q.responded && countsAgainstEndpoint(q.reason) && !q.refusedByMesh(o.Err) {
		q.decision.RecordFault(requestFailure(o.Err), health.ErrorText(o.Err), now)
	}
	q.decision.Closed()
	if q.flow == nil {
		q.flow = h.flows.get(q.client.in.Listener, "")
		q.flow.requests.active.Add(1)
	}
	took := now.Sub(q.begun)
	q.flow.requests.end(q.flow.requestTime(h.flows), o.Status, took)
	if o.Status == 0 || q.reason != netio.OK {
		h.refused.count(q.reason)
	}
	q.endTrace(&o, now)
	if h.access.WantsRequest(string(q.reason), o.Status) {
		h.access.Write(q.record(o, now, took))
	}
}

// countsAgainstEndpoint reports whether a failure counts against the endpoint.
func countsAgainstEndpoint(why netio.Reason) bool {
	switch why {
	case netio.ConnectRefused, netio.ConnectTimeout, netio.ConnectError, netio.UpstreamTLS, NoAnswer:
		return true
	}
	return false
}

// record makes the request's access log record.
func (q *request) record(o web.Outcome, now time.Time, took time.Duration) accesslog.Record {
	shadow := ""
	if table := q.requests.router.Table(); table.Shadows() && q.normal != "" {
		v := q.verdict(table)
		shadow = v.Shadow
	}
	err := o.Err
	if q.denial != nil {
		err = q.denial
	}
	r := accesslog.Record{
		Event: accesslog.Requested, At: now, ID: q.client.id, Listener: q.client.in.Listener, Client: q.client.addr,
		TLS: q.client.tls, Identity: q.client.name(),
		Service: q.flow.service, Endpoint: q.endpoint, Reason: string(q.reason), Error: err,
		Permission: q.rule, Shadow: shadow,
		In: uint64(o.In), Out: uint64(o.Out), Duration: took, Attempts: q.decision.Attempts(),
		Request: &accesslog.Request{
			Method: q.method, Host: q.host, Path: q.path, Proto: q.proto, Status: o.Status, Route: q.decision.Route, Rule: q.decision.Rule,
		},
	}
	if q.trace != nil && q.trace.kept {
		r.TraceID, r.SpanID = q.trace.context.TraceID, q.trace.server
	}
	if q.client.mesh != nil || q.endpoint != "" && q.spec.Mesh {
		r.Hop, r.Via = hex.EncodeToString(q.client.hopID), q.client.via
	}
	return r
}
