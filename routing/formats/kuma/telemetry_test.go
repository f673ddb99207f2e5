package kuma_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/kuma"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// What a node does by itself or not at all, and what has no effect on the rest, is left out
// with a warning.
func TestTelemetryWarnings(t *testing.T) {
	const text = `type: MeshMetric
name: a
spec:
  default:
    sidecar: {includeUnused: true, profiles: {exclude: [{type: Regex, match: "a.*"}]}}
    applications: [{name: backend, port: 8888}]
    backends:
    - {type: Prometheus, prometheus: {port: 5670, path: /metrics}}
    - {type: OpenTelemetry, openTelemetry: {endpoint: "127.0.0.1:4317"}}
---
type: MeshTrace
name: a
spec:
  default:
    tags: [{name: team, literal: core}, {name: env, header: {name: x-env, default: prod}}]
    backends: [{type: OpenTelemetry, openTelemetry: {endpoint: "127.0.0.1:4317"}}]
---
type: MeshAccessLog
name: a
spec:
  rules:
  - default:
      backends:
      - {type: Tcp, tcp: {address: "127.0.0.1:5000"}}
      - {type: File, file: {path: /dev/stdout, format: {type: Plain, plain: "[%START_TIME%]"}}}
      - type: OpenTelemetry
        openTelemetry:
          endpoint: 127.0.0.1:4317
          body: {kvlistValue: {values: [{key: mesh, value: {stringValue: "%KUMA_MESH%"}}]}}
          attributes: [{key: start_time, value: "%START_TIME%"}, {key: mesh, value: demo}]
`
	objects, faults, warnings := codec.DecodeReport("x.yaml", []byte(text), resource.RoutingKinds(), kuma.Foreign())
	if len(faults) > 0 || len(objects) != 3 {
		t.Fatalf("%d resources, %v", len(objects), faults)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.Error())
	}
	for _, want := range []string{
		"x.yaml:5: MeshMetric/a spec.default.sidecar: is left out: a node sends all of its metrics; collectors can filter them",
		"x.yaml:6: MeshMetric/a spec.default.applications: is left out: nodes do not gather the metrics of applications",
		"x.yaml:8: MeshMetric/a spec.default.backends[0].prometheus: is left out: each node serves Prometheus' metrics by itself, at /metrics of its --http address",
		"x.yaml:15: MeshTrace/a spec.default.tags[1]: is left out: spans have no headers of requests (env)",
		"x.yaml:24: MeshAccessLog/a spec.rules[0].default.backends[0].tcp: is left out: where a node writes its access log is a setting of the node, --access-log (Tcp)",
		"x.yaml:25: MeshAccessLog/a spec.rules[0].default.backends[1].file: is left out: where a node writes its access log is a setting of the node, --access-log (File)",
		"x.yaml:29: MeshAccessLog/a spec.rules[0].default.backends[2].openTelemetry.body: is left out: the body of a record says what happened, and its attributes the rest",
		"x.yaml:30: MeshAccessLog/a spec.rules[0].default.backends[2].openTelemetry.attributes[0]: is left out: " +
			"records have attributes of their own, listed in docs/telemetry.md (start_time)",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no warning %q", want)
		}
	}
	if len(got) != 8 || t.Failed() {
		t.Errorf("warnings:\n%s", strings.Join(got, "\n"))
	}
}

func TestTelemetryThatKumaCannotSay(t *testing.T) {
	const otlp = `otlp: {endpoint: "127.0.0.1:4317"}`
	for text, want := range map[string]string{
		"name: a-traces\nspec: {" + otlp + ", traces: {errors: false, slow: 0}}":                                             "",
		"name: a-traces\nspec: {" + otlp + ", traces: true}":                                                                 "because they failed or were slow",
		"name: a\nspec: {" + otlp + ", traces: {errors: false, slow: 0}}":                                                    "does not end in -traces",
		"name: a-traces\nspec: {" + otlp + ", traces: true, logs: true}":                                                     "write three",
		"name: a-metrics\nspec: {" + otlp + ", metrics: true}":                                                               "",
		"name: a-metrics\nspec: {" + otlp + ", metrics: true, resourceAttributes: {a: b}}":                                   "no attributes of metrics",
		"name: a-metrics\nspec: {" + otlp + ", metrics: true, nodes: {zone: a}}":                                             "for the whole mesh",
		"name: a-logs\nspec: {" + otlp + ", logs: true}":                                                                     "logs connections alone",
		"name: a-logs\nspec: {" + otlp + ", logs: {node: false}, resourceAttributes: {a: 1%}}":                               "Kuma replaces what is between %",
		"name: a-logs\nspec: {otlp: {endpoint: \"https://a\"}, logs: {node: false}}":                                         "in the clear alone",
		"name: a-logs\nspec: {otlp: {endpoint: \"127.0.0.1:1\", headers: [{name: a, value: hunter2}]}, logs: {node: false}}": "in the clear alone",
	} {
		objects, faults := codec.Decode("", []byte("kind: Telemetry\n"+text+"\n"), resource.RoutingKinds())
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		_, err := kuma.Export(objects[0])
		if want == "" && err != nil || want != "" && (!errors.Is(err, kuma.ErrKind) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What is exported is the same resource when it is applied again.
func TestTelemetryRoundTrips(t *testing.T) {
	text, err := os.ReadFile("../testdata/kuma/good/telemetry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, faults := codec.DecodeForeign("", text, resource.RoutingKinds(), kuma.Foreign())
	if len(faults) > 0 || len(objects) != 6 {
		t.Fatalf("%d resources, %v", len(objects), faults)
	}
	for _, o := range objects {
		root, err := kuma.Export(o)
		if err != nil {
			t.Errorf("%v: %v", o.Key, err)
			continue
		}
		written, err := yaml.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		again, faults := codec.DecodeForeign("", written, resource.RoutingKinds(), kuma.Foreign())
		if len(faults) > 0 || len(again) != 1 || !resource.Equal(again[0], o) {
			t.Errorf("%v became %v, %v:\n%s", o.Key, again, faults, written)
		}
	}
}
