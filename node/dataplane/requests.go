package dataplane

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
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
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/httprule"
	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// The reasons that only requests end for, beside those that they share with
// connections.
const (
	// BadPath: the path means one thing to one server and another to the next.
	BadPath netio.Reason = "bad_path"
	// BadMethod: a request for a tunnel, which nothing here makes.
	BadMethod netio.Reason = "bad_method"
	// BadRequest: something else of its header cannot be said to an endpoint, or
	// routing cannot decide by it.
	BadRequest = netio.Reason(routing.BadRequest)
	// BadBody: the body is not what the header promised.
	BadBody netio.Reason = "bad_body"
	// TooManyFields: the header has more fields than are taken.
	TooManyFields netio.Reason = "too_many_fields"
	// LimitRequests: as many are under way as the node takes, and others have
	// less than their share.
	LimitRequests netio.Reason = "limit_requests"
	// BodyTimeout: the client kept its body waiting for http.bodyIdleTimeout.
	BodyTimeout netio.Reason = "body_timeout"
	// RequestTimeout: the service's http.timeout was over.
	RequestTimeout netio.Reason = "request_timeout"
	// ResponseTimeout: the answer did not begin within http.responseTimeout.
	ResponseTimeout netio.Reason = "response_timeout"
	// Misdirected: the host is somebody else's than the server name that the
	// connection began with.
	Misdirected netio.Reason = "misdirected"
	// NoAnswer: the endpoint had the request and gave no answer of HTTP.
	NoAnswer netio.Reason = "no_answer"
)

// requests are the clients whose requests are routed one by one. It is web's
// Handler: it asks routing about each request, and tells it, the counters and
// the access log what became of it.
type requests struct {
	router   *routing.Router
	flows    *flows
	profiles profiles
	server   *web.Server
	access   *accesslog.Log // nil: off

	places  *budget.Budget // of requests at once
	memory  memory
	refused refusals

	mu      sync.Mutex
	clients map[string]map[*httpClient]struct{} // by listener
}

var _ web.Handler = (*requests)(nil)

// httpClient is a connection whose requests are routed one by one.
type httpClient struct {
	in          routing.Input
	destination string
	secure      bool   // came by TLS
	alpn        string // what that has negotiated
	id          uint64
	addr, local netip.AddrPort
	proxy       proxyproto.Header // for endpoints that want one
	born        time.Time
	count       atomic.Int64 // requests
	requests    underWay
	// last is the table that its requests are decided on, whatever comes: the
	// one that had the listener last. nil: that in force.
	last atomic.Pointer[routing.Table]
}

// httpPlan is a client's connection to netio: it leads to this process.
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

// newRequests makes them for a reconciler whose router, engine and flows are there.
func newRequests(cfg *Config, r *reconciler) *requests {
	h := &requests{
		router: r.router, flows: r.flows, access: cfg.Access, memory: r.engine,
		places:   budget.New(budget.Config{Limit: int64(cfg.MaxRequests)}),
		profiles: profiles{router: r.router, client: r.clients.of, m: map[string]*httpPath{}},
		clients:  map[string]map[*httpClient]struct{}{},
	}
	h.server = web.New(web.Config{Handler: h, Log: cfg.Log})
	return h
}

// close ends what is left, once no loop runs any more.
func (h *requests) close() {
	h.server.Close()
	h.profiles.close()
}

// plan makes the plan of a connection. table is what it was decided on.
func (h *requests) plan(c *netio.Conn, in *routing.Input, f *Flow, p *path, table *routing.Table) *httpPlan {
	client := &httpClient{
		in: *in, destination: f.service, id: c.ID(),
		addr: c.Client(), local: c.Local(), proxy: c.Describe(), born: time.Now(),
	}
	if state := c.TLS(); state != nil {
		client.secure, client.alpn = true, state.NegotiatedProtocol
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[in.Listener] == nil {
		h.clients[in.Listener] = map[*httpClient]struct{}{}
	}
	h.clients[in.Listener][client] = struct{}{}
	// Under the lock, so that leave either finds the client or has been before.
	if _, ok := h.router.Table().Listener(in.Listener); !ok {
		client.last.Store(table)
	}
	return &httpPlan{h, f, p, client}
}

// Next implements netio.Plan.
func (p *httpPlan) Next(*netio.Conn, error) (netio.Target, netio.Reason) {
	return netio.Target{Profile: &p.path.profile, Serve: func(c *pipe.Conn) {
		p.requests.server.Serve(c, p.client, p.client.secure, p.client.alpn)
	}}, netio.OK
}

// Connected implements netio.Plan.
func (p *httpPlan) Connected(*netio.Conn, time.Duration) {}

// Description implements netio.Described: the service, and no endpoint.
func (p *httpPlan) Description() string { return p.flow.service + " " }

// forget is for a connection that has ended.
func (h *requests) forget(c *httpClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.clients[c.in.Listener]
	if delete(all, c); len(all) == 0 {
		delete(h.clients, c.in.Listener)
	}
}

// leave is for listeners that are removed: their clients are told to go, and
// served until then as before.
func (h *requests) leave(listeners []string, table *routing.Table) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range listeners {
		h.places.RemoveListener(name)
		for c := range h.clients[name] {
			c.last.CompareAndSwap(nil, table)
		}
	}
}

// Route implements web.Handler.
func (h *requests) Route(known any, r *http.Request) web.Disposition {
	q := &request{requests: h, client: known.(*httpClient), method: r.Method, host: r.Host, path: written(r.URL), begun: time.Now()}
	q.client.count.Add(1)
	q.client.requests.begin()
	plan := web.Disposition{Done: q.done, Last: q.client.last.Load() != nil}
	defer q.fault()
	if why := q.admit(r); why != netio.OK {
		return q.refuse(plan, statusOf(why), why)
	}
	if r.Method == http.MethodConnect {
		return q.refuse(plan, http.StatusMethodNotAllowed, BadMethod)
	}
	table := h.table(q.client)
	spec := table.HTTPRules(q.client.in.Listener)
	path, ok := urlpath.Normal(q.path)
	if !ok || spec.PathParameters == "refuse" && urlpath.HasParameters(path) ||
		spec.EscapedSlashes == "refuse" && urlpath.HasEscapedSlash(path) {
		return q.refuse(plan, http.StatusBadRequest, BadPath)
	}
	if q.client.secure && table.Misdirected(&q.client.in, r.Host) {
		return q.refuse(plan, http.StatusMisdirectedRequest, Misdirected)
	}
	var reason routing.Reason
	q.answered, reason = table.Request(&q.client.in, q.client.destination, &routing.Request{
		Request: httprule.Request{Method: r.Method, Path: path, Query: r.URL.RawQuery, Header: lookup(r)},
		Origin:  q.client.origin(r),
	})
	q.enter(table)
	switch reason {
	case routing.OK:
	case routing.BadRequest:
		return q.refuse(plan, http.StatusBadRequest, BadRequest)
	default:
		return q.refuse(plan, http.StatusServiceUnavailable, netio.Reason(reason))
	}
	if q.answered.Status != 0 {
		plan.Answer = &web.Answer{Status: q.answered.Status, Header: http.Header{"Location": {q.answered.Location}}}
		plan.Upstreams = q
		return plan
	}
	if !isGRPC(r) {
		plan.BodyIdle = q.spec.HTTP.BodyIdleTimeout.D()
	}
	return q.forward(plan, path)
}

// Rules implements web.Handler.
func (h *requests) Rules(known any) web.Rules {
	c := known.(*httpClient)
	spec := h.table(c).HTTPRules(c.in.Listener)
	return web.Rules{Underscores: web.Underscores(spec.Underscores), Trusted: spec.Trusts(c.addr.Addr())}
}

// Refused implements web.Handler.
func (h *requests) Refused(known any, status int, err error) {
	q := &request{requests: h, client: known.(*httpClient), begun: time.Now(), why: BadRequest}
	q.client.count.Add(1)
	q.flow = h.flows.get(q.client.in.Listener, "")
	q.flow.requests.active.Add(1)
	q.flow.requests.end(q.flow.requestTime(h.flows), status, 0)
	h.refused.count(q.why)
	if h.access != nil {
		h.access.Write(q.record(web.Outcome{Status: status, Err: err}, q.begun, 0))
	}
}

// table is what a client's requests are decided on.
func (h *requests) table(c *httpClient) *routing.Table {
	if last := c.last.Load(); last != nil {
		return last
	}
	return h.router.Table()
}

// origin is the place that a request asks for.
func (c *httpClient) origin(r *http.Request) httprule.Origin {
	o := httprule.Origin{Scheme: "http", Host: r.Host}
	if c.secure {
		o.Scheme = "https"
	}
	if o.Host == "" && c.local.IsValid() { // HTTP/1.0 may say none
		o.Host = c.local.String()
	}
	return o
}

// lookup finds headers by their names in lower case.
func lookup(r *http.Request) func(name string) (string, bool) {
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

// requestReason names what a request's error comes to.
func requestReason(err error) netio.Reason {
	switch {
	case err == nil:
		return netio.OK
	case errors.Is(err, web.ErrEvicted):
		return LimitRequests
	case errors.Is(err, web.ErrMemory):
		return netio.LimitMemory
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

// profiles are how the endpoints of services are spoken to in HTTP, for the
// last version of each service. Their connections are shared by all requests.
type profiles struct {
	router *routing.Router
	client func(service string, spec *resource.Service) *tlsconfig.Client

	ports ports.Count // of all connections

	mu sync.Mutex
	m  map[string]*httpPath
}

// httpPath is that of one version of a service.
type httpPath struct {
	spec   *resource.Service
	byHost map[string]*web.Profile // with TLS for each host of endpoints, else ""
}

// of gives the profile for an endpoint of a service. A request that was decided
// on an earlier table uses what is in force now.
func (p *profiles) of(service string, spec *resource.Service, host string) *web.Profile {
	s, ok := p.router.Table().Service(service)
	if !ok {
		alone := p.newProfile(spec)
		if c := p.client(service, spec); c != nil {
			alone.TLS = c.For(host)
		}
		alone.Close() // after the request that is about to use it
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

// forget lets go of services whose client certificate is another.
func (p *profiles) forget(services []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range services {
		p.m[name].close()
		delete(p.m, name)
	}
}

// follow lets go of a service's earlier version; s is nil where it is gone.
func (p *profiles) follow(service string, s *routing.Service) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.m[service]; at != nil && (s == nil || at.spec != s.Spec()) {
		at.close()
		delete(p.m, service)
	}
}

// close lets go of all.
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

// reasonText is what a client reads of a refusal.
func reasonText(why netio.Reason) string { return fmt.Sprintf("penstock: %s", why) }
