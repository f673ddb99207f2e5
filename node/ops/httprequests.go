package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/kinds"
	"penstock/node/rpc"
	"penstock/routing/resource/codec"
)

// readJSON reads the body of a request into v. Fields that v does not have are errors.
func readJSON(r *http.Request, v any) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" { // as in readBody
		return api.Errorf(api.Invalid, "want Content-Type: application/json")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return err
	case len(body) > maxBody:
		return api.Errorf(api.TooLarge, "the body has more than %d bytes", maxBody)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return api.Errorf(api.Invalid, "the body: %v", err)
	}
	if _, err := d.Token(); err != io.EOF { //nolint:errorlint // as documented
		return api.Errorf(api.Invalid, "the body: want one JSON object, and nothing after it")
	}
	return nil
}

// jsonRequest reads a request that is the body.
func jsonRequest[Req any](r *http.Request) (any, error) {
	req := new(Req)
	return req, readJSON(r, req)
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

// statusRequest reads the query: brief.
func statusRequest(r *http.Request) (any, error) {
	return api.StatusRequest{Brief: r.URL.Query().Has("brief")}, nil
}

// limitsRequest reads the query: node and limit.
func limitsRequest(r *http.Request) (any, error) {
	return api.LimitsRequest{Node: r.URL.Query().Get("node"), Limit: r.URL.Query().Get("limit")}, nil
}

// permissionsRequest reads the query: node.
func permissionsRequest(r *http.Request) (any, error) {
	return api.PermissionsRequest{Node: r.URL.Query().Get("node")}, nil
}

// historyRequest reads kind, name and stale.
func historyRequest(r *http.Request) (any, error) {
	return api.HistoryRequest{Kind: r.PathValue("kind"), Name: r.PathValue("name"), Stale: r.URL.Query().Has("stale")}, nil
}

// diffRequest reads resources as POST /v1/apply does, to show what it would change.
func diffRequest(r *http.Request) (any, error) {
	objects, warnings, err := readBody(r)
	if err != nil {
		return nil, err
	}
	req := applyRequest(r, objects, warnings)
	req.DryRun = true
	return req, nil
}

// simulateRequest reads a SimulateRequest whose documents are JSON objects, in any
// supported format, or base64 of such, as encoding/json has it.
func simulateRequest(r *http.Request) (any, error) {
	var body struct {
		api.SimulateRequest
		Documents []json.RawMessage `json:"documents"`
	}
	if err := readJSON(r, &body); err != nil {
		return nil, err
	}
	req := body.SimulateRequest
	for i, raw := range body.Documents {
		document := []byte(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &document); err != nil {
				return nil, api.Errorf(api.Invalid, "documents[%d]: want an object, or base64 of one", i)
			}
		}
		objects, faults, _ := codec.DecodeReport("", document, kinds.All(), kinds.Formats())
		if len(faults) > 0 {
			return nil, catalog.Invalid(faults)
		}
		req.Documents = append(req.Documents, Documents(objects)...)
	}
	return req, nil
}

// rollbackRequest reads the version in the body.
func rollbackRequest(r *http.Request) (any, error) {
	var body struct {
		Version uint64 `json:"version"`
	}
	err := readJSON(r, &body)
	return api.RollbackRequest{Kind: r.PathValue("kind"), Name: r.PathValue("name"), Version: body.Version}, err
}

// rolloutRequest reads what to do in the body.
func rolloutRequest(r *http.Request) (any, error) {
	var body struct {
		Do string `json:"do"`
	}
	err := readJSON(r, &body)
	return api.RolloutRequest{Do: body.Do, Route: r.PathValue("route")}, err
}

// auditMost bounds the entries of an answer of /v1/audit: more than that is for
// `penstock audit`, which streams.
const auditMost = 5000

// serveAudit answers /v1/audit with the latest entries in one item, which has more if
// there are older ones.
func (f *HTTP) serveAudit(w http.ResponseWriter, r *http.Request) {
	f.withAdmin(w, r, func(ctx context.Context, c *rpc.Client) error {
		req, err := auditRequest(r)
		if err != nil {
			return err
		}
		most := auditMost
		if text := r.URL.Query().Get("limit"); text != "" {
			if most, err = strconv.Atoi(text); err != nil || most < 1 || most > auditMost {
				return api.Errorf(api.Invalid, "limit: %.40q: want 1 to %d", text, auditMost)
			}
		}
		all := api.AuditItem{Entries: []api.AuditEntry{}}
		err = rpc.Stream(ctx, c, api.MethodAudit, req, func(part *api.AuditItem) error {
			all.Entries = append(all.Entries, part.Entries...)
			if over := len(all.Entries) - most; over > 0 {
				all.Entries, all.More = append([]api.AuditEntry(nil), all.Entries[over:]...), true
			}
			all.Missing = append(all.Missing, part.Missing...)
			return nil
		})
		if err != nil {
			return err
		}
		reply(w, &all, nil)
		return nil
	})
}
