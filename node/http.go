package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"penstock/node/admin"
	"penstock/node/kinds"
	"penstock/node/mux"
	"penstock/routing/resource"
)

// gate is what HTTP serves now.
type gate struct{ h atomic.Pointer[http.Handler] }

func (f *gate) set(h http.Handler) { f.h.Store(&h) }

func (f *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*f.h.Load()).ServeHTTP(w, r) }

func serveAlive(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// newFront makes what a node serves: /healthz, /readyz, /metrics and /v1.
func newFront(n *Node) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", serveAlive)
	mux.HandleFunc("GET /readyz", n.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(n.metrics, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelWarn),
		// Scrapes that overlap would only make one another slower.
		MaxRequestsInFlight: 4,
	}))
	mux.HandleFunc("GET /v1/status", serveV1(n, admin.MethodStatus, nothing, whole[admin.Status]))
	mux.HandleFunc("GET /v1/members", serveV1(n, admin.MethodMembers, nothing, whole[admin.Members]))
	mux.HandleFunc("GET /v1/version", serveV1(n, admin.MethodVersion, nothing, whole[admin.Version]))
	mux.HandleFunc("GET /v1/effective-routes", serveV1(n, admin.MethodEffective, effectiveRequest, whole[admin.EffectiveResult]))
	mux.HandleFunc("GET /v1/{kind}", serveV1(n, admin.MethodGet, getRequest, documents))
	mux.HandleFunc("GET /v1/{kind}/{name}", serveV1(n, admin.MethodGet, getRequest, document))
	mux.HandleFunc("PUT /v1/{kind}/{name}", serveV1(n, admin.MethodApply, putRequest, whole[admin.ApplyResult]))
	mux.HandleFunc("POST /v1/apply", serveV1(n, admin.MethodApply, postRequest, whole[admin.ApplyResult]))
	mux.HandleFunc("DELETE /v1/{kind}/{name}", serveV1(n, admin.MethodDelete, deleteRequest, whole[admin.DeleteResult]))
	if n.cfg.Pprof { // without cmdline: the command line may hold a token
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if n.cfg.Dev {
		return loopbackOnly(mux)
	}
	return mux
}

// newHTTP makes the server, which serves what front has.
func newHTTP(n *Node) *http.Server {
	return &http.Server{
		Handler:           &n.gate,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // profiles take their time
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ConnState:         crowd(mux.NewUnauthenticatedPool(maxHTTP, maxHTTPSource)),
		ErrorLog:          slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
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
func (n *Node) serveReady(w http.ResponseWriter, _ *http.Request) {
	if why := (readiness{&n.state, n.data.Engine}).NotReady(); why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	text := "ready\n"
	if why := n.alone(); why != "" {
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

// serveV1 answers by asking the node what a command would ask, in the name of
// whoever's token the request has. So what a caller may do, and which node it
// is passed on to, is decided in one place.
func serveV1[Resp any](n *Node, method string, request func(*http.Request) (any, error), show func(*Resp) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), v1Timeout)
		defer cancel()
		p, err := n.bearer(ctx, r)
		if err != nil {
			reply(w, nil, err)
			return
		}
		req, err := request(r)
		if err != nil {
			reply(w, nil, err)
			return
		}
		c, err := n.ask(ctx, p)
		if err != nil {
			reply(w, nil, err)
			return
		}
		defer c.Close()
		resp, err := admin.Call[Resp](ctx, c, method, req)
		if err != nil {
			reply(w, nil, err)
			return
		}
		reply(w, show(resp), nil)
	}
}

// v1Timeout bounds a request.
const v1Timeout = 30 * time.Second

// bearer is who asks: with --dev whoever reaches the loopback address, else
// whoever has the token in the Authorization header (RFC 6750), which must
// not travel in the clear.
func (n *Node) bearer(ctx context.Context, r *http.Request) (admin.Principal, error) {
	if n.cfg.Dev {
		return admin.Principal{Name: "dev", Role: admin.RoleAdmin, From: r.RemoteAddr}, nil
	}
	if r.TLS == nil {
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !at.Addr().Unmap().IsLoopback() {
			return admin.Principal{}, admin.Errorf(admin.Forbidden, "/v1 wants TLS, except from this machine: see --http-cert")
		}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return admin.Principal{}, admin.Errorf(admin.Unauthenticated, "/v1 wants a token: Authorization: Bearer pst1...")
	}
	var from net.Addr
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from = net.TCPAddrFromAddrPort(at)
	}
	p, err := n.admin.ThrottleToken(ctx, from, strings.TrimSpace(token))
	p.From = r.RemoteAddr
	return p, err
}

func nothing(*http.Request) (any, error) { return admin.Empty{}, nil }

func whole[T any](v *T) any { return v }

func getRequest(r *http.Request) (any, error) {
	if _, err := resource.FindKind(kinds.All(), r.PathValue("kind")); err != nil {
		return nil, admin.Errorf(admin.NotFound, "%v", err)
	}
	return admin.GetRequest{Kind: r.PathValue("kind"), Name: r.PathValue("name"), Stale: r.URL.Query().Has("stale")}, nil
}

func deleteRequest(r *http.Request) (any, error) {
	return admin.DeleteRequest{Kind: r.PathValue("kind"), Name: r.PathValue("name")}, nil
}

// documents shows a list of resources, document the only one.
func documents(g *admin.GetResult) any {
	raw := make([]json.RawMessage, len(g.Documents))
	for i, d := range g.Documents {
		raw[i] = d.Data
	}
	return raw
}

func document(g *admin.GetResult) any { return json.RawMessage(g.Documents[0].Data) }

// statuses are the HTTP statuses of refusals.
var statuses = map[admin.Code]int{
	admin.Invalid: http.StatusBadRequest, admin.NotFound: http.StatusNotFound, admin.Refused: http.StatusConflict,
	admin.TooLarge: http.StatusRequestEntityTooLarge, admin.Busy: http.StatusTooManyRequests,
	admin.Deadline: http.StatusGatewayTimeout, admin.UnknownOutcome: http.StatusGatewayTimeout,
	admin.Forbidden: http.StatusForbidden, admin.Unauthenticated: http.StatusUnauthorized,
	admin.NoLeader: http.StatusServiceUnavailable, admin.Unavailable: http.StatusServiceUnavailable,
}

// reply writes an answer, or a refusal, as JSON.
func reply(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		status := http.StatusInternalServerError
		refusal := map[string]any{"error": err.Error()}
		var e *admin.Error
		if errors.As(err, &e) {
			if s, ok := statuses[e.Code]; ok {
				status = s
			}
			refusal["code"] = e.Code
			if len(e.Faults) > 0 {
				refusal["faults"] = e.Faults
			} else if e.Code == admin.Invalid { // whoever reads faults finds each there
				refusal["faults"] = []admin.Fault{{Message: e.Message}}
			}
		}
		switch status {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "2")
		}
		answer = refusal
		w.WriteHeader(status)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(answer) // the client has gone: there is nobody to tell
}
