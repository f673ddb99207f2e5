package node

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/node/admin"
)

// newHTTP makes the server of /healthz, /readyz, /metrics and /v1. It only
// tells; it changes nothing.
func newHTTP(n *Node) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := n.state.notReady(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelWarn),
		// Scrapes that overlap would only make one another slower.
		MaxRequestsInFlight: 4,
	}))
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.status(), nil) })
	mux.HandleFunc("GET /v1/members", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.members(), nil) })
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) { reply(w, n.version(), nil) })
	mux.HandleFunc("GET /v1/{kind}", n.serveResources)
	mux.HandleFunc("GET /v1/{kind}/{name}", n.serveResources)
	if n.cfg.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	var h http.Handler = mux
	if n.cfg.Dev {
		h = loopbackOnly(mux)
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // profiles take their time
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
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

// serveResources tells the resources of a kind, or one of them.
func (n *Node) serveResources(w http.ResponseWriter, r *http.Request) {
	result, err := n.catalog.Get(r.PathValue("kind"), r.PathValue("name"))
	if err != nil {
		reply(w, nil, err)
		return
	}
	raw := make([]json.RawMessage, len(result.Documents))
	for i, d := range result.Documents {
		raw[i] = d.Data
	}
	if r.PathValue("name") != "" {
		reply(w, raw[0], nil)
		return
	}
	reply(w, raw, nil)
}

// reply writes an answer, or a refusal, as JSON.
func reply(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		answer = map[string]string{"error": err.Error()}
		status := http.StatusInternalServerError
		var e *admin.Error
		if errors.As(err, &e) && (e.Code == admin.NotFound || e.Code == admin.Invalid) {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(answer) // the client has gone: there is nobody to tell
}
