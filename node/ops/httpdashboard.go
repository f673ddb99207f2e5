package ops

import (
	"context"
	"net/http"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/ui"
)

// handleDashboard adds the paths of the dashboard: its files, its sessions, and the parts
// of /v1 that other programs may use as well.
func (f *HTTP) handleDashboard(mux *http.ServeMux) {
	mux.Handle("/ui/", ui.Handler(f.Sessions))
	mux.HandleFunc("GET /v1/events", f.serveEvents)
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

// progressRequest reads the name of a route, if there is one, and stale.
func progressRequest(r *http.Request) (any, error) {
	return api.RolloutsRequest{Route: r.PathValue("route"), Stale: r.URL.Query().Has("stale")}, nil
}

// auditRequest reads the query: node and since, a time (RFC 3339) or a duration before now.
func auditRequest(r *http.Request) (*api.AuditRequest, error) {
	q := r.URL.Query()
	req := &api.AuditRequest{Node: q.Get("node")}
	if text := q.Get("since"); text != "" {
		if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
			req.Since = time.Now().Add(-ago)
		} else if req.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, api.Errorf(api.Invalid, "since: %.40q: want a duration such as 10m, or a time such as 2006-01-02T15:04:05Z", text)
		}
	}
	return req, nil
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
