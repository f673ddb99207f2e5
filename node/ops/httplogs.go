package ops

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
)

// defaultLogs is the default of limit of /v1/logs.
const defaultLogs = 1000

// serveLogs answers /v1/logs: one api.LogsItem with all lines.
func (f *HTTP) serveLogs(w http.ResponseWriter, r *http.Request) {
	f.withAdmin(w, r, func(ctx context.Context, c *rpc.Client) error {
		req, err := logsRequest(r, time.Now())
		if err != nil {
			return err
		}
		all := api.LogsItem{Entries: []api.LogEntry{}}
		err = rpc.Stream(ctx, c, api.MethodLogs, req, func(i *api.LogsItem) error {
			all.Entries = append(all.Entries, i.Entries...)
			all.Missing = append(all.Missing, i.Missing...)
			all.Lost += i.Lost
			return nil
		})
		if err != nil {
			return err
		}
		reply(w, all, nil)
		return nil
	})
}

// logsRequest reads the query: node, service, listener, reason, level, connection (ID or
// NODE/ID), text, access, own, since (10m, or a time of RFC 3339), and limit, which is 1000
// by default.
func logsRequest(r *http.Request, now time.Time) (*api.LogsRequest, error) {
	q := r.URL.Query()
	req := &api.LogsRequest{Node: q.Get("node"), Limit: defaultLogs, LogFilter: api.LogFilter{
		Service: q.Get("service"), Listener: q.Get("listener"), Reason: q.Get("reason"), Level: q.Get("level"), Text: q.Get("text"),
		Access: q.Has("access"), Own: q.Has("own"),
	}}
	if text := q.Get("connection"); text != "" {
		id := text
		if node, rest, ok := strings.Cut(text, "/"); ok {
			if req.Node != "" && req.Node != node {
				return nil, api.Errorf(api.Invalid, "connection: %.200q is not of node %.200q", text, req.Node)
			}
			req.Node, id = node, rest
		}
		var err error
		if req.Connection, err = strconv.ParseUint(id, 10, 64); err != nil || req.Connection == 0 {
			return nil, api.Errorf(api.Invalid, "connection: %.200q: want a number, or NODE/NUMBER", text)
		}
	}
	if text := q.Get("since"); text != "" {
		d, err := time.ParseDuration(text)
		req.Since = now.Add(-d)
		if err != nil {
			if req.Since, err = time.Parse(time.RFC3339, text); err != nil {
				return nil, api.Errorf(api.Invalid, "since: %.40q: want a duration such as 10m, or a time such as 2026-01-31T08:00:00Z", text)
			}
		}
	}
	if text := q.Get("limit"); text != "" {
		var err error
		if req.Limit, err = strconv.Atoi(text); err != nil {
			return nil, api.Errorf(api.Invalid, "limit: want a number")
		}
	}
	return req, nil
}
