package validate

import (
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"penstock/routing/resource"
)

// Bounds of a Telemetry.
const (
	maxOTLPHeaders        = 32
	maxOTLPValue          = 8 << 10 // bytes
	maxResourceAttributes = 64
	maxAttributeKey       = 256
	maxAttributeValue     = 1024
)

// ownOTLPHeaders are set by the exporters, or by HTTP itself.
var ownOTLPHeaders = map[string]bool{
	"Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Type": true, "Host": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "User-Agent": true,
}

// validateTelemetry reports the faults of a Telemetry alone.
func validateTelemetry(t *resource.Telemetry, fault Report) {
	Fields(t, fault)
	validateOTLP(&t.OTLP, func(path, message string, value any) { fault("otlp."+path, message, value) })
	if t.Traces == nil && t.Logs == nil && t.Metrics == nil {
		fault("", "needs at least one of traces, logs and metrics", nil)
	}
	checkAttributes("resourceAttributes", t.ResourceAttributes, fault)
	checkTags("nodes", t.Nodes, fault)
	if s := t.Traces; s != nil {
		checkPercent("traces.sample", s.Sample, fault)
		checkPercent("traces.client", s.Client, fault)
		checkPercent("traces.overall", s.Overall, fault)
		checkNames("Listener", "traces.listeners", s.Listeners, fault)
		checkNames("Service", "traces.services", s.Services, fault)
	}
	if l := t.Logs; l != nil && l.Access != nil && !*l.Access && l.Node != nil && !*l.Node {
		fault("logs", "sends nothing with access: false and node: false: leave it out", nil)
	}
}

func checkNames(kind, path string, names []string, fault Report) {
	checkLength(path, len(names), fault)
	for i, name := range names {
		checkRef(kind, resource.Item(path, i), name, fault)
	}
}

// checkPercent reports a share that is not in 0..100, not a number included.
func checkPercent(path string, percent *float64, fault Report) {
	if percent != nil && !(*percent >= 0 && *percent <= 100) {
		fault(path, "must be from 0 to 100, in percent", *percent)
	}
}

// checkAttributes reports attributes that are too many, too long or no text.
func checkAttributes(path string, attributes map[string]string, fault Report) {
	if len(attributes) > maxResourceAttributes {
		fault(path, fmt.Sprintf("has %d entries; the maximum is %d", len(attributes), maxResourceAttributes), nil)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		value := attributes[key]
		if key == "" || len(key) > maxAttributeKey || len(value) > maxAttributeValue || !isText(key) || !isText(value) {
			fault(string(resource.AppendStep([]byte(path), key)),
				fmt.Sprintf("the key must be printable text of 1 to %d bytes, and the value of at most %d", maxAttributeKey, maxAttributeValue), nil)
		}
	}
}

// validateOTLP reports the faults of a collector. It does not show an endpoint with a
// password.
func validateOTLP(o *resource.OTLP, fault Report) {
	target, err := resource.ParseOTLPEndpoint(o.Endpoint)
	var message string
	switch {
	case o.Endpoint == "":
		message = "is required: host:port of the collector"
	case err != nil:
		message = err.Error()
	default:
		message = checkAddress(target.Address, false)
	}
	switch {
	case message != "":
		fault("endpoint", message, nil)
	case target.Path != "" && o.Protocol != resource.OTLPHTTP:
		fault("endpoint", "must have no path, unless protocol is http", target.Path)
	case strings.HasPrefix(o.Endpoint, "http://") && o.TLS != nil:
		fault("tls", "conflicts with http:// of endpoint: write https://", nil)
	default:
		checkPlain(o, target, fault)
	}
	if o.TLS != nil {
		validateServiceTLS(o.TLS.ServiceTLS(), fault)
	}
	validateOTLPHeaders(o.Headers, fault)
}

// checkPlain reports plain text to another machine that the user has not asked for.
func checkPlain(o *resource.OTLP, target resource.Target, fault Report) {
	switch {
	case o.Insecure && !o.Plain():
		fault("insecure", "has no effect with TLS: leave it out", true)
	case o.Plain() && !o.Insecure && !target.OnThisMachine():
		fault("endpoint", "is another machine, to which names and addresses of clients would go in the clear: "+
			"write tls: {} for TLS with the system's CAs, tls: {ca: FILE} for others, or insecure: true", target.Host)
	}
}

func validateOTLPHeaders(headers []resource.OTLPHeader, fault Report) {
	if len(headers) > maxOTLPHeaders {
		fault("headers", fmt.Sprintf("has %d entries; the maximum is %d", len(headers), maxOTLPHeaders), nil)
		return
	}
	seen := map[string]bool{}
	for i := range headers {
		h, path := &headers[i], resource.Item("headers", i)
		name := textproto.CanonicalMIMEHeaderKey(h.Name)
		switch {
		case h.Name == "":
			fault(path+".name", "is required", nil)
		case len(h.Name) > maxTag || !httpguts.ValidHeaderFieldName(h.Name):
			fault(path+".name", "is not the name of a header", h.Name)
		case ownOTLPHeaders[name] || strings.HasPrefix(strings.ToLower(name), "grpc-"):
			fault(path+".name", "cannot be set", h.Name)
		case strings.HasSuffix(strings.ToLower(name), "-bin"):
			fault(path+".name", "must not end in -bin, which gRPC encodes", h.Name)
		case seen[name]:
			fault(path+".name", "duplicate", h.Name)
		}
		seen[name] = true
		switch {
		case h.Value != "" && h.ValueFile != "":
			fault(path, "has value and valueFile: leave one out", nil)
		case h.Value == "" && h.ValueFile == "":
			fault(path+".value", "is required, or valueFile", nil)
		case len(h.Value) > maxOTLPValue || !httpguts.ValidHeaderFieldValue(string(h.Value)):
			fault(path+".value", fmt.Sprintf("must be text of at most %d bytes, without control characters; perhaps there is a line end", maxOTLPValue), nil)
		case strings.ContainsRune(h.ValueFile, 0):
			fault(path+".valueFile", "must not contain a zero byte", nil)
		}
	}
}
