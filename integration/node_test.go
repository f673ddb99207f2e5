package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"penstock/cmd/cli"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
	"penstock/node/api"
)

// build builds the binary, once for all tests.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "penstock-build-")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "penstock")
	args := []string{"build", "-ldflags=-s -w", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "penstock/cmd/penstock")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

var (
	built         string // folder of the binary
	dashboardCopy string // folder of the dashboard's sources with what they need
)

func TestMain(m *testing.M) {
	testkit.Parallel("4")
	for _, env := range []string{"PENSTOCK_ADDR", "PENSTOCK_TOKEN"} { // commands run in this process
		os.Unsetenv(env)
	}
	code := m.Run()
	for _, dir := range []string{built, dashboardCopy} {
		if dir != "" {
			os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

func program(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// node is a running penstock with its own addresses.
type node struct {
	t    testing.TB
	proc *process.Process
	dir  string // data folder, and everything else that it writes
	http string
	// wantCode is the expected exit code.
	wantCode int
	ended    bool
}

// startNode starts a node with these resources and waits until it is ready. At
// the end of the test the node is stopped with SIGTERM and must exit with 0;
// its log is printed if the test failed.
func startNode(t testing.TB, resources string, flags ...string) *node {
	t.Helper()
	n := newNode(t)
	file := n.file("resources.yaml", resources)
	args := []string{"start", "--dev", "--name", "n1", "--data-dir", n.dir, "--cluster", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--access-log", "all", "--log-format", "json", "--drain-wait", "0s", "--drain-timeout", "0s"}
	if resources != "" {
		args = append(args, "--resources", file)
	}
	n.start(append([]string{program(t)}, append(args, flags...)...))
	return n
}

// newNode prepares a node without starting it. Its folder has a short path: the
// path of a unix socket may be 107 bytes long.
func newNode(t testing.TB) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &node{t: t, dir: dir}
}

// start runs the command line and waits for the node to be ready.
func (n *node) start(argv []string) {
	n.t.Helper()
	proc, err := process.Start("penstock", n.dir, append([]string{"env", "-u", "PENSTOCK_ADDR", quickRace}, argv...))
	if err != nil {
		n.t.Fatal(err)
	}
	n.proc = proc
	n.t.Cleanup(n.finish)
	testkit.WaitFor(n.t, "the node to be ready", func() bool {
		n.mustBeRunning()
		if n.http == "" {
			r := n.run("status", "-o", "json")
			var s api.Status
			if r.code != 0 || json.Unmarshal([]byte(r.out), &s) != nil || len(s.Nodes) == 0 {
				return false
			}
			n.http = s.Nodes[0].HTTP
		}
		code, _ := n.fetch("/readyz")
		return code == http.StatusOK
	})
}

// mustBeRunning fails the test if the node has ended.
func (n *node) mustBeRunning() {
	n.t.Helper()
	if n.proc.Descriptors() == 0 {
		n.t.Fatalf("the node is gone:\n%s", n.proc.Output())
	}
}

// finish stops the node with SIGTERM, and checks its log for text that must
// never be there.
func (n *node) finish() {
	if !n.ended {
		n.signal(syscall.SIGTERM)
		n.wantExit(n.wantCode)
	}
	log := n.log()
	for _, bad := range []string{"DATA RACE", "panic:", "goroutine 1 ["} {
		if strings.Contains(log, bad) {
			n.t.Errorf("the node's log has %q", bad)
		}
	}
	if n.t.Failed() {
		if len(log) > 20_000 {
			log = "...\n" + log[len(log)-20_000:]
		}
		n.t.Logf("log of the node:\n%s", log)
	}
}

func (n *node) signal(sig syscall.Signal) {
	n.t.Helper()
	if err := n.proc.Signal(sig); err != nil {
		n.t.Errorf("signal: %v", err)
	}
}

// wantExit waits until the node ends, and checks its exit code.
func (n *node) wantExit(code int) {
	n.t.Helper()
	n.ended = true
	switch got, err := n.proc.ExitCode(testkit.Patience); {
	case err != nil:
		n.t.Error(err)
	case got != code:
		n.t.Errorf("the node exits with %d, want %d", got, code)
	}
}

// file writes a file into the node's folder.
func (n *node) file(name, text string) string {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// result is the result of a command.
type result struct {
	code     int
	out, err string
}

// run runs a penstock command against the node.
func (n *node) run(args ...string) result {
	n.t.Helper()
	return n.pipe("", args...)
}

// pipe is run with text on standard input.
func (n *node) pipe(in string, args ...string) result {
	n.t.Helper()
	return command(n.t, in, append(args, "--addr", "unix:"+filepath.Join(n.dir, "penstock.sock"))...)
}

// quickRace prevents the race detector from sleeping a second at each exit.
const quickRace = "GORACE=atexit_sleep_ms=0"

// command runs a penstock command in this process, which takes a tenth of the
// time of a separate process. Commands that start nodes need a process of their
// own.
func command(t testing.TB, in string, args ...string) result {
	t.Helper()
	if args[0] == "start" || args[0] == "demo" {
		return commandOf(t, program(t), nil, in, args...)
	}
	var out, errs bytes.Buffer
	code := cli.Run(args, cli.Streams{In: strings.NewReader(in), Out: &out, Err: &errs})
	return result{code, out.String(), errs.String()}
}

// commandOf runs a program in a separate process, with additions to its
// environment.
func commandOf(t testing.TB, bin string, env []string, in string, args ...string) result {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "PENSTOCK_") }), quickRace)
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// must runs a command that must succeed, and returns its output.
func (n *node) must(args ...string) string {
	n.t.Helper()
	r := n.run(args...)
	if r.code != 0 {
		n.t.Fatalf("penstock %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// apply applies resources that must be accepted. They are active when it
// returns.
func (n *node) apply(resources string) string {
	n.t.Helper()
	r := n.pipe(resources, "apply", "-f", "-")
	if r.code != 0 {
		n.t.Fatalf("apply: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	return r.out
}

func (n *node) status() api.Status {
	n.t.Helper()
	var s api.Status
	if err := json.Unmarshal([]byte(n.must("status", "-o", "json")), &s); err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) listener(name string) api.ListenerStatus {
	n.t.Helper()
	for _, l := range n.status().Listeners {
		if l.Name == name {
			return l
		}
	}
	n.t.Fatalf("status knows no listener %q", name)
	return api.ListenerStatus{}
}

// addr returns the address that a listener is bound to.
func (n *node) addr(listener string) string {
	n.t.Helper()
	l := n.listener(listener)
	if l.State != "listening" {
		n.t.Fatalf("%s does not listen: %+v", listener, l)
	}
	return l.Address
}

func (n *node) endpoint(service, address string) api.EndpointStatus {
	n.t.Helper()
	for _, s := range n.status().Services {
		for _, e := range s.Endpoints {
			if s.Name == service && e.Address == address {
				return e
			}
		}
	}
	n.t.Fatalf("status knows no endpoint %s of %s", address, service)
	return api.EndpointStatus{}
}

// fetch sends an HTTP request to the node.
func (n *node) fetch(path string) (code int, body string) {
	client := http.Client{Timeout: testkit.Patience}
	resp, err := client.Get("http://" + n.http + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// settledMemory returns the node's resident memory once that is stable. The
// race detector's shadow memory is up to ten times the memory ever used and is
// never returned: with it, the figure comes from the Go runtime.
func (n *node) settledMemory() int64 {
	resident := n.proc.SettledRSS()
	if !raceEnabled {
		return resident
	}
	_, body := n.fetch("/metrics")
	memory := map[string]float64{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			memory[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	all, released := memory["go_memstats_sys_bytes"], memory["go_memstats_heap_released_bytes"]
	if all == 0 || released == 0 {
		n.t.Fatal("the node does not say what memory it has")
	}
	return int64(all - released)
}

// metric returns the sum of a metric's series whose labels include all of
// these, such as `listener="edge"`.
func (n *node) metric(name string, labels ...string) float64 {
	n.t.Helper()
	code, body := n.fetch("/metrics")
	if code != http.StatusOK {
		n.t.Fatalf("/metrics: %d %s", code, body)
	}
	sum := 0.0
next:
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ok := strings.CutPrefix(series, "penstock_"+name)
		if !ok || rest != "" && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			n.t.Fatalf("/metrics: %s", line)
		}
		sum += v
	}
	return sum
}

// log returns everything that the node has logged, including the access log.
func (n *node) log() string {
	text, err := os.ReadFile(n.proc.Log())
	if err != nil {
		n.t.Error(err)
	}
	return string(text)
}

// access is one line of the access log.
type access struct {
	Msg, Listener, Client, SNI, Service, Endpoint, Reason, Error string
	In, Out                                                      uint64
	Attempts                                                     int
	Duration                                                     float64 // in seconds
}

// accesses returns the lines of the access log.
func (n *node) accesses() []access {
	n.t.Helper()
	var list []access
	for line := range strings.Lines(n.log()) {
		var a access
		if strings.Contains(line, `"msg":"connection `) && json.Unmarshal([]byte(line), &a) == nil {
			list = append(list, a)
		}
	}
	return list
}

// end waits for the closing line of the connection with that client address.
func (n *node) end(client net.Addr) access {
	n.t.Helper()
	return n.endAfter(0, client)
}

// endAfter ignores the first lines of the access log: a client port may be
// reused.
func (n *node) endAfter(before int, client net.Addr) access {
	n.t.Helper()
	var found access
	testkit.WaitFor(n.t, "the access log's line on "+client.String(), func() bool {
		for _, a := range n.accesses()[before:] {
			if a.Client == client.String() && a.Msg == "connection closed" {
				found = a
				return true
			}
		}
		return false
	})
	return found
}

// wantEnd waits until a connection ends, and checks its reason.
func (n *node) wantEnd(c net.Conn, reason string) access {
	n.t.Helper()
	a := n.end(c.LocalAddr())
	if a.Reason != reason {
		n.t.Errorf("the connection ended with %q, want %q: %+v", a.Reason, reason, a)
	}
	return a
}

// logLinesAbout returns the log lines about a client, for failure messages.
func (n *node) logLinesAbout(client string) string {
	found := "the log has:"
	for line := range strings.Lines(n.log()) {
		if strings.Contains(line, client) {
			found += "\n" + line
		}
	}
	return found
}

// wantRefused connects to a listener and expects to be closed with this reason,
// without a byte. (The reset may arrive before connect returns; the client then
// does not know its own address, so this checks the metrics.)
func (n *node) wantRefused(listener, reason string) {
	n.t.Helper()
	ended := func() float64 {
		return n.metric("connections_total", fmt.Sprintf("listener=%q", listener), fmt.Sprintf("result=%q", reason))
	}
	before := ended()
	c, err := net.DialTimeout("tcp", n.addr(listener), testkit.Patience)
	switch {
	case err == nil:
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testkit.Patience))
		mustClose(n.t, c)
	case !errors.Is(err, syscall.ECONNRESET):
		n.t.Errorf("%s: %v", listener, err)
	}
	testkit.WaitFor(n.t, listener+" to have refused with "+reason, func() bool { return ended() == before+1 })
}
