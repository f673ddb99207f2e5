package ops

import (
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

	"penstock/node/admin"
	"penstock/node/mux"
)

// Gate is what HTTP serves now.
type Gate struct{ h atomic.Pointer[http.Handler] }

// Set changes it.
func (f *Gate) Set(h http.Handler) { f.h.Store(&h) }

func (f *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*f.h.Load()).ServeHTTP(w, r) }

// ServeAlive says that the process lives.
func ServeAlive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// HTTP is what a node serves of HTTP: /healthz, /readyz, /metrics and /v1.
type HTTP struct {
	Admin   *admin.Server // answers what /v1 asks
	Metrics *prometheus.Registry
	Ready   Readiness
	Peers   *Peers
	Log     *slog.Logger
	Dev     bool // who reaches the loopback address may do all, others nothing
	Pprof   bool // also /debug/pprof/
}

// Handler makes the handler of it.
func (f *HTTP) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", ServeAlive)
	mux.HandleFunc("GET /readyz", f.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.Metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelWarn),
		// Scrapes that overlap would only make one another slower.
		MaxRequestsInFlight: 4,
	}))
	mux.HandleFunc("GET /v1/status", serveV1(f, admin.MethodStatus, nothing, whole[admin.Status]))
	mux.HandleFunc("GET /v1/members", serveV1(f, admin.MethodMembers, nothing, whole[admin.Members]))
	mux.HandleFunc("GET /v1/version", serveV1(f, admin.MethodVersion, nothing, whole[admin.Version]))
	mux.HandleFunc("GET /v1/effective-routes", serveV1(f, admin.MethodEffective, effectiveRequest, whole[admin.EffectiveResult]))
	mux.HandleFunc("GET /v1/{kind}", serveV1(f, admin.MethodGet, getRequest, documents))
	mux.HandleFunc("GET /v1/{kind}/{name}", serveV1(f, admin.MethodGet, getRequest, document))
	mux.HandleFunc("PUT /v1/{kind}/{name}", serveV1(f, admin.MethodApply, putRequest, whole[admin.ApplyResult]))
	mux.HandleFunc("POST /v1/apply", serveV1(f, admin.MethodApply, postRequest, whole[admin.ApplyResult]))
	mux.HandleFunc("DELETE /v1/{kind}/{name}", serveV1(f, admin.MethodDelete, deleteRequest, whole[admin.DeleteResult]))
	if f.Pprof { // without cmdline: the command line may hold a token
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if f.Dev {
		return loopbackOnly(mux)
	}
	return mux
}

// NewServer makes the server of HTTP, which serves what the gate has.
func NewServer(gate *Gate, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           gate,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // profiles take their time
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         crowd(mux.NewUnauthenticatedPool(maxHTTP, maxHTTPSource)),
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// maxHTTP bounds the connections of HTTP, maxHTTPSource those from one
// address. At either bound the oldest goes: what idles there must not take
// the descriptors that traffic needs, nor keep a balancer's probe out.
const maxHTTP, maxHTTPSource = 1024, 512

// crowd keeps the connections of a server within bounds.
func crowd(all *mux.UnauthenticatedPool) func(net.Conn, http.ConnState) {
	var mu sync.Mutex
	leave := map[net.Conn]func(){}
	return func(conn net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		switch state {
		case http.StateNew:
			leave[conn] = all.Add(conn.RemoteAddr(), func() {
				go conn.Close() //nolint:errcheck // TLS says goodbye, which may take a while
			})
		case http.StateClosed, http.StateHijacked:
			if leave[conn] != nil {
				leave[conn]()
				delete(leave, conn)
			}
		}
	}
}

// serveReady tells whether the node should get traffic. One that is cut off
// from its cluster should: it serves what it knows, and says so.
func (f *HTTP) serveReady(w http.ResponseWriter, _ *http.Request) {
	if why := f.Ready.NotReady(); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	text := "ready\n"
	if why := f.Peers.Alone(); why != "" {
		w.Header().Set("Warning", `199 penstock "`+strings.ReplaceAll(why, `"`, "'")+`"`)
		text += "warning: " + why + "\n"
	}
	_, _ = w.Write([]byte(text))
}

// loopbackOnly refuses requests for other hosts than this one. A page in a
// browser on this machine could otherwise read the answers, by having its own
// name lead here (DNS rebinding). Who names no host is no browser: balancers
// that probe by HTTP/1.0 do so.
func loopbackOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "" && !strings.EqualFold(host, "localhost") && (err != nil || !addr.IsLoopback()) {
			http.Error(w, "this node answers to localhost and loopback addresses alone", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
