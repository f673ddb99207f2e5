package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"penstock/routing/resource"
)

// userAgent names this program to collectors.
const userAgent = "penstock"

// The paths of the signals, after that of the endpoint.
const (
	pathTraces  = "/v1/traces"
	pathLogs    = "/v1/logs"
	pathMetrics = "/v1/metrics"
)

// newHTTP makes the exporters that POST to a collector.
func newHTTP(o *resource.OTLP, target resource.Target, config *tls.Config, headers map[string]string) (*client, error) {
	transport := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig: config, ForceAttemptHTTP2: true,
		MaxIdleConns: 4, IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: maxAnswer,
		DisableCompression: true, // of answers: what is read of them is bounded
	}
	h := &http.Client{Transport: &poster{next: transport, headers: headers}}
	base := "http://"
	if config != nil {
		base = "https://"
	}
	base += target.Address + target.Path
	none := map[string]string{} // the environment's would be sent otherwise
	tracing := []otlptracehttp.Option{
		otlptracehttp.WithEndpointURL(base + pathTraces), otlptracehttp.WithHTTPClient(h), otlptracehttp.WithTimeout(o.Timeout.D()),
		otlptracehttp.WithHeaders(none), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), otlptracehttp.WithTLSClientConfig(nil),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression),
	}
	logging := []otlploghttp.Option{
		otlploghttp.WithEndpointURL(base + pathLogs), otlploghttp.WithHTTPClient(h), otlploghttp.WithTimeout(o.Timeout.D()),
		otlploghttp.WithHeaders(none), otlploghttp.WithRetry(otlploghttp.RetryConfig{}), otlploghttp.WithTLSClientConfig(nil),
		otlploghttp.WithCompression(otlploghttp.NoCompression),
	}
	measuring := []otlpmetrichttp.Option{
		otlpmetrichttp.WithEndpointURL(base + pathMetrics), otlpmetrichttp.WithHTTPClient(h), otlpmetrichttp.WithTimeout(o.Timeout.D()),
		otlpmetrichttp.WithHeaders(none), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}), otlpmetrichttp.WithTLSClientConfig(nil),
		otlpmetrichttp.WithCompression(otlpmetrichttp.NoCompression),
	}
	if o.Compression == "gzip" {
		tracing = append(tracing, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
		logging = append(logging, otlploghttp.WithCompression(otlploghttp.GzipCompression))
		measuring = append(measuring, otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression))
	}
	c := &client{closeConn: transport.CloseIdleConnections, traces: otlptracehttp.NewClient(tracing...)}
	err := c.traces.Start(context.Background())
	if err != nil {
		return nil, err
	}
	if c.logs, err = otlploghttp.New(context.Background(), logging...); err != nil {
		return nil, err
	}
	c.metrics, err = otlpmetrichttp.New(context.Background(), measuring...)
	return c, err
}

// poster adds the headers to each request, and reads the answer.
type poster struct {
	next    http.RoundTripper
	headers map[string]string
}

// RoundTrip returns an empty answer, or an error.
func (p *poster) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range p.headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("User-Agent", userAgent)
	res, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, httpError(res, body)
	case len(body) > maxAnswer:
		return nil, &sendError{text: fmt.Sprintf("answered %q with more than %d bytes: this is no OTLP collector", res.Status, maxAnswer)}
	}
	if err := readAnswer(r, res, body); err != nil {
		return nil, err
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(nil)), 0
	return res, nil
}

// readAnswer reads what a collector says about a batch that it has taken.
func readAnswer(r *http.Request, res *http.Response, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	var m proto.Message
	switch {
	case strings.HasSuffix(r.URL.Path, pathTraces):
		m = new(coltrace.ExportTraceServiceResponse)
	case strings.HasSuffix(r.URL.Path, pathLogs):
		m = new(collogs.ExportLogsServiceResponse)
	default:
		m = new(colmetrics.ExportMetricsServiceResponse)
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	var err error
	switch kind {
	case "application/x-protobuf":
		err = proto.Unmarshal(body, m)
	case "application/json":
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, m)
	default:
		return &sendError{text: "answered " + shown(res.Status) + " with content of type " + shown(kind) + ": this is no OTLP collector, or another path"}
	}
	if err != nil {
		return &sendError{text: "answered " + shown(res.Status) + " with something else than OTLP: this is no OTLP collector, or another path"}
	}
	take(r.Context(), m)
	return nil
}

// httpError tells by the OTLP specification whether a request may succeed later. As a
// redirection is an error too, the client follows none: it would send the headers elsewhere.
func httpError(res *http.Response, body []byte) error {
	message := string(body)
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind == "application/x-protobuf" {
		var s rpcstatus.Status
		if proto.Unmarshal(body, &s) == nil {
			message = s.GetMessage()
		}
	}
	failed := &sendError{text: "answered " + shown(res.Status), said: message}
	if res.StatusCode >= 300 && res.StatusCode <= 399 {
		failed.text += ", a redirection, which is not followed: write where it leads"
	}
	switch res.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		failed.retry, failed.after = true, retryAfter(res.Header.Get("Retry-After"))
	}
	return failed
}

// retryAfter reads a Retry-After: seconds, or a date.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
