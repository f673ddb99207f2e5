package dataplane

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
	"penstock/node/trace"
)

const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
	sampledBy   = "00-" + callerTrace + "-" + callerSpan + "-01"
	unsampledBy = "00-" + callerTrace + "-" + callerSpan + "-00"
)

// tracedWeb starts a data plane whose listener "web" routes requests one by one to a
// program that tells which headers of a trace it has got: /missing answers 404, /broken
// 500.
func tracedWeb(t *testing.T, change func(*Config), more string) (c *nodetest.WebClient, seen chan http.Header, n *testPlane) {
	t.Helper()
	seen = make(chan http.Header, 100)
	end := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		switch r.URL.Path {
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	n = start(t, nodetest.WebListener+nodetest.WebService("shop", "", end)+nodetest.WebService("down", ", connect: {attempts: 2}", testkit.FreeAddress(t))+
		nodetest.WebRoute(nodetest.Rule("/down", nodetest.To("down")))+more, change)
	return nodetest.NewWebClient(t, n.at(t, "web"), false), seen, n
}

func withTrace(parent string, states ...string) func(*http.Request) {
	return func(r *http.Request) {
		if parent != "" {
			r.Header.Set("traceparent", parent)
		}
		for _, s := range states {
			r.Header.Add("tracestate", s)
		}
	}
}

// A request with a traceparent gets a span below that of its caller, and the endpoint is
// told of a span below that.
func TestRequestsContinueTheTraceOfTheirCaller(t *testing.T) {
	traces, to := traced(trace.Policy{Client: 1, Overall: 1})
	c, seen, n := tracedWeb(t, traces, "")
	c.Do("GET", "/cart?secret=1", "", withTrace(sampledBy, "foo=1", "bar=t@2"))
	got := <-seen
	spans := to.wait(t, "GET", 2)
	server, client := spans[0], spans[1]
	if fmt.Sprintf("%x", server.TraceID) != callerTrace || fmt.Sprintf("%x", server.ParentID) != callerSpan || !server.Remote ||
		server.Kind != trace.Server || server.TraceState != "foo=1,bar=t@2" || server.Flags != trace.FlagSampled {
		t.Errorf("the request's span: %+v", server)
	}
	if client.TraceID != server.TraceID || client.ParentID != server.SpanID || client.Kind != trace.Client {
		t.Errorf("the span at the endpoint: %+v", client)
	}
	want := fmt.Sprintf("00-%s-%x-01", callerTrace, client.SpanID)
	if got.Get("Traceparent") != want || !slices.Equal(got["Tracestate"], []string{"foo=1,bar=t@2"}) {
		t.Errorf("the endpoint got %q and %q, want %q", got["Traceparent"], got["Tracestate"], want)
	}
	wantValues(t, server, map[string]string{
		"http.request.method": "GET", "url.path": "/cart", "url.scheme": "http", "http.response.status_code": "200", "network.protocol.version": "1.1",
		"penstock.listener": "web", "penstock.service": "shop", "error.type": "", "client.address": "127.0.0.1",
	})
	wantValues(t, client, map[string]string{"http.response.status_code": "200", "network.peer.address": "127.0.0.1"})
	line := fmt.Sprintf("msg=request .*trace=%s span=%x", callerTrace, server.SpanID)
	testkit.WaitFor(t, "a line in the access log that names the span", func() bool { return regexp.MustCompile(line).MatchString(n.lines.String()) })
}

// What an endpoint gets of the headers of a trace, by what the client sent and what is
// sampled.
func TestTraceHeadersOfRequests(t *testing.T) {
	made := `00-[0-9a-f]{32}-[0-9a-f]{16}-03`
	child := func(flags string) string { return "00-" + callerTrace + "-[0-9a-f]{16}-" + flags }
	all, none := trace.Policy{Sample: 1, Client: 1, Overall: 1}, trace.Policy{Overall: 1, Errors: true}
	for _, c := range []struct {
		name          string
		policies      []trace.Policy
		parent        string
		states        []string
		want, tracest string
	}{
		{"none, and all are sampled", []trace.Policy{all}, "", nil, made, ""},
		{"none, and none is sampled", []trace.Policy{none}, "", nil, "", ""},
		{"sampled", []trace.Policy{all}, sampledBy, []string{"a=1"}, child("01"), "a=1"},
		{"not sampled", []trace.Policy{all}, unsampledBy, []string{"a=1"}, child("00"), "a=1"},
		{"sampled, which is not wanted", []trace.Policy{none}, sampledBy, []string{"a=1"}, child("00"), "a=1"},
		{"invalid", []trace.Policy{all}, "00-x-01", []string{"a=1"}, made, ""},
		{"invalid, and none is sampled", []trace.Policy{none}, "00-x-01", []string{"a=1"}, "", ""},
		{"an invalid tracestate", []trace.Policy{all}, sampledBy, []string{"a"}, child("01"), ""},
		{"a tracestate alone", []trace.Policy{none}, "", []string{"a=1"}, "", ""},
		{"no tracing: headers are the client's", nil, "00-x-01", []string{"a"}, "00-x-01", "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			traces, _ := traced(c.policies...)
			client, seen, _ := tracedWeb(t, traces, "")
			client.Do("GET", "/", "", withTrace(c.parent, c.states...))
			got := <-seen
			if !regexp.MustCompile("^"+c.want+"$").MatchString(strings.Join(got["Traceparent"], "|")) || got.Get("Tracestate") != c.tracest {
				t.Errorf("the endpoint got %q and %q, want %s and %q", got["Traceparent"], got["Tracestate"], c.want, c.tracest)
			}
		})
	}
}

// At 0 % requests that fail are kept, also those of traces that their callers have not
// sampled.
func TestFailedRequestsAreKept(t *testing.T) {
	traces, to := traced(trace.Policy{Overall: 1, Errors: true, Slow: time.Hour})
	c, _, n := tracedWeb(t, traces, `---
kind: TrafficPermission
name: no-secrets
spec: {from: [{networks: [127.0.0.0/8]}], to: [{services: [shop], http: [{paths: [/secret]}]}], action: deny}
---
kind: TrafficPermission
name: others
spec: {from: [{networks: [127.0.0.0/8]}], to: [{services: [shop, down]}], action: allow}
`)
	for _, path := range []string{"/", "/missing", "/secret", "/down", "/broken", "/"} {
		c.Do("GET", path, "", withTrace(unsampledBy))
	}
	c.Do("BREW", "/a/../b", "")
	testkit.WaitFor(t, "the end of all requests", func() bool {
		return n.metric(t, `penstock_http_requests_total{code="2xx",listener="web",service="shop"}`) == "2"
	})
	var got []string
	for _, s := range append(to.wait(t, "GET", 5), to.wait(t, "HTTP", 1)...) {
		if s.Kind != trace.Server {
			continue
		}
		got = append(got, value(s, "url.path")+" "+value(s, "http.response.status_code")+" "+value(s, "error.type"))
		if s.Name == "HTTP" {
			wantValues(t, s, map[string]string{"http.request.method": "_OTHER", "http.request.method_original": "BREW"})
		} else if s.Flags != 0 || fmt.Sprintf("%x", s.TraceID) != callerTrace {
			t.Errorf("%+v", s)
		}
		if value(s, "url.path") == "/down" && len(s.Events) == 0 {
			t.Errorf("no attempt at the endpoint that is down")
		}
	}
	want := []string{"/secret 403 permission_denied", "/down 502 connect_refused", "/broken 500 500", "/a/../b 400 bad_path"}
	if !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// The span of an HTTP connection counts its requests, which link to it.
func TestRequestsLinkToTheirConnection(t *testing.T) {
	traces, to := traced(trace.Policy{Sample: 1, Overall: 1})
	c, _, _ := tracedWeb(t, traces, "")
	c.Do("GET", "/", "")
	c.Do("GET", "/", "")
	c.HTTP.CloseIdleConnections()
	conn := to.wait(t, "tcp web", 1)[0]
	wantValues(t, conn, map[string]string{"penstock.requests": "2", "penstock.service": "shop", "penstock.reason": "client_fin"})
	traceIDs := map[trace.ID]bool{conn.TraceID: true}
	for _, s := range to.wait(t, "GET", 4) {
		if s.Kind != trace.Server {
			continue
		}
		traceIDs[s.TraceID] = true
		if len(s.Links) != 1 || s.Links[0].SpanID != conn.SpanID || s.Links[0].TraceID != conn.TraceID {
			t.Errorf("links %+v, want one to %x", s.Links, conn.SpanID)
		}
	}
	if len(traceIDs) != 3 {
		t.Errorf("%d traces, want one of each request and of the connection", len(traceIDs))
	}
}
