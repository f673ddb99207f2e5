package ops

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/node/api"
	"penstock/node/events"
	"penstock/node/mux"
	"penstock/node/rpc"
	"penstock/node/ui"
)

// Gate is a handler that can be replaced while it serves. Set must be called
// before the first request.
type Gate struct{ h atomic.Pointer[http.Handler] }

// Set replaces the handler.
func (f *Gate) Set(h http.Handler) { f.h.Store(&h) }

func (f *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*f.h.Load()).ServeHTTP(w, r) }

// ServeAlive answers /healthz: the process is alive.
func ServeAlive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// HTTP serves a node's HTTP endpoints: /healthz, /readyz, /metrics, /v1 and TiProxy's /api.
type HTTP struct {
	Admin   *rpc.Server // answers the requests of /v1
	Metrics *prometheus.Registry
	Ready   Readiness
	Peers   *Peers
	// CaughtUp is set once this start of the node has applied all that its cluster had
	// committed. Started is when the node started.
	CaughtUp *atomic.Bool
	Started  time.Time
	Bundle   http.Handler // serves the cluster's trust bundle; nil: nothing does
	// NoServer says why clients of mysql listeners cannot be served; "": they can. Nil:
	// nothing does.
	NoServer func() string
	Sessions *ui.Sessions // of the dashboard
	Events   *events.Hub
	Log      *slog.Logger
	Dev      bool // loopback hosts only, with all permissions
	Pprof    bool // also /debug/pprof/
}

// Handler makes the handler.
func (f *HTTP) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", ServeAlive)
	mux.HandleFunc("GET /readyz", f.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.Metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelWarn),
		// More overlapping scrapes would only slow each other down.
		MaxRequestsInFlight: 4,
	}))
	mux.HandleFunc("GET /v1/status", serveV1(f, api.MethodStatus, statusRequest, wholeResult[api.Status]))
	mux.HandleFunc("GET /v1/members", serveV1(f, api.MethodMembers, emptyRequest, wholeResult[api.Members]))
	mux.HandleFunc("GET /v1/version", serveV1(f, api.MethodVersion, emptyRequest, wholeResult[api.Version]))
	mux.HandleFunc("GET /v1/endpoints", serveV1(f, api.MethodEndpoints, endpointsRequest, wholeResult[api.Endpoints]))
	mux.HandleFunc("GET /v1/endpoints/{service}", serveV1(f, api.MethodEndpoints, endpointsRequest, wholeResult[api.Endpoints]))
	mux.HandleFunc("GET /v1/proxies", serveV1(f, api.MethodProxies, proxiesRequest, wholeResult[api.Proxies]))
	mux.HandleFunc("GET /v1/proxies/{service}", serveV1(f, api.MethodProxies, proxiesRequest, wholeResult[api.Proxies]))
	mux.HandleFunc("GET /v1/effective-routes", serveV1(f, api.MethodEffective, effectiveRequest, wholeResult[api.EffectiveResult]))
	mux.HandleFunc("GET /v1/topology", serveV1(f, api.MethodTopology, topologyRequest, wholeResult[api.TopologyResult]))
	mux.HandleFunc("GET /v1/topology/{service}", serveV1(f, api.MethodTopology, topologyRequest, wholeResult[api.TopologyResult]))
	mux.HandleFunc("GET /v1/telemetry", serveV1(f, api.MethodTelemetry, telemetryRequest, wholeResult[api.TelemetryResult]))
	mux.HandleFunc("GET /v1/logs", f.serveLogs)
	mux.HandleFunc("GET /v1/sessions", serveV1(f, api.MethodSessions, sessionsRequest, wholeResult[api.Sessions]))
	f.handleConnections(mux)
	if f.Bundle != nil {
		mux.HandleFunc("GET /v1/bundle", f.serveBundle)
	}
	mux.HandleFunc("GET /v1/{kind}", serveV1(f, api.MethodGet, getRequest, documents))
	mux.HandleFunc("GET /v1/{kind}/{name}", serveV1(f, api.MethodGet, getRequest, document))
	mux.HandleFunc("PUT /v1/{kind}/{name}", serveV1(f, api.MethodApply, putRequest, wholeResult[api.ApplyResult]))
	mux.HandleFunc("POST /v1/apply", serveV1(f, api.MethodApply, postRequest, wholeResult[api.ApplyResult]))
	mux.HandleFunc("DELETE /v1/{kind}/{name}", serveV1(f, api.MethodDelete, deleteRequest, wholeResult[api.DeleteResult]))
	f.handleDashboard(mux)
	f.handleTiProxy(mux)
	if f.Pprof { // without cmdline: the command line may hold a token
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if f.Dev {
		return loopbackOnly(guardBrowsers(mux))
	}
	return guardBrowsers(mux)
}

// NewServer makes the HTTP server for the gate.
func NewServer(gate *Gate, log *slog.Logger) *http.Server {
	limit := newConnLimit(maxHTTP, maxHTTPSource)
	return &http.Server{
		Handler:           gate,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // long enough for profiles
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         limit.state,
		ConnContext:       limit.context,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// maxHTTP bounds the HTTP connections, maxHTTPSource those from one address. At
// either bound the oldest is closed: idle connections must not use up the
// descriptors that traffic needs, nor keep out the probes of a load balancer.
const maxHTTP, maxHTTPSource = 1024, 512

// connLimit bounds the connections of a server.
type connLimit struct {
	all   *mux.UnauthenticatedPool
	mu    sync.Mutex
	leave map[net.Conn]func() // those that count
}

func newConnLimit(all, perSource int) *connLimit {
	return &connLimit{all: mux.NewUnauthenticatedPool(all, perSource), leave: map[net.Conn]func(){}}
}

// state is a ConnState hook.
func (l *connLimit) state(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leave[conn] = l.all.Add(conn.RemoteAddr(), func() {
			go conn.Close() //nolint:errcheck // sending close_notify may block
		})
	case http.StateClosed, http.StateHijacked:
		l.remove(conn)
	}
}

func (l *connLimit) remove(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leave[conn] != nil {
		l.leave[conn]()
		delete(l.leave, conn)
	}
}

// keepConnKey is the key of a request's context for a function that KeepConn calls.
type keepConnKey struct{}

// context is a ConnContext hook.
func (l *connLimit) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, keepConnKey{}, func() { l.remove(conn) })
}

// KeepConn excepts the connection of a request from the limit, so that it is not closed for
// being the oldest. The caller has another bound.
func KeepConn(r *http.Request) {
	if keep, ok := r.Context().Value(keepConnKey{}).(func()); ok {
		keep()
	}
}

// serveReady answers /readyz. A node that is cut off from its cluster is ready: it
// serves its last configuration, and adds a warning.
//
// With ?leader=DURATION a node that has just started is ready once it has caught up with
// its leader, or has tried for that long: a rolling update then stops at a node that does
// not find its cluster again, and a node that is alone serves all the same.
func (f *HTTP) serveReady(w http.ResponseWriter, r *http.Request) {
	why := f.Ready.NotReady()
	if text := r.URL.Query().Get("leader"); text != "" && why == "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 {
			http.Error(w, "leader: want a duration such as 10m", http.StatusBadRequest)
			return
		}
		if !f.CaughtUp.Load() && time.Since(f.Started) < wait {
			why = "this node has not caught up with its cluster since it started: " + cmp.Or(f.Peers.ReadOnlyReason(), "waiting for the leader")
		}
	}
	if why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	text := "ready\n"
	if why := f.Peers.ReadOnlyReason(); why != "" {
		w.Header().Set("Warning", `199 penstock "`+strings.ReplaceAll(why, `"`, "'")+`"`)
		text += "warning: " + why + "\n"
	}
	_, _ = w.Write([]byte(text))
}

// serveBundle serves the trust bundle, without a token: other trust domains fetch it.
func (f *HTTP) serveBundle(w http.ResponseWriter, r *http.Request) {
	if !ui.Secured(r) {
		reply(w, nil, errInsecure)
		return
	}
	f.Bundle.ServeHTTP(w, r)
}

// loopbackOnly refuses requests whose Host is not localhost or a loopback address.
// A page in a browser on this machine could otherwise read the answers, by making
// its own name resolve to this address (DNS rebinding). It accepts requests
// without a Host: browsers send one, but load balancers that probe by HTTP/1.0 do
// not.
func loopbackOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "" && !strings.EqualFold(host, "localhost") && (err != nil || !addr.IsLoopback()) {
			http.Error(w, "this node only serves requests to localhost and loopback addresses", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
