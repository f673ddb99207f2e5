package http

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"strings"
	"testing"

	"penstock/routing/provider"
)

func decodeText(text string, objects bool) (document, error) {
	return decoder{max: 3, objects: objects, wanted: map[string]bool{"web": true}}.decode(strings.NewReader(text))
}

func TestDocuments(t *testing.T) {
	for _, test := range []struct {
		text    string
		objects bool
		want    string
	}{
		{`[]`, false, "[]"},
		{` [ ] ` + "\n", false, "[]"},
		{`[{"address": "10.0.0.1:80"}]`, false, "[{10.0.0.1:80 1 0 map[] ready}]"},
		{
			`[{"address": "a:1", "weight": 0, "state": "notReady", "tags": {"zone": "z", "": "ü"}},
				{"weight": 3, "state": "terminating", "address": "b:1"}]`,
			false, "[{a:1 0 0 map[:ü zone:z] notReady} {b:1 3 0 map[] terminating}]",
		},
		{`[{"address": "a:1", "weight": null, "priority": 2, "state": "ready", "tags": null}]`, true, "[{a:1 1 2 map[] ready}]"},
		{`{}`, true, "{}"},
		{`{"web": [{"address": "a:1"}], "other": [{"address": "b:1"}], "": []}`, true, "{web [{a:1 1 0 map[] ready}]}"},
		{`{"other": [{"address": "b:1"}]}`, true, "{}"},

		{``, true, "! the answer is empty"},
		{`null`, true, "! the document must be a list of endpoints, or an object of lists by service"},
		{`{"web": []}`, false, "! the document must be a list of endpoints, as the url contains {service}"},
		{`"a"`, false, "! the document must be a list of endpoints, as the url contains {service}"},
		{`<html>`, true, `! byte 0: invalid character '<' at start of value`},
		{`[{"address": "a:1"}`, true, "! byte 19: unexpected EOF"},
		{`[{"address": "a:1"}] []`, true, "! byte 22: there is something after the document"},
		{`[] x`, true, "! byte 3: invalid character 'x' at start of value"},
		{`[{"address": "a:1", "address": "b:1"}]`, true, `! "/0/address" (byte 20): duplicate object member name`},
		{`{"web": [], "web": []}`, true, `! "/web" (byte 12): duplicate object member name`},
		{`[{"address": "a:1", "wieght": 1}]`, true, `! "/0/wieght" (byte 20): unknown object member name`},
		{`[{"Address": "a:1"}]`, true, `! "/0/Address" (byte 2): unknown object member name`},
		{`[{"address": 1}]`, true, `! "/0/address" (byte 13): must be a string, not a number`},
		{`[{"address": "a:1", "weight": "1"}]`, true, `! "/0/weight" (byte 30): must be an integer, not a string`},
		{`[{"address": "a:1", "weight": 1.5}]`, true, `! "/0/weight" (byte 30): invalid syntax`},
		{`[{"address": "a:1", "weight": 1e99}]`, true, `! "/0/weight" (byte 30): invalid syntax`},
		{`[{"address": "a:1", "weight": 99999999999999999999}]`, true, `! "/0/weight" (byte 30): value out of range`},
		{`[{"address": "a:1", "tags": ["x"]}]`, true, `! "/0/tags" (byte 28): must be an object, not a list`},
		{`[{"address": "a:1", "tags": {"x": 1}}]`, true, `! "/0/tags/x" (byte 34): must be a string, not a number`},
		{`[{"address": "a:1", "state": "READY"}]`, true, `! "/0/state" (byte 29): must be ready, notReady or terminating`},
		{`["a:1"]`, true, `! "/0" (byte 1): must be an object, not a string`},
		{`[{}]`, true, `! "/0" (byte 3): address is missing`},
		{`[null]`, true, `! "/0" (byte 5): address is missing`},
		{`{"web": {"address": "a:1"}}`, true, `! "/web" (byte 6): must be a list of endpoints`},
		{list("a:1", "a:2", "a:3", "a:4"), true, "! has more endpoints than maxEndpoints allows"},
		{`{"web": ` + list("a:1", "a:2") + `, "x": ` + list("a:3", "a:4") + `}`, true, "! has more endpoints than maxEndpoints allows"},
		{"[{\"address\": \"a\xff:1\"}]", true, `! "/0/address" (byte 15): invalid UTF-8`},
		{
			`[{"address": "a:1", "` + strings.Repeat("k", 5000) + `": 1}]`, true,
			`! "/0/` + strings.Repeat("k", 97) + `" (byte 20): unknown object member name`,
		},
	} {
		doc, err := decodeText(test.text, test.objects)
		got := fmt.Sprint(doc.list)
		if doc.byService != nil {
			got = "{}"
			for name, list := range doc.byService {
				got = fmt.Sprintf("{%s %v}", name, list)
			}
		}
		if err != nil {
			got = "! " + err.Error()
		}
		if got != test.want {
			t.Errorf("%.200s\ngot  %s\nwant %s", test.text, got, test.want)
		}
	}
}

// FuzzDecode holds the decoder to encoding/json, which accepts more.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[]`, `{}`, `[{"address": "a:1", "weight": 2, "state": "notReady", "tags": {"zone": "a"}}]`, `{"web": [{"address": "a:1"}], "x": []}`,
		`[{"address": "a:1"}`, `[[[[[[`, `{"a":{"a":`, `[{"address": "\ud800"}]`, `[{"weight": 1e400}]`, "\xff",
		`[{"tags": {"a": "b", "a": "c"}}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decoder{max: 8, objects: true, wanted: map[string]bool{"web": true}}
		doc, err := d.decode(bytes.NewReader(data))
		if err != nil {
			if doc.list != nil || doc.byService != nil {
				t.Fatal("there is a document beside an error")
			}
			return
		}
		type loose struct {
			Address  string
			Tags     map[string]string
			Weight   *int
			Priority int
			State    string
		}
		got, want := doc.list, []loose(nil)
		if doc.byService != nil {
			var all map[string][]loose
			if err := stdjson.Unmarshal(data, &all); err != nil {
				t.Fatal(err)
			}
			got, want = doc.byService["web"], all["web"]
		} else if err := stdjson.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) || len(got) > 8 {
			t.Fatalf("%d endpoints, encoding/json finds %d", len(got), len(want))
		}
		for i, e := range want {
			weight := 1
			if e.Weight != nil {
				weight = *e.Weight
			}
			same := provider.Endpoint{Address: e.Address, Weight: weight, Priority: e.Priority, Tags: e.Tags, State: got[i].State}
			if !got[i].Equal(&same) || e.State != "" && e.State != got[i].State.String() {
				t.Fatalf("got %v, encoding/json finds %v", got[i], e)
			}
		}
	})
}

// BenchmarkDecode reads a list of 10,000 endpoints.
func BenchmarkDecode(b *testing.B) {
	var text strings.Builder
	text.WriteString("[")
	for i := range 10_000 {
		if i > 0 {
			text.WriteString(",")
		}
		fmt.Fprintf(&text, `{"address": "10.0.%d.%d:8080", "weight": 1, "state": "ready", "tags": {"zone": "a", "version": "v1"}}`, i/256, i%256)
	}
	text.WriteString("]")
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		doc, err := decoder{max: 10_000}.decode(strings.NewReader(text.String()))
		if err != nil || len(doc.list) != 10_000 {
			b.Fatal(err)
		}
	}
}
