package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/dataplane"
	"penstock/node/kinds"
	"penstock/node/rpc"
	"penstock/routing/balance"
	"penstock/routing/formats/tiproxy"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// The HTTP API of TiProxy, as far as its operator and scripts use it. What reads or changes
// the configuration takes a token, as /v1 does.

func (f *HTTP) handleTiProxy(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/debug/health", f.serveTiProxyHealth)
	mux.HandleFunc("POST /api/debug/redirect", f.redirectTiProxy)
	for _, slash := range []string{"", "/{$}"} {
		mux.HandleFunc("GET /api/admin/config"+slash, f.serveTiProxyConfig)
		mux.HandleFunc("PUT /api/admin/config"+slash, f.putTiProxyConfig)
		mux.HandleFunc("GET /api/admin/namespace"+slash, f.serveTiProxyNamespaces)
	}
}

// serveTiProxyHealth answers with 502 while the node should get no traffic, or no server
// is usable, and else with 200.
func (f *HTTP) serveTiProxyHealth(w http.ResponseWriter, _ *http.Request) {
	why := f.Ready.NotReady()
	if why == "" && f.NoServer != nil {
		why = f.NoServer()
	}
	w.Header().Set("Content-Type", "application/json")
	if why != "" {
		w.WriteHeader(http.StatusBadGateway)
		_ = json.NewEncoder(w).Encode(map[string]string{"reason": why})
		return
	}
	_, _ = w.Write([]byte("{}\n"))
}

// redirectTiProxy orders all sessions of this node to move, and does not wait for them.
// TiProxy lets them move to the server where they are; here it is another one. A page in a
// browser needs no CORS preflight request for such a POST, so it is refused by its Origin.
func (f *HTTP) redirectTiProxy(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" {
		reply(w, nil, api.Errorf(api.Forbidden, "requests of web pages are refused"))
		return
	}
	f.withAdmin(w, r, func(ctx context.Context, c *rpc.Client) error {
		req := api.MoveSessionsRequest{SessionFilter: api.SessionFilter{Node: f.Peers.self.ID}, All: true}
		if _, err := rpc.Call[api.MovedSessions](ctx, c, api.MethodSessionsMove, req); err != nil {
			return err
		}
		reply(w, "", nil)
		return nil
	})
}

// NoMySQLServer returns a function that says why no client of a mysql listener can be
// served; "": one can, or there is no service for it.
func NoMySQLServer(d *dataplane.Dataplane) func() string {
	return func() string {
		some := false
		for _, s := range d.Services() {
			if s.Spec().Protocol != resource.ProtocolMySQL {
				continue
			}
			if some = true; s.Source(time.Now()) != balance.FromNone {
				return ""
			}
		}
		if some {
			return "no service with protocol: mysql has a usable server"
		}
		return ""
	}
}

// tiproxyObjects returns the resources that may be those of TiProxy's configuration.
func tiproxyObjects(ctx context.Context, c *rpc.Client) ([]resource.Object, error) {
	var objects []resource.Object
	for _, kind := range []string{"Listener", "Service", resource.KindProvider, "Certificate"} {
		got, err := rpc.Call[api.GetResult](ctx, c, api.MethodGet, api.GetRequest{Kind: kind})
		if err != nil {
			return nil, err
		}
		for i := range got.Documents {
			o, err := codec.Restore(got.Documents[i].Data, kinds.All())
			if err != nil {
				return nil, err
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// serveTiProxyConfig answers with TiProxy's configuration, made from the resources: as
// TOML, or with ?format=json as JSON.
func (f *HTTP) serveTiProxyConfig(w http.ResponseWriter, r *http.Request) {
	f.withAdmin(w, r, func(ctx context.Context, c *rpc.Client) error {
		objects, err := tiproxyObjects(ctx, c)
		if err != nil {
			return err
		}
		settings := tiproxy.Export(objects)
		if r.URL.Query().Get("format") == "json" {
			reply(w, settings, nil)
			return nil
		}
		text, err := tiproxy.TOML(settings)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/toml; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(text)
		return nil
	})
}

// putTiProxyConfig applies a configuration, or a part of one: the rest stays. A browser
// makes a CORS preflight request before a page can send PUT, whatever the Content-Type.
func (f *HTTP) putTiProxyConfig(w http.ResponseWriter, r *http.Request) {
	f.withAdmin(w, r, func(ctx context.Context, c *rpc.Client) error {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
		if err != nil {
			return err
		}
		if len(body) > maxBody {
			return api.Errorf(api.TooLarge, "the body has more than %d bytes", maxBody)
		}
		objects, err := tiproxyObjects(ctx, c)
		if err != nil {
			return err
		}
		text, err := tiproxy.Merge(tiproxy.Export(objects), body)
		if err != nil {
			return api.Errorf(api.Invalid, "invalid TOML: %v", err)
		}
		next, faults, warnings := codec.DecodeReport("", text, kinds.All(), tiproxy.Foreign())
		for _, list := range []resource.Faults{faults, warnings} {
			for i := range list {
				list[i].Line = 0 // that of the merged file
			}
		}
		if len(faults) > 0 {
			return catalog.Invalid(faults)
		}
		result, err := rpc.Call[api.ApplyResult](ctx, c, api.MethodApply, applyRequest(r, next, warnings))
		if err != nil {
			return err
		}
		reply(w, result, nil)
		return nil
	})
}

// tiproxyNamespace is a namespace of TiProxy. There is one, as in a TiProxy that finds its
// servers in PD.
type tiproxyNamespace struct {
	Namespace string `json:"namespace"`
	Frontend  struct {
		User     string   `json:"user"`
		Security struct{} `json:"security"`
	} `json:"frontend"`
	Backend struct {
		Instances []string `json:"instances"`
		Security  struct{} `json:"security"`
	} `json:"backend"`
}

// serveTiProxyNamespaces lists the servers of the Services with protocol mysql.
func (f *HTTP) serveTiProxyNamespaces(w http.ResponseWriter, r *http.Request) {
	f.withAdmin(w, r, func(ctx context.Context, c *rpc.Client) error {
		objects, err := tiproxyObjects(ctx, c)
		if err != nil {
			return err
		}
		one := tiproxyNamespace{Namespace: "default"}
		one.Backend.Instances = []string{}
		for _, o := range objects {
			s, ok := o.Spec.(*resource.Service)
			if !ok || s.Protocol != resource.ProtocolMySQL {
				continue
			}
			found, err := rpc.Call[api.Endpoints](ctx, c, api.MethodEndpoints, api.EndpointsRequest{Service: o.Name})
			if err != nil {
				return err
			}
			for i := range *found {
				one.Backend.Instances = append(one.Backend.Instances, cmp.Or((*found)[i].Address, (*found)[i].Resolved))
			}
		}
		reply(w, []tiproxyNamespace{one}, nil)
		return nil
	})
}
