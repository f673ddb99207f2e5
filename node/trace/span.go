// Package trace is the seam between the data path, which makes spans, and what exports
// them (node/otlp). It holds the form of a span and the sampling policies of the
// cluster's Telemetry resources. It knows neither sockets nor OpenTelemetry's protocol.
//
// The data path asks the Tracer, whose policies change at any time:
//
//	if tracer.Enabled() {
//		for _, p := range tracer.Policies() {
//			if p.Selects("edge", "apps") && (p.Samples(id, parentSampled) || p.Keeps(failed, took)) {
//				p.Export(span)
//			}
//		}
//	}
//
// Nothing here blocks: an exporter that cannot keep up drops spans and counts them.
package trace

import (
	"math"
	"time"
)

// The IDs of W3C's Trace Context. Zero is no ID.
type (
	TraceID [16]byte //nolint:revive // the specification's name
	SpanID  [8]byte  //nolint:revive // as above
)

// Kind says which side of a call a span describes. The values are OTLP's.
type Kind uint8

// The kinds of spans.
const (
	Internal Kind = iota + 1
	Server
	Client
	Producer
	Consumer
)

// FlagSampled is the bit of Span.Flags that says that the trace was sampled when it
// began, as opposed to a span that was kept because it failed or was slow.
const FlagSampled = 1

// Span is one connection, request or part of it. Nobody changes a span after the first
// Export, so exporters may keep it and share it.
type Span struct {
	TraceID    TraceID
	SpanID     SpanID
	ParentID   SpanID // zero: the span is the root of its trace
	TraceState string // W3C's tracestate as it came, already checked; "": none
	Flags      byte   // W3C's trace flags
	Remote     bool   // the parent is of another process
	Kind       Kind
	Name       string
	Start, End time.Time
	Attrs      []Attr
	Events     []Event
	Links      []Link
	Error      string // why it failed; "": it did not
}

// Event is something that happened during a span.
type Event struct {
	Name  string
	At    time.Time
	Attrs []Attr
}

// Link names a span of another trace.
type Link struct {
	TraceID    TraceID
	SpanID     SpanID
	TraceState string
}

// ValueKind is the type of an attribute's value.
type ValueKind uint8

// The types of values.
const (
	KindString ValueKind = iota
	KindInt
	KindFloat
	KindBool
)

// Attr is a key with a value of one of four types. It is a plain value, so that a list
// of them is one allocation.
type Attr struct {
	Key  string
	str  string
	num  uint64
	kind ValueKind
}

// String returns an attribute with a text, which may be a peer's.
func String(key, value string) Attr { return Attr{Key: key, str: value} }

// Int returns an attribute with an integer.
func Int(key string, value int64) Attr { return Attr{Key: key, num: uint64(value), kind: KindInt} }

// Float returns an attribute with a number.
func Float(key string, value float64) Attr {
	return Attr{Key: key, num: math.Float64bits(value), kind: KindFloat}
}

// Bool returns an attribute with a truth value.
func Bool(key string, value bool) Attr {
	a := Attr{Key: key, kind: KindBool}
	if value {
		a.num = 1
	}
	return a
}

// ValueKind returns the type of the value.
func (a Attr) ValueKind() ValueKind { return a.kind }

// Str returns the value of a KindString.
func (a Attr) Str() string { return a.str }

// Int64 returns the value of a KindInt.
func (a Attr) Int64() int64 { return int64(a.num) }

// Float64 returns the value of a KindFloat.
func (a Attr) Float64() float64 { return math.Float64frombits(a.num) }

// Boolean returns the value of a KindBool.
func (a Attr) Boolean() bool { return a.num != 0 }
