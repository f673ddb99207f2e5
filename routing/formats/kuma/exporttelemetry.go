package kuma

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
)

// telemetry returns the kind, the name and the spec of the policy that a Telemetry came
// from, or could have; why says what Kuma cannot.
func (e exporter) telemetry(o string, t *resource.Telemetry) (kind, name string, spec *yaml.Node, why string) {
	var suffix string
	var same resource.Telemetry
	switch {
	case t.Traces != nil && t.Logs == nil && t.Metrics == nil:
		kind, suffix = kindTrace, suffixTrace
		spec, same.Traces, why = e.trace(t)
	case t.Metrics != nil && t.Logs == nil && t.Traces == nil:
		kind, suffix = kindMetric, suffixMetric
		spec, same.Metrics, why = e.metric(t)
	case t.Logs != nil && t.Traces == nil && t.Metrics == nil:
		kind, suffix = kindAccessLog, suffixAccessLog
		spec, same.Logs, why = e.accessLog(t)
	default:
		why = "Kuma has a policy for each of traces, metrics and logs: write three"
	}
	if why != "" {
		return "", "", nil, why
	}
	name, ok := strings.CutSuffix(o, suffix)
	if !ok || name == "" {
		return "", "", nil, "its name would be another one when it is applied again, as it does not end in " + suffix
	}
	same.OTLP = resource.OTLP{Endpoint: t.OTLP.Endpoint, Insecure: t.OTLP.Insecure}
	same.ResourceAttributes = t.ResourceAttributes
	if !resource.Same(t.WithDefaults(), same.WithDefaults()) || strings.Contains(t.OTLP.Endpoint, "://") {
		return "", "", nil, "Kuma has collectors by gRPC in the clear alone, with the usual bounds, and for the whole mesh; " +
			"it keeps no traces because they failed or were slow, and logs connections alone"
	}
	return kind, name, spec, ""
}

// backends returns a list of one collector, with these settings besides its endpoint.
func (e exporter) backends(t *resource.Telemetry, setting string, value *yaml.Node) *yaml.Node {
	backend := document.NewMapping(e.root)
	backend.Put(e.root, "endpoint", document.Text(e.root, t.OTLP.Endpoint))
	if value != nil {
		backend.Put(e.root, setting, value)
	}
	return document.List(e.root, e.mapping("type", "OpenTelemetry", "openTelemetry", backend.Node))
}

func (e exporter) trace(t *resource.Telemetry) (spec *yaml.Node, same *resource.TelemetryTraces, why string) {
	s := t.Traces
	if len(s.Services) > 1 {
		return nil, nil, "Kuma has one service or all"
	}
	conf := document.NewMapping(e.root)
	conf.Put(e.root, "backends", e.backends(t, "", nil))
	conf.Put(e.root, "sampling", e.sampling(s))
	if tags := e.pairs(t.ResourceAttributes, "name", "literal"); tags != nil {
		conf.Put(e.root, "tags", tags)
	}
	same = &resource.TelemetryTraces{
		Sample: s.Sample, Client: s.Client, Overall: s.Overall, Services: s.Services, Errors: new(false), Slow: new(resource.Duration(0)),
	}
	return e.mapping("targetRef", e.targetRef(s.Services), "default", conf.Node), same, ""
}

func (e exporter) metric(t *resource.Telemetry) (spec *yaml.Node, same *resource.TelemetryMetrics, why string) {
	if len(t.ResourceAttributes) > 0 {
		return nil, nil, "Kuma has no attributes of metrics"
	}
	interval := document.Text(e.root, time.Duration(t.WithDefaults().Metrics.Interval).String())
	conf := e.mapping("backends", e.backends(t, "refreshInterval", interval))
	return e.mapping("targetRef", e.targetRef(nil), "default", conf), t.Metrics, ""
}

func (e exporter) accessLog(t *resource.Telemetry) (spec *yaml.Node, same *resource.TelemetryLogs, why string) {
	for _, value := range t.ResourceAttributes {
		if strings.Contains(value, "%") {
			return nil, nil, "Kuma replaces what is between % in " + strconv.Quote(value)
		}
	}
	conf := e.mapping("backends", e.backends(t, "attributes", e.pairs(t.ResourceAttributes, "key", "value")))
	rules := document.List(e.root, e.mapping("default", conf))
	return e.mapping("targetRef", e.targetRef(nil), "rules", rules), &resource.TelemetryLogs{Node: new(false)}, ""
}

// sampling returns the shares of a MeshTrace. Kuma's default of random is another one.
func (e exporter) sampling(t *resource.TelemetryTraces) *yaml.Node {
	m := document.NewMapping(e.root)
	put := func(name string, percent float64) {
		m.Put(e.root, name, document.Text(e.root, strconv.FormatFloat(percent, 'f', -1, 64)))
	}
	put("random", 100*resource.Share(t.Sample, resource.DefaultSample))
	if t.Client != nil {
		put("client", *t.Client)
	}
	if t.Overall != nil {
		put("overall", *t.Overall)
	}
	return m.Node
}

// pairs returns a list of names with values, sorted; nil: there are none.
func (e exporter) pairs(m map[string]string, name, value string) *yaml.Node {
	if len(m) == 0 {
		return nil
	}
	list := document.List(e.root)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list.Content = append(list.Content, e.mapping(name, k, value, m[k]))
	}
	return list
}
