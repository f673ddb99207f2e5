package ops

import (
	"net/http"
	"strings"

	"penstock/node/api"
	"penstock/node/ui"
)

// handleDashboard adds the paths of the dashboard: its files, its sessions, and the parts
// of /v1 that other programs may use as well.
func (f *HTTP) handleDashboard(mux *http.ServeMux) {
	mux.Handle("/ui/", ui.Handler(f.Sessions))
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
