package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/routing"
)

// An unreachable node is exit code 3 and wrong usage 2, each with one line that
// says what to do.
func TestCommandFailures(t *testing.T) {
	t.Parallel()
	nowhere := closedPort(t)
	file := newNode(t).file("service.yaml", service("s", []string{"127.0.0.1:1"}))
	for _, args := range [][]string{
		{"status"}, {"get", "services"}, {"delete", "service", "a"}, {"apply", "-f", file}, {"diff", "-f", file},
		{"explain", "--listener", "l"}, {"top", "--once"}, {"members"}, {"drain"}, {"version"},
	} {
		for _, addr := range []string{nowhere, "unix:/nowhere/penstock.sock"} {
			wantFailure(t, 3, append(args, "--addr", addr)...)
		}
	}
	for _, args := range [][]string{
		{"nonsense"}, {"statsu"}, {"status", "--nonsense"}, {"status", "extra"}, {"get"}, {"get", "a", "b", "c"},
		{"delete", "service"}, {"apply"}, {"check"}, {"explain"}, {"status", "-o", "xml"}, {"start"},
		{"start", "--dev", "--drain-wait", "5"}, {"start", "--dev", "--http", "nowhere"}, {"start", "--dev", "--access-log", "some"},
		{"top", "--interval", "1ms"}, {"status", "--addr", "no-port"},
	} {
		wantFailure(t, 2, args...)
	}
	wantFailure(t, 1, "check", "-f", "/nowhere/at/all.yaml")
}

func wantFailure(t *testing.T, code int, args ...string) {
	t.Helper()
	r := commandOf(t, program(t), nil, "", args...) // the exit code requires a process
	if r.code != code || r.out != "" || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "penstock: ") {
		t.Errorf("penstock %s: exit code %d, want %d with one line\n%s%s", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
}

// Commands fail with a clear error if the server is not a node.
func TestCommandsAgainstOtherServers(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{
		"an echo":           testkit.Serve(t, echo),
		"one that closes":   testkit.Serve(t, func(*net.TCPConn) {}),
		"one that speaks":   testkit.Serve(t, func(c *net.TCPConn) { fmt.Fprint(c, "220 hello\r\n"); echo(c) }),
		"a web server":      webServer(t, "hello"),
		"one that is quiet": testkit.Serve(t, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1<<10)); _, _ = c.Read(make([]byte, 1)) }),
	} {
		r := command(t, "", "status", "--addr", addr, "--timeout", "500ms")
		if r.code != 3 && r.code != 1 || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: exit code %d\n%s%s", name, r.code, r.out, r.err)
		}
	}
}

func TestCommandsAgainstNode(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo"))
	c := dial(t, n.addr("plain"))
	roundTrip(t, c, "hello")

	var members api.Members
	if err := json.Unmarshal([]byte(n.must("members", "-o", "json")), &members); err != nil ||
		len(members) != 1 || members[0].Name != "n1" || members[0].Connections != 1 {
		t.Errorf("members: %+v, %v", members, err)
	}
	var top api.TopSample
	if err := json.Unmarshal([]byte(n.must("top", "--once", "-o", "json", "--interval", "100ms")), &top); err != nil ||
		len(top.Flows) != 1 || top.Flows[0].BytesIn != 5 || top.Flows[0].Connections != 1 {
		t.Errorf("top: %+v, %v", top, err)
	}
	var explained routing.Explanation
	if err := json.Unmarshal([]byte(n.must("explain", "--listener", "plain", "-o", "json")), &explained); err != nil ||
		explained.Service != "echo" || explained.Endpoint == "" {
		t.Errorf("explain: %+v, %v", explained, err)
	}
	for _, path := range []string{"/v1/status", "/v1/listeners", "/v1/listener/plain", "/v1/services", "/v1/members"} {
		if code, body := n.fetch(path); code != 200 || !json.Valid([]byte(body)) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, _ := n.fetch("/v1/listener/nobody"); code != 404 {
		t.Errorf("a listener that is not there is %d", code)
	}
	for _, args := range [][]string{
		{"get", "listener", "nobody"}, {"delete", "service", "nobody"},
		{"get", "nonsense"}, {"explain", "--listener", "nobody"},
	} {
		r := n.run(args...)
		if r.code != 1 && args[0] != "explain" || strings.Count(r.err, "\n") > 1 {
			t.Errorf("%v: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	// The same node over TCP instead of its socket.
	if r := command(t, "", "status", "--addr", n.status().Nodes[0].Address); r.code != 0 || !strings.Contains(r.out, "plain") {
		t.Errorf("over TCP: exit code %d\n%s%s", r.code, r.out, r.err)
	}
}

// The output of explain matches what happens to a connection.
func TestExplainMatchesConnections(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	config := ca.issue("a.example.com").server()
	n := startNode(t, service("exact", []string{tlsNamed(t, "exact", config)})+service("wild", []string{tlsNamed(t, "wild", config)})+
		service("deep", []string{tlsNamed(t, "deep", config)})+service("h2", []string{tlsNamed(t, "h2", config)})+
		service("closed", []string{closedPort(t)})+"---\nkind: Service\nname: empty\nspec: {}\n"+
		listener("edge", "protocol: tls", "hosts:",
			"- {names: [a.example.com], service: exact}", "- {names: [h2.example.com], service: h2, alpn: [h2]}",
			`- {names: ["*.example.com"], service: wild}`, `- {names: ["*.deep.example.com"], service: deep}`,
			"- {names: [empty.test], service: empty}"))
	addr := n.addr("edge")
	for _, name := range []string{
		"a.example.com", "A.Example.COM", "b.example.com", "x.y.example.com", "x.deep.example.com", "h2.example.com",
		"deep.example.com", "example.com", "other.test", "empty.test", "127.0.0.1", "a.example.com.",
		"a..example.com", "*.example.com", "bad_name!.example.com",
	} {
		for _, alpn := range []string{"", "h2"} {
			args := []string{"explain", "--listener", "edge", "--sni", name, "-o", "json"}
			extensions := [][]byte{sni(name)}
			if alpn != "" {
				args = append(args, "--alpn", alpn)
				extensions = append(extensions, extension(16, appendVector(nil, append([]byte{byte(len(alpn))}, alpn...))))
			}
			r := n.run(args...)
			var said routing.Explanation
			if err := json.Unmarshal([]byte(r.out), &said); err != nil {
				t.Errorf("%s: %v\n%s%s", name, err, r.out, r.err)
				continue
			}
			c := dial(t, addr)
			mustWrite(t, c, string(hello(extensions...)))
			closeWrite(c)
			_, _ = c.Read(make([]byte, 1<<10))
			c.Close()
			a := n.end(c.LocalAddr())
			switch {
			case said.Reason != "" && (a.Reason != string(said.Reason) || a.Endpoint != ""):
				t.Errorf("%s, %q: explain says %s, and it was %+v", name, alpn, said.Reason, a)
			case said.Reason == "" && (a.Service != said.Service || a.Endpoint != said.Endpoint):
				t.Errorf("%s, %q: explain says %s at %s, and it was %+v", name, alpn, said.Service, said.Endpoint, a)
			}
		}
	}
}

// Two nodes cannot share a data folder, and a node does not start if its own
// address is taken.
func TestStartFailures(t *testing.T) {
	t.Parallel()
	n := startNode(t, "")
	taken := testkit.Listen(t).Addr().String()
	wantFailure(t, 1, "start", "--dev", "--data-dir", n.dir, "--cluster", "127.0.0.1:0", "--http", "127.0.0.1:0")
	wantFailure(t, 1, "start", "--dev", "--cluster", taken, "--http", "127.0.0.1:0")
	wantFailure(t, 1, "start", "--dev", "--cluster", "127.0.0.1:0", "--http", taken)
	bad := n.file("bad.yaml", listener("l", "service: nobody"))
	r := command(t, "", "start", "--dev", "--cluster", "127.0.0.1:0", "--http", "127.0.0.1:0", "--resources", bad)
	if r.code != 1 || !strings.Contains(r.err, bad+":6: Listener/l spec.service: there is no such Service (nobody)") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
	}
}
