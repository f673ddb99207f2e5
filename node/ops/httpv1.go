package ops

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/node/rpc"
	"penstock/node/ui"
	"penstock/routing/resource"
)

// serveV1 answers by calling the admin method that a command would call, as the
// principal of the request's token. So the admin server alone decides what a
// caller may do and which node handles it.
func serveV1[Resp any](f *HTTP, method string, request func(*http.Request) (any, error), show func(*Resp) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.withAdmin(w, r, func(ctx context.Context, c *rpc.Client) error {
			req, err := request(r)
			if err != nil {
				return err
			}
			resp, err := rpc.Call[Resp](ctx, c, method, req)
			if err != nil {
				return err
			}
			reply(w, show(resp), nil)
			return nil
		})
	}
}

// withAdmin calls do with a client for the caller's admin requests. do replies, unless it
// returns an error.
func (f *HTTP) withAdmin(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, c *rpc.Client) error) {
	ctx, cancel := context.WithTimeout(r.Context(), v1Timeout)
	defer cancel()
	p, _, err := f.caller(ctx, r)
	if err != nil {
		reply(w, nil, err)
		return
	}
	c, err := ConnectLocal(ctx, f.Admin, p)
	if err != nil {
		reply(w, nil, err)
		return
	}
	defer c.Close()
	if err := do(ctx, c); err != nil {
		reply(w, nil, err)
	}
}

// v1Timeout bounds a request to /v1.
const v1Timeout = 30 * time.Second

var errInsecure = api.Errorf(api.Forbidden, "/v1 requires TLS, except from this machine: see --http-cert")

// caller returns the caller's principal: with --dev an admin, otherwise the one of the
// dashboard's session or of the token in the Authorization header. A session also says
// when it ends.
func (f *HTTP) caller(ctx context.Context, r *http.Request) (p api.Principal, until time.Time, err error) {
	if _, cookie := r.Cookie(ui.Cookie); f.Dev || cookie == nil && r.Header.Get("Authorization") == "" && ui.Secured(r) {
		c, err := f.Sessions.Check(r)
		return c.Principal, c.Until, err
	}
	p, err = f.bearer(ctx, r)
	return p, until, err
}

// bearer returns the principal of the token in the Authorization header (RFC 6750). It
// refuses tokens sent in the clear, except from this machine.
func (f *HTTP) bearer(ctx context.Context, r *http.Request) (api.Principal, error) {
	if !ui.Secured(r) {
		return api.Principal{}, errInsecure
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return api.Principal{}, api.Errorf(api.Unauthenticated, "/v1 requires a token: Authorization: Bearer pst1...")
	}
	var from net.Addr
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		from = net.TCPAddrFromAddrPort(at)
	}
	p, err := f.Admin.ThrottleToken(ctx, from, strings.TrimSpace(token))
	p.From = r.RemoteAddr
	return p, err
}

func emptyRequest(*http.Request) (any, error) { return api.Empty{}, nil }

func wholeResult[T any](v *T) any { return v }

func getRequest(r *http.Request) (any, error) {
	if _, err := resource.FindKind(kinds.All(), r.PathValue("kind")); err != nil {
		return nil, api.Errorf(api.NotFound, "%v", err)
	}
	return api.GetRequest{Kind: r.PathValue("kind"), Name: r.PathValue("name"), Stale: r.URL.Query().Has("stale")}, nil
}

func deleteRequest(r *http.Request) (any, error) {
	return api.DeleteRequest{Kind: r.PathValue("kind"), Name: r.PathValue("name")}, nil
}

// documents returns a list of resources as JSON, document the only one.
func documents(g *api.GetResult) any {
	raw := make([]json.RawMessage, len(g.Documents))
	for i, d := range g.Documents {
		raw[i] = d.Data
	}
	return raw
}

func document(g *api.GetResult) any { return json.RawMessage(g.Documents[0].Data) }

// statuses maps the codes of refusals to HTTP status codes; others are 500.
var statuses = map[api.Code]int{
	api.Invalid: http.StatusBadRequest, api.NotFound: http.StatusNotFound, api.Refused: http.StatusConflict,
	api.TooLarge: http.StatusRequestEntityTooLarge, api.Busy: http.StatusTooManyRequests,
	api.Deadline: http.StatusGatewayTimeout, api.UnknownOutcome: http.StatusGatewayTimeout,
	api.Forbidden: http.StatusForbidden, api.Unauthenticated: http.StatusUnauthorized,
	api.NoLeader: http.StatusServiceUnavailable, api.Unavailable: http.StatusServiceUnavailable,
}

// reply writes an answer, or a refusal, as JSON.
func reply(w http.ResponseWriter, answer any, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		status := http.StatusInternalServerError
		refusal := map[string]any{"error": err.Error()}
		var e *api.Error
		if errors.As(err, &e) {
			if s, ok := statuses[e.Code]; ok {
				status = s
			}
			refusal["code"] = e.Code
			if len(e.Faults) > 0 {
				refusal["faults"] = e.Faults
			} else if e.Code == api.Invalid { // so that faults is always set for invalid requests
				refusal["faults"] = []api.Fault{{Message: e.Message}}
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
	_ = enc.Encode(answer) // fails only if the client has gone
}

// endpointsRequest reads the name of a service, if there is one.
func endpointsRequest(r *http.Request) (any, error) {
	return api.EndpointsRequest{Service: r.PathValue("service")}, nil
}

// topologyRequest reads the name of a service, if there is one, and stale.
func topologyRequest(r *http.Request) (any, error) {
	return api.TopologyRequest{Service: r.PathValue("service"), Stale: r.URL.Query().Has("stale")}, nil
}

// effectiveRequest reads the query: destination, all, stale, limit, and
// afterDestination with afterSources, whose values are those of "more" in the
// previous answer.
func effectiveRequest(r *http.Request) (any, error) {
	q := r.URL.Query()
	req := api.EffectiveRequest{Destination: q.Get("destination"), All: q.Has("all"), Stale: q.Has("stale")}
	req.After.Destination = q.Get("afterDestination")
	for name, into := range map[string]*int{"limit": &req.Limit, "afterSources": &req.After.Sources} {
		if text := q.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				return nil, api.Errorf(api.Invalid, "%s: want a number", name)
			}
			*into = n
		}
	}
	return req, nil
}

// sessionsRequest reads the query: node, service, listener, user, endpoint, id, stuck, and
// limit, which is 1000 by default.
func sessionsRequest(r *http.Request) (any, error) {
	q := r.URL.Query()
	req := api.SessionsRequest{Stuck: q.Has("stuck"), Limit: 1000}
	req.Node, req.Service, req.Listener = q.Get("node"), q.Get("service"), q.Get("listener")
	req.User, req.Endpoint = q.Get("user"), q.Get("endpoint")
	var err error
	if text := q.Get("limit"); text != "" {
		if req.Limit, err = strconv.Atoi(text); err != nil {
			return nil, api.Errorf(api.Invalid, "limit: want a number")
		}
	}
	if text := q.Get("id"); text != "" {
		if req.ID, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, api.Errorf(api.Invalid, "id: want a number")
		}
	}
	return req, nil
}
