package node

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/rpc"
)

// eventStream is a stream of /v1/events that a page has open.
type eventStream struct {
	t    *testing.T
	resp *http.Response
	r    *bufio.Reader
}

func (p *page) follow(n *testNode, query string) *eventStream {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+n.HTTPAddr()+"/v1/events?"+query, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.cookie != nil {
		req.AddCookie(p.cookie)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		p.t.Fatalf("GET /v1/events?%s: %s", query, resp.Status)
	}
	return &eventStream{p.t, resp, bufio.NewReader(resp.Body)}
}

// next returns the data of the next event with a name; "": the stream ended before.
func (s *eventStream) next(name string) string {
	s.t.Helper()
	at := ""
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return ""
		}
		line = strings.TrimSuffix(line, "\n")
		if event, ok := strings.CutPrefix(line, "event: "); ok {
			at = event
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && at == name {
			return data
		}
	}
}

// The streams of a token end at every node at once when it is revoked, those of another
// token do not; they end when a node drains or stops, too.
func TestStreamsEndAtEveryNodeWithTheirToken(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, "")
	bad, good := newToken(t, nodes[0], api.RoleReader, time.Hour), newToken(t, nodes[0], api.RoleReader, time.Hour)
	p, other := &page{t: t}, &page{t: t}
	if p.login(nodes[0], bad.Token) != http.StatusOK || other.login(nodes[0], good.Token) != http.StatusOK {
		t.Fatal("no login")
	}
	var streams, others []*eventStream
	for _, n := range nodes {
		s := p.follow(n, "topics=changes,status,progress")
		o := other.follow(n, "topics=changes,status")
		if !strings.Contains(s.next("status"), `"leader":"n1"`) || !strings.Contains(o.next("status"), `"leader":"n1"`) {
			t.Errorf("%s sends no status", n.cfg.Name)
		}
		streams, others = append(streams, s), append(others, o)
	}
	nodes[0].mustApply(t, "kind: Service\nname: shop\nspec: {endpoints: [{address: \"127.0.0.1:9\"}]}\n")
	for i := range nodes {
		for _, s := range []*eventStream{streams[i], others[i]} {
			if got := s.next("changes"); !strings.HasPrefix(got, `{"kind":"Service","name":"shop","version":`) {
				t.Errorf("node %d: change %s", i, got)
			}
		}
		if got := streams[i].next("status"); !strings.Contains(got, `"shop"`) {
			if got = streams[i].next("status"); !strings.Contains(got, `"shop"`) {
				t.Errorf("node %d: status %s", i, got)
			}
		}
	}
	if _, err := rpc.Call[api.Empty](t.Context(), nodes[0].client, api.MethodRevoke, &api.TokenRevokeRequest{Token: bad.ID}); err != nil {
		t.Fatal(err)
	}
	for i, s := range streams {
		if got := s.next("end"); got != `{"reason":"session"}` {
			t.Errorf("node %d: the stream ends with %q", i, got)
		}
	}
	nodes[0].mustDelete(t, "service", "shop")
	for i, s := range others {
		if got := s.next("changes"); got != `{"kind":"Service","name":"shop","deleted":true}` {
			t.Errorf("node %d: the other token's stream has %q", i, got)
		}
	}
	if _, err := rpc.Call[api.DrainResult](t.Context(), nodes[2].client, api.MethodDrain, &api.DrainRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := others[2].next("end"); got != `{"reason":"draining"}` {
		t.Errorf("a drain: %q", got)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		nodes[1].halt()
	}()
	if got := others[1].next("end"); got != `{"reason":"draining"}` {
		t.Errorf("a node that stops: %q", got)
	}
	testkit.Receive(t, "the node to stop", stopped)
}

// 1,000 streams of ten tokens are served at once, next to probes; one more of a token, or
// of the node, is told to go elsewhere. None of them reads.
func TestAThousandStreams(t *testing.T) {
	t.Parallel()
	n := founder(t, Config{Name: "n1"})
	var pages []*page
	for range 11 {
		p := &page{t: t}
		if got := p.login(n, newToken(t, n, api.RoleReader, time.Hour).Token); got != http.StatusOK {
			t.Fatalf("login: %d", got)
		}
		pages = append(pages, p)
	}
	open := func(p *page) net.Conn {
		conn, err := net.Dial("tcp", n.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /v1/events?topics=status,changes HTTP/1.1\r\nHost: x\r\nCookie: %s=%s\r\n\r\n", p.cookie.Name, p.cookie.Value)
		if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
			t.Fatalf("a stream: %q, %v", line, err)
		}
		return conn
	}
	for i := range 1000 {
		open(pages[i/100])
	}
	n.waitMetric(t, "penstock_event_streams", "1000")
	n.waitMetric(t, "penstock_event_feeds", "2")
	if got := pages[0].follow(n, "topics=status").next("end"); !strings.Contains(got, "too_many") || !strings.Contains(got, "this token") && !strings.Contains(got, "this node") {
		t.Errorf("stream 101 of a token: %s", got)
	}
	if got := pages[10].follow(n, "topics=status").next("end"); !strings.Contains(got, `"reason":"too_many","what":"this node has its maximum of streams`) {
		t.Errorf("stream 1001: %s", got)
	}
	for range 100 { // what probes and scripts do does not close streams
		if status, _ := n.get(t, "/healthz"); status != http.StatusOK {
			t.Fatalf("/healthz: %d", status)
		}
	}
	n.waitMetric(t, "penstock_event_streams", "1000")
	n.waitMetric(t, `penstock_event_streams_ended_total{reason="too_many"}`, "2")
}
