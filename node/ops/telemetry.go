package ops

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
	"penstock/node/telemetry"
)

// history has the methods for what nodes have measured.
type history struct {
	peers   *Peers
	history *telemetry.History
}

func (h *history) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodTelemetry, api.RoleReader, h.all)
	rpc.Handle(s, api.MethodTelemetryHere, api.RoleNode, h.here)
}

// here answers for this node alone. A metric that it has not recorded has no frame.
func (h *history) here(ctx context.Context, r *api.TelemetryRequest) (*api.TelemetryResult, error) {
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	result := &api.TelemetryResult{At: time.Now()}
	if len(r.Queries) == 0 {
		result.Metrics = h.history.Metrics()
	}
	for i := range r.Queries {
		f, err := h.history.Query(r.Queries[i])
		switch {
		case errors.Is(err, telemetry.ErrNoMetric):
			f = new(telemetry.Frame)
		case errors.Is(err, telemetry.ErrTooMany):
			return nil, api.Errorf(api.TooLarge, "%s: %v", r.Queries[i].Metric, err)
		case err != nil:
			return nil, api.Errorf(api.Invalid, "%v", err)
		}
		result.Frames = append(result.Frames, api.TelemetryFrame{Frame: *f})
	}
	return result, nil
}

// all answers for all nodes.
func (h *history) all(ctx context.Context, r *api.TelemetryRequest) (*api.TelemetryResult, error) {
	if err := checkTelemetry(r); err != nil {
		return nil, err
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	result := &api.TelemetryResult{At: time.Now()}
	sum := newTelemetrySum(r)
	var refusal error
	for _, n := range h.ask(ctx, r) {
		err := n.err
		if err == nil {
			err = sum.add(n.member.Name, n.result)
		}
		node := api.TelemetryNode{Name: n.member.Name}
		if err != nil {
			node.Error = err.Error()
			var e *api.Error
			if errors.As(err, &e) && (e.Code == api.Invalid || e.Code == api.TooLarge) {
				refusal = err
			}
		}
		result.Nodes = append(result.Nodes, node)
	}
	if refusal != nil {
		return nil, refusal
	}
	var err error
	result.Frames, result.Metrics, err = sum.result()
	return result, err
}

// checkTelemetry checks what is wrong for every node.
func checkTelemetry(r *api.TelemetryRequest) error {
	if len(r.Queries) > api.MaxQueries {
		return api.Errorf(api.Invalid, "%d queries: at most %d", len(r.Queries), api.MaxQueries)
	}
	for i := range r.Queries {
		if err := r.Queries[i].Check(); err != nil {
			return api.Errorf(api.Invalid, "%v", err)
		}
	}
	if len(r.Quantiles) > api.MaxQueries {
		return api.Errorf(api.Invalid, "%d quantiles: at most %d", len(r.Quantiles), api.MaxQueries)
	}
	for _, q := range r.Quantiles {
		if !(q >= 0 && q <= 1) {
			return api.Errorf(api.Invalid, "quantile: %v is not between 0 and 1", q)
		}
	}
	return nil
}

// telemetryAnswer is the answer of one node.
type telemetryAnswer struct {
	member directory.Member
	result *api.TelemetryResult
	err    error
}

// ask asks all nodes. The answers are sorted by name.
func (h *history) ask(ctx context.Context, r *api.TelemetryRequest) []telemetryAnswer {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	members := h.peers.members()
	answers := make(chan telemetryAnswer, len(members))
	for _, m := range members {
		go func() {
			result, err := h.of(ctx, m, r)
			answers <- telemetryAnswer{m, result, err}
		}()
	}
	var all []telemetryAnswer
	for range members {
		all = append(all, <-answers)
	}
	slices.SortFunc(all, func(a, b telemetryAnswer) int { return strings.Compare(a.member.Name, b.member.Name) })
	return all
}

// of asks one node.
func (h *history) of(ctx context.Context, m directory.Member, r *api.TelemetryRequest) (*api.TelemetryResult, error) {
	local := &api.TelemetryRequest{}
	for _, q := range r.Queries {
		local.Queries = append(local.Queries, withoutNode(q))
	}
	if m.Self {
		return h.here(ctx, local)
	}
	if !m.Up() {
		return nil, errors.New(cmp.Or(m.State, "unreachable"))
	}
	client, err := h.peers.cluster.Directory.Pool.Get(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	result, err := rpc.Call[api.TelemetryResult](ctx, client, api.MethodTelemetryHere, local)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errors.New("did not respond")
	case err == nil && len(result.Frames) != len(r.Queries):
		return nil, errors.New("sent a malformed answer")
	}
	return result, err
}

// withoutNode returns the query as a node answers it: it does not know api.NodeLabel.
func withoutNode(q telemetry.Query) telemetry.Query {
	q.By = slices.DeleteFunc(slices.Clone(q.By), func(label string) bool { return label == api.NodeLabel })
	if _, ok := q.Where[api.NodeLabel]; ok {
		where := map[string][]string{}
		for label, values := range q.Where {
			if label != api.NodeLabel {
				where[label] = values
			}
		}
		q.Where = where
	}
	return q
}

// telemetrySum adds up the answers of nodes.
type telemetrySum struct {
	r       *api.TelemetryRequest
	frames  []*telemetry.Frame // nil: no node has had the metric yet
	metrics map[string]telemetry.Recorded
}

func newTelemetrySum(r *api.TelemetryRequest) *telemetrySum {
	return &telemetrySum{r: r, frames: make([]*telemetry.Frame, len(r.Queries)), metrics: map[string]telemetry.Recorded{}}
}

// add adds the answer of a node, whole or, if it returns an error, perhaps in part.
func (s *telemetrySum) add(node string, result *api.TelemetryResult) error {
	for _, m := range result.Metrics {
		if before, ok := s.metrics[m.Name]; ok {
			m.Series = max(m.Series, before.Series)
		}
		s.metrics[m.Name] = m
	}
	for i := range result.Frames {
		q, f := &s.r.Queries[i], &result.Frames[i].Frame
		if f.Metric == "" {
			continue
		}
		if nodes, ok := q.Where[api.NodeLabel]; ok && !slices.Contains(nodes, node) {
			f.Groups = nil
		}
		if at := slices.Index(q.By, api.NodeLabel); at >= 0 {
			for j := range f.Groups {
				g := &f.Groups[j]
				if at > len(g.Labels) {
					return errors.New("sent a malformed answer")
				}
				g.Labels = slices.Insert(slices.Clone(g.Labels), at, node)
			}
		}
		if s.frames[i] == nil {
			s.frames[i] = &telemetry.Frame{Metric: f.Metric, Kind: f.Kind, Buckets: f.Buckets, Step: f.Step, Groups: []telemetry.Group{}}
		}
		if err := s.frames[i].Add(f); err != nil {
			if errors.Is(err, telemetry.ErrTooMany) {
				return api.Errorf(api.TooLarge, "%s: %v", f.Metric, err)
			}
			return err
		}
	}
	return nil
}

// result returns the sums.
func (s *telemetrySum) result() (frames []api.TelemetryFrame, metrics []telemetry.Recorded, err error) {
	for _, m := range s.metrics {
		metrics = append(metrics, m)
	}
	slices.SortFunc(metrics, func(a, b telemetry.Recorded) int { return strings.Compare(a.Name, b.Name) })
	for i, f := range s.frames {
		if f == nil {
			return nil, nil, api.Errorf(api.NotFound, "%v: %q; without metrics, the request lists them", telemetry.ErrNoMetric, s.r.Queries[i].Metric)
		}
		whole := api.TelemetryFrame{Frame: *f}
		if f.Kind == telemetry.Histogram {
			for _, q := range s.r.Quantiles {
				one := api.TelemetryQuantile{Quantile: q, Groups: []api.Points{}}
				for j := range f.Groups {
					one.Groups = append(one.Groups, f.Quantile(&f.Groups[j], q))
				}
				whole.Quantiles = append(whole.Quantiles, one)
			}
		}
		frames = append(frames, whole)
	}
	return frames, metrics, nil
}

// telemetryRequest reads the query of /v1/telemetry: metric (each is a query), by
// (labels, separated by commas), since, step, quantile, and any other parameter as the
// values of a label.
func telemetryRequest(r *http.Request) (any, error) {
	var req api.TelemetryRequest
	q := telemetry.Query{}
	values := r.URL.Query()
	for name, into := range map[string]*time.Duration{"since": &q.Since, "step": &q.Step} {
		if text := values.Get(name); text != "" {
			d, err := time.ParseDuration(text)
			if err != nil {
				return nil, api.Errorf(api.Invalid, "%s: %q is no duration, such as 10m", name, text)
			}
			*into = d
		}
	}
	for name, list := range values {
		switch name {
		case "since", "step", "metric":
		case "by":
			for _, one := range list {
				q.By = append(q.By, strings.Split(one, ",")...)
			}
		case "quantile":
			for _, one := range list {
				v, err := strconv.ParseFloat(one, 64)
				if err != nil {
					return nil, api.Errorf(api.Invalid, "quantile: %q is no number", one)
				}
				req.Quantiles = append(req.Quantiles, v)
			}
		default:
			if q.Where == nil {
				q.Where = map[string][]string{}
			}
			q.Where[name] = list
		}
	}
	for _, metric := range values["metric"] {
		one := q
		one.Metric = metric
		req.Queries = append(req.Queries, one)
	}
	return req, nil
}
