package kafka

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// built is the Penstock binary, built once, with the race detector if the tests
// are; PENSTOCK_BINARY names an existing one.
var built = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("PENSTOCK_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(scratch, "penstock")
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

// startPenstock runs a node with these resources until the test ends.
func startPenstock(t testing.TB, resources string, ports ...int) *process.Process {
	t.Helper()
	return startNode(t, "off", resources, ports...).Process
}

// node is a running Penstock node.
type node struct {
	*process.Process
	http string // address of its metrics
	t    testing.TB
	path string // path of the binary
	dir  string // data folder
}

// cli runs a penstock command against the node, and returns its standard
// output.
func (n *node) cli(in string, args ...string) string {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), n.path, append(args, "--addr", "unix:"+filepath.Join(n.dir, "penstock.sock"))...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("penstock %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// startNode runs a node with the given --access-log mode.
func startNode(t testing.TB, accessLog, resources string, ports ...int) node {
	t.Helper()
	path, err := built()
	must(t, err)
	// The path of a unix socket may be 107 bytes long.
	dir, err := os.MkdirTemp("", "pk")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "resources.yaml")
	must(t, os.WriteFile(file, []byte(resources), 0o600))
	own, err := process.FreePorts(2)
	must(t, err)
	p, err := process.Start("penstock", dir, []string{path, "start", "--dev", "--data-dir", dir, "--resources", file,
		"--access-log", accessLog, "--drain-wait", "0s", "--drain-timeout", "0s",
		"--cluster", process.Loopback(own[0]), "--http", process.Loopback(own[1])}, append(ports, own...)...)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("penstock:\n%s", p.Output())
		}
		p.Kill()
		wantNoRace(t, p)
	})
	return node{Process: p, http: process.Loopback(own[1]), t: t, path: path, dir: dir}
}

// wantNoRace checks the log of an ended node for data races and panics.
func wantNoRace(t testing.TB, p *process.Process) {
	t.Helper()
	log, err := os.ReadFile(p.Log())
	must(t, err)
	for _, bad := range []string{"DATA RACE", "panic:", "goroutine 1 ["} {
		if at := strings.Index(string(log), bad); at >= 0 {
			t.Errorf("the node's log has %q:\n%s", bad, log[at:min(at+4000, len(log))])
		}
	}
}

// viaTCP starts plain TCP listeners of Penstock at the addresses that the
// brokers' listener Via advertises: a proxy that parses nothing.
func viaTCP(t testing.TB, c *realkafka.Cluster) target {
	t.Helper()
	var text strings.Builder
	for i, b := range c.Brokers {
		fmt.Fprintf(&text, "---\nkind: Listener\nname: b%d\nspec: {address: %q, service: b%d}\n", i, b.ProxyAddr(), i)
		fmt.Fprintf(&text, "---\nkind: Service\nname: b%d\nspec: {endpoints: [{address: %q}]}\n", i, b.Addr(realkafka.Via))
	}
	startPenstock(t, text.String())
	for _, at := range c.Bootstrap(realkafka.Via) {
		testkit.WaitFor(t, "a listener at "+at, func() bool {
			conn, err := target{}.dial(t.Context(), at)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
	}
	return target{name: "Penstock's TCP listener", bootstrap: c.Bootstrap(realkafka.Via)}
}
