package routing

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// clientProtocol returns the protocol of a source: by the first layer with a
// protocol tag, otherwise that of its service.
func (o *oracle) clientProtocol(in *Input) string {
	var network map[string]string
	longest := -1
	for _, rule := range o.listener.Sources {
		for _, p := range rule.From {
			if p.Contains(in.Client) && p.Bits() > longest {
				network, longest = rule.Tags, p.Bits()
			}
		}
	}
	for _, layer := range []map[string]string{in.Tags, network, o.listener.Tags, o.node} {
		if v, ok := layer["protocol"]; ok {
			return v
		}
		if v, ok := layer["kuma.io/protocol"]; ok {
			return v
		}
	}
	_, service := o.tags(in)
	if s, ok := o.services[service]; ok && service != "" {
		return s.Protocol
	}
	return "tcp"
}

// httpRoute returns the MeshHTTPRoute for connections of one kind, or "". An
// established connection is readable in any case.
func (o *oracle) httpRoute(in *Input, destination string, connected bool) string {
	if !connected && o.listener.Protocol == "tls" && (o.listener.TLS == nil || o.listener.TLS.Mode != "terminate") {
		return ""
	}
	both := []string{o.clientProtocol(in), ""}
	if s, ok := o.services[destination]; ok {
		both[1] = s.Protocol
	}
	for _, protocol := range both {
		if protocol != "http" && protocol != "http2" {
			return ""
		}
	}
	tags, service := o.tags(in)
	best := ""
	for name, r := range o.http {
		for _, to := range r.To {
			if to.TargetRef.Name == destination && o.picks(r.TargetRef, tags, service) && (best == "" || o.httpBeats(name, best)) {
				best = name
			}
		}
	}
	return best
}

// httpBeats is beats for MeshHTTPRoutes.
func (o *oracle) httpBeats(a, b string) bool {
	twin := &oracle{routes: map[string]*resource.MeshTCPRoute{a: {TargetRef: o.http[a].TargetRef}, b: {TargetRef: o.http[b].TargetRef}}}
	return twin.beats(a, b)
}

// fits reports whether a match fits a request.
func fits(m *resource.HTTPMatch, q *Request) bool {
	if m.Path != nil {
		switch m.Path.Type {
		case "Exact":
			if q.Path != m.Path.Value {
				return false
			}
		case "PathPrefix":
			want, got := segments(m.Path.Value), segments(q.Path)
			if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
				return false
			}
		default:
			if !regexp.MustCompile("^(?:" + m.Path.Value + ")$").MatchString(q.Path) {
				return false
			}
		}
	}
	if m.Method != "" && m.Method != q.Method {
		return false
	}
	for _, h := range m.Headers {
		value, ok := q.Header(h.Name)
		if ok == (h.Type == "Absent") || (h.Type == "" || h.Type == "Exact") && value != h.Value {
			return false
		}
	}
	for _, p := range m.QueryParams {
		if !slices.Contains(strings.Split(q.Query, "&"), p.Name+"="+p.Value) {
			return false
		}
	}
	return true
}

func segments(path string) []string {
	if path == "/" {
		return nil
	}
	return strings.Split(strings.TrimPrefix(path, "/"), "/")
}

// moreSpecific reports whether a match precedes one that is listed before it.
func moreSpecific(a, b *resource.HTTPMatch) bool {
	measure := func(m *resource.HTTPMatch) [5]int {
		kind, length, method := 0, 1, 0
		if m.Path != nil {
			kind, length = map[string]int{"Exact": 2, "RegularExpression": 1, "PathPrefix": 0}[m.Path.Type], len(m.Path.Value)
		}
		if m.Method != "" {
			method = 1
		}
		return [5]int{kind, length, method, len(m.Headers), len(m.QueryParams)}
	}
	x, y := measure(a), measure(b)
	return slices.Compare(x[:], y[:]) > 0
}

// rule returns the rule of a route for a request, or NoRule.
func (o *oracle) rule(name, destination string, q *Request) (int, *resource.HTTPRule) {
	rule, found := NoRule, (*resource.HTTPRule)(nil)
	var best *resource.HTTPMatch
	for _, to := range o.http[name].To {
		for i := range to.Rules {
			for j := range to.Rules[i].Matches {
				m := &to.Rules[i].Matches[j]
				if to.TargetRef.Name == destination && fits(m, q) && (best == nil || moreSpecific(m, best)) {
					rule, found, best = i, &to.Rules[i], m
				}
			}
		}
	}
	return rule, found
}

func (m mesh) httpRoute() *resource.MeshHTTPRoute {
	r := &resource.MeshHTTPRoute{TargetRef: m.targetRef()}
	for _, to := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"s-0", "s-0", "s-0", "s-1"}), 1, 2, rapid.ID).Draw(m.t, "to") {
		http := resource.HTTPRouteTo{TargetRef: resource.TargetRef{Kind: "MeshService", Name: to}}
		for range rapid.IntRange(1, 4).Draw(m.t, "rules") {
			rule := resource.HTTPRule{}
			for range rapid.IntRange(1, 2).Draw(m.t, "matches") {
				rule.Matches = append(rule.Matches, m.match())
			}
			rule.Default.BackendRefs = m.route().To[0].Rules[0].Default.BackendRefs
			http.Rules = append(http.Rules, rule)
		}
		r.To = append(r.To, http)
	}
	return r
}

func (m mesh) match() (h resource.HTTPMatch) {
	if kind := rapid.SampledFrom([]string{"", "Exact", "PathPrefix", "PathPrefix", "RegularExpression"}).Draw(m.t, "type"); kind != "" {
		values := []string{"/", "/a", "/a/b", "/b"}
		if kind == "RegularExpression" {
			values = []string{"/a.*", "/(a|b)", "/a/b"}
		}
		h.Path = &resource.PathMatch{Type: kind, Value: rapid.SampledFrom(values).Draw(m.t, "path")}
	}
	h.Method = rapid.SampledFrom([]string{"", "", "GET", "PUT"}).Draw(m.t, "method")
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y"}), 0, 2, rapid.ID).Draw(m.t, "headers") {
		kind := rapid.SampledFrom([]string{"", "Present", "Absent"}).Draw(m.t, "type")
		c := resource.HeaderMatch{Type: kind, Name: name}
		if kind == "" {
			c.Value = rapid.SampledFrom([]string{"1", "2"}).Draw(m.t, "value")
		}
		h.Headers = append(h.Headers, c)
	}
	if rapid.IntRange(0, 3).Draw(m.t, "asks for a parameter") == 0 {
		h.QueryParams = []resource.QueryMatch{{Type: "Exact", Name: "p", Value: "1"}}
	}
	return h
}

func (m mesh) request() *Request {
	path := rapid.SampledFrom([]string{"/", "/a", "/a/", "/a/b", "/a/b/c", "/ab", "/b"}).Draw(m.t, "path")
	path += rapid.SampledFrom([]string{"", "?p=1", "?p=2"}).Draw(m.t, "query")
	headers := rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), rapid.SampledFrom([]string{"1", "2"}), 0, 2).Draw(m.t, "headers")
	return NewRequest(rapid.SampledFrom([]string{"GET", "PUT"}).Draw(m.t, "method"), path, "a.example", headers)
}

// httpTags draws tags, some of which set the protocol of a source.
func (m mesh) httpTags(least, most int) map[string]string {
	tags := m.tags(least, most, sourceTags...)
	for _, x := range [][]string{{"protocol", "", "", "http", "http", "http2", "tcp"}, {"kuma.io/protocol", "", "", "", "", "http", "grpc"}} {
		name, values := x[0], x[1:]
		if v := rapid.SampledFrom(values).Draw(m.t, name); v != "" {
			tags[name] = v
		}
	}
	return tags
}

// httpChange draws one change of any kind and updates the oracle.
func (m mesh) httpChange(o *oracle) resource.Change {
	if rapid.Bool().Draw(m.t, "of connections") {
		ch := m.change(o)
		if s, ok := ch.Spec.(*resource.Service); ok {
			s.Protocol = rapid.SampledFrom([]string{"http", "http", "http2", "tcp"}).Draw(m.t, "protocol")
		}
		return ch
	}
	name := fmt.Sprintf("h-%d", rapid.IntRange(0, rapid.SampledFrom([]int{0, 2, 9}).Draw(m.t, "most")).Draw(m.t, "route"))
	if rapid.IntRange(0, 5).Draw(m.t, "gone") == 0 {
		delete(o.http, name)
		return resource.Delete(key("MeshHTTPRoute", name))
	}
	o.http[name] = m.httpRoute()
	return put("MeshHTTPRoute", name, o.http[name])
}

// The policy, route and rule are those of the documented rules, and the shares
// of each rule are exact, after any sequence of changes.
func TestRequestsAgreeWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := mesh{t}
		o := &oracle{
			node:     m.httpTags(0, 1),
			services: map[string]*resource.Service{},
			routes:   map[string]*resource.MeshTCPRoute{},
			http:     map[string]*resource.MeshHTTPRoute{},
		}
		o.listener = &resource.Listener{Service: "s-0", Tags: m.httpTags(0, 1), NoServerName: "service"}
		switch rapid.IntRange(0, 5).Draw(t, "listener") {
		case 0:
			o.listener.Protocol = "tls"
		case 1:
			o.listener.Protocol, o.listener.TLS = "tls", &resource.ListenerTLS{Mode: "terminate", CertificateRefs: []string{"a"}}
		}
		o.listener.Sources = []resource.SourceRule{{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, Tags: m.httpTags(0, 2)}}
		r := NewRouter(Config{NodeTags: o.node})
		batch := []resource.Change{put("Listener", "front", o.listener)}
		for i := range 4 {
			name := fmt.Sprintf("s-%d", i)
			o.services[name] = m.service()
			o.services[name].Protocol = "http"
			batch = append(batch, put("Service", name, o.services[name]))
		}
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			for range rapid.SampledFrom([]int{1, 1, 2, 10}).Draw(t, "changes") {
				batch = append(batch, m.httpChange(o))
			}
			if _, err := r.Apply(batch, t0); err != nil {
				t.Fatal(err)
			}
			batch = nil
			for range 4 {
				in := &Input{Listener: "front", Tags: m.httpTags(0, 2)}
				in.Client = netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 1).Draw(t, "b")), 0, 1})
				compareConnection(t, o, r, in)
				compareRequest(t, o, r, in, m.request())
			}
		}
	})
}

// compareConnection compares the policy for a connection.
func compareConnection(t *rapid.T, o *oracle, r *Router, in *Input) {
	want := o.httpRoute(in, "s-0", false)
	d, reason := r.Decide(in)
	defer d.Closed()
	if got := r.Explain(in, t0).Route; d.HTTP() != (want != "") || got != want || want != "" && (reason != OK || d.Destination() != "s-0") {
		t.Fatalf("%+v: %v %q by %q, want %q", in, d.HTTP(), reason, got, want)
	}
	if want == "" && o.listener.TLS == nil {
		compareWith(t, o, r, in)
	}
}

// compareRequest compares the routing of a request on an established
// connection.
func compareRequest(t *rapid.T, o *oracle, r *Router, in *Input, q *Request) {
	want, rule := verdict{shares: map[string]int{}}, NoRule
	route := o.httpRoute(in, "s-0", true)
	switch {
	case o.services["s-0"] == nil:
		want.closed = true
	case route == "":
		want = o.decide(in)
	default:
		var spec *resource.HTTPRule
		rule, spec = o.rule(route, "s-0", q)
		want.policy = route
		var refs []resource.BackendRef
		if spec != nil {
			refs = spec.Default.BackendRefs
		}
		switch {
		case spec == nil:
			want.shares["s-0"] = 1
		case len(refs) == 0:
			o.divide(&want, []resource.BackendRef{{Kind: "MeshService", Name: "s-0"}})
		default:
			o.divide(&want, refs)
		}
	}
	period := 0
	for _, n := range want.shares {
		period += n
	}
	if period > longestPeriod {
		return
	}
	got := map[string]int{}
	for n := range max(1, 2*period) {
		a, reason := r.Table().Request(in, "s-0", q)
		if a.Route != route || route != "" && a.Rule != rule || (reason != OK) != want.closed {
			t.Fatalf("%+v %s %s?%s: %s rules[%d] %q, want %s rules[%d] %+v",
				in, q.Method, q.Path, q.Query, a.Route, a.Rule, reason, route, rule, want)
		}
		if n >= period && reason == OK {
			got[backendText(a.backend.name, a.backend.tags)]++
		}
		a.Closed()
	}
	if !maps.Equal(got, want.shares) {
		t.Fatalf("%+v %s %s: %v, want %v", in, q.Method, q.Path, got, want.shares)
	}
}
