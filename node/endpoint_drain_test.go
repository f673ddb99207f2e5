package node

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// drained is a service that closes the connections of removed endpoints, with a
// listener.
func drained(listener, more string, endpoints ...string) string {
	var list []string
	for _, e := range endpoints {
		list = append(list, fmt.Sprintf("{address: %q}", e))
	}
	return fmt.Sprintf("\n---\nkind: Listener\nname: shop\nspec: {address: \"127.0.0.1:0\", service: shop%s}\n"+
		"---\nkind: Service\nname: shop\nspec: {endpoints: [%s]%s}\n", listener, strings.Join(list, ", "), more)
}

// The test's own steps on a busy machine take less than the timeout.
const closing = ", endpointDrain: {timeout: 5s}"

// mustClose waits for the end of a connection that has nothing more to say.
func mustClose(t *testing.T, c net.Conn) {
	t.Helper()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("read %q, %v, want the end", rest, err)
	}
}

func TestConnectionsOfARemovedEndpointStayByDefault(t *testing.T) {
	t.Parallel()
	a, b := nodetest.NewBackend(t, "a"), nodetest.NewBackend(t, "b")
	n := startNode(t, drained("", "", a.At()))
	conn, _ := nodetest.Dial(t, n.at(t, "shop"))
	n.mustApply(t, drained("", "", b.At()))
	if _, name := nodetest.Dial(t, n.at(t, "shop")); name != "b" {
		t.Errorf("a new connection went to %s", name)
	}
	nodetest.Echo(t, conn)
}

func TestConnectionsOfARemovedEndpointAreClosed(t *testing.T) {
	t.Parallel()
	pair := certs.SelfSigned("shop.example")
	for _, c := range []struct{ name, listener, service, more string }{
		{"tcp", "", "", ""},
		{"kafka", "", ", protocol: kafka", ""},
		{"tls", ", protocol: tls, tls: {mode: terminate, certificateRefs: [shop]}", "", nodetest.Certificate("shop", pair)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, b := nodetest.NewBackend(t, "a"), nodetest.NewBackend(t, "b")
			more := closing + c.service
			n := startNode(t, drained(c.listener, more, a.At())+c.more)
			dial := func() (net.Conn, string) {
				if c.name != "tls" {
					return nodetest.Dial(t, n.at(t, "shop"))
				}
				conn, name, err := nodetest.DialTLS(t, n.at(t, "shop"), &tls.Config{RootCAs: pair.Pool(), ServerName: "shop.example"})
				if err != nil {
					t.Fatal(err)
				}
				return conn, name
			}
			conn, _ := dial()
			n.mustApply(t, drained(c.listener, more, a.At(), b.At())+c.more)
			var other net.Conn
			testkit.WaitFor(t, "a connection to b", func() bool {
				found, name := dial()
				other = found
				return name == "b"
			})
			n.mustApply(t, drained(c.listener, more, b.At())+c.more)
			nodetest.Echo(t, conn) // not at once
			mustClose(t, conn)
			nodetest.Echo(t, other)
			result := `penstock_connections_total{listener="shop",result="endpoint_removed",service="shop"}`
			testkit.WaitFor(t, "the reason", func() bool { return n.metric(t, result) != "" })
		})
	}
}

// What a provider no longer reports has left too; what it reports again stays.
func TestConnectionsStayIfTheEndpointIsBackInTime(t *testing.T) {
	t.Parallel()
	a, b := nodetest.NewBackend(t, "a"), nodetest.NewBackend(t, "b")
	file := filepath.Join(t.TempDir(), "endpoints.yaml")
	write := func(endpoints ...*nodetest.Backend) {
		t.Helper()
		var list strings.Builder
		for _, e := range endpoints {
			fmt.Fprintf(&list, "- {address: %q}\n", e.At())
		}
		next := file + ".next"
		if err := os.WriteFile(next, []byte("shop:\n"+nodetest.Indent(list.String(), 2)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	write(a)
	n := startNode(t, "kind: EndpointProvider\nname: files\nspec: {type: file, hold: {for: 0}, file: {path: "+file+"}}\n"+
		drained("", ", endpointDrain: {timeout: 10s}, endpointsFrom: [{provider: files}]"))
	uses := func(name string) {
		t.Helper()
		testkit.WaitFor(t, "new connections to "+name, func() bool { return nodetest.Attempt(n.at(t, "shop")) == name+"\n" })
	}
	uses("a")
	conn, _ := nodetest.Dial(t, n.at(t, "shop"))
	write(b)
	uses("b")
	write(a)
	uses("a")
	begun := time.Now()
	testkit.WaitFor(t, "the window to pass", func() bool { return time.Since(begun) > 10500*time.Millisecond })
	nodetest.Echo(t, conn)
	write(b)
	mustClose(t, conn)
}

// A request that is under way is ended; the client's connection is not the
// endpoint's, and stays.
func TestRequestsOfARemovedEndpointAreEnded(t *testing.T) {
	t.Parallel()
	stream := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	resources := func(endpoint string) string {
		return nodetest.WebListener + nodetest.WebService("shop", closing, endpoint) + nodetest.WebRoute(nodetest.Rule("/", ""))
	}
	n := startNode(t, resources(stream))
	resp, err := http.Get("http://" + n.at(t, "web") + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if line, err := body.ReadString('\n'); line != "begun\n" {
		t.Fatal(line, err)
	}
	n.mustApply(t, resources(nodetest.NamedServer(t, "other")))
	if rest, err := io.ReadAll(body); err == nil {
		t.Errorf("the request ended in order, with %q", rest)
	}
	testkit.WaitFor(t, "the log to say why", func() bool { return strings.Contains(n.lines.String(), "endpoint_removed") })
}
