package otlp

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	otellog "go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
	oteltrace "go.opentelemetry.io/otel/trace"

	"penstock/node/accesslog"
	"penstock/node/trace"
)

// Bounds of a log record, in bytes, and of its attributes.
const (
	maxMessage = 4 << 10
	maxValue   = 2 << 10
	maxAttrs   = 64
)

// line is a log record that waits: one of the access log, or another one.
type line struct {
	access *accesslog.Record
	own    *ownLine
}

// ownLine is a line of the node's log, already cut to its bounds.
type ownLine struct {
	at      time.Time
	level   slog.Level
	message string
	attrs   []attribute.KeyValue
}

// bytes returns about how many bytes a line takes in a request.
func (l line) bytes() int {
	if r := l.access; r != nil {
		n := 512 + len(r.SNI) + len(r.Identity) + len(r.Service) + len(r.Endpoint) + len(r.ClientID) + len(r.Software) + len(r.Principal)
		if q := r.Request; q != nil {
			n += len(q.Method) + len(q.Host) + len(q.Path)
		}
		return n
	}
	n := 64 + len(l.own.message)
	for _, a := range l.own.attrs {
		n += 16 + len(a.Key)
		if a.Value.Type() == attribute.STRING {
			n += len(a.Value.AsString())
		}
	}
	return n
}

// keep returns a copy of a record for a queue, in which what clients have chosen is cut.
func keep(from *accesslog.Record) *accesslog.Record {
	r := *from
	for _, s := range []*string{&r.SNI, &r.Identity, &r.ClientID, &r.Software, &r.Principal, &r.Via} {
		*s = cut(*s, maxValue)
	}
	if r.Request != nil {
		q := *r.Request
		for _, s := range []*string{&q.Method, &q.Host, &q.Path} {
			*s = cut(*s, maxValue)
		}
		r.Request = &q
	}
	return &r
}

// collect is the processor of a LoggerProvider, which gives records their resource. It
// keeps them for the one who emits them.
type collect struct{ records []sdklog.Record }

// OnEmit implements sdklog.Processor.
func (c *collect) OnEmit(_ context.Context, r *sdklog.Record) error {
	c.records = append(c.records, r.Clone())
	return nil
}

// Enabled implements sdklog.Processor.
func (*collect) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// Shutdown implements sdklog.Processor.
func (*collect) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdklog.Processor.
func (*collect) ForceFlush(context.Context) error { return nil }

// lineSender returns what sends lines of a node. It is not for concurrent use.
func lineSender(to sdklog.Exporter, node *sdkresource.Resource) func(context.Context, []line) error {
	kept := &collect{}
	provider := sdklog.NewLoggerProvider(
		sdklog.WithResource(node), sdklog.WithProcessor(kept),
		sdklog.WithAttributeCountLimit(maxAttrs), sdklog.WithAttributeValueLengthLimit(maxValue),
	)
	logger := provider.Logger(scopeName)
	return func(ctx context.Context, batch []line) error {
		kept.records = kept.records[:0]
		for i := range batch {
			within, r := batch[i].record()
			logger.Emit(within, r)
		}
		defer func() { clear(kept.records) }()
		return to.Export(ctx, kept.records)
	}
}

// record returns the record of a line, and a context with its span.
func (l line) record() (context.Context, otellog.Record) {
	var r otellog.Record
	r.SetObservedTimestamp(time.Now())
	if l.access != nil {
		return accessRecord(l.access, &r), r
	}
	r.SetTimestamp(l.own.at)
	r.SetSeverity(severity(l.own.level))
	r.SetSeverityText(l.own.level.String())
	r.SetBody(attribute.StringValue(l.own.message))
	r.AddAttributes(l.own.attrs...)
	return context.Background(), r
}

// severity converts a level: slog's are 4 apart, like OpenTelemetry's, in which debug
// begins at 5.
func severity(level slog.Level) otellog.Severity {
	return otellog.Severity(min(max(int(level)+int(otellog.SeverityInfo), int(otellog.SeverityTrace1)), int(otellog.SeverityFatal4)))
}

// accessRecord fills in a record of the access log, and returns a context with its span.
func accessRecord(a *accesslog.Record, r *otellog.Record) context.Context {
	r.SetTimestamp(a.At)
	r.SetSeverity(otellog.SeverityInfo)
	r.SetSeverityText("INFO")
	r.SetBody(attribute.StringValue(a.Event.String()))
	r.AddAttributes(accessAttrs(a)...)
	if a.TraceID == (trace.ID{}) {
		return context.Background()
	}
	return oteltrace.ContextWithSpanContext(context.Background(), oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID(a.TraceID), SpanID: oteltrace.SpanID(a.SpanID), TraceFlags: oteltrace.FlagsSampled,
	}))
}

// accessAttrs returns the attributes of a line about a connection or request. Empty fields
// are left out.
func accessAttrs(a *accesslog.Record) []attribute.KeyValue {
	list := make([]attribute.KeyValue, 0, 24)
	str := func(key, value string) {
		if value != "" {
			list = append(list, attribute.String(key, text(value)))
		}
	}
	list = append(list, attribute.Int64(trace.KeyConnection, int64(a.ID)))
	str(trace.KeyListener, a.Listener)
	if a.Client.IsValid() {
		str(trace.KeyClientAddress, a.Client.Addr().String())
		list = append(list, attribute.Int(trace.KeyClientPort, int(a.Client.Port())))
	}
	str(trace.KeySNI, a.SNI)
	str(trace.KeyTLS, a.TLS)
	str(trace.KeyIdentity, a.Identity)
	if q := a.Request; q != nil {
		str(trace.KeyMethod, q.Method)
		str(trace.KeyHost, q.Host)
		str(trace.KeyPath, q.Path)
		list = append(list, attribute.Int(trace.KeyStatus, q.Status))
		if q.Route != "" {
			str(trace.KeyRoute, q.Route)
			list = append(list, attribute.Int(trace.KeyRule, q.Rule))
		}
	}
	str(trace.KeyService, a.Service)
	str(trace.KeyEndpoint, a.Endpoint)
	str(trace.KeyKafkaClientID, a.ClientID)
	str(trace.KeyKafkaSoftware, a.Software)
	str(trace.KeyKafkaPrincipal, a.Principal)
	str(trace.KeyHop, a.Hop)
	str(trace.KeyVia, a.Via)
	str(trace.KeyReason, a.Reason)
	str(trace.KeyPermission, a.Permission)
	str(trace.KeyShadow, a.Shadow)
	if a.Error != nil {
		str(trace.KeyError, a.Error.Error())
	}
	if a.Event != accesslog.Connected {
		list = append(list, attribute.Int64(trace.KeyBytesIn, int64(a.In)), attribute.Int64(trace.KeyBytesOut, int64(a.Out)),
			attribute.Float64(trace.KeyDuration, a.Duration.Seconds()))
	}
	if a.Requests > 0 {
		list = append(list, attribute.Int64(trace.KeyRequests, a.Requests))
	}
	if a.Attempts > 0 {
		list = append(list, attribute.Int(trace.KeyAttempts, a.Attempts))
		if a.Request == nil { // the connection of a request may be older
			list = append(list, attribute.Float64(trace.KeyConnect, a.Connect.Seconds()))
		}
	}
	return list
}

// text returns a text as protobuf requires it, valid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "�") }

// cut cuts a text to at most n bytes, at the beginning of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return text(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return text(strings.Clone(s[:n]))
}
