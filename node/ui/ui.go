// Package ui serves the dashboard: its files, which are embedded in the binary, and the
// sessions of the people who use it.
//
// A session begins with a token and is a cookie that any node of the cluster opens: it is
// sealed with a key that all nodes have (Keys), and names the token instead of containing
// it. So no node stores sessions, each of them finds out at every request what the token
// permits now, and a token that is revoked or expires ends its sessions everywhere. What
// a page of another origin could have a browser send is refused: see Sessions.Check.
//
// The package decides nothing about what a role may do; the admin server does. Handlers
// answer in a fixed set of paths below /ui/, never from the file system.
//
//	keys := new(ui.Keys)             // keys.Set follows the cluster's keys
//	sessions := ui.NewSessions(ui.Config{Keys: keys, Login: server.ThrottleToken, ...})
//	mux.Handle("/ui/", ui.Handler(sessions))
//	p, err := sessions.Check(r)      // the caller of a request to /v1 with a cookie
package ui

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// Config is what Sessions need. All fields but Dev are required without Dev; with it,
// Node and Version are.
type Config struct {
	Node, Version string // of this node
	Dev           bool   // everyone who reaches the node is an admin, without a login
	Keys          *Keys
	// Login returns the principal of a token. It limits the attempts of a source.
	Login func(ctx context.Context, from net.Addr, token string) (api.Principal, error)
	// Holder returns the principal of the token with this ID, and an error with the code
	// Unauthenticated if the token is not valid any more.
	Holder func(ctx context.Context, tokenID string) (api.Principal, error)
	// Now is the time by which tokens expire.
	Now func() time.Time
	// Audit records logins, the failed ones too.
	Audit func(rpc.Event)
}

// Handler serves everything below /ui/.
func Handler(s *Sessions) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/session", s.serveSession)
	mux.HandleFunc("POST /ui/login", s.login)
	mux.HandleFunc("POST /ui/logout", s.logout)
	mux.HandleFunc("GET /ui/", serveFile)
	return mux
}

// Policy is the Content-Security-Policy of the dashboard: a page runs and loads only what
// this node serves, and nothing embeds it.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// answer writes JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client has gone
}
