// Package otlptest is an OpenTelemetry collector for tests: it keeps what it gets over gRPC
// or HTTP, and answers as a test wants it to, also badly.
//
//	c := otlptest.New(t, otlptest.Config{Protocol: "http"})
//	... endpoint: c.Address ...
//	c.Answer(otlptest.Answer{HTTP: 429, After: time.Second})
//	testkit.WaitFor(t, "a span", func() bool { return len(c.Spans()) > 0 })
package otlptest

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // collectors take compressed requests
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Config is the configuration of a Collector.
type Config struct {
	Protocol string // grpc or http
	TLS      *tls.Config
	Listen   string // "": a free port of 127.0.0.1
	Prefix   string // of the paths, with http
}

// Answer is how a collector answers. The zero value takes everything.
type Answer struct {
	Code     codes.Code    // with grpc
	HTTP     int           // with http; 0: 200
	After    time.Duration // what it asks to wait; in whole seconds with http
	Message  string
	Rejected int64
	Location string          // with http, a redirection
	Raw      string          // with http, the whole body,
	Type     string          // of this type
	Until    <-chan struct{} // it waits for that, or for the client to give up
}

// Span is a span with the attributes of its resource.
type Span struct {
	*tracepb.Span
	Resource map[string]string
}

// Record is a log record with the attributes of its resource.
type Record struct {
	*logspb.LogRecord
	Resource map[string]string
}

// Metric is a metric with the attributes of its resource.
type Metric struct {
	*metricspb.Metric
	Resource map[string]string
}

// Collector is a collector. Its methods are safe for concurrent use.
type Collector struct {
	coltrace.UnimplementedTraceServiceServer

	Address string

	prefix string
	mu     sync.Mutex
	answer Answer
	calls  int
	header http.Header // of the last request
	spans  []Span
	logs   []Record
	points []Metric
}

// New starts a collector that ends with the test.
func New(t testing.TB, cfg Config) *Collector {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{Address: l.Addr().String(), prefix: cfg.Prefix}
	done := make(chan struct{})
	if cfg.Protocol == "http" {
		s := &http.Server{Handler: c, TLSConfig: cfg.TLS, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
		go func() {
			defer close(done)
			if cfg.TLS != nil {
				_ = s.ServeTLS(l, "", "")
			} else {
				_ = s.Serve(l)
			}
		}()
		t.Cleanup(func() { _ = s.Close(); <-done })
		return c
	}
	var options []grpc.ServerOption
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(cfg.TLS)))
	}
	s := grpc.NewServer(options...)
	coltrace.RegisterTraceServiceServer(s, c)
	collogs.RegisterLogsServiceServer(s, logsServer{c: c})
	colmetrics.RegisterMetricsServiceServer(s, metricsServer{c: c})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return c
}

// Answer sets how the collector answers from now on.
func (c *Collector) Answer(a Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = a
}

// Calls returns how many requests came.
func (c *Collector) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Header returns the headers of the last request.
func (c *Collector) Header() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}

// Spans returns the spans that the collector took.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Logs returns the log records that the collector took.
func (c *Collector) Logs() []Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Record(nil), c.logs...)
}

// Metrics returns the metrics that the collector took.
func (c *Collector) Metrics() []Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Metric(nil), c.points...)
}

// Attrs returns attributes as text.
func Attrs(list []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[kv.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[kv.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		case *commonpb.AnyValue_DoubleValue:
			m[kv.GetKey()] = strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
		case *commonpb.AnyValue_BoolValue:
			m[kv.GetKey()] = strconv.FormatBool(v.BoolValue)
		}
	}
	return m
}

// begin records a request and returns how to answer it.
func (c *Collector) begin(ctx context.Context, h http.Header) (Answer, error) {
	c.mu.Lock()
	c.calls++
	c.header = h
	a := c.answer
	c.mu.Unlock()
	if a.Until != nil {
		select {
		case <-a.Until:
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
	return a, nil
}

// keep keeps what a request holds.
func (c *Collector) keep(m proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch m := m.(type) {
	case *coltrace.ExportTraceServiceRequest:
		for _, r := range m.GetResourceSpans() {
			for _, s := range r.GetScopeSpans() {
				for _, span := range s.GetSpans() {
					c.spans = append(c.spans, Span{span, Attrs(r.GetResource().GetAttributes())})
				}
			}
		}
	case *collogs.ExportLogsServiceRequest:
		for _, r := range m.GetResourceLogs() {
			for _, s := range r.GetScopeLogs() {
				for _, record := range s.GetLogRecords() {
					c.logs = append(c.logs, Record{record, Attrs(r.GetResource().GetAttributes())})
				}
			}
		}
	case *colmetrics.ExportMetricsServiceRequest:
		for _, r := range m.GetResourceMetrics() {
			for _, s := range r.GetScopeMetrics() {
				for _, metric := range s.GetMetrics() {
					c.points = append(c.points, Metric{metric, Attrs(r.GetResource().GetAttributes())})
				}
			}
		}
	}
}

// call answers a request by gRPC.
func (c *Collector) call(ctx context.Context, request proto.Message) (Answer, error) {
	pairs, _ := metadata.FromIncomingContext(ctx)
	h := http.Header{}
	for k, values := range pairs {
		for _, v := range values {
			h.Add(k, v)
		}
	}
	a, err := c.begin(ctx, h)
	if err != nil {
		return a, err
	}
	if a.Code != codes.OK {
		s := status.New(a.Code, a.Message)
		if a.After > 0 {
			s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(a.After)})
		}
		return a, s.Err()
	}
	c.keep(request)
	return a, nil
}

// Export implements the service of traces.
func (c *Collector) Export(ctx context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	a, err := c.call(ctx, r)
	return &coltrace.ExportTraceServiceResponse{
		PartialSuccess: &coltrace.ExportTracePartialSuccess{RejectedSpans: a.Rejected, ErrorMessage: a.Message},
	}, err
}

type logsServer struct {
	collogs.UnimplementedLogsServiceServer
	c *Collector
}

func (s logsServer) Export(ctx context.Context, r *collogs.ExportLogsServiceRequest) (*collogs.ExportLogsServiceResponse, error) {
	a, err := s.c.call(ctx, r)
	return &collogs.ExportLogsServiceResponse{
		PartialSuccess: &collogs.ExportLogsPartialSuccess{RejectedLogRecords: a.Rejected, ErrorMessage: a.Message},
	}, err
}

type metricsServer struct {
	colmetrics.UnimplementedMetricsServiceServer
	c *Collector
}

func (s metricsServer) Export(ctx context.Context, r *colmetrics.ExportMetricsServiceRequest) (*colmetrics.ExportMetricsServiceResponse, error) {
	a, err := s.c.call(ctx, r)
	return &colmetrics.ExportMetricsServiceResponse{
		PartialSuccess: &colmetrics.ExportMetricsPartialSuccess{RejectedDataPoints: a.Rejected, ErrorMessage: a.Message},
	}, err
}

// ServeHTTP answers a request by HTTP.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, err := read(r, strings.TrimPrefix(r.URL.Path, c.prefix))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, err := c.begin(r.Context(), r.Header)
	if err != nil {
		return
	}
	if a.After > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.After.Seconds())))
	}
	if a.Location != "" {
		w.Header().Set("Location", a.Location)
	}
	if a.Type != "" {
		w.Header().Set("Content-Type", a.Type)
	}
	if a.HTTP == 0 {
		a.HTTP = http.StatusOK
	}
	if a.HTTP != http.StatusOK || a.Raw != "" {
		w.WriteHeader(a.HTTP)
		_, _ = io.WriteString(w, a.Raw+a.Message)
		return
	}
	c.keep(request)
	var response proto.Message
	switch request.(type) {
	case *coltrace.ExportTraceServiceRequest:
		response = &coltrace.ExportTraceServiceResponse{PartialSuccess: &coltrace.ExportTracePartialSuccess{RejectedSpans: a.Rejected, ErrorMessage: a.Message}}
	case *collogs.ExportLogsServiceRequest:
		response = &collogs.ExportLogsServiceResponse{PartialSuccess: &collogs.ExportLogsPartialSuccess{RejectedLogRecords: a.Rejected, ErrorMessage: a.Message}}
	default:
		response = &colmetrics.ExportMetricsServiceResponse{
			PartialSuccess: &colmetrics.ExportMetricsPartialSuccess{RejectedDataPoints: a.Rejected, ErrorMessage: a.Message},
		}
	}
	body, _ := proto.Marshal(response)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(body)
}

// read reads a request.
func read(r *http.Request, path string) (proto.Message, error) {
	var m proto.Message
	switch path {
	case "/v1/traces":
		m = new(coltrace.ExportTraceServiceRequest)
	case "/v1/logs":
		m = new(collogs.ExportLogsServiceRequest)
	case "/v1/metrics":
		m = new(colmetrics.ExportMetricsServiceRequest)
	default:
		return nil, errors.New("no such path: " + path)
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	return m, proto.Unmarshal(text, m)
}
