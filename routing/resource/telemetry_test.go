package resource

import (
	"fmt"
	"strings"
	"testing"
)

func TestOTLPEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		want     Target
		here     bool
	}{
		{"127.0.0.1:4317", Target{Address: "127.0.0.1:4317", Host: "127.0.0.1"}, true},
		{"[::1]:4317", Target{Address: "[::1]:4317", Host: "::1"}, true},
		{"LOCALHOST:4317", Target{Address: "LOCALHOST:4317", Host: "LOCALHOST"}, true},
		{"10.0.0.1:4317", Target{Address: "10.0.0.1:4317", Host: "10.0.0.1"}, false},
		{"localhost.example.com:1", Target{Address: "localhost.example.com:1", Host: "localhost.example.com"}, false},
		{"https://a.example.com/otlp/", Target{Address: "a.example.com:443", Host: "a.example.com", Path: "/otlp", TLS: true}, false},
		{"http://[::1]", Target{Address: "[::1]:80", Host: "::1"}, true},
	} {
		got, err := ParseOTLPEndpoint(c.endpoint)
		if err != nil || got != c.want || got.OnThisMachine() != c.here {
			t.Errorf("%s: %+v, %v, want %+v", c.endpoint, got, err, c.want)
		}
	}
	for _, bad := range []string{"", ":4317", "a", "ftp://a:1", "https://", "https://u:hunter2@a", "https://a?hunter2", "https://a#hunter2", "%zz://hunter2"} {
		if _, err := ParseOTLPEndpoint(bad); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func telemetryWith(change func(*Telemetry)) *Telemetry {
	t := &Telemetry{
		OTLP: OTLP{Endpoint: "a.example.com:4317", TLS: &OTLPTLS{CA: "ca"}, Headers: []OTLPHeader{{Name: "key", Value: "hunter2"}}},
		Logs: &TelemetryLogs{},
	}
	if change != nil {
		change(t)
	}
	return t
}

// A user who may write a Telemetry but does not know its secret cannot have that sent to
// another place, or over a connection that others can read.
func TestHiddenHeadersStayWithTheirCollector(t *testing.T) {
	key := Key{KindTelemetry, "otel"}
	stored := Object{Key: key, Spec: telemetryWith(nil)}
	for name, c := range map[string]struct {
		change func(*Telemetry)
		filled bool
	}{
		"the same":        {func(*Telemetry) {}, true},
		"another timeout": {func(t *Telemetry) { t.OTLP.Timeout = 1 }, true},
		"other signals":   {func(t *Telemetry) { t.Metrics = &TelemetryMetrics{} }, true},
		"another host":    {func(t *Telemetry) { t.OTLP.Endpoint = "b.example.com:4317" }, false},
		"in the clear":    {func(t *Telemetry) { t.OTLP.TLS, t.OTLP.Insecure = nil, true }, false},
		"another CA":      {func(t *Telemetry) { t.OTLP.TLS.CA = "mine" }, false},
		"a CA file":       {func(t *Telemetry) { t.OTLP.TLS.CA, t.OTLP.TLS.CAFile = "", "mine" }, false},
		"another name":    {func(t *Telemetry) { t.OTLP.TLS.ServerName = "b.example.com" }, false},
		"no verification": {func(t *Telemetry) { t.OTLP.TLS = &OTLPTLS{InsecureSkipVerify: true} }, false},
		"another header":  {func(t *Telemetry) { t.OTLP.Headers[0].Name = "x-shown" }, false},
	} {
		spec := telemetryWith(c.change)
		spec.OTLP.Headers[0].Value = HiddenSecret
		filled, faults := FillHidden(Object{Key: key, Spec: spec}, stored)
		if !c.filled {
			if len(faults) != 1 || strings.Contains(faults[0].Error(), "hunter2") {
				t.Errorf("%s: %v", name, faults)
			}
			continue
		}
		if text, _ := filled.Spec.(*Telemetry).OTLP.Headers[0].Text(); len(faults) > 0 || text != "hunter2" {
			t.Errorf("%s: %q, %v", name, text, faults)
		}
	}
}

func TestHeaderFiles(t *testing.T) {
	spec := telemetryWith(func(t *Telemetry) {
		t.OTLP.TLS = nil
		t.OTLP.Headers = append(t.OTLP.Headers, OTLPHeader{Name: "x-key", ValueFile: "/secret"})
	})
	if _, ok := spec.OTLP.Headers[1].Text(); ok {
		t.Error("a file that was not read has a value")
	}
	made, err := spec.WithContent([]string{"X-Key: hunter3\n"})
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := made.(*Telemetry).OTLP.Headers[1].Text(); !ok || text != "hunter3" {
		t.Errorf("%q, %v", text, ok)
	}
	if text := fmt.Sprintf("%v %+v %#v", made, made, made); strings.Contains(text, "hunter") {
		t.Errorf("shows a secret: %s", text)
	}
	for _, bad := range []string{"", "\n", "x-key: hunter3\nb", "x-key: hunter3\x00", "x-key: ", "hunter3", "password: hunter3", "root:hunter3:0"} {
		if _, err := spec.WithContent([]string{bad}); err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
