package routing

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// requestOf parses "path=TARGET method=M host=H headers=(NAME:VALUE, ...)". It
// returns nil without a path.
func requestOf(t *testing.T, d *datadriven.TestData) *Request {
	var method, path, host string
	d.MaybeScanArgs(t, "method", &method)
	d.MaybeScanArgs(t, "host", &host)
	if !d.MaybeScanArgs(t, "path", &path) {
		return nil
	}
	headers := map[string]string{}
	list, _ := d.Arg("headers")
	for _, header := range list.Vals {
		name, value, _ := strings.Cut(header, ":")
		headers[name] = value
	}
	return NewRequest(method, path, host, headers)
}

func (w *world) explain(d *datadriven.TestData) Explanation {
	in := parseInput(w.t, d.CmdArgs)
	if q := requestOf(w.t, d); q != nil {
		return w.router.Table().ExplainRequest(in, q, w.now)
	}
	return w.router.Explain(in, w.now)
}

// request makes requests, each on a new connection, or with to=SERVICE on an
// established one to that service. Equal outcomes are counted.
func (w *world) request(d *datadriven.TestData) string {
	in, q := parseInput(w.t, d.CmdArgs), requestOf(w.t, d)
	if q == nil {
		w.t.Fatal("request: no path")
	}
	times, to := 1, ""
	d.MaybeScanArgs(w.t, "times", &times)
	d.MaybeScanArgs(w.t, "to", &to)
	counts := map[string]int{}
	for range times {
		counts[w.requestOnce(in, to, q)]++
	}
	var lines []string
	for _, line := range slices.Sorted(maps.Keys(counts)) {
		if times > 1 {
			lines = append(lines, fmt.Sprintf("%d x %s", counts[line], line))
		} else {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func (w *world) requestOnce(in *Input, to string, q *Request) string {
	t := w.router.Table()
	if to == "" {
		d, reason := t.Decide(in)
		if reason != OK || !d.HTTP() {
			d.Closed()
			return "a connection: " + w.connectOnce(in, nil, nil, false)
		}
		to = d.Destination()
	}
	l, ok := t.Listener(in.Listener)
	if !ok {
		l = &Listener{spec: nil}
	}
	full := *q
	if ok {
		var normal bool
		if full, normal = q.described(in, l); !normal {
			return "400"
		}
	}
	a, reason := t.Request(in, to, &full)
	said := "where connections go"
	switch {
	case a.Route != "" && a.Rule == NoRule:
		said = a.Route + " without a rule"
	case a.Route != "":
		said = fmt.Sprintf("%s rules[%d]", a.Route, a.Rule)
	}
	if a.Status != 0 {
		return fmt.Sprintf("%s: %d %s", said, a.Status, a.Location)
	}
	if reason != OK {
		return said + ": 503 " + string(reason)
	}
	if host, path := a.Rewrite(full.Path); host+path != "" {
		said += fmt.Sprintf(", as %s%s", host, path)
	}
	h := http.Header{}
	a.RequestHeaders(h)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		said += fmt.Sprintf(", %s: %s", name, strings.Join(h[name], ","))
	}
	e, reason := a.Next(w.now)
	if reason != OK {
		return said + ": 503 " + string(reason)
	}
	a.Connected(w.now)
	a.Closed()
	return said + " -> " + a.Service() + " " + e.Addr.String()
}
