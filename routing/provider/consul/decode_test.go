package consul

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// decodeText decodes an answer, and returns it as the Text of a sink.
func decodeText(text, port string, cfg Config) string {
	cfg.complete()
	endpoints, err := decoder{cfg: &cfg, port: port}.decode(strings.NewReader(text))
	if err != nil {
		return "! " + err.Error()
	}
	sink := providertest.NewSink()
	sink.Report(web, endpoints)
	return sink.Text(web)
}

func TestTheDocumentedAnswer(t *testing.T) {
	if got := decodeText(sample, "", Config{}); got != "10.1.10.13:8000*10{primary=true redis_version=4.0}" {
		t.Error(got)
	}
}

func TestHealth(t *testing.T) {
	for _, test := range []struct{ checks, ready, withWarning string }{
		{"", "10.0.0.1:80*8", "10.0.0.1:80*8"},
		{"passing passing", "10.0.0.1:80*8", "10.0.0.1:80*8"},
		{"passing warning", "10.0.0.1:80*8 notReady", "10.0.0.1:80*2"},
		{"critical warning passing", "10.0.0.1:80*8 notReady", "10.0.0.1:80*8 notReady"},
		{"_node_maintenance", "10.0.0.1:80*8 notReady", "10.0.0.1:80*8 notReady"},
		{"passing _service_maintenance:web-1", "10.0.0.1:80*8 notReady", "10.0.0.1:80*8 notReady"},
		{"passing odd", `! the answer is malformed: instance 0: check "c" has the unknown status "odd"`, ""},
	} {
		e := entryOf("10.0.0.1", 80)
		e.Service.Weights.Passing, e.Service.Weights.Warning = 8, 2
		e.Checks = nil
		for _, status := range strings.Fields(test.checks) {
			c := entryCheck{CheckID: "c", Status: status}
			if strings.HasPrefix(status, "_") {
				c = entryCheck{CheckID: status, Status: "passing"}
			}
			e.Checks = append(e.Checks, c)
		}
		text, _ := stdjson.Marshal([]entry{e})
		if got := decodeText(string(text), "", Config{}); got != test.ready {
			t.Errorf("%s: %s, want %s", test.checks, got, test.ready)
		}
		if got := decodeText(string(text), "", Config{WarningReady: true}); test.withWarning != "" && got != test.withWarning {
			t.Errorf("%s with warningReady: %s, want %s", test.checks, got, test.withWarning)
		}
	}
}

func TestInstances(t *testing.T) {
	long := strings.Repeat("x", 257)
	for _, test := range []struct{ instances, port, want string }{
		{`{"Node": {"Address": "10.0.0.9"}, "Service": {"Port": 80}}`, "", "10.0.0.9:80"},
		{`{"Node": {"Address": "10.0.0.9"}, "Service": {"Address": "::1", "Port": 80, "Weights": null, "Tags": null}}`, "", "[::1]:80"},
		{`{"Node": {}, "Service": {"Address": "a.example", "Port": 80, "Weights": {"Passing": 3, "Warning": 0}}}`, "", "a.example:80*3"},
		{`{"Node": {}, "Service": {"Address": "a", "Port": 80}}`, "8080", "a:8080"},
		{
			`{"Node": {}, "Service": {"Address": "a", "Ports": [{"Name": "http", "Port": 80, "Default": true}, {"Name": "admin", "Port": 81}]}}`,
			"", "a:80",
		},
		{
			`{"Node": {}, "Service": {"Address": "a", "Ports": [{"Name": "http", "Port": 80, "Default": true}, {"Name": "admin", "Port": 81}]}}`,
			"admin", "a:81",
		},
		{
			`{"Node": {}, "Service": {"Address": "a", "Port": 80}},
				{"Node": {}, "Service": {"Address": "b", "Ports": [{"Name": "admin", "Port": 81}]}}`,
			"admin", "b:81",
		},
		{
			`{"Node": {}, "Service": {"Address": "a", "Port": 80}}`,
			"admin", `! no instance has a port named "admin": name one of the service's ports, or its number`,
		},
		{``, "admin", "none"},
		{
			`{"Node": {"Meta": {"zone": "n"}}, "Service": {"Address": "a", "Port": 80, "Meta": {"m": "1", "big": "` + long + `"},
				"Tags": ["v1", "k=t=u", "m=tag", "", "=x", "` + long + `", "c\u0007"]}}`,
			"", "a:80{k=t=u m=1 v1=true zone=n}",
		},
		{
			`{"Node": {"Meta": {"zone": "n"}, "Locality": {"Region": "r", "Zone": "l"}}, "Service": {"Address": "a", "Port": 80}}`,
			"", "a:80{zone=l}",
		},
		{
			`{"Node": {"Locality": {"Zone": "l"}}, "Service": {"Address": "a", "Port": 80, "Locality": {"Zone": "s"}, "Tags": ["zone=t"]}}`,
			"", "a:80{zone=s}",
		},
		{
			`{"Node": {"Locality": {"Zone": "l"}}, "Service": {"Address": "a", "Port": 80, "Locality": {"Zone": "s"}, "Meta": {"zone": "m"}}}`,
			"", "a:80{zone=m}",
		},
		{`{"Node": {}, "Service": {"Address": "a", "Port": 80, "Tags": ["zone=t"]}}`, "", "a:80{zone=t}"},

		{`{}`, "", "! the answer is malformed: instance 0: it has no Node or no Service"},
		{`null`, "", "! the answer is malformed: instance 0: it has no Node or no Service"},
		{`{"Node": {}}`, "", "! the answer is malformed: instance 0: it has no Node or no Service"},
		{`{"Node": [], "Service": {}}`, "", `! the answer is malformed: "/0/Node" (byte 10): wrong type`},
		{`{"Node": {}, "Service": {"Port": "80"}}`, "", `! the answer is malformed: "/0/Service/Port" (byte 34): wrong type`},
		{`{"Node": {}, "Node": {}}`, "", `! the answer is malformed: "/0/Node" (byte 14): duplicate object member name`},
	} {
		if got := decodeText("["+test.instances+"]", test.port, Config{}); got != test.want {
			t.Errorf("%.300s, port %q\ngot  %s\nwant %s", test.instances, test.port, got, test.want)
		}
	}
}

// TestOddTagsDoNotCostTheEndpoint holds the bounds of tags to those of a Runner.
func TestOddTagsDoNotCostTheEndpoint(t *testing.T) {
	e := entryOf("10.0.0.1", 80, strings.Repeat("x", 256), "k="+strings.Repeat("y", 256), "a\u0085b", "\x7f")
	e.Service.Meta = map[string]string{}
	for i := range 100 {
		e.Service.Meta[fmt.Sprint(i)] = "v"
	}
	e.Node.Meta = map[string]string{"zone": "z"}
	text, _ := stdjson.Marshal([]entry{e})
	cfg := Config{}
	cfg.complete()
	endpoints, err := decoder{cfg: &cfg}.decode(bytes.NewReader(text))
	if err != nil || len(endpoints[0].Tags) != maxTags || endpoints[0].Tags["zone"] != "z" {
		t.Fatalf("%v, %d tags", err, len(endpoints[0].Tags))
	}
	synctest.Test(t, func(t *testing.T) {
		runner := provider.NewRunner(provider.Config{
			Source: once(endpoints), Apply: func(context.Context, []provider.Change) error { return nil },
		})
		runner.Want([]provider.Query{web})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- runner.Run(ctx) }()
		<-time.After(time.Second)
		if s := runner.Status().Queries[0]; s.Endpoints != 1 || s.Unused != 0 {
			t.Errorf("status %+v", s)
		}
		cancel()
		<-done
	})
}

// once is a source with one answer.
type once []provider.Endpoint

func (o once) Run(ctx context.Context, sink provider.Sink) error {
	sink.Report(web, o)
	<-ctx.Done()
	return ctx.Err()
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		sample, `[]`, `[{}]`, `[`, `{`, `[{"Checks": [{"Status": "passing"}]}]`,
		`[{"Node": {}, "Service": {"Tags": ["", "=", "a=b"], "Port": -1, "Ports": [{}]}}]`,
	} {
		f.Add([]byte(seed), "http")
	}
	f.Fuzz(func(t *testing.T, data []byte, port string) {
		cfg := Config{MaxEndpoints: 8}
		cfg.complete()
		endpoints, err := decoder{cfg: &cfg, port: port}.decode(bytes.NewReader(data))
		if err != nil {
			if endpoints != nil {
				t.Fatal("there is an answer beside an error")
			}
			return
		}
		var all []any
		if err := stdjson.Unmarshal(data, &all); err != nil || len(endpoints) > len(all) || len(endpoints) > 8 {
			t.Fatalf("%d endpoints of %d instances (%v)", len(endpoints), len(all), err)
		}
		for _, e := range endpoints {
			if len(e.Tags) > maxTags {
				t.Fatalf("%d tags", len(e.Tags))
			}
			for k, v := range e.Tags {
				if k == "" || len(k) > maxTagBytes || len(v) > maxTagBytes || strings.ContainsAny(k+v, "\x00\n\x7f") {
					t.Fatalf("tag %q=%q", k, v)
				}
			}
		}
	})
}

// BenchmarkDecode reads an answer of 10,000 instances, each with two checks.
func BenchmarkDecode(b *testing.B) {
	entries := make([]entry, 10_000)
	for i := range entries {
		entries[i] = sampleEntry()
		entries[i].Service.Address = fmt.Sprintf("10.0.%d.%d", i/256, i%256)
	}
	text, err := stdjson.Marshal(entries)
	if err != nil {
		b.Fatal(err)
	}
	cfg := Config{}
	cfg.complete()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		endpoints, err := decoder{cfg: &cfg}.decode(bytes.NewReader(text))
		if err != nil || len(endpoints) != 10_000 {
			b.Fatal(err)
		}
	}
}
