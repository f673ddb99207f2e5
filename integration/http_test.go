package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/internal/testkit"
)

// httpCluster is a cluster whose nodes route HTTP requests, in plain text on
// port 9100 and with TLS on 9443.
type httpCluster struct {
	*cluster
	ca *authority
}

// startHTTPCluster starts three nodes. /talk is a WebSocket server,
// /test.Talker a gRPC server, /long a file, /endless an answer that does not
// end; everything else is routed to v1 initially.
func startHTTPCluster(t *testing.T, flags ...string) *httpCluster {
	t.Helper()
	w := &httpCluster{startCluster(t, 3, append(flags, "--drain-wait", "500ms", "--drain-timeout", "3s")...), newAuthority(t, "ca")}
	endpoint := func(name, protocol, address string) string {
		return fmt.Sprintf("---\nkind: Service\nname: %s\nspec: {protocol: %s, endpoints: [{address: %q}]}\n", name, protocol, address)
	}
	text := certificate("web", w.ca.issue("web.example.com")) + `---
kind: Listener
name: web
spec: {address: ":9100", service: shop, tags: {protocol: http}}
---
kind: Listener
name: secure
spec:
  address: ":9443"
  protocol: tls
  tls: {mode: terminate, certificateRefs: [web], alpn: [h2, http/1.1]}
  service: shop
  tags: {protocol: http}
`
	for _, name := range []string{"shop", "v1", "v2"} {
		text += endpoint(name, "http", httpServerNamed(t, name))
	}
	talk := httptest.NewServer(websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }))
	t.Cleanup(talk.Close)
	text += endpoint("files", "http", fileServer(t))
	text += endpoint("talk", "http", talk.Listener.Addr().String()) + endpoint("say", "http2", grpcEcho(t))
	w.members[0].apply(text + w.route("v1"))
	return w
}

// route routes requests without a rule of their own to service.
func (w *httpCluster) route(service string) string {
	var rules []string
	for prefix, to := range map[string]string{"/": service, "/talk": "talk", "/long": "files", "/endless": "files", "/test.Talker": "say"} {
		rules = append(rules, fmt.Sprintf("    - {matches: [{path: {type: PathPrefix, value: %s}}], "+
			"default: {backendRefs: [{kind: MeshService, name: %s}]}}\n", prefix, to))
	}
	return "---\n" +
		"kind: MeshHTTPRoute\n" +
		"name: shop\n" +
		"spec:\n" +
		"  to:\n" +
		"  - targetRef: {kind: MeshService, name: shop}\n" +
		"    rules:\n" + strings.Join(rules, "")
}

// dialer connects to the first node in order that listens, like a balancer.
func (w *httpCluster) dialer(port string, order ...int) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (c net.Conn, err error) {
		for _, i := range order {
			if c, err = new(net.Dialer).DialContext(ctx, "tcp", w.members[i].ip+":"+port); err == nil {
				return c, nil
			}
		}
		return nil, err
	}
}

// httpServerNamed answers with its name and the path, over HTTP/1.1 and HTTP/2.
func httpServerNamed(t *testing.T, name string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s\n", name, r.URL.Path)
	}))
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// fileServer serves a file of 200 KB at /long, and an endless answer at /endless.
func fileServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			_, _ = io.WriteString(w, "and so on, ")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(200<<10))
		_, _ = w.Write(make([]byte, 200<<10))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// echoService is a gRPC echo service.
var echoService = grpc.ServiceDesc{
	ServiceName: "test.Talker", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(
		_ any,
		_ context.Context,
		dec func(any) error,
		_ grpc.UnaryServerInterceptor,
	) (any, error) {
		in := new(wrapperspb.StringValue)
		return in, dec(in)
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for in := new(wrapperspb.StringValue); ; {
			if err := s.RecvMsg(in); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if err := s.SendMsg(in); err != nil {
				return err
			}
		}
	}}},
}

func grpcEcho(t *testing.T) string {
	t.Helper()
	l := testkit.Listen(t)
	s := grpc.NewServer()
	s.RegisterService(&echoService, nil)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// curls are the protocol variants of curl under test.
var curls = []struct {
	url, version string
	args         []string
}{
	{"http://web.example.com:9100", "1.1", nil},
	{"http://web.example.com:9100", "2", []string{"--http2-prior-knowledge"}},
	{"https://web.example.com:9443", "1.1", []string{"--http1.1"}},
	{"https://web.example.com:9443", "2", []string{"--http2"}},
}

// curl runs curl against a node.
func (w *httpCluster) curl(m *member, args ...string) result {
	w.t.Helper()
	return peer(w.t, "", "curl", append(args, "-sS", "--fail", "--cacert", w.ca.file,
		"--resolve", "web.example.com:9100:"+m.ip, "--resolve", "web.example.com:9443:"+m.ip)...)
}

// curl works with each version of HTTP, at each node.
func TestCurlSpeaksHTTPToACluster(t *testing.T) {
	t.Parallel()
	w := startHTTPCluster(t, "--access-log", "closed")
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, m := range w.members {
		for _, c := range curls {
			args := append(c.args, "-w", "%{http_version} %{num_connects}\n")
			want, urls := "v1 /one\n"+c.version+" 1\n", []string{c.url + "/one"}
			if c.args == nil || c.args[0] != "--http2-prior-knowledge" { // there curl 7 fails at its second request, with any server
				want, urls = want+"v1 /two\n"+c.version+" 0\n", append(urls, c.url+"/two")
			}
			if r := w.curl(m, append(args, urls...)...); r.code != 0 || r.out != want {
				t.Errorf("%s: curl %v: exit code %d, %q, want %q\n%s", m.name, c.args, r.code, r.out, want, r.err)
			}
			if r := w.curl(m, append(args, "-T", upload, c.url+"/up")...); r.code != 0 || !strings.HasPrefix(r.out, "v1 /up\n") {
				t.Errorf("%s: curl %v -T: exit code %d, %q\n%s", m.name, c.args, r.code, r.out, r.err)
			}
		}
	}
	r := peer(t, "", "curl", "-sS", "--path-as-is", "-w", "%{http_code}", "http://"+w.members[0].ip+":9100/a/../b")
	if r.out != "penstock: bad_path\n400" {
		t.Errorf("%q", r.out)
	}
	w.runConcurrentCurls()
	w.runCurlTimeouts(w.members[2])
}

// runConcurrentCurls runs many curls at once: each gets its answer, so each
// connection is closed gracefully, however soon.
func (w *httpCluster) runConcurrentCurls() {
	w.t.Helper()
	const at, each = 8, 6
	var all sync.WaitGroup
	for i := range at {
		all.Go(func() {
			for range each {
				for _, c := range curls {
					if r := w.curl(w.members[i%2], append(c.args, "-o", os.DevNull, c.url+"/long")...); r.code != 0 {
						w.t.Errorf("curl %v: exit code %d\n%s", c.args, r.code, r.err)
					}
				}
			}
		})
	}
	all.Wait()
	ended := 0
	testkit.WaitFor(w.t, "the connections' lines", func() bool {
		ended = 0
		for _, m := range w.members[:2] {
			ended += len(m.accesses())
		}
		return ended >= (at*each+2*2)*len(curls) // each node has served two of each kind before
	})
	for _, m := range w.members[:2] {
		for _, a := range m.accesses() {
			if a.Reason != "client_fin" || a.Error != "" {
				w.t.Errorf("%s: a curl that had its answer is told as %q %q; %s", m.name, a.Reason, a.Error, m.logLinesAbout(a.Client))
			}
		}
	}
}

// runCurlTimeouts time out in the middle of an answer.
func (w *httpCluster) runCurlTimeouts(m *member) {
	w.t.Helper()
	for _, c := range curls {
		var from string
		var size, before int
		for limit := 1; size == 0; limit *= 2 { // a busy machine takes longer to begin
			before = len(m.accesses())
			r := w.curl(m, append(c.args, "-N", "-o", os.DevNull, "--max-time", fmt.Sprint(limit), "-w",
				"%{local_ip}:%{local_port} %{size_download}", c.url+"/endless")...)
			if _, err := fmt.Sscan(r.out, &from, &size); err != nil || r.code != 28 {
				w.t.Fatalf("curl %v: exit code %d, %q\n%s", c.args, r.code, r.out, r.err)
			}
		}
		a := m.endAfter(before, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)))
		if a.Reason != "client_reset" {
			w.t.Errorf("curl %v that gave up is told as %q; %s", c.args, a.Reason, m.logLinesAbout(from))
		}
	}
}

// While apply changes the routes and a node is drained, no request fails, and
// no WebSocket and no gRPC stream at the other nodes breaks.
func TestChangesBreakNoHTTPRequest(t *testing.T) {
	t.Parallel()
	w := startHTTPCluster(t)
	p := &httpClients{t: t}
	for _, http2 := range []bool{false, true} {
		for range 4 {
			p.sendRequests(w, http2)
		}
	}
	p.sendCalls(w)
	p.useWebSocket(w)
	p.useGRPCStream(w)
	progress := func(what string) {
		t.Helper()
		at := p.done.Load()
		testkit.WaitFor(t, what, func() bool { return p.done.Load() > at+500 })
	}
	progress("traffic")
	for i := range 6 {
		to := []string{"v2", "v1"}[i%2]
		w.members[i%3].apply(w.route(to))
		for _, m := range w.members {
			if r := peer(t, "", "curl", "-sS", "http://"+m.ip+":9100/x"); r.out != to+" /x\n" {
				t.Errorf("%s: after the change: %q", m.name, r.out)
			}
		}
	}
	w.members[0].must("drain", "n3")
	testkit.WaitFor(t, "n3 to be drained", func() bool {
		for _, n := range w.members[0].status().Nodes {
			if n.Name == "n3" {
				return n.State == "drained"
			}
		}
		return false
	})
	progress("traffic at the other nodes")
	w.members[0].must("drain", "n3", "--undo")
	w.members[1].apply(w.route("v2"))
	progress("traffic after the drain")
	p.stopAll()
	if p.old.Load() == 0 || p.new.Load() == 0 {
		t.Errorf("%d answers of v1, %d of v2", p.old.Load(), p.new.Load())
	}
}

// httpClients are clients that report every failure.
type httpClients struct {
	t        testing.TB
	stop     atomic.Bool
	wg       sync.WaitGroup
	done     atomic.Int64
	old, new atomic.Int64
}

func (p *httpClients) stopAll() {
	p.stop.Store(true)
	p.wg.Wait()
}

// repeat repeats an operation that must not fail.
func (p *httpClients) repeat(what string, once func() error, atEnd func()) {
	p.wg.Go(func() {
		defer atEnd()
		for !p.stop.Load() {
			if err := once(); err != nil {
				p.t.Errorf("%s: %v", what, err)
				return
			}
			p.done.Add(1)
		}
	})
	p.t.Cleanup(func() { p.stop.Store(true) })
}

// sendRequests makes HTTP requests, preferably to the node that is drained.
func (p *httpClients) sendRequests(w *httpCluster, http2 bool) {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	dial := w.dialer("9100", 2, 0, 1)
	transport := &http.Transport{
		Protocols:   protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	client := &http.Client{Transport: transport, Timeout: testkit.Patience}
	p.repeat(fmt.Sprint("requests, http2 ", http2), func() error {
		resp, err := client.Post("http://web.example.com/x", "text/plain", strings.NewReader("body"))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		switch string(body) {
		case "v1 /x\n":
			p.old.Add(1)
		case "v2 /x\n":
			p.new.Add(1)
		default:
			return fmt.Errorf("%s %q %w", resp.Status, body, err)
		}
		return err
	}, transport.CloseIdleConnections)
}

func (p *httpClients) dialGRPC(w *httpCluster, order ...int) *grpc.ClientConn {
	dial := w.dialer("9100", order...)
	conn, err := grpc.NewClient("passthrough:///web.example.com", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sendCalls makes gRPC calls, preferably to the node that is drained.
func (p *httpClients) sendCalls(w *httpCluster) {
	conn := p.dialGRPC(w, 2, 0, 1)
	p.repeat("calls", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		out := new(wrapperspb.StringValue)
		if err := conn.Invoke(ctx, "/test.Talker/Say", wrapperspb.String("hello"), out); err != nil || out.Value != "hello" {
			return fmt.Errorf("%q: %w", out.Value, err)
		}
		return nil
	}, func() {})
}

// useWebSocket keeps a WebSocket open at the first node.
func (p *httpClients) useWebSocket(w *httpCluster) {
	c, err := websocket.Dial("ws://"+w.members[0].ip+":9100/talk", "", "http://web.example.com")
	if err != nil {
		p.t.Fatal(err)
	}
	p.repeat("websocket", func() error {
		var got string
		if err := websocket.Message.Send(c, "hello"); err != nil {
			return err
		}
		return websocket.Message.Receive(c, &got)
	}, func() { _ = c.Close() })
}

// useGRPCStream keeps a gRPC stream open at the first node.
func (p *httpClients) useGRPCStream(w *httpCluster) {
	ctx, cancel := context.WithCancel(context.Background())
	s, err := p.dialGRPC(w, 0).NewStream(ctx, &echoService.Streams[0], "/test.Talker/Talk")
	if err != nil {
		p.t.Fatal(err)
	}
	p.repeat("stream", func() error {
		if err := s.SendMsg(wrapperspb.String("hello")); err != nil {
			return err
		}
		return s.RecvMsg(new(wrapperspb.StringValue))
	}, cancel)
}
