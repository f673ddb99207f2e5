package ops

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/telemetry"
)

var (
	testOpen = &telemetry.Metric{Name: "open", Labels: []string{"service"}, Fine: true}
	testTook = &telemetry.Metric{Name: "took", Labels: []string{"service"}, Buckets: []float64{1, 2}, Fine: true}
)

// recorded answers a request as a node does whose passes, a second apart, record what
// collect does.
func recorded(t *testing.T, r *api.TelemetryRequest, passes int, collect func(p *telemetry.Pass, i int)) *api.TelemetryResult {
	t.Helper()
	h := &history{history: telemetry.New(telemetry.Config{Budget: 1 << 20})}
	for i := range passes {
		h.history.Record(time.Unix(int64(i), 0), func(p *telemetry.Pass) { collect(p, i) })
	}
	local := &api.TelemetryRequest{}
	for _, q := range r.Queries {
		local.Queries = append(local.Queries, withoutNode(q))
	}
	result, err := h.here(context.Background(), local)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// Answers of nodes add up by age, whatever their clocks and however long they run, and
// percentiles are those of all requests together.
func TestTelemetryAddsUpNodes(t *testing.T) {
	r := &api.TelemetryRequest{
		Queries: []telemetry.Query{
			{Metric: "open", By: []string{"service"}}, {Metric: "open", By: []string{"node", "service"}},
			{Metric: "open", Where: map[string][]string{"node": {"n2"}}}, {Metric: "took"},
		},
		Quantiles: []float64{.5},
	}
	sum := newTelemetrySum(r)
	for name, result := range map[string]*api.TelemetryResult{
		"n1": recorded(t, r, 3, func(p *telemetry.Pass, i int) {
			p.Gauge(testOpen, 1, "a")
			p.Observed(testTook, []uint64{uint64(90 * i), 0, 0}, 0, "a")
		}),
		"n2": recorded(t, r, 5, func(p *telemetry.Pass, i int) {
			p.Gauge(testOpen, 10, "a")
			p.Gauge(testOpen, 100, "b")
			p.Observed(testTook, []uint64{0, uint64(110 * i), 0}, 0, "a")
		}),
		"n3": recorded(t, r, 1, func(*telemetry.Pass, int) {}), // it has recorded neither
	} {
		if err := sum.add(name, result); err != nil {
			t.Fatal(err)
		}
	}
	frames, _, err := sum.result()
	if err != nil {
		t.Fatal(err)
	}
	if g := frames[0].Groups; len(g) != 2 || !slices.Equal(g[0].Values, []float64{10, 10, 11, 11}) || !slices.Equal(g[1].Values, []float64{100, 100, 100, 100}) {
		t.Errorf("by service: %+v", g)
	}
	if g := frames[1].Groups; len(g) != 3 || !slices.Equal(g[0].Labels, []string{"n1", "a"}) || !slices.Equal(g[2].Labels, []string{"n2", "b"}) {
		t.Errorf("by node and service: %+v", g)
	}
	if g := frames[2].Groups; len(g) != 1 || !slices.Equal(g[0].Values, []float64{110, 110, 110, 110}) {
		t.Errorf("of n2: %+v", g)
	}
	// 90 of 200 requests took less than a second: the middle one is the 10th of 110 above.
	if got, want := frames[3].Quantiles[0].Groups[0][3], 1+10.0/110; math.Abs(got-want) > 1e-9 {
		t.Errorf("p50: %v, want %v", got, want)
	}
}

func TestTelemetryListsMetrics(t *testing.T) {
	sum := newTelemetrySum(&api.TelemetryRequest{})
	for name, services := range map[string][]string{"n1": {"a"}, "n2": {"a", "b"}} {
		result := recorded(t, &api.TelemetryRequest{}, 1, func(p *telemetry.Pass, _ int) {
			for _, s := range services {
				p.Gauge(testOpen, 1, s)
			}
		})
		if err := sum.add(name, result); err != nil {
			t.Fatal(err)
		}
	}
	_, metrics, err := sum.result()
	want := telemetry.Recorded{Name: "open", Kind: telemetry.Gauge, Labels: []string{"service"}, Series: 2, Step: time.Second}
	if err != nil || len(metrics) != 1 || metrics[0].Name != want.Name || metrics[0].Series != want.Series || metrics[0].Step != want.Step {
		t.Errorf("%+v, %v, want %+v", metrics, err, want)
	}
}

// What a node of another version sends, or one that lies, is an error and no panic.
func TestTelemetryRefusesMalformedAnswers(t *testing.T) {
	frame := func(f telemetry.Frame) *api.TelemetryResult {
		f.Metric = "open"
		return &api.TelemetryResult{Frames: []api.TelemetryFrame{{Frame: f}}}
	}
	for name, result := range map[string]*api.TelemetryResult{
		"another step":    frame(telemetry.Frame{Kind: telemetry.Gauge, Step: time.Minute}),
		"too few values":  frame(telemetry.Frame{Kind: telemetry.Gauge, Step: time.Second, Points: 4, Groups: []telemetry.Group{{Labels: []string{"a"}}}}),
		"too few labels":  frame(telemetry.Frame{Kind: telemetry.Gauge, Step: time.Second, Groups: []telemetry.Group{{}}}),
		"negative points": frame(telemetry.Frame{Kind: telemetry.Gauge, Step: time.Second, Points: -1}),
		"many points":     frame(telemetry.Frame{Kind: telemetry.Gauge, Step: time.Second, Points: 1 << 40}),
	} {
		r := &api.TelemetryRequest{Queries: []telemetry.Query{{Metric: "open", By: []string{"service", "node"}}}}
		sum := newTelemetrySum(r)
		if err := sum.add("n1", recorded(t, r, 2, func(p *telemetry.Pass, _ int) { p.Gauge(testOpen, 1, "a") })); err != nil {
			t.Fatal(err)
		}
		if err := sum.add("n2", result); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTelemetryRequests(t *testing.T) {
	read := func(query string) (*api.TelemetryRequest, error) {
		req, err := telemetryRequest(httptest.NewRequest(http.MethodGet, "/v1/telemetry?"+query, nil))
		if err != nil {
			return nil, err
		}
		r := req.(api.TelemetryRequest)
		return &r, checkTelemetry(&r)
	}
	r, err := read("metric=open&metric=took&by=node,service&service=a&service=b&since=10m&step=30s&quantile=0.5&quantile=0.99")
	if err != nil {
		t.Fatal(err)
	}
	want := telemetry.Query{Metric: "took", By: []string{"node", "service"}, Since: 10 * time.Minute, Step: 30 * time.Second}
	if q := r.Queries[1]; len(r.Queries) != 2 || q.Metric != want.Metric || !slices.Equal(q.By, want.By) || q.Since != want.Since || q.Step != want.Step ||
		!slices.Equal(q.Where["service"], []string{"a", "b"}) || !slices.Equal(r.Quantiles, []float64{.5, .99}) {
		t.Errorf("%+v", r)
	}
	for query, says := range map[string]string{
		"metric=a&since=x": "since", "metric=a&step=7s": "step", "metric=a&quantile=x": "quantile", "metric=a&quantile=1.5": "quantile",
		"metric=a&quantile=NaN": "quantile", "metric=" + strings.Repeat("a&metric=", 40) + "a": "queries", "metric=": "metric",
	} {
		var e *api.Error
		if _, err := read(query); !errors.As(err, &e) || e.Code != api.Invalid || !strings.Contains(e.Message, says) {
			t.Errorf("%s: %v, want %q", query, err, says)
		}
	}
}

// JSON knows no NaN.
func TestPointsWithoutValueAreNull(t *testing.T) {
	b, err := json.Marshal(api.TelemetryQuantile{Quantile: .5, Groups: []api.Points{{1.5, math.NaN()}, {}}})
	if err != nil || string(b) != `{"quantile":0.5,"groups":[[1.5,null],[]]}` {
		t.Errorf("%s, %v", b, err)
	}
}
