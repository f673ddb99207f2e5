package kuma

import (
	"net"
	"strconv"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
)

// The policies that become a Telemetry, and what its name ends in: policies of the three
// kinds often have the same name.
const (
	kindTrace     = "MeshTrace"
	kindMetric    = "MeshMetric"
	kindAccessLog = "MeshAccessLog"

	suffixTrace     = "-traces"
	suffixMetric    = "-metrics"
	suffixAccessLog = "-logs"
)

const (
	// defaultOTLPPort is where a collector listens that an endpoint names without a port.
	defaultOTLPPort = "4317"
	// defaultRefresh is Kuma's interval of metrics.
	defaultRefresh = resource.Duration(time.Minute)

	noBackendRef = "is not supported: write openTelemetry.endpoint, or a Telemetry, which has TLS and headers too"
	wholeMesh    = "is not supported: want kind: Mesh, as %s are of a node; a Telemetry picks nodes by their tags"
)

// telemetryReader reads the spec of one policy about what is observed.
type telemetryReader struct {
	policyReader
	warn func(n *yaml.Node, path, message string, value any)
	out  resource.Telemetry
}

func newTelemetryReader(f *document.Frame, n *yaml.Node, warn warner) *telemetryReader {
	return &telemetryReader{policyReader: policyReader{f: f, spec: n, ok: true}, warn: warn.of(f)}
}

// result returns the spec of the Telemetry; nil after a fault.
func (p *telemetryReader) result() *yaml.Node {
	if p.ok && p.out.OTLP.Endpoint == "" {
		p.fault(p.spec, "spec.default.backends", "needs one of type OpenTelemetry", nil)
	}
	return p.resourceSpec(&p.out)
}

// traceSpec converts the spec of a MeshTrace. Kuma keeps no traces because they failed or
// were slow.
func traceSpec(f *document.Frame, n *yaml.Node, warn warner) *yaml.Node {
	p := newTelemetryReader(f, n, warn)
	v := p.fields(n, "spec", "targetRef", "default")
	traces := &resource.TelemetryTraces{Errors: new(false), Slow: new(resource.Duration(0))}
	p.out.Traces = traces
	traces.Services = p.destination(v["targetRef"], "spec.targetRef")
	conf := p.fields(v["default"], "spec.default", "backends", "sampling", "tags")
	p.backends(conf["backends"], "spec.default.backends", func(b *yaml.Node, kind, path string) {
		switch kind {
		case "OpenTelemetry":
			p.endpoint(p.fields(b, path, "endpoint", "backendRef"), b, path)
		default:
			p.fault(b, path, "is not supported: want type OpenTelemetry; its collectors forward to Zipkin, Jaeger and Datadog", kind)
		}
	})
	sampling := p.fields(conf["sampling"], "spec.default.sampling", "overall", "client", "random")
	traces.Sample = p.percent(sampling["random"], "spec.default.sampling.random")
	traces.Client = p.percent(sampling["client"], "spec.default.sampling.client")
	traces.Overall = p.percent(sampling["overall"], "spec.default.sampling.overall")
	if traces.Sample == nil {
		traces.Sample = new(float64(100)) // Kuma's default
	}
	for i, item := range p.list(conf["tags"], "spec.default.tags") {
		p.tag(item, resource.Item("spec.default.tags", i))
	}
	return p.result()
}

// tag reads a tag of spans. One with a fixed value becomes an attribute of all of them.
func (p *telemetryReader) tag(n *yaml.Node, path string) {
	v := p.fields(n, path, "name", "literal", "header")
	switch {
	case v["name"] == nil:
		p.fault(n, path+".name", "is required", nil)
	case v["literal"] != nil:
		p.attribute(v["name"].Value, v["literal"].Value)
	default:
		p.warn(n, path, "is left out: spans have no headers of requests", v["name"].Value)
	}
}

func (p *telemetryReader) attribute(name, value string) {
	if p.out.ResourceAttributes == nil {
		p.out.ResourceAttributes = map[string]string{}
	}
	p.out.ResourceAttributes[name] = value
}

// percent reads a share, which Kuma writes as a number or a text.
func (p *telemetryReader) percent(n *yaml.Node, path string) *float64 {
	if n == nil {
		return nil
	}
	share, err := strconv.ParseFloat(n.Value, 64)
	if err != nil || !(share >= 0 && share <= 100) {
		p.fault(n, path, "must be a number from 0 to 100, in percent", n.Value)
		return nil
	}
	return &share
}

// metricSpec converts the spec of a MeshMetric.
func metricSpec(f *document.Frame, n *yaml.Node, warn warner) *yaml.Node {
	p := newTelemetryReader(f, n, warn)
	v := p.fields(n, "spec", "targetRef", "default")
	p.whole(v["targetRef"], "spec.targetRef", "metrics")
	p.out.Metrics = &resource.TelemetryMetrics{Interval: defaultRefresh}
	conf := p.fields(v["default"], "spec.default", "sidecar", "applications", "backends")
	if conf["sidecar"] != nil {
		p.warn(conf["sidecar"], "spec.default.sidecar", "is left out: a node sends all of its metrics; collectors can filter them", nil)
	}
	if conf["applications"] != nil {
		p.warn(conf["applications"], "spec.default.applications", "is left out: nodes do not gather the metrics of applications", nil)
	}
	p.backends(conf["backends"], "spec.default.backends", func(b *yaml.Node, kind, path string) {
		switch kind {
		case "OpenTelemetry":
			fields := p.fields(b, path, "endpoint", "backendRef", "refreshInterval")
			p.endpoint(fields, b, path)
			if interval := fields["refreshInterval"]; interval != nil {
				var err error
				if p.out.Metrics.Interval, err = resource.ParseDuration(interval.Value); err != nil {
					p.fault(interval, path+".refreshInterval", "must be a duration, such as 30s", interval.Value)
				}
			}
		case "Prometheus":
			p.warn(b, path, "is left out: each node serves Prometheus' metrics by itself, at /metrics of its --http address", nil)
		default:
			p.fault(b, path, "must be of type OpenTelemetry or Prometheus", kind)
		}
	})
	return p.result()
}

// accessLogSpec converts the spec of a MeshAccessLog. A node logs each connection once, so
// entries for what comes in and what goes out have to want the same.
func accessLogSpec(f *document.Frame, n *yaml.Node, warn warner) *yaml.Node {
	p := newTelemetryReader(f, n, warn)
	v := p.fields(n, "spec", "targetRef", "to", "from", "rules")
	p.whole(v["targetRef"], "spec.targetRef", "logs")
	p.out.Logs = &resource.TelemetryLogs{Node: new(false)}
	known := map[string][]string{"to": {"targetRef", "default"}, "from": {"targetRef", "default"}, "rules": {"matches", "default"}}
	for _, list := range []string{"to", "from", "rules"} {
		for i, item := range p.list(v[list], "spec."+list) {
			path := resource.Item("spec."+list, i)
			entry := p.fields(item, path, known[list]...)
			p.whole(entry["targetRef"], path+".targetRef", "logs")
			if entry["matches"] != nil {
				p.fault(entry["matches"], path+".matches", "is not supported: a node logs all connections", nil)
			}
			conf := p.fields(entry["default"], path+".default", "backends")
			p.backends(conf["backends"], path+".default.backends", p.logBackend)
		}
	}
	if p.ok && p.out.OTLP.Endpoint == "" {
		p.fault(n, "spec", "needs to, from or rules with a backend of type OpenTelemetry", nil)
	}
	return p.result()
}

func (p *telemetryReader) logBackend(b *yaml.Node, kind, path string) {
	switch kind {
	case "OpenTelemetry":
		fields := p.fields(b, path, "endpoint", "backendRef", "attributes", "body")
		p.endpoint(fields, b, path)
		if fields["body"] != nil {
			p.warn(fields["body"], path+".body", "is left out: the body of a record says what happened, and its attributes the rest", nil)
		}
		for i, item := range p.list(fields["attributes"], path+".attributes") {
			at := resource.Item(path+".attributes", i)
			v := p.fields(item, at, "key", "value")
			switch {
			case v["key"] == nil || v["value"] == nil:
				p.fault(item, at, "needs key and value", nil)
			case strings.Contains(v["value"].Value, "%"):
				p.warn(item, at, "is left out: records have attributes of their own, listed in docs/telemetry.md", v["key"].Value)
			default:
				p.attribute(v["key"].Value, v["value"].Value)
			}
		}
	case "File", "Tcp":
		p.warn(b, path, "is left out: where a node writes its access log is a setting of the node, --access-log", kind)
	default:
		p.fault(b, path, "must be of type OpenTelemetry, File or Tcp", kind)
	}
}

// whole refuses a target that is not everything.
func (p *telemetryReader) whole(n *yaml.Node, path, what string) {
	if services := p.destination(n, path); len(services) > 0 {
		p.fault(n, path, strings.Replace(wholeMesh, "%s", what, 1), services[0])
	}
}

// backends reads a list of backends, each of a type with settings under its name.
func (p *telemetryReader) backends(list *yaml.Node, path string, read func(b *yaml.Node, kind, path string)) {
	names := map[string]string{
		"OpenTelemetry": "openTelemetry", "Prometheus": "prometheus", "Zipkin": "zipkin", "Datadog": "datadog", "File": "file", "Tcp": "tcp",
	}
	for i, item := range p.list(list, path) {
		at := resource.Item(path, i)
		kind := document.TextOf(item, "type")
		name, known := names[kind]
		if !known {
			p.fault(item, at+".type", "is required, such as OpenTelemetry", orNone(kind))
			continue
		}
		settings := p.fields(item, at, "type", name)[name]
		if settings == nil {
			settings = document.NewMapping(item).Node
		}
		read(settings, kind, at+"."+name)
	}
}

func orNone(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// endpoint reads where a collector is. Kuma's proxies reach it by gRPC without TLS.
func (p *telemetryReader) endpoint(v map[string]*yaml.Node, b *yaml.Node, path string) {
	if v["backendRef"] != nil {
		p.fault(v["backendRef"], path+".backendRef", noBackendRef, nil)
		return
	}
	if v["endpoint"] == nil {
		p.fault(b, path+".endpoint", "is required: host:port of the collector", nil)
		return
	}
	endpoint := v["endpoint"].Value
	if _, _, ok := resource.SplitAddress(endpoint); !ok && !strings.Contains(endpoint, "/") {
		endpoint = net.JoinHostPort(strings.Trim(endpoint, "[]"), defaultOTLPPort)
	}
	target, err := resource.ParseOTLPEndpoint(endpoint)
	switch {
	case strings.Contains(endpoint, "://") || err != nil:
		p.fault(v["endpoint"], path+".endpoint", "must be host:port of the collector", nil)
	case p.out.OTLP.Endpoint != "" && p.out.OTLP.Endpoint != endpoint:
		p.fault(v["endpoint"], path+".endpoint", "differs from the backend before: write one document for each collector", endpoint)
	default:
		p.out.OTLP.Endpoint, p.out.OTLP.Insecure = endpoint, !target.OnThisMachine()
	}
}
