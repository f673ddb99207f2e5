package dataplane

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/netio"
	"penstock/netio/budget"
	"penstock/netio/pipe"
	"penstock/netio/ports"
	"penstock/netio/proxyproto"
	"penstock/netio/web"
	"penstock/node/accesslog"
	"penstock/node/audit"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/httprule"
	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// The reasons for which only requests end, in addition to those of connections.
const (
	// BadPath: the path is ambiguous; servers interpret it differently.
	BadPath netio.Reason = "bad_path"
	// BadMethod: CONNECT, which is not supported.
	BadMethod netio.Reason = "bad_method"
	// BadRequest: another part of the header cannot be forwarded, or routing
	// cannot decide by it.
	BadRequest = netio.Reason(routing.BadRequest)
	// BadBody: the body contradicts the header.
	BadBody netio.Reason = "bad_body"
	// TooManyFields: the header has more than maxFields fields.
	TooManyFields netio.Reason = "too_many_fields"
	// LimitRequests: the node is at --max-requests, and other parties have less
	// than their share.
	LimitRequests netio.Reason = "limit_requests"
	// BodyTimeout: the client sent nothing of its body for http.bodyIdleTimeout.
	BodyTimeout netio.Reason = "body_timeout"
	// RequestTimeout: the service's http.timeout expired.
	RequestTimeout netio.Reason = "request_timeout"
	// ResponseTimeout: the answer did not begin within http.responseTimeout.
	ResponseTimeout netio.Reason = "response_timeout"
	// Misdirected: the Host does not belong to the connection's server name
	// (421, RFC 9110, section 15.5.20).
	Misdirected netio.Reason = "misdirected"
	// NoAnswer: the endpoint received the request and sent no valid HTTP answer.
	NoAnswer netio.Reason = "no_answer"
)

// requests serves the connections whose HTTP requests are routed individually. It
// implements web.Handler: it routes each request and reports the outcome to
// routing, the counters and the access log.
type requests struct {
	router   *routing.Router
	flows    *flows
	profiles profiles
	server   *web.Server
	access   *accesslog.Log      // nil: none
	audit    func(*audit.Denial) // nil: none
	mesh     *tlsconfig.Mesh     // nil: the node is in no cluster
	tracing  tracing
	// challenges answers certificate authorities; nil: none.
	challenges Challenges

	places  *budget.Budget // concurrent requests, at most Config.MaxRequests
	memory  memory
	refused refusals

	// departing ends the requests whose endpoint was removed.
	departing departingRequests

	hanging sync.WaitGroup // those who close the hops of clients that have left

	mu      sync.Mutex
	clients map[string]map[*httpClient]struct{} // by listener
}

var _ web.Handler = (*requests)(nil)

// httpClient is a client connection whose requests are routed individually.
type httpClient struct {
	in          routing.Input
	destination string
	proven
	xfcc        atomic.Pointer[string] // describes cert in X-Forwarded-Client-Cert; nil: not needed yet
	id          uint64
	addr, local netip.AddrPort
	proxy       proxyproto.Header // for endpoints with PROXY protocol
	since       time.Time
	count       atomic.Int64 // requests so far
	requests    inFlight
	hops        hops
	hopID       []byte // joins the logs of both nodes of a hop
	via         string // where in the mesh it came from; "": nowhere
	forwarded   forwarded
	// pinned is the table for its requests once the listener is removed: the
	// last one that contains the listener. nil: the current table.
	pinned atomic.Pointer[routing.Table]
}

// httpPlan is netio's plan for such a connection: its endpoint is this process.
type httpPlan struct {
	requests *requests
	flow     *Flow
	path     *path
	client   *httpClient
}

var (
	_ netio.Plan      = (*httpPlan)(nil)
	_ netio.Described = (*httpPlan)(nil)
)

// newRequests makes the requests of a reconciler. It needs r.router, r.engine and
// r.flows.
func newRequests(cfg *Config, r *reconciler) *requests {
	h := &requests{
		router: r.router, flows: r.flows, access: cfg.Access, audit: cfg.Audit, memory: r.engine, mesh: cfg.Mesh,
		tracing:  tracing{tracer: cfg.Tracer, node: cfg.Self},
		places:   budget.New(budget.Config{Limit: int64(cfg.MaxRequests)}),
		profiles: profiles{router: r.router, client: r.clients.of, m: map[string]*httpPath{}},
		clients:  map[string]map[*httpClient]struct{}{},
	}
	h.server = web.New(web.Config{Handler: h, Log: cfg.Log})
	return h
}

// close closes the server and all connections to endpoints. The engine must be
// closed before.
func (h *requests) close() {
	h.departing.close()
	h.server.Close()
	h.hanging.Wait()
	h.profiles.close()
}

// plan makes the plan of a connection that was routed on table.
func (h *requests) plan(c *netio.Conn, in *routing.Input, f *Flow, p *path, table *routing.Table) *httpPlan {
	client := &httpClient{
		in: *in, destination: f.service, id: c.ID(), proven: provenBy(c),
		addr: c.Client(), local: c.Local(), proxy: c.Describe(), since: time.Now(),
		hopID: c.UniqueID(), via: via(c),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[in.Listener] == nil {
		h.clients[in.Listener] = map[*httpClient]struct{}{}
	}
	h.clients[in.Listener][client] = struct{}{}
	// Under the lock, so that pinTable either finds the client or has run before.
	if _, ok := h.router.Table().Listener(in.Listener); !ok {
		client.pinned.Store(table)
	}
	return &httpPlan{h, f, p, client}
}

// Next implements netio.Plan.
func (p *httpPlan) Next(*netio.Conn, error) (netio.Target, netio.Reason) {
	return netio.Target{Profile: &p.path.profile, Serve: func(c *pipe.Conn) {
		p.requests.server.Serve(c, p.client, p.client.tls != "", p.client.alpn)
	}}, netio.OK
}

// Connected implements netio.Plan.
func (p *httpPlan) Connected(*netio.Conn, time.Duration) {}

// Description implements netio.Described: the service without an endpoint.
func (p *httpPlan) Description() string { return p.flow.service + " " }

// removeClient removes a connection that has ended.
func (h *requests) removeClient(c *httpClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.clients[c.in.Listener]
	if delete(all, c); len(all) == 0 {
		delete(h.clients, c.in.Listener)
	}
}

// pinTable pins the clients of removed listeners to table, the last one with these
// listeners. Their connections end after the requests under way or, if idle, after
// the next one.
func (h *requests) pinTable(listeners []string, table *routing.Table) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range listeners {
		h.places.RemoveListener(name)
		for c := range h.clients[name] {
			c.pinned.CompareAndSwap(nil, table)
		}
	}
}

// Route implements web.Handler.
func (h *requests) Route(known any, r *http.Request) web.Disposition {
	q := &request{requests: h, client: known.(*httpClient), method: r.Method, host: r.Host, path: rawPath(r.URL), proto: r.Proto, begun: time.Now()}
	q.client.count.Add(1)
	q.client.requests.begin()
	plan := web.Disposition{Done: q.done, Last: q.client.pinned.Load() != nil}
	defer q.endOnPanic()
	q.beginTrace(r)
	if why := q.admit(r); why != netio.OK {
		return q.refuse(plan, statusOf(why), why)
	}
	if r.Method == http.MethodConnect {
		return q.refuse(plan, http.StatusMethodNotAllowed, BadMethod)
	}
	if h.answerChallenge(&plan, r, q.path) {
		plan.Upstreams = q
		return plan
	}
	table := h.table(q.client)
	spec := table.HTTPRules(q.client.in.Listener)
	path, ok := urlpath.Normal(q.path)
	if !ok || spec.PathParameters == "refuse" && urlpath.HasParameters(path) ||
		spec.EscapedSlashes == "refuse" && urlpath.HasEscapedSlash(path) {
		return q.refuse(plan, http.StatusBadRequest, BadPath)
	}
	if q.client.tls != "" && table.Misdirected(&q.client.in, r.Host) {
		return q.refuse(plan, http.StatusMisdirectedRequest, Misdirected)
	}
	var reason routing.Reason
	q.normal = path
	q.decision, reason = table.Request(&q.client.in, q.client.destination, &routing.Request{
		Request: httprule.Request{Method: r.Method, Path: path, Query: r.URL.RawQuery, Header: headerLookup(r)},
		Origin:  q.client.origin(r),
	})
	q.joinFlow(table)
	switch reason {
	case routing.OK:
	case routing.PermissionDenied:
		v := q.verdict(table)
		q.rule, q.denial = v.Rule, errors.New(routing.Denial(&v))
		if h := q.requests; h.audit != nil {
			h.audit(&audit.Denial{
				Act: "request", Who: routing.IdentityOf(&q.client.in), From: q.client.in.Client.String(),
				What: q.client.destination + " at " + q.client.in.Listener, Method: q.method, Path: q.path, Rule: v.Rule, Error: q.denial.Error(),
			})
		}
		return q.refuse(plan, http.StatusForbidden, netio.PermissionDenied)
	case routing.BadRequest:
		return q.refuse(plan, http.StatusBadRequest, BadRequest)
	default:
		return q.refuse(plan, http.StatusServiceUnavailable, netio.Reason(reason))
	}
	if retry, ok := q.takeBudget(r.Context(), table); !ok {
		plan = q.refuse(plan, http.StatusTooManyRequests, RateLimited)
		plan.Answer.Header = http.Header{"Retry-After": {strconv.FormatInt(int64(math.Ceil(retry.Seconds())), 10)}}
		return plan
	}
	if q.decision.Status != 0 {
		plan.Answer = &web.Answer{Status: q.decision.Status, Header: http.Header{"Location": {q.decision.Location}}}
		plan.Upstreams = q
		return plan
	}
	if !isGRPC(r) {
		plan.BodyIdle = q.spec.HTTP.BodyIdleTimeout.D()
	}
	return q.forward(plan, path, spec)
}

// Rules implements web.Handler.
func (h *requests) Rules(known any) web.Rules {
	c := known.(*httpClient)
	spec := h.table(c).HTTPRules(c.in.Listener)
	return web.Rules{Underscores: web.Underscores(spec.Underscores), Trusted: spec.Trusts(c.addr.Addr()),
		ClientCert: spec.ForwardClientCert, KeepClientCert: spec.KeepsClientCert() && c.cert != nil}
}

// Refused implements web.Handler.
func (h *requests) Refused(known any, status int, err error) {
	q := &request{requests: h, client: known.(*httpClient), begun: time.Now(), reason: BadRequest}
	q.client.count.Add(1)
	q.flow = h.flows.get(q.client.in.Listener, "")
	q.flow.requests.active.Add(1)
	q.flow.requests.end(q.flow.requestTime(h.flows), status, 0)
	h.refused.count(q.reason)
	q.traceRefused(web.Outcome{Status: status, Err: err})
	if h.access != nil {
		h.access.Write(q.record(web.Outcome{Status: status, Err: err}, q.begun, 0))
	}
}

// table returns the table on which a client's requests are routed.
func (h *requests) table(c *httpClient) *routing.Table {
	if last := c.pinned.Load(); last != nil {
		return last
	}
	return h.router.Table()
}

// origin returns the scheme and host that a request is addressed to.
func (c *httpClient) origin(r *http.Request) httprule.Origin {
	o := httprule.Origin{Scheme: "http", Host: r.Host}
	if c.tls != "" {
		o.Scheme = "https"
	}
	if o.Host == "" && c.local.IsValid() { // optional in HTTP/1.0
		o.Host = c.local.String()
	}
	return o
}

// headerLookup returns a function that finds headers by their names in lower case.
func headerLookup(r *http.Request) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if name == "host" {
			return r.Host, r.Host != ""
		}
		values := r.Header.Values(name)
		if len(values) == 1 {
			return values[0], true
		}
		return strings.Join(values, ","), len(values) > 0
	}
}

// requestReason returns the reason for a request's error.
func requestReason(err error) netio.Reason {
	switch {
	case err == nil:
		return netio.OK
	case errors.Is(err, web.ErrEvicted):
		return LimitRequests
	case errors.Is(err, web.ErrMemory):
		return netio.LimitMemory
	case errors.Is(err, web.ErrRemoved):
		return netio.EndpointRemoved
	case errors.Is(err, web.ErrRevoked):
		return netio.PermissionRevoked
	case errors.Is(err, web.ErrBodyIdle):
		return BodyTimeout
	case errors.Is(err, web.ErrCutOff) && errors.Is(err, web.ErrClientGone):
		return netio.ClientReset
	case errors.Is(err, web.ErrClientGone):
		return netio.ClientGone
	case errors.Is(err, web.ErrTimeout):
		return RequestTimeout
	case errors.Is(err, web.ErrCutOff):
		return netio.UpstreamReset
	case errors.Is(err, web.ErrFault):
		return netio.Internal
	case errors.Is(err, web.ErrRequest):
		return BadRequest
	case errors.Is(err, web.ErrBody):
		return BadBody
	case errors.Is(err, web.ErrHeaderTimeout):
		return ResponseTimeout
	case errors.Is(err, web.ErrNoAnswer):
		return NoAnswer
	case errors.Is(err, web.ErrTLS):
		return netio.UpstreamTLS
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return netio.ConnectTimeout
	}
	return netio.ConnectReason(err)
}

// profiles caches the HTTP client profiles for the endpoints of services, for the
// last version of each service. All requests share their connections.
type profiles struct {
	router *routing.Router
	client func(service string, spec *resource.Service) *tlsconfig.Client

	ports ports.Count // local ports of all connections

	mu sync.Mutex
	m  map[string]*httpPath
}

// httpPath holds the profiles of one version of a service.
type httpPath struct {
	spec   *resource.Service
	byHost map[string]*web.Profile // with TLS by host of the endpoint, otherwise under ""
}

// of returns the profile for an endpoint of a service. A request that was routed
// on an earlier table uses the service's current version; if the service is gone,
// it gets a profile of its own, made from spec.
func (p *profiles) of(service string, spec *resource.Service, host string) *web.Profile {
	s, ok := p.router.Table().Service(service)
	if !ok {
		alone := p.newProfile(spec)
		if c := p.client(service, spec); c != nil {
			alone.TLS = c.For(host)
		}
		alone.Close() // the one request still gets a connection, which is not kept
		return alone
	}
	spec = s.Spec()
	config, key := p.client(service, spec), ""
	if config != nil {
		key = host
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.m[service]
	if at == nil || at.spec != spec {
		at.close()
		at = &httpPath{spec: spec, byHost: map[string]*web.Profile{}}
		p.m[service] = at
	}
	profile := at.byHost[key]
	if config == nil {
		if profile == nil {
			profile = p.newProfile(spec)
			at.byHost[key] = profile
		}
		return profile
	}
	if now := config.For(host); profile == nil || profile.TLS != now {
		if profile != nil {
			profile.Close()
		}
		profile = p.newProfile(spec)
		profile.TLS = now
		at.byHost[key] = profile
	}
	return profile
}

// remove drops the profiles of services whose client certificate changed.
func (p *profiles) remove(services []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range services {
		p.m[name].close()
		delete(p.m, name)
	}
}

// dropOutdated drops the profiles of a service's earlier version; s is nil if the
// service is gone.
func (p *profiles) dropOutdated(service string, s *routing.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.m[service]; at != nil && (s == nil || at.spec != s.Spec()) {
		at.close()
		delete(p.m, service)
	}
}

// close drops all profiles.
func (p *profiles) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, at := range p.m {
		at.close()
		delete(p.m, name)
	}
}

func (a *httpPath) close() {
	if a == nil {
		return
	}
	for _, profile := range a.byHost {
		profile.Close()
	}
}

func (p *profiles) newProfile(spec *resource.Service) *web.Profile {
	made := &web.Profile{
		ConnectTimeout: spec.Connect.Timeout.D(), HeaderTimeout: spec.HTTP.ResponseTimeout.D(),
		IdleTimeout: spec.HTTP.KeepIdle.D(), MaxIdle: *spec.HTTP.MaxIdle, HTTP2: spec.Protocol == "http2",
		Ports: &p.ports,
	}
	if made.MaxIdle == 0 {
		made.MaxIdle = -1
	}
	return made
}

// reasonText returns the body of a refusal.
func reasonText(why netio.Reason) string { return fmt.Sprintf("penstock: %s", why) }
