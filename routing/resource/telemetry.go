package resource

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// KindTelemetry is the kind of Telemetry.
const KindTelemetry = "Telemetry"

// Telemetry sends what nodes see to an OpenTelemetry collector: traces, metrics and logs.
// Several are independent of one another. A change takes effect at once.
type Telemetry struct {
	// OTLP is the collector. Required.
	OTLP OTLP `yaml:"otlp"`
	// ResourceAttributes are added to what is sent, at most 64. They win over those of
	// the node, which are service.name (penstock), service.version,
	// service.instance.id, host.name, penstock.node and penstock.cluster.
	ResourceAttributes map[string]string `yaml:"resourceAttributes"`
	// Traces sends a span for each connection and request that is sampled or kept. Left
	// out: none.
	Traces *TelemetryTraces `yaml:"traces"`
	// Logs sends the lines of nodes' logs and access logs. Left out: none.
	Logs *TelemetryLogs `yaml:"logs"`
	// Metrics sends the metrics that /metrics serves. Left out: none.
	Metrics *TelemetryMetrics `yaml:"metrics"`
	// Nodes selects the nodes that send, by their tags. Default all.
	Nodes map[string]string `yaml:"nodes"`
}

// The protocols of OTLP.
const (
	OTLPGRPC = "grpc"
	OTLPHTTP = "http"
)

// OTLP is a collector that speaks the OpenTelemetry protocol.
type OTLP struct {
	// Endpoint is host:port, or a URL: https://host:port has TLS, and with protocol http
	// there may be a path, to which /v1/traces, /v1/metrics and /v1/logs are added.
	// Required.
	Endpoint string `yaml:"endpoint"`
	// Protocol is grpc, or http (protobuf by POST). Default grpc.
	Protocol string `yaml:"protocol" default:"grpc" oneof:"grpc http"`
	// Headers are sent with each request, at most 32.
	Headers []OTLPHeader `yaml:"headers"`
	// TLS configures TLS. Left out: with https:// the system's CAs, otherwise plain text.
	TLS *OTLPTLS `yaml:"tls"`
	// Insecure permits plain text to a host that is not this machine: everybody on the
	// way can read it, values of headers included. Default false.
	Insecure bool `yaml:"insecure"`
	// Timeout bounds an attempt to send. Default 10s, 100ms..2m.
	Timeout Duration `yaml:"timeout" default:"10s" range:"100ms..2m"`
	// Compression is gzip or none. Default gzip.
	Compression string `yaml:"compression" default:"gzip" oneof:"gzip none"`
	// Queue bounds the spans, and likewise the log records, that wait for the collector
	// on a node, at some KiB each. Over it they are dropped, and counted. Default 2048,
	// 64..1000000.
	Queue int `yaml:"queue" default:"2048" range:"64..1000000"`
}

// OTLPHeader is a header of requests to a collector, such as an API key. Its value is
// never shown.
type OTLPHeader struct {
	// Name is the header's name; case does not matter. Required.
	Name string `yaml:"name"`
	// Value is what is sent. Required, unless ValueFile is given.
	Value Secret `yaml:"value"`
	// ValueFile is a file on each node that has the whole header in one line, as in
	// "Authorization: Bearer TOKEN". The node reads it again when it changes. A file
	// with anything else is refused, so that no other secret of the node can be sent.
	ValueFile string `yaml:"valueFile"`

	// content is what ValueFile holds; nil: it is not read. It is behind a pointer so that
	// printing the spec does not show it.
	content *string
}

// Text returns the value to send; false: its file cannot be used.
func (h *OTLPHeader) Text() (string, bool) {
	if h.ValueFile == "" {
		return string(h.Value), true
	}
	if h.content == nil {
		return "", false
	}
	return *h.content, true
}

// OTLPTLS configures TLS to a collector.
type OTLPTLS struct {
	// CA is a bundle of PEM certificates, or the file that holds it, relative to the
	// resource's file and read when it is applied. Left out: the system's.
	CA string `yaml:"ca"`
	// CAFile is a file with CA on each node, which reads it again when it changes.
	CAFile string `yaml:"caFile"`
	// ServerName is sent as SNI and verified. Default the endpoint's host.
	ServerName string `yaml:"serverName"`
	// CertificateRef names the client certificate to present.
	CertificateRef string `yaml:"certificateRef"`
	// MinVersion is "1.2" or "1.3". Default "1.2".
	MinVersion string `yaml:"minVersion" default:"1.2" oneof:"1.2 1.3"`
	// InsecureSkipVerify accepts any certificate. Default false.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
}

// ServiceTLS returns the same settings as those towards an endpoint.
func (t *OTLPTLS) ServiceTLS() *ServiceTLS {
	return &ServiceTLS{
		CA: t.CA, CAFile: t.CAFile, ServerName: t.ServerName, CertificateRef: t.CertificateRef, MinVersion: t.MinVersion,
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
}

// TelemetryTraces selects traces.
type TelemetryTraces struct {
	// Sample is the share of traces that begin here, in percent. Fractions are allowed.
	// Default 1, 0..100.
	Sample *float64 `yaml:"sample"`
	// Client is the share of traces, in percent, that are sent among those that a client
	// has begun and sampled: its traceparent says so. Lower it where clients are not to
	// decide. Default 100, 0..100.
	Client *float64 `yaml:"client"`
	// Overall bounds the two above: it is the share, in percent, of what they select.
	// Default 100, 0..100.
	Overall *float64 `yaml:"overall"`
	// Errors sends connections and requests that failed, sampled or not. Default true.
	Errors *bool `yaml:"errors" default:"true"`
	// Slow sends requests that took as long, and connections whose first answer did,
	// sampled or not. 0 turns it off. Default 1s, up to 1h.
	Slow *Duration `yaml:"slow" default:"1s" range:"0..1h"`
	// HideClients leaves out who clients are: their addresses, identities and users.
	// Default false.
	HideClients bool `yaml:"hideClients"`
	// Listeners selects by where connections arrive. Default all.
	Listeners []string `yaml:"listeners"`
	// Services selects by the destination. Default all.
	Services []string `yaml:"services"`
}

// TelemetryLogs selects lines of logs.
type TelemetryLogs struct {
	// Access sends the lines about connections and requests, as --access-log has them.
	// Default true.
	Access *bool `yaml:"access" default:"true"`
	// Node sends the other lines of nodes' logs. Default true.
	Node *bool `yaml:"node" default:"true"`
	// Level is the least level of lines of node: debug, info, warn or error. A node
	// leaves out what its own --log-level does. Default info.
	Level string `yaml:"level" default:"info" oneof:"debug info warn error"`
}

// TelemetryMetrics sets how metrics are sent.
type TelemetryMetrics struct {
	// Interval is the time between two reports. Default 10s, 1s..1h.
	Interval Duration `yaml:"interval" default:"10s" range:"1s..1h"`
}

// Share returns a share in percent as one in 0..1; def is the default, in percent.
func Share(percent *float64, def float64) float64 {
	if percent == nil {
		return def / 100
	}
	return *percent / 100
}

// The defaults of shares, in percent.
const (
	DefaultSample  = 1
	DefaultClient  = 100
	DefaultOverall = 100
)

// Target is where an OTLP endpoint is.
type Target struct {
	Address string // host:port
	Host    string
	Path    string // of a URL, without "/" at its end
	TLS     bool   // the URL says so
}

// ParseOTLPEndpoint reads host:port or a URL. Its errors do not repeat the endpoint.
func ParseOTLPEndpoint(endpoint string) (Target, error) {
	address, t := endpoint, Target{}
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			return t, errors.New("must be host:port, http://host:port or https://host:port")
		case u.User != nil:
			return t, errors.New("must not contain a user or password: use headers, whose values are never shown")
		case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
			return t, errors.New("must not have a query (?...) or a fragment (#...)")
		}
		t.TLS, t.Path = u.Scheme == "https", strings.TrimRight(u.Path, "/")
		port := u.Port()
		if port == "" {
			port = map[bool]string{false: "80", true: "443"}[t.TLS]
		}
		address = net.JoinHostPort(u.Hostname(), port)
	}
	host, _, ok := SplitAddress(address)
	if !ok || host == "" {
		return t, errors.New("must be host:port, http://host:port or https://host:port")
	}
	t.Address, t.Host = address, host
	return t, nil
}

// OnThisMachine reports whether the host is a loopback address or localhost.
func (t Target) OnThisMachine() bool {
	ip, err := netip.ParseAddr(t.Host)
	return err == nil && ip.IsLoopback() || strings.EqualFold(t.Host, "localhost")
}

// Plain reports whether the collector is reached without TLS.
func (o *OTLP) Plain() bool {
	t, err := ParseOTLPEndpoint(o.Endpoint)
	return err == nil && !t.TLS && o.TLS == nil
}

// WithDefaults returns a copy with all defaults filled in.
func (t *Telemetry) WithDefaults() *Telemetry {
	out := *t
	fill(reflect.ValueOf(&out).Elem())
	return &out
}

// Refs lists the client certificate, and what traces are selected by, which may be
// missing.
func (t *Telemetry) Refs() []Ref {
	var refs []Ref
	if s := t.OTLP.TLS; s != nil && s.CertificateRef != "" {
		refs = append(refs, Ref{Key: Key{"Certificate", s.CertificateRef}, Path: "spec.otlp.tls.certificateRef"})
	}
	if t.Traces != nil {
		refs = trafficRefs(refs, "spec.traces", t.Traces.Services, nil, t.Traces.Listeners)
	}
	return refs
}

// SecretsFor implements SecretsUser: the values of headers are for one collector.
func (t *Telemetry) SecretsFor() string {
	o := t.OTLP
	how := "tls"
	if o.Plain() {
		how = "plain"
	} else if o.TLS != nil {
		how = strings.Join([]string{how, o.TLS.CA, o.TLS.CAFile, o.TLS.ServerName, map[bool]string{true: "any"}[o.TLS.InsecureSkipVerify]}, "\x00")
	}
	return o.Endpoint + "\x00" + how
}

// Files lists the files of a Telemetry.
func (t *Telemetry) Files() []FileRef {
	if t.OTLP.TLS == nil {
		return nil
	}
	return CAFile("spec.otlp.tls.ca", &t.OTLP.TLS.CA)
}

var _ Follower = (*Telemetry)(nil)

// Paths lists the files that nodes read.
func (t *Telemetry) Paths() []*string {
	var paths []*string
	if t.OTLP.TLS != nil {
		paths = append(paths, &t.OTLP.TLS.CAFile)
	}
	for i := range t.OTLP.Headers {
		paths = append(paths, &t.OTLP.Headers[i].ValueFile)
	}
	return paths
}

// Followed implements Follower.
func (t *Telemetry) Followed() []FollowedFile {
	var list []FollowedFile
	if s := t.OTLP.TLS; s != nil && s.CAFile != "" {
		list = append(list, FollowedFile{"spec.otlp.tls.caFile", s.CAFile})
	}
	for i := range t.OTLP.Headers {
		if name := t.OTLP.Headers[i].ValueFile; name != "" {
			list = append(list, FollowedFile{Item("spec.otlp.headers", i) + ".valueFile", name})
		}
	}
	return list
}

// WithContent implements Follower.
func (t *Telemetry) WithContent(content []string) (Spec, error) {
	made := *t
	if s := t.OTLP.TLS; s != nil && s.CAFile != "" {
		if err := CheckBundle(content[0]); err != nil {
			return nil, err
		}
		settings := *s
		settings.CA = content[0]
		made.OTLP.TLS, content = &settings, content[1:]
	}
	made.OTLP.Headers = slices.Clone(t.OTLP.Headers)
	for i := range made.OTLP.Headers {
		h := &made.OTLP.Headers[i]
		if h.ValueFile == "" {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(content[0], "\n"), "\r"), ":")
		value = strings.TrimSpace(value)
		if content = content[1:]; !ok || value == "" || !strings.EqualFold(name, h.Name) ||
			strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, errors.New("valueFile of otlp.headers must have one line with the header's name and value, as in \"" + h.Name + ": VALUE\"")
		}
		h.content = &value
	}
	return &made, nil
}
