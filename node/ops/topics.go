package ops

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"penstock/node/api"
	"penstock/node/audit"
	"penstock/node/events"
	"penstock/node/rpc"
)

// Topics returns the topics of /v1/events. A stream gets of each what the topic's own URL
// answers, except where the methods below say otherwise.
func (m *Methods) Topics() []events.Topic {
	return []events.Topic{
		stateTopic("status", api.RoleReader, statusRequest, m.status.status),
		stateTopic("problems", api.RoleReader, emptyRequest, m.problems.undated),
		stateTopic("connections", api.RoleReader, connectionsRequest, m.conns.list),
		stateTopic("flow", api.RoleReader, flowRequest, m.conns.flow),
		stateTopic("progress", api.RoleReader, progressRequest, m.progress),
		{Name: "logs", Role: api.RoleReader, Source: m.logged},
		{Name: "traffic", Role: api.RoleReader, Source: m.traffic},
		{Name: "changes", Role: api.RoleReader, Source: m.changed},
		{Name: "audit", Role: api.RoleAdmin, Source: m.audited},
	}
}

// stateTopic is a topic that sends the answer of a method. request reads the parameters,
// as for the method's URL, and returns a Req.
func stateTopic[Req, Resp any](
	name string, role api.Role, request func(*http.Request) (any, error), method func(context.Context, *Req) (*Resp, error),
) events.Topic {
	return events.Topic{Name: name, Role: role, Source: func(r *http.Request) (s events.Source, err error) {
		parsed, err := request(r)
		if err != nil {
			return s, err
		}
		req, ok := parsed.(Req)
		if !ok {
			req = *parsed.(*Req)
		}
		key, err := json.Marshal(req)
		if err != nil {
			return s, err
		}
		return events.Source{Key: string(key), State: func(ctx context.Context) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, v1Timeout)
			defer cancel()
			return method(ctx, &req)
		}}, nil
	}}
}

// traffic sends a sample of the cluster's traffic for each interval, without the flows that
// have none.
func (m *Methods) traffic(*http.Request) (events.Source, error) {
	return events.Source{Keep: 1, Items: func(ctx context.Context, interval time.Duration, send func(any)) error {
		r := &api.TopRequest{Cluster: true, Interval: interval, Count: 1}
		return m.top.top(ctx, r, func(s *api.TopSample) error {
			s.Flows = slices.DeleteFunc(s.Flows, func(f api.Flow) bool { return f.Connections == 0 && f.NewRate+f.InRate+f.OutRate == 0 })
			send(s)
			return nil
		})
	}}, nil
}

// logsKept is how many parts of lines a new or a slow stream gets.
const logsKept = 32

// logged sends the last lines and then those that come, in parts.
func (m *Methods) logged(r *http.Request) (events.Source, error) {
	req, err := logsRequest(r, time.Now().Truncate(time.Minute)) // streams of the same minute share it
	if err != nil {
		return events.Source{}, err
	}
	req.Follow = true
	key, err := json.Marshal(req)
	if err != nil {
		return events.Source{}, err
	}
	return events.Source{Key: string(key), Keep: logsKept, Items: func(ctx context.Context, _ time.Duration, send func(any)) error {
		return m.logs.read(ctx, req, func(i *api.LogsItem) error { send(i); return nil })
	}}, nil
}

// ResourceChange is what the topic changes sends for each resource that has changed.
type ResourceChange struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version uint64 `json:"version,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
	// All: anything may have changed. The other fields are not set.
	All bool `json:"all,omitempty"`
}

// changed sends the resources that change from now on, when the change takes effect here.
func (m *Methods) changed(*http.Request) (events.Source, error) {
	return events.Source{Items: func(ctx context.Context, _ time.Duration, send func(any)) error {
		_, view := m.reader.catalog.InForce()
		for {
			last := view.Index()
			if err := m.reader.catalog.Await(ctx, last+1); err != nil {
				return err
			}
			_, view = m.reader.catalog.InForce()
			keys, known := view.Changed(last)
			if !known {
				send(ResourceChange{All: true})
			}
			for _, k := range keys {
				if k.Kind[0] == '_' { // the cluster's own
					continue
				}
				e, ok := view.Get(k)
				send(ResourceChange{Kind: k.Kind, Name: k.Name, Version: e.Version, Deleted: !ok})
			}
		}
	}}, nil
}

// The audit log that a stream gets.
const (
	auditShown = 200 // entries
	auditSince = time.Hour
)

// audited sends the latest entries of the audit log, whenever there are others.
func (m *Methods) audited(r *http.Request) (events.Source, error) {
	req, err := auditRequest(r)
	if err != nil {
		return events.Source{}, err
	}
	if req.Since.IsZero() {
		req.Since = time.Now().Add(-auditSince).Truncate(time.Minute) // streams of the same minute share it
	}
	key, err := json.Marshal(req)
	if err != nil {
		return events.Source{}, err
	}
	return events.Source{Key: string(key), Keep: 1, Items: func(ctx context.Context, interval time.Duration, send func(any)) error {
		item := api.AuditItem{Entries: []api.AuditEntry{}}
		reader := &auditReader{auditLog: m.audit, r: req, at: map[string]uint64{}}
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for first := true; ; first = false {
			entries, missing := reader.next(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if first || len(entries) > 0 || !slices.Equal(item.Missing, reader.missing) {
				item.Missing = missing
				item.Entries = mergeAudit(item.Entries, entries)
				send(item)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}}, nil
}

// mergeAudit adds entries to those that are shown: one that is repeated with a higher count
// replaces itself.
func mergeAudit(shown, entries []api.AuditEntry) []api.AuditEntry {
	all := slices.Clone(shown)
	for i := range entries {
		e := &entries[i]
		all = slices.DeleteFunc(all, func(old api.AuditEntry) bool { return sameAuditLine(&old, e) })
		all = append(all, *e)
	}
	audit.Sort(all)
	return all[max(0, len(all)-auditShown):]
}

// sameAuditLine reports whether an entry is an older state of another.
func sameAuditLine(old, e *api.AuditEntry) bool {
	return e.Count > 1 && old.Count < e.Count && old.Node == e.Node && old.Who == e.Who && old.Act == e.Act && old.What == e.What &&
		old.Rule == e.Rule && old.Outcome == e.Outcome && old.Token == e.Token && (old.First.Equal(e.First) || old.At.Equal(e.First))
}

// progress returns the progress of rollouts: without a leader, as this node sees them.
func (m *Methods) progress(ctx context.Context, r *api.RolloutsRequest) (*api.Rollouts, error) {
	local, err := m.rollouts.localRollouts(r)
	if err != nil || len(*local) == 0 || r.Stale {
		return local, err
	}
	c, err := ConnectLocal(ctx, m.local, api.Principal{Name: m.Peers.self.Name, Role: api.RoleReader})
	if err != nil {
		return local, nil //nolint:nilerr // the node stops
	}
	defer c.Close()
	led, err := rpc.Call[api.Rollouts](ctx, c, api.MethodRollouts, r)
	if err != nil {
		return local, nil //nolint:nilerr // no leader is reachable
	}
	return led, nil
}
