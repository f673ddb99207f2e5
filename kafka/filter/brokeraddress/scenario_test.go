package brokeraddress

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

var update = flag.Bool("update", false, "rewrite what testdata expects")

// Each file of testdata is a story, line by line:
//
//	# a comment
//	filter CONFIG         a filter with that configuration (JSON)
//	model NODE HOST:PORT  what the model has for a node id
//	hide                  unmappedBrokers: hide
//	broker API VERSION BODY   what the broker answers, as the fields that are not empty
//	client BODY           what the client gets of it; or
//	closed REASON         the connection is closed
//	hidden N              how many addresses were hidden since the filter was made
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("the story went otherwise (-update rewrites it):\n%s", got)
			}
		})
	}
}

func play(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	env := filter.Env{}
	model := map[int32]string{}
	env.Address = func(id int32, _ string, _ int32) (filter.Broker, bool) {
		at, ok := model[id]
		host, port, _ := strings.Cut(at, ":")
		n, _ := strconv.Atoi(port)
		return filter.Broker{NodeID: id, Host: host, Port: int32(n)}, ok
	}
	f := mustProvision(t, new(Config), env)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "client", "closed":
			continue // written anew behind each broker
		case "hidden":
			line = fmt.Sprintf("hidden %d", f.Hidden())
		case "filter":
			config := new(Config)
			if err := json.Unmarshal([]byte(rest), config); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			f = mustProvision(t, config, env)
		case "hide":
			env.HideUnmapped = true
			f = mustProvision(t, new(Config), env)
		case "model":
			node, at, _ := strings.Cut(rest, " ")
			id, _ := strconv.Atoi(node)
			model[int32(id)] = at
		case "broker":
			line += "\n" + answer(t, f, rest)
		case "", "#":
		default:
			t.Fatalf("what is %q?", line)
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}

// answer sends a broker's answer through the filter.
func answer(t *testing.T, f *Filter, line string) string {
	t.Helper()
	words := strings.SplitN(line, " ", 3)
	version, _ := strconv.Atoi(words[1])
	got := newResponse(t, words[0], int16(version))
	body, err := through(t, f, got.Key(), int16(version), mustBody(t, words[0], int16(version), words[2]))
	if err != nil {
		if !errors.Is(err, filter.ErrUnmapped) {
			t.Fatal(err)
		}
		return "closed " + err.Error()
	}
	if err := got.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	return "client " + show(t, got)
}

// through sends a response through the filter in the way that it wants.
func through(t *testing.T, f *Filter, key, version int16, body []byte) ([]byte, error) {
	t.Helper()
	c := f.Open(filter.Info{})
	defer c.Close()
	x := filter.NewExchange(key, version, "client", nil)
	switch f.Wants(filter.Response, key, version) {
	case filter.Whole:
		m := filter.NewMessage(filter.Response, key, version, body)
		err := c.Response(&x, &m)
		return m.Body(), err
	case filter.Walk:
		var w wire.Walker
		w.Init(wire.Response, key, version, len(body), c.Edits(filter.Response, &x))
		var sent []byte
		for p := body; ; {
			out, view, n, pass, err := w.Next(nil, p[:min(len(p), 10)])
			if err != nil {
				return nil, err
			}
			sent = append(append(append(sent, out...), view...), p[n:n+pass]...)
			if p = p[n+pass:]; w.Done() {
				return sent, nil
			}
		}
	}
	return body, nil
}

// mustBody is the body of a response, from its fields.
func mustBody(t testing.TB, name string, version int16, fields string) []byte {
	t.Helper()
	resp := newResponse(t, name, version)
	if err := json.Unmarshal([]byte(fields), resp); err != nil {
		t.Fatalf("%s: %v", fields, err)
	}
	resp.SetVersion(version)
	return resp.AppendTo(nil)
}

func newResponse(t testing.TB, name string, version int16) kmsg.Response {
	t.Helper()
	for key := range int16(wire.MaxKey + 1) {
		if wire.Name(key) == name {
			m := kmsg.ResponseForKey(key)
			m.SetVersion(version)
			m.(interface{ Default() }).Default()
			return m
		}
	}
	t.Fatalf("there is no API %s", name)
	return nil
}

// show returns the fields of a message that are not empty, in the order of their names.
func show(t *testing.T, m kmsg.Response) string {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	v, _ = prune(v)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func prune(v any) (kept any, some bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if inner, some := prune(inner); some && k != "Version" {
				v[k] = inner
			} else {
				delete(v, k)
			}
		}
		return v, len(v) > 0
	case []any:
		some := false
		for i := range v {
			var is bool
			v[i], is = prune(v[i])
			_, structure := v[i].(map[string]any)
			some = some || is || structure
		}
		return v, some || len(v) > 0 && len(v) < 16 // no id of zeroes
	case float64:
		return v, v != 0
	case string:
		return v, v != ""
	case bool:
		return v, v
	}
	return v, v != nil
}

func mustProvision(t *testing.T, c *Config, env filter.Env) *Filter {
	t.Helper()
	f, err := c.Provision(env)
	if err != nil {
		t.Fatal(err)
	}
	return f.(*Filter)
}
