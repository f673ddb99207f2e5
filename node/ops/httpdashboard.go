package ops

import (
	"context"
	"net/http"
	"strings"

	"penstock/node/api"
	"penstock/node/ui"
	"penstock/routing"
)

// handleDashboard adds the paths of the dashboard: its files, its sessions, and the parts
// of /v1 that other programs may use as well.
func (f *HTTP) handleDashboard(mux *http.ServeMux) {
	mux.Handle("/ui/", ui.Handler(f.Sessions))
	mux.HandleFunc("GET /v1/events", f.serveEvents)
	mux.HandleFunc("GET /v1/problems", serveV1(f, api.MethodProblems, emptyRequest, wholeResult[api.Problems]))
	mux.HandleFunc("GET /v1/audit", f.serveAudit)
	mux.HandleFunc("GET /v1/limits", serveV1(f, api.MethodLimits, limitsRequest, wholeResult[api.Limits]))
	mux.HandleFunc("GET /v1/permissions", serveV1(f, api.MethodPermissions, permissionsRequest, wholeResult[api.Permissions]))
	mux.HandleFunc("GET /v1/progress", serveV1(f, api.MethodRollouts, progressRequest, wholeResult[api.Rollouts]))
	mux.HandleFunc("GET /v1/progress/{route}", serveV1(f, api.MethodRollouts, progressRequest, wholeResult[api.Rollouts]))
	mux.HandleFunc("GET /v1/history/{kind}/{name}", serveV1(f, api.MethodHistory, historyRequest, wholeResult[api.HistoryResult]))
	mux.HandleFunc("POST /v1/explain", serveV1(f, api.MethodExplain, jsonRequest[api.ExplainRequest], wholeResult[routing.Explanation]))
	mux.HandleFunc("POST /v1/simulate", serveV1(f, api.MethodSimulate, simulateRequest, wholeResult[api.SimulateResult]))
	mux.HandleFunc("POST /v1/diff", serveV1(f, api.MethodApply, diffRequest, wholeResult[api.ApplyResult]))
	mux.HandleFunc("POST /v1/rollback/{kind}/{name}", serveV1(f, api.MethodRollback, rollbackRequest, wholeResult[api.ApplyResult]))
	mux.HandleFunc("POST /v1/progress/{route}", serveV1(f, api.MethodRollout, rolloutRequest, wholeResult[api.RolloutResult]))
	mux.HandleFunc("POST /v1/drain", serveV1(f, api.MethodDrain, jsonRequest[api.DrainRequest], wholeResult[api.DrainResult]))
	mux.Handle("GET /{$}", http.RedirectHandler("/ui/", http.StatusSeeOther))
}

// otherPolicy is the Content-Security-Policy of everything but the dashboard.
const otherPolicy = "default-src 'none'; frame-ancestors 'none'"

var errOtherSite = api.Errorf(api.Forbidden, "a page of another origin sent this request")

// guardBrowsers gives every answer the headers that keep a browser from using it for
// anything but what it is meant for, and refuses what a page of another origin sends to
// change something. Programs that are not browsers notice neither.
func guardBrowsers(h http.Handler) http.Handler {
	other := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := w.Header()
		set.Set("X-Content-Type-Options", "nosniff")
		set.Set("Referrer-Policy", "no-referrer")
		set.Set("Cross-Origin-Opener-Policy", "same-origin")
		set.Set("Cross-Origin-Resource-Policy", "same-origin")
		switch {
		case strings.HasPrefix(r.URL.Path, "/ui/"):
			set.Set("Content-Security-Policy", ui.Policy)
		case !strings.HasPrefix(r.URL.Path, "/debug/"): // the index of profiles has a style of its own
			set.Set("Content-Security-Policy", otherPolicy)
		}
		if other.Check(r) != nil {
			reply(w, nil, errOtherSite)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// serveEvents answers /v1/events.
func (f *HTTP) serveEvents(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), v1Timeout)
	p, until, err := f.caller(ctx, r)
	cancel()
	if err == nil {
		err = f.Events.Serve(w, r, p, until)
	}
	if err != nil {
		reply(w, nil, err)
	}
}
