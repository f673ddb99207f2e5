package routing

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// requestOf parses "path=TARGET method=M host=H headers=NAME:VALUE;...". It
// returns nil without a path.
func requestOf(args []string) *Request {
	var method, path, host string
	headers := map[string]string{}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "method":
			method = v
		case "path":
			path = v
		case "host":
			host = v
		case "headers":
			for pair := range strings.SplitSeq(v, ";") {
				name, value, _ := strings.Cut(pair, ":")
				headers[name] = value
			}
		}
	}
	if path == "" {
		return nil
	}
	return NewRequest(method, path, host, headers)
}

func (w *world) explain(args []string) Explanation {
	in := parseInput(w.t, args)
	if q := requestOf(args); q != nil {
		return w.router.Table().ExplainRequest(in, q, w.now)
	}
	return w.router.Explain(in, w.now)
}

// request makes requests, each on a new connection, or with to=SERVICE on an
// established one to that service. Equal outcomes are counted.
func (w *world) request(args []string) string {
	in, q := parseInput(w.t, args), requestOf(args)
	if q == nil {
		w.t.Fatal("request: no path")
	}
	times, to := 1, ""
	for _, a := range args {
		if n, ok := strings.CutPrefix(a, "times="); ok {
			times, _ = strconv.Atoi(n)
		}
		if s, ok := strings.CutPrefix(a, "to="); ok {
			to = s
		}
	}
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
