package file

import (
	"fmt"
	"strings"
	"testing"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

// text decodes a file into "service: endpoints" per line, or its error.
func text(file, data string) string {
	limits := &limits{bytes: 1 << 20, endpoints: 5}
	services, err := decode(file, []byte(data), limits)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, s := range services {
		sink, q := providertest.NewSink(), provider.Query{}
		sink.Report(q, s.endpoints)
		lines = append(lines, s.name+": "+sink.Text(q))
	}
	return strings.Join(lines, "\n")
}

func TestDecode(t *testing.T) {
	for _, test := range []struct{ name, yaml, want string }{
		{"list", `- {address: "10.0.0.1:80"}
- address: web.example.com:80
  weight: 0
  tags: {version: v1, zone: a}`, ": 10.0.0.1:80; web.example.com:80*0{version=v1 zone=a}"},
		{"priority", "web: [{address: \"a:1\", priority: 127, weight: 2}]\n", "web: a:1*2 priority 127"},
		{"map", "web: [{address: \"[::1]:80\", weight: 1000000}]\ndb: []\n", "web: [::1]:80*1000000\ndb: none"},
		{"empty list", "[]", ": none"},
		{"empty map", "{}", ""},
		{"byte order mark", "\ufeff[]", ": none"},
		{"JSON as YAML", `{"web": [{"address": "10.0.0.1:80"}]}`, "web: 10.0.0.1:80"},

		{"empty", "", "f.yaml:1: is empty: write [] if there are no endpoints"},
		{"comment", "# nothing\n", "f.yaml:1: is empty: write [] if there are no endpoints"},
		{"null", "---\n", `f.yaml:2: must be a list of endpoints, as in [{address: "host:port"}], or [] if there are none`},
		{"text", "web", `f.yaml:1: must be a list of endpoints, as in [{address: "host:port"}], or [] if there are none`},
		{"no list", "web:\n  address: x:1",
			`f.yaml:2: web: must be a list of endpoints, as in [{address: "host:port"}], or [] if there are none`},
		{"no endpoint", "web:\n- 10.0.0.1:80", `f.yaml:2: web[0]: must be an endpoint, as in {address: "host:port"}`},
		{"no address", "web:\n- {weight: 1}", `f.yaml:2: web[0]: address is required: write address: "host:port"`},
		{"no port", "- address: 10.0.0.1", `f.yaml:1: [0].address: must be host:port`},
		{"large port", `- address: "10.0.0.1:65536"`, `f.yaml:1: [0].address: the port must be 1 to 65535`},
		{"address of another type", "- address: 12", `f.yaml:1: [0].address: must be text: put it in quotes (and 1 more faults)`},
		{"unknown field", "- {address: \"a:1\",\n   port: 80}", `f.yaml:2: [0]: unknown field "port": write address: "host:port"`},
		{"another unknown field", "- {address: \"a:1\", colour: red}",
			`f.yaml:1: [0]: unknown field "colour": the fields are address, weight, priority, tags and state`},
		{"weight", "- {address: \"a:1\", weight: 1.5}", `f.yaml:1: [0].weight: must be a whole number from 0 to 1000000`},
		{"negative weight", "- {address: \"a:1\", weight: -1}", `f.yaml:1: [0].weight: must be a whole number from 0 to 1000000`},
		{"large weight", "- {address: \"a:1\", weight: 1000001}", `f.yaml:1: [0].weight: must be a whole number from 0 to 1000000`},
		{"large priority", "- {address: \"a:1\", priority: 128}", `f.yaml:1: [0].priority: must be a whole number from 0 to 127`},
		{"weight as text", "- {address: \"a:1\", weight: \"1\"}", `f.yaml:1: [0].weight: must be a whole number from 0 to 1000000`},
		{"weight as a list", "- {address: \"a:1\", weight: [1]}", `f.yaml:1: [0].weight: must be a whole number from 0 to 1000000`},
		{"tags", "- {address: \"a:1\", tags: [v1]}", `f.yaml:1: [0].tags: must be a map, as in {version: v1}`},
		{"tag of another type", "- {address: \"a:1\", tags: {version: 1}}", `f.yaml:1: [0].tags.version: must be text: put it in quotes`},
		{"all faults are counted", "- {address: a, weight: -1}\n- {}", `f.yaml:1: [0].address: must be host:port (and 2 more faults)`},
		{"a service twice", "web: []\nweb: []", `f.yaml:2: "web" is there twice, first in line 1: remove one`},
		{"a service without a name", `"": []`, "f.yaml:1: the name of a service has 1 to 253 bytes"},
		{"a list as a name", "[a]: []", "f.yaml:1: has a name that is not text"},
		{"too many", "web:\n" + strings.Repeat("- {address: \"a:1\"}\n", 6), "f.yaml:7: has more endpoints than maxEndpoints allows: raise it"},

		// The lines of these faults are the parser's, which are one too low.
		{"syntax", "web: [\n- a", "f.yaml:1: is not YAML: did not find expected node content"},
		{"two documents", "[]\n---\n[]", "f.yaml:2: begins a second document: put one list or one map into a file"},
		{"fault in a second document", "[]\n---\n]", "f.yaml:2: is not YAML: did not find expected node content"},
		{"alias", "web: &a []\ndb: *a",
			"f.yaml:1: web: anchors and aliases (&x, *x) are not supported: write the value out (and 1 more faults)"},
		{"tag of YAML", "- !endpoint {address: \"a:1\"}", "f.yaml:1: [0]: tags of YAML (!x) are not supported: write the value alone"},
		{"not UTF-8", "web:\n- \xff", "f.yaml:2: is not UTF-8 text"},
		{"too many values", strings.Repeat("[],\n", maxNodes), "f.yaml:1: has more than 1000000 values: split it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := text("f.yaml", test.yaml); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestDecodeJSON(t *testing.T) {
	for _, test := range []struct{ name, json, want string }{
		{"list", "[\n\t{\"address\": \"10.0.0.1:80\", \"weight\": 2, \"tags\": {\"a\": \"\\ud83d\\ude00\"}}\n]", ": 10.0.0.1:80*2{a=😀}"},
		{"map", `{"web": [{"address": "a:1"}], "db": []}`, "web: a:1\ndb: none"},
		{"empty", " \n", "f.json:1: is empty: write [] if there are no endpoints"},
		{"cut", "{\"web\": [\n{\"address\"", "f.json:2: is not JSON: it ends too early"},
		{"cut after an endpoint", "[{\"address\": \"a:1\"},\n", "f.json:2: is not JSON: it ends too early"},
		{"not JSON", "[\n[],\n}", "f.json:3: is not JSON: invalid character looking for beginning of value"},
		{"a comma at the end", "[\n[],]", "f.json:2: is not JSON: invalid character looking for beginning of value"},
		{"text after the end", "[]\n[]", "f.json:2: has text after the end of the list or map: remove it"},
		{"no text", `[{"address": null}]`, `f.json:1: [0].address: must be text: put it in quotes (and 1 more faults)`},
		{"a fraction", "[{\"address\": \"a:1\",\n\"weight\": 1.0}]", `f.json:2: [0].weight: must be a whole number from 0 to 1000000`},
		{"a field twice", "[{\"address\": \"a:1\",\n\"address\": \"b:1\"}]",
			`f.json:2: [0]: "address" is there twice, first in line 1: remove one`},
		{"deep", strings.Repeat("[", 100), "f.json:1: is nested deeper than 8 levels"},
		{"too many values", "[" + strings.Repeat("0,", maxNodes) + "0]", "f.json:1: has more than 1000000 values: split it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := text("f.json", test.json); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		"- {address: \"10.0.0.1:80\", weight: 2, tags: {version: v1}}", "web: []\ndb:\n- address: \"[::1]:80\"\n",
		`[{"address": "a:1", "weight": 0}]`, `{"web": [{"address": "a:1", "tags": {"a": "\ud83d"}}]}`, "&a [*a]", "? {}\n: []", "<<: []",
	} {
		f.Add(true, seed)
		f.Add(false, seed)
	}
	f.Fuzz(func(t *testing.T, isJSON bool, data string) {
		name := "f.yaml"
		if isJSON {
			name = "f.json"
		}
		const most = 100
		services, err := decode(name, []byte(data), &limits{endpoints: most})
		if err != nil {
			if !strings.HasPrefix(err.Error(), name+":") {
				t.Errorf("the error does not say where: %v", err)
			}
			return
		}
		n := 0
		for _, s := range services {
			n += len(s.endpoints)
			for _, e := range s.endpoints {
				if checkAddress(e.Address) != nil || e.Weight < 0 || e.Weight > provider.MaxWeight {
					t.Errorf("accepted %+v", e)
				}
			}
		}
		if n > most {
			t.Errorf("accepted %d endpoints", n)
		}
	})
}

// A path may lead to any file that the node can read. What its errors say is in the log
// and in the status.
func TestErrorsDoNotQuoteValues(t *testing.T) {
	const secret = "hunter2"
	for _, data := range []string{
		secret, "- " + secret, "web: " + secret, "web: [" + secret + "]", "- {address: " + secret + "}", "- {address: \"a:1\", weight: " + secret + "}",
		"- {address: \"a:1\", priority: " + secret + "}", "- {address: \"a:1\", state: " + secret + "}", "- {address: \"a:1\", tags: " + secret + "}",
		"- {address: \"a:1\", password: " + secret + "}", "- {address: \"a:1\", address: " + secret + "}", "- {weight: 1, address: &" + secret + " x}",
		"*" + secret, "!" + secret + " x", "!!" + secret + "!" + secret + " x", "- {address: \"" + secret + ":99999\"}", "%TAG " + secret, "a: b: " + secret,
		"\"" + secret, "'" + secret, "\"\\" + secret + "\"", "- |9" + secret, "{\"web\": " + secret + "}", "{\"web\": \"" + secret + "\"}", "[1" + secret + "]",
		"root:x:" + secret + ":0\nb:y:1\n", "@" + secret,
	} {
		for _, file := range []string{"f.yaml", "f.json"} {
			limits := &limits{endpoints: 5}
			if _, err := decode(file, []byte(data), limits); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("%s %q: %v", file, data, err)
			}
		}
	}
	_, err := decode("f.json", []byte("[S]"), &limits{endpoints: 5})
	if err == nil || strings.Contains(err.Error(), "S]") || strings.Contains(err.Error(), "'S'") {
		t.Errorf("a single character is quoted: %v", err)
	}
}

// BenchmarkDecode decodes a file of 10,000 endpoints.
func BenchmarkDecode(b *testing.B) {
	var yaml, json strings.Builder
	json.WriteString("[\n")
	for i := range 10_000 {
		fmt.Fprintf(&yaml, "- {address: \"10.0.%d.%d:8080\", weight: 1, tags: {version: v1, zone: a}}\n", i/250, i%250)
		fmt.Fprintf(&json, "{\"address\": \"10.0.%d.%d:8080\", \"weight\": 1, \"tags\": {\"version\": \"v1\", \"zone\": \"a\"}},\n", i/250, i%250)
	}
	files := map[string]string{"f.yaml": yaml.String(), "f.json": strings.TrimSuffix(json.String(), ",\n") + "]"}
	for name, data := range files {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				list, err := decode(name, []byte(data), &limits{endpoints: 10_000})
				if err != nil || len(list[0].endpoints) != 10_000 {
					b.Fatal(err)
				}
			}
		})
	}
}
