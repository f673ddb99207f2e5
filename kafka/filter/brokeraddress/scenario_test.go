package brokeraddress

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit/scenario"
	"penstock/kafka/filter"
	"penstock/kafka/wire"
)

// TestScenarios runs the scenarios in testdata. Bodies of messages are JSON, of
// which the output shows the fields that are not empty. Commands:
//
//	filter, with a configuration in JSON     a filter with that configuration
//	model, with lines of NODE HOST:PORT      what the model has for a node id
//	hide                                     unmappedBrokers: hide
//	broker API VERSION, with a body          a broker answers; what the client gets, or why the connection is closed
//	hidden                                   how many addresses were hidden since the filter was made
func TestScenarios(t *testing.T) {
	scenario.Run(t, "testdata", func(t *testing.T) scenario.Command {
		w := &world{model: map[int32]string{}}
		w.env.Address = func(id int32, _ string, _ int32) (filter.Broker, bool) {
			at, ok := w.model[id]
			host, port, _ := strings.Cut(at, ":")
			n, _ := strconv.Atoi(port)
			return filter.Broker{NodeID: id, Host: host, Port: int32(n)}, ok
		}
		w.filter = mustProvision(t, new(Config), w.env)
		return w.do
	})
}

// world is a filter and what the model tells it.
type world struct {
	model  map[int32]string
	env    filter.Env
	filter *Filter
}

func (w *world) do(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "filter":
		config := new(Config)
		if err := json.Unmarshal([]byte(d.Input), config); err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.filter = mustProvision(t, config, w.env)
	case "model":
		for line := range strings.SplitSeq(d.Input, "\n") {
			node, at, _ := strings.Cut(line, " ")
			id, err := strconv.ParseInt(node, 10, 32)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			w.model[int32(id)] = at
		}
	case "hide":
		w.env.HideUnmapped = true
		w.filter = mustProvision(t, new(Config), w.env)
	case "broker":
		version, err := strconv.ParseInt(d.CmdArgs[1].Key, 10, 16)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return answer(t, w.filter, d.CmdArgs[0].Key, int16(version), d.Input)
	case "hidden":
		return strconv.FormatUint(w.filter.Hidden(), 10)
	default:
		d.Fatalf(t, "unknown command")
	}
	return ""
}

// answer sends a broker's answer through the filter.
func answer(t *testing.T, f *Filter, name string, version int16, fields string) string {
	t.Helper()
	got := newResponse(t, name, version)
	body, err := through(t, f, got.Key(), version, mustBody(t, name, version, fields))
	if errors.Is(err, filter.ErrUnmapped) {
		return "closed: " + err.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := got.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	return show(t, got)
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
