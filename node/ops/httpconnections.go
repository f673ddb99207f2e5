package ops

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"

	"penstock/node/api"
)

// handleConnections adds the paths for connections.
func (f *HTTP) handleConnections(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/connections", serveV1(f, api.MethodConnections, connectionsRequest, wholeResult[api.Connections]))
	mux.HandleFunc("GET /v1/connections/{node}/{id}", serveV1(f, api.MethodTrace, traceRequest, wholeResult[api.Trace]))
	mux.HandleFunc("POST /v1/connections/close", serveV1(f, api.MethodConnectionsClose, closeRequest, wholeResult[api.ClosedConnections]))
	mux.HandleFunc("GET /v1/flow", serveV1(f, api.MethodFlow, flowRequest, wholeResult[api.FlowResult]))
}

// connectionsRequest reads the query: node, listener, service, endpoint, client, who, id,
// reason, ended, failures, sort, and limit, which is 1000 by default.
func connectionsRequest(r *http.Request) (any, error) {
	q := r.URL.Query()
	req := api.ConnectionsRequest{Ended: q.Has("ended"), Failures: q.Has("failures"), Sort: q.Get("sort"), Limit: 1000}
	req.ConnectionFilter = api.ConnectionFilter{
		Node: q.Get("node"), Listener: q.Get("listener"), Service: q.Get("service"), Endpoint: q.Get("endpoint"),
		Client: q.Get("client"), Who: q.Get("who"), Reason: q.Get("reason"),
	}
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

func traceRequest(r *http.Request) (any, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, api.Errorf(api.Invalid, "id: want a number")
	}
	return api.TraceRequest{Node: r.PathValue("node"), ID: id}, nil
}

// flowRequest reads the query: node and service.
func flowRequest(r *http.Request) (any, error) {
	return api.FlowRequest{Node: r.URL.Query().Get("node"), Service: r.URL.Query().Get("service")}, nil
}

// closeRequest reads the body. Its Content-Type must be one that an HTML form cannot send,
// as in readBody.
func closeRequest(r *http.Request) (any, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, api.Errorf(api.Invalid, "want Content-Type: application/json")
	}
	var req api.CloseConnectionsRequest
	d := json.NewDecoder(io.LimitReader(r.Body, maxCloseBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return nil, api.Errorf(api.Invalid, "body: %v", err)
	}
	return req, nil
}

// maxCloseBody bounds the body of a request to close connections, in bytes.
const maxCloseBody = 64 << 10
