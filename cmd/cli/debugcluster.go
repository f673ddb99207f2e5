package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/node/rpc"
	"penstock/node/telemetry"
	"penstock/routing/resource"
)

// clusterJobs collect what any node knows of the cluster. Resources are those of the node
// that is asked, which needs no leader.
func (b *bundler) clusterJobs() []bundleJob {
	jobs := []bundleJob{
		answer[api.Version](b, "version.json", "the build of the node that was asked", api.MethodVersion, api.Empty{}),
		answer[api.Status](b, "status.json", "penstock status", api.MethodStatus, api.Empty{}),
		answer[api.Members](b, "members.json", "penstock members", api.MethodMembers, api.Empty{}),
		answer[api.Problems](b, "problems.json", "what is wrong now", api.MethodProblems, api.Empty{}),
		{"topology", b.topology},
		answer[api.Rollouts](b, "rollouts.json", "penstock rollout list", api.MethodRollouts, api.RolloutsRequest{Stale: true}),
		answer[api.Sessions](b, "sessions.json", "penstock sessions", api.MethodSessions, api.SessionsRequest{Limit: bundleSessions}),
		answer[api.Endpoints](b, "endpoints.json", "penstock get endpoints, of the node that was asked", api.MethodEndpoints, api.EndpointsRequest{}),
		answer[api.Proxies](b, "proxies.json", "penstock get proxies", api.MethodProxies, api.ProxiesRequest{}),
		answer[api.Limits](b, "limits.json", "penstock get limits, of the node that was asked", api.MethodLimits, api.LimitsRequest{}),
		answer[api.Shares](b, "shares.json", "penstock get shares", api.MethodShares, api.SharesRequest{}),
		{"audit log", b.audit},
		{"log", b.logs},
		{"telemetry", b.telemetry},
	}
	for _, k := range kinds.All() {
		jobs = append(jobs, bundleJob{k.Name, func(ctx context.Context) error { return b.kind(ctx, k.Name) }})
	}
	return jobs
}

// bundleSessions bounds the sessions in a bundle.
const bundleSessions = 1000

// answer makes a file of the answer to a request.
func answer[Resp any](b *bundler, path, about, method string, req any) bundleJob {
	return bundleJob{strings.TrimSuffix(path, ".json"), func(ctx context.Context) error {
		r, err := callOnce[Resp](ctx, b, method, req)
		if err != nil {
			b.archive.miss(path, whyMissing(err))
			return nil
		}
		return b.addJSON(path, about, r)
	}}
}

// topology adds what leads where.
func (b *bundler) topology(ctx context.Context) error {
	const path = "topology.json"
	r, err := callOnce[api.TopologyResult](ctx, b, api.MethodTopology, api.TopologyRequest{Stale: true})
	if err != nil {
		b.archive.miss(path, whyMissing(err))
		return nil
	}
	for i := range r.Edges {
		hideConditions(r.Edges[i].Requests)
	}
	return b.addJSON(path, "penstock get topology", r)
}

// hideConditions hides the values of headers and parameters in descriptions of requests,
// such as "GET /cart/* with header a=b".
func hideConditions(requests []string) {
	for i, r := range requests {
		if path, _, ok := strings.Cut(r, " with "); ok {
			requests[i] = path + " with " + resource.HiddenSecret
		}
	}
}

func (b *bundler) addJSON(path, about string, v any) error {
	var w bytes.Buffer
	if err := printJSON(&w, v); err != nil {
		return err
	}
	return b.archive.add(path, about, w.Bytes())
}

// kind adds the resources of a kind, if there are any.
func (b *bundler) kind(ctx context.Context, kind string) error {
	path := "config/" + fileName(kind) + ".json"
	r, err := callOnce[api.GetResult](ctx, b, api.MethodGet, api.GetRequest{Kind: kind, Stale: true})
	if err != nil {
		b.archive.miss(path, whyMissing(err))
		return nil
	}
	if len(r.Documents) == 0 {
		return nil
	}
	objects := make([]any, len(r.Documents))
	for i, d := range r.Documents {
		decoder := json.NewDecoder(bytes.NewReader(d.Data))
		decoder.UseNumber() // a version may be larger than what a float64 holds exactly
		if err := decoder.Decode(&objects[i]); err != nil {
			b.archive.miss(path, fmt.Sprintf("%s: %v", d.Name, err))
			return nil
		}
		hideHeaders(objects[i])
	}
	return b.addJSON(path, fmt.Sprintf("penstock get %s, as of index %d", strings.ToLower(kind), r.Index), objects)
}

// hideHeaders hides the values of headers in a resource: get shows them, because routes
// match and set them, but some are credentials.
func hideHeaders(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			hideHeaders(item)
		}
	case map[string]any:
		for key, item := range v {
			if slices.Contains([]string{"headers", "set", "add"}, key) {
				hideValues(item)
			}
			hideHeaders(item)
		}
	}
}

// hideValues hides the values of headers: in a list of objects with name and value, or a
// map.
func hideValues(headers any) {
	switch headers := headers.(type) {
	case []any:
		for _, h := range headers {
			if h, ok := h.(map[string]any); ok && h["value"] != nil {
				h["value"] = resource.HiddenSecret
			}
		}
	case map[string]any:
		for name, value := range headers {
			if _, ok := value.(string); ok {
				headers[name] = resource.HiddenSecret
			}
		}
	}
}

// audit adds the audit log.
func (b *bundler) audit(ctx context.Context) error {
	const path = "audit.jsonl"
	lines := &jsonLines{}
	err := b.stream(ctx, func(ctx context.Context) error {
		return rpc.Stream(ctx, b.client, api.MethodAudit, api.AuditRequest{Since: b.now.Add(-b.flags.since)}, func(i *api.AuditItem) error {
			b.missLines(path, i.Missing)
			return appendLines(lines, i.Entries)
		})
	})
	return b.addLines(path, fmt.Sprintf("penstock audit --since %v", b.flags.since), lines, err)
}

// logs adds the log of all nodes.
func (b *bundler) logs(ctx context.Context) error {
	const path = "logs.jsonl"
	lines := &jsonLines{}
	err := b.stream(ctx, func(ctx context.Context) error {
		r := api.LogsRequest{Since: b.now.Add(-b.flags.since), Limit: api.MaxLogs}
		return rpc.Stream(ctx, b.client, api.MethodLogs, r, func(i *api.LogsItem) error {
			b.missLines(path, i.Missing)
			return appendLines(lines, i.Entries)
		})
	})
	return b.addLines(path, fmt.Sprintf("the last %d lines of all nodes' logs, at most %v old", api.MaxLogs, b.flags.since), lines, err)
}

// missLines notes the nodes whose lines are not in a file.
func (b *bundler) missLines(path string, nodes []string) {
	for _, n := range nodes {
		b.archive.miss(path, "of "+n)
	}
}

// stream runs a request that has an end.
func (b *bundler) stream(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return do(ctx)
}

// addLines adds a file of JSON lines. failed says why it is incomplete.
func (b *bundler) addLines(path, about string, lines *jsonLines, failed error) error {
	if failed != nil {
		b.archive.miss(path, whyMissing(failed))
		if lines.Len() == 0 {
			return nil
		}
	}
	return b.archive.add(path, about, lines.Bytes())
}

// jsonLines is a file with a JSON value on each line.
type jsonLines struct{ bytes.Buffer }

// maxBundleFile bounds a file of lines, in bytes.
const maxBundleFile = 32 << 20

var errFileFull = fmt.Errorf("cut off at %d bytes", maxBundleFile)

func appendLines[T any](l *jsonLines, values []T) error {
	for i := range values {
		line, err := json.Marshal(&values[i])
		if err != nil {
			return err
		}
		if l.Len()+len(line) > maxBundleFile {
			return errFileFull
		}
		l.Write(line)
		l.WriteByte('\n')
	}
	return nil
}

const (
	// bundleStep is the time between the points of the telemetry.
	bundleStep = time.Minute
	// bundleQueries is how many metrics are asked for at once.
	bundleQueries = 16
	// bundleSeries is how many series a metric may have on a node to be asked for by its
	// labels; more are added up.
	bundleSeries = 500
)

// bundleMetric is a line of the telemetry.
type bundleMetric struct {
	By []string `json:"by"` // the labels of the groups
	telemetry.Frame
}

// telemetry adds what all nodes have measured.
func (b *bundler) telemetry(ctx context.Context) error {
	const path = "telemetry.jsonl"
	r, err := callOnce[api.TelemetryResult](ctx, b, api.MethodTelemetry, api.TelemetryRequest{})
	if err != nil {
		b.archive.miss(path, whyMissing(err))
		return nil //nolint:nilerr // it is in the list of what is missing
	}
	for _, n := range r.Nodes {
		if n.Error != "" {
			b.archive.miss(path, "of "+n.Name+": "+n.Error)
		}
	}
	lines := &jsonLines{}
	for chunk := range slices.Chunk(r.Metrics, bundleQueries) {
		if err = b.measured(ctx, lines, chunk); err != nil {
			break
		}
	}
	return b.addLines(path, "the metrics of all nodes in the last hour, by minute", lines, err)
}

// measured adds some metrics.
func (b *bundler) measured(ctx context.Context, lines *jsonLines, metrics []telemetry.Recorded) error {
	var req api.TelemetryRequest
	for _, m := range metrics {
		q := telemetry.Query{Metric: m.Name, By: []string{api.NodeLabel}, Since: telemetry.CoarseWindow, Step: bundleStep}
		if m.Series <= bundleSeries {
			q.By = append(q.By, m.Labels...)
		}
		req.Queries = append(req.Queries, q)
	}
	r, err := callOnce[api.TelemetryResult](ctx, b, api.MethodTelemetry, req)
	var refusal *api.Error
	switch {
	case errors.As(err, &refusal) && len(metrics) > 1: // one of them is too large: find out which
		return b.measuredSingly(ctx, lines, metrics)
	case errors.As(err, &refusal):
		b.archive.miss("telemetry.jsonl", metrics[0].Name+": "+whyMissing(err))
		return nil
	case err != nil:
		return err
	}
	for i := range r.Frames {
		if i < len(req.Queries) && len(r.Frames[i].Groups) > 0 {
			if err := appendLines(lines, []bundleMetric{{req.Queries[i].By, r.Frames[i].Frame}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bundler) measuredSingly(ctx context.Context, lines *jsonLines, metrics []telemetry.Recorded) error {
	for i := range metrics {
		if err := b.measured(ctx, lines, metrics[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}
