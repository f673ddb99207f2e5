package integration

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
)

// promMetrics are the metrics that queries may use, by name, with their labels and the
// words of their description.
type promMetrics map[string]*promMetric

type promMetric struct {
	labels map[string]bool
	words  map[string]bool // in backticks; nil: unknown
}

// scraped are the labels that Prometheus adds.
var scraped = []string{"job", "instance"}

func (k promMetrics) add(name string, labels ...string) *promMetric {
	m := k[name]
	if m == nil {
		m = &promMetric{labels: map[string]bool{}}
		k[name] = m
	}
	for _, l := range append(labels, scraped...) {
		m.labels[l] = true
	}
	return m
}

// addTyped adds a metric with the series that its type has.
func (k promMetrics) addTyped(name, kind string, labels []string) {
	switch kind {
	case "histogram":
		k.add(name+"_bucket", append(labels, "le")...)
		k.add(name+"_sum", labels...)
		k.add(name+"_count", labels...)
	case "summary":
		k.add(name, append(labels, "quantile")...)
		k.add(name+"_sum", labels...)
		k.add(name+"_count", labels...)
	default:
		k.add(name, labels...)
	}
}

var backticked = regexp.MustCompile("`([^`]+)`")

// documentedMetrics are those of docs/metrics.md, which TestDocsMetrics compares with the
// collectors.
func documentedMetrics(t *testing.T) promMetrics {
	t.Helper()
	known := promMetrics{}
	known.add("up")
	reasons := map[string]bool{}
	for _, m := range backticked.FindAllStringSubmatch(readDocument(t, "docs/reasons.md"), -1) {
		reasons[m[1]] = true
	}
	row := regexp.MustCompile("(?m)^\\| `(penstock_[a-z_]+)` \\| (\\w+) \\|([^|]*)\\|(.*)$")
	for _, m := range row.FindAllStringSubmatch(readDocument(t, "docs/metrics.md"), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		known.addTyped(m[1], m[2], labels)
		words := map[string]bool{}
		if strings.Contains(m[4], "reasons.md") {
			words = maps.Clone(reasons)
		}
		for _, w := range backticked.FindAllStringSubmatch(m[4], -1) {
			words[w[1]] = true
		}
		if one := known[m[1]]; one != nil {
			one.words = words
		}
	}
	if len(known) < 100 {
		t.Fatalf("docs/metrics.md has only %d metrics", len(known))
	}
	return known
}

// anyValue stands for a value that the user of a board chooses.
const anyValue = "chosen.+"

// promQuery checks a query.
type promQuery struct {
	known  promMetrics
	faults []string
	names  map[string]bool // metrics
	// filters: something in the query may leave out all series.
	filters bool
}

// checkQuery returns what is wrong with a query, and the labels of its result.
func checkQuery(known promMetrics, query string) (q *promQuery, result map[string]bool) {
	q = &promQuery{known: known, names: map[string]bool{}}
	e, err := metricsql.Parse(query)
	if err != nil {
		q.fault("%v", err)
		return q, nil
	}
	return q, q.labels(e)
}

func (q *promQuery) fault(format string, args ...any) {
	q.faults = append(q.faults, fmt.Sprintf(format, args...))
}

// labels checks an expression and returns the labels that its series may have.
func (q *promQuery) labels(e metricsql.Expr) map[string]bool {
	switch e := e.(type) {
	case *metricsql.MetricExpr:
		all := map[string]bool{}
		for _, filters := range e.LabelFilterss {
			maps.Copy(all, q.metric(filters))
		}
		return all
	case *metricsql.RollupExpr:
		return q.labels(e.Expr)
	case *metricsql.FuncExpr:
		return q.union(e.Args...)
	case *metricsql.AggrFuncExpr:
		return q.aggregate(e)
	case *metricsql.BinaryOpExpr:
		return q.binary(e)
	case *metricsql.NumberExpr, *metricsql.DurationExpr, *metricsql.StringExpr:
		return nil
	}
	q.fault("%T is not understood by this test", e)
	return nil
}

func (q *promQuery) union(all ...metricsql.Expr) map[string]bool {
	labels := map[string]bool{}
	for _, e := range all {
		maps.Copy(labels, q.labels(e))
	}
	return labels
}

func (q *promQuery) metric(filters []metricsql.LabelFilter) map[string]bool {
	name := ""
	for _, f := range filters {
		if f.Label == "__name__" && !f.IsRegexp && !f.IsNegative {
			name = f.Value
		}
	}
	q.names[name] = true
	m := q.known[name]
	if m == nil {
		q.fault("there is no metric %q", name)
		return nil
	}
	for _, f := range filters {
		if f.Label == "__name__" {
			continue
		}
		if !m.labels[f.Label] {
			q.fault("%s has no label %q", name, f.Label)
		}
		if f.Value == anyValue {
			continue
		}
		q.filters = true
		if slices.Contains(scraped, f.Label) {
			q.fault("%s: the value of %s is different for everyone", name, f.Label)
		}
		q.values(name, m, f)
	}
	return m.labels
}

// values checks that the description of a metric has the values that a filter selects.
func (q *promQuery) values(name string, m *promMetric, f metricsql.LabelFilter) {
	if m.words == nil {
		return
	}
	values := []string{f.Value}
	if f.IsRegexp {
		values = strings.Split(f.Value, "|")
	}
	for _, v := range values {
		if !m.words[v] {
			q.fault("%s: the description does not have the %s %q", name, f.Label, v)
		}
	}
}

func (q *promQuery) aggregate(e *metricsql.AggrFuncExpr) map[string]bool {
	labels := q.union(e.Args...)
	if strings.EqualFold(e.Name, "topk") || strings.EqualFold(e.Name, "bottomk") {
		return labels
	}
	q.has(labels, e.Modifier.Args)
	if strings.EqualFold(e.Modifier.Op, "without") {
		return labels
	}
	by := map[string]bool{}
	for _, l := range e.Modifier.Args {
		by[l] = true
	}
	return by
}

func (q *promQuery) binary(e *metricsql.BinaryOpExpr) map[string]bool {
	if slices.Contains([]string{"and", "unless", "==", "!=", "<", ">", "<=", ">="}, strings.ToLower(e.Op)) {
		q.filters = true
	}
	left, right := q.labels(e.Left), q.labels(e.Right)
	for _, side := range []map[string]bool{left, right} {
		q.has(side, e.GroupModifier.Args)
	}
	both := maps.Clone(left)
	if both == nil {
		both = map[string]bool{}
	}
	if slices.Contains([]string{"and", "unless"}, strings.ToLower(e.Op)) {
		return both
	}
	maps.Copy(both, right)
	return both
}

// has checks that series have the labels that they are grouped or matched by.
func (q *promQuery) has(labels map[string]bool, wanted []string) {
	for _, l := range wanted {
		if !labels[l] {
			q.fault("the series have no label %q", l)
		}
	}
}

// The check of queries finds what is wrong with them.
func TestQueriesAreChecked(t *testing.T) {
	known := documentedMetrics(t)
	for query, want := range map[string]string{
		`sum by (service) (rate(penstock_connections_total{result!="client_fin"}[5m]))`:             "",
		`histogram_quantile(0.9, sum by (le) (rate(penstock_connect_duration_seconds_bucket[5m])))`: "",
		`penstock_connections_totals`:              `there is no metric "penstock_connections_totals"`,
		`penstock_connect_duration_seconds`:        `there is no metric`,
		`penstock_connections_total{reason="x"}`:   `has no label "reason"`,
		`sum by (endpoint) (penstock_connections)`: `no label "endpoint"`,
		`histogram_quantile(0.9, sum by (le, api) (rate(penstock_connect_duration_seconds_bucket[5m])))`:      `no label "api"`,
		`penstock_connections_total{result=~"client_fin|conect_refused"}`:                                     `does not have the result "conect_refused"`,
		`penstock_cluster_members{state="down"}`:                                                              `does not have the state "down"`,
		`penstock_ready{job="penstock"}`:                                                                      `the value of job is different for everyone`,
		`penstock_endpoint_healthy / on (job, instance, service, endpoint, result) penstock_endpoint_ejected`: `no label "result"`,
		`sum by (service) (penstock_connections`:                                                              `argList`,
	} {
		q, _ := checkQuery(known, query)
		if got := strings.Join(q.faults, "; "); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}
