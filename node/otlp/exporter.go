package otlp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"

	"penstock/node/tlsconfig"
	"penstock/node/trace"
	"penstock/routing/resource"
)

// client is the connection to a collector, with an exporter of the SDK for each signal.
// They try once: what comes then is decided by sender.
type client struct {
	traces    otlptrace.Client
	logs      sdklog.Exporter
	metrics   sdkmetric.Exporter
	closeConn func()
}

// close closes the connections.
func (c *client) close() {
	done, cancel := context.WithCancel(context.Background())
	cancel() // nothing is in flight any more
	_ = c.traces.Stop(done)
	_ = c.logs.Shutdown(done)
	_ = c.metrics.Shutdown(done)
	c.closeConn()
}

// exporter serves one Telemetry.
type exporter struct {
	client *client
	policy *trace.Policy // nil: no traces
	access bool          // log records about connections
	node   bool          // and the node's other lines,
	level  slog.Level    // from that level on

	spans   *queue[*trace.Span] // nil: none
	logs    *queue[line]        // nil: none
	metrics *reporter           // nil: none

	stop    chan struct{}
	last    func()          // ends the reporter, after a last report
	ctx     context.Context // ends when nothing more is to be sent
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// newExporter makes an exporter. spec has its defaults.
func newExporter(m *Manager, name string, spec *resource.Telemetry, counts *[signals]counts) (*exporter, error) {
	headers, err := headersOf(spec)
	if err != nil {
		return nil, err
	}
	e := &exporter{stop: make(chan struct{})}
	if e.client, err = connect(&spec.OTLP, m.cfg.Certificates(), headers); err != nil {
		return nil, err
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	attributes := attributesOf(&m.cfg.Node, spec.ResourceAttributes)
	common := func(s Signal) *sender {
		return &sender{
			signal: s, name: name, counts: &counts[s], log: m.cfg.Log, retry: m.cfg.Retry, limit: giveUp,
			timeout: spec.OTLP.Timeout.D(), hide: hiding(headers), stop: e.stop,
		}
	}
	if t := spec.Traces; t != nil {
		e.spans = newQueue(common(Traces), spec.OTLP.Queue, m.cfg.Delay, spanSize, spanSender(e.client.traces, attributes))
		e.policy = policyOf(name, t, exportTo{e.spans})
	}
	if l := spec.Logs; l != nil {
		e.access, e.node = *l.Access, *l.Node
		_ = e.level.UnmarshalText([]byte(l.Level)) // it was validated
		e.logs = newQueue(common(Logs), spec.OTLP.Queue, m.cfg.Delay, line.bytes, lineSender(e.client.logs, sdkresource.NewSchemaless(attributes...)))
	}
	e.last = func() {}
	if spec.Metrics != nil {
		common := common(Metrics)
		common.stop = make(chan struct{})
		e.last = sync.OnceFunc(func() { close(common.stop) })
		e.metrics = newReporter(common, spec.Metrics.Interval.D(), m.cfg.Gather, e.client.metrics, sdkresource.NewSchemaless(attributes...))
	}
	return e, nil
}

// exportTo queues spans.
type exportTo struct{ to *queue[*trace.Span] }

// Export implements trace.Exporter.
func (e exportTo) Export(s *trace.Span) { e.to.put(s) }

// run starts what sends.
func (e *exporter) run() {
	if e.spans != nil {
		e.running.Go(func() { e.spans.run(e.ctx) })
	}
	if e.logs != nil {
		e.running.Go(func() { e.logs.run(e.ctx) })
	}
	if e.metrics != nil {
		e.running.Go(func() { e.metrics.run(e.ctx) })
	}
}

// close sends what is queued until ctx ends, and closes the connections.
func (e *exporter) close(ctx context.Context) {
	close(e.stop)
	e.last()
	defer context.AfterFunc(ctx, e.cancel)()
	e.running.Wait()
	e.cancel()
	e.client.close()
}

// senders returns those of the signals that are sent.
func (e *exporter) senders() (list []*sender) {
	if e.spans != nil {
		list = append(list, e.spans.sender)
	}
	if e.logs != nil {
		list = append(list, e.logs.sender)
	}
	if e.metrics != nil {
		list = append(list, e.metrics.sender)
	}
	return list
}

// connect makes the client for a collector.
func connect(o *resource.OTLP, certs *tlsconfig.Store, headers map[string]string) (*client, error) {
	target, err := resource.ParseOTLPEndpoint(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint %w", err)
	}
	var config *tls.Config
	if !o.Plain() {
		if config, err = clientTLS(cmp.Or(o.TLS, &resource.OTLPTLS{}), certs, target.Host); err != nil {
			return nil, err
		}
	}
	if o.Protocol == resource.OTLPHTTP {
		return newHTTP(o, target, config, headers)
	}
	return newGRPC(o, target, config, headers)
}

// clientTLS returns the configuration towards a host. Each handshake uses the client
// certificate of its time.
func clientTLS(t *resource.OTLPTLS, certs *tlsconfig.Store, host string) (*tls.Config, error) {
	c, err := tlsconfig.NewClient(t.ServiceTLS(), certs)
	if err != nil {
		return nil, err
	}
	config := c.For(host).Clone()
	if t.CertificateRef != "" {
		config.Certificates = nil
		config.ClientSessionCache = nil // a session would keep the identity of another certificate
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if list := c.For(host).Certificates; len(list) > 0 {
				return &list[0], nil
			}
			return nil, errors.New("the client certificate " + t.CertificateRef + " is not there")
		}
	}
	return config, nil
}

// headersOf returns the headers with their values.
func headersOf(spec *resource.Telemetry) (map[string]string, error) {
	headers := map[string]string{}
	for i := range spec.OTLP.Headers {
		h := &spec.OTLP.Headers[i]
		text, ok := h.Text()
		if !ok {
			return nil, errors.New("the file of header " + h.Name + " cannot be used")
		}
		headers[h.Name] = text
	}
	return headers, nil
}

// hiding returns a function that hides the values of headers in a text: a collector may
// repeat what it was sent.
func hiding(headers map[string]string) func(string) string {
	var pairs []string
	for _, value := range headers {
		for _, word := range append(strings.Fields(value), value) { // "Bearer TOKEN"
			if len(word) >= minSecret || word == value {
				pairs = append(pairs, word)
			}
		}
	}
	slices.SortFunc(pairs, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return func(s string) string {
		for _, word := range pairs {
			s = strings.ReplaceAll(s, word, resource.HiddenSecret)
		}
		return s
	}
}

// minSecret is the length of a word of a value that is hidden by itself.
const minSecret = 8

// attributesOf returns the attributes of the resource, sorted.
func attributesOf(n *Node, own map[string]string) []attribute.KeyValue {
	all := map[string]string{
		"service.name": "penstock", "service.version": n.Version, "service.instance.id": n.ID, "host.name": n.Host,
		"penstock.node": n.Name, "penstock.cluster": n.Cluster,
	}
	maps.Copy(all, own)
	var list []attribute.KeyValue
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if all[k] != "" {
			list = append(list, attribute.String(k, all[k]))
		}
	}
	return list
}

// policyOf returns what a Telemetry wants of spans. t has its defaults.
func policyOf(name string, t *resource.TelemetryTraces, to trace.Exporter) *trace.Policy {
	set := func(names []string) map[string]bool {
		if len(names) == 0 {
			return nil
		}
		m := make(map[string]bool, len(names))
		for _, n := range names {
			m[n] = true
		}
		return m
	}
	return &trace.Policy{
		Telemetry: name, To: to,
		Sample: resource.Share(t.Sample, resource.DefaultSample), Client: resource.Share(t.Client, resource.DefaultClient),
		Overall:     resource.Share(t.Overall, resource.DefaultOverall),
		HideClients: t.HideClients, Errors: *t.Errors, Slow: t.Slow.D(), Listeners: set(t.Listeners), Services: set(t.Services),
	}
}
