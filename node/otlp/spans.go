package otlp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"penstock/node/trace"
)

// scopeName names this program as the one that made spans and log records.
const scopeName = "penstock"

// Bits of a span's flags beyond W3C's: whether it is known that its parent is of another
// process, and whether it is.
const (
	flagHasRemote = 0x100
	flagRemote    = 0x200
)

// spanSender returns what sends spans of a node with these attributes.
func spanSender(to otlptrace.Client, attributes []attribute.KeyValue) func(context.Context, []*trace.Span) error {
	node := &resourcepb.Resource{}
	for _, a := range attributes {
		node.Attributes = append(node.Attributes, &commonpb.KeyValue{Key: string(a.Key), Value: stringValue(a.Value.AsString())})
	}
	scope := &commonpb.InstrumentationScope{Name: scopeName}
	return func(ctx context.Context, batch []*trace.Span) error {
		list := make([]*tracepb.Span, len(batch))
		for i, s := range batch {
			list[i] = toProto(s)
		}
		return to.UploadTraces(ctx, []*tracepb.ResourceSpans{{
			Resource: node, ScopeSpans: []*tracepb.ScopeSpans{{Scope: scope, Spans: list}},
		}})
	}
}

// toProto converts a span. The result shares the IDs with it.
func toProto(s *trace.Span) *tracepb.Span {
	p := &tracepb.Span{
		TraceId: s.TraceID[:], SpanId: s.SpanID[:], TraceState: s.TraceState, Flags: uint32(s.Flags) | flagHasRemote,
		Name: s.Name, Kind: tracepb.Span_SpanKind(s.Kind),
		StartTimeUnixNano: uint64(s.Start.UnixNano()), EndTimeUnixNano: uint64(s.End.UnixNano()),
		Attributes: attrsToProto(s.Attrs),
	}
	if s.ParentID != (trace.SpanID{}) {
		p.ParentSpanId = s.ParentID[:]
	}
	if s.Remote {
		p.Flags |= flagRemote
	}
	if s.Error != "" {
		p.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: text(s.Error)}
	}
	for i := range s.Events {
		e := &s.Events[i]
		p.Events = append(p.Events, &tracepb.Span_Event{Name: e.Name, TimeUnixNano: uint64(e.At.UnixNano()), Attributes: attrsToProto(e.Attrs)})
	}
	for i := range s.Links {
		l := &s.Links[i]
		p.Links = append(p.Links, &tracepb.Span_Link{TraceId: l.TraceID[:], SpanId: l.SpanID[:], TraceState: l.TraceState})
	}
	return p
}

func attrsToProto(attrs []trace.Attr) []*commonpb.KeyValue {
	list := make([]*commonpb.KeyValue, len(attrs))
	for i, a := range attrs {
		list[i] = &commonpb.KeyValue{Key: a.Key}
		switch a.ValueKind() {
		case trace.KindInt:
			list[i].Value = &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: a.Int64()}}
		case trace.KindFloat:
			list[i].Value = &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: a.Float64()}}
		case trace.KindBool:
			list[i].Value = &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: a.Boolean()}}
		default:
			list[i].Value = stringValue(a.Str())
		}
	}
	return list
}

func stringValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: text(s)}}
}

// spanSize returns about how many bytes a span takes in a request.
func spanSize(s *trace.Span) int {
	n := 128 + len(s.Name) + len(s.Error) + len(s.TraceState) + attrsSize(s.Attrs) + 64*len(s.Links)
	for i := range s.Events {
		n += 32 + len(s.Events[i].Name) + attrsSize(s.Events[i].Attrs)
	}
	return n
}

func attrsSize(attrs []trace.Attr) int {
	n := 0
	for i := range attrs {
		n += 16 + len(attrs[i].Key) + len(attrs[i].Str())
	}
	return n
}
