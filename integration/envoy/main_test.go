package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"penstock/cmd/cli"
	"penstock/integration/realkafka"
	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
	"penstock/node/api"
)

// version is that of setup.sh.
const version = "1.40.0"

// scratch is a folder that is removed at the end of the run. Its path is short,
// since nodes have sockets below it.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	scratch = dir
	for _, env := range []string{"PENSTOCK_ADDR", "PENSTOCK_TOKEN"} { // commands run in this process
		os.Unsetenv(env)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// program builds penstock, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "penstock")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "penstock/cmd/penstock").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// requireEnvoy returns the path of Envoy in the version of setup.sh. If it is
// missing, the test fails in CI and is skipped elsewhere.
func requireEnvoy(t *testing.T) string {
	t.Helper()
	path := filepath.Join(realkafka.Peers(), "envoy-"+version, "envoy")
	if _, err := os.Stat(path); err != nil {
		testkit.NotTested(t, "%s is missing; make setup installs it", path)
	}
	if out, err := exec.Command(path, "--version").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("/"+version+"/")) {
		t.Fatalf("%s is not Envoy %s: %v\n%s", path, version, err, out)
	}
	return path
}

// cluster is a cluster of three real nodes, each at a loopback address of its own.
type cluster struct {
	t     *testing.T
	nodes []*node
}

type node struct {
	t        *testing.T
	name, ip string
	dir      string
	flags    []string
	proc     *process.Process // nil: it is down
}

func startCluster(t *testing.T, flags ...string) *cluster {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	network := fmt.Sprintf("127.%d.%d.", 16+os.Getpid()%200, os.Getpid()/200%250)
	c := &cluster{t: t}
	token := strings.TrimSpace(c.penstock(nil, "token", "new"))
	for i := range 3 {
		n := &node{t: t, name: fmt.Sprint("n", i+1), ip: fmt.Sprint(network, i+1), dir: filepath.Join(scratch, fmt.Sprint("n", i+1))}
		n.flags = []string{bin, "start", "--name", n.name, "--data-dir", n.dir, "--bind", n.ip, "--gossip", n.ip + ":7946",
			"--cluster", n.ip + ":7947", "--http", n.ip + ":7948", "--xds", n.ip + ":7950", "--access-log", "off",
			"--drain-wait", "0s", "--drain-timeout", "0s", "--expect", "3", "--join", network + "1:7947," + network + "2:7947", "--token", token}
		n.flags = append(n.flags, flags...)
		c.nodes = append(c.nodes, n)
		n.start()
	}
	for _, n := range c.nodes {
		n.waitReady()
	}
	testkit.WaitFor(t, "three voters", func() bool {
		var members api.Members
		return c.query(&members, "members") == nil && len(members) == 3 &&
			!slices.ContainsFunc(members, func(m api.Member) bool { return m.State != "serving" || m.Role == "non-voter" })
	})
	return c
}

// start starts the node's process.
func (n *node) start() {
	n.t.Helper()
	p, err := process.Start("penstock-"+n.name, scratch, n.flags)
	if err != nil {
		n.t.Fatal(err)
	}
	n.proc = p
	n.t.Cleanup(func() {
		p.Kill()
		if n.t.Failed() {
			n.t.Logf("%s:\n%s", n.name, p.Output())
		}
	})
}

func (n *node) waitReady() {
	n.t.Helper()
	testkit.WaitFor(n.t, n.name+" to be ready", func() bool {
		status, _ := fetch(n.t.Context(), "http://"+n.ip+":7948/readyz")
		return status == http.StatusOK
	})
}

// kill ends the node like a crash.
func (n *node) kill() {
	_ = n.proc.Signal(syscall.SIGKILL)
	_ = n.proc.Wait()
	n.proc = nil
}

// stop stops the node with SIGTERM.
func (n *node) stop() {
	n.t.Helper()
	_ = n.proc.Signal(syscall.SIGTERM)
	if code, err := n.proc.ExitCode(testkit.Patience); code != 0 || err != nil {
		n.t.Errorf("%s ended with %d, %v", n.name, code, err)
	}
	n.proc = nil
}

// up returns a node that runs.
func (c *cluster) up() *node {
	for _, n := range c.nodes {
		if n.proc != nil {
			return n
		}
	}
	c.t.Fatal("all nodes are down")
	return nil
}

func (c *cluster) named(name string) *node {
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.name == name })
	return c.nodes[i]
}

// run runs a command, at a node that is up unless the command needs none.
func (c *cluster) run(in []byte, args ...string) (out string, err error) {
	if len(c.nodes) > 0 {
		args = append(args, "--addr", "unix:"+c.up().dir+"/penstock.sock")
	}
	var stdout, stderr bytes.Buffer
	if code := cli.Run(args, cli.Streams{In: bytes.NewReader(in), Out: &stdout, Err: &stderr}); code != 0 {
		return "", fmt.Errorf("penstock %s: %d\n%s", strings.Join(args, " "), code, stderr.String())
	}
	return stdout.String(), nil
}

// penstock runs a command that must succeed.
func (c *cluster) penstock(in []byte, args ...string) string {
	c.t.Helper()
	out, err := c.run(in, args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// query runs a command and decodes its JSON.
func (c *cluster) query(into any, args ...string) error {
	out, err := c.run(nil, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// apply applies resources. A request that was sent when the leader was lost is
// repeated: it says the same.
func (c *cluster) apply(text string) {
	c.t.Helper()
	testkit.WaitFor(c.t, "the resources to be applied", func() bool {
		_, err := c.run([]byte(text), "apply", "-f", "-")
		if err != nil {
			c.t.Log(err)
		}
		return err == nil
	})
}

// proxy returns what the nodes say of the only proxy of a service; nil: there is
// none, or more than one.
func (c *cluster) proxy(service string) *api.Proxy {
	var all api.Proxies
	if err := c.query(&all, "get", "proxies", service); err != nil || len(all.Proxies) != 1 {
		return nil
	}
	return &all.Proxies[0]
}

// fetch gets a URL; status is 0 if there is no answer.
func fetch(ctx context.Context, url string) (status int, body string) {
	return fetchWith(ctx, url, nil)
}

// fetchWith is fetch with headers, on a connection of its own.
func fetchWith(ctx context.Context, url string, header http.Header) (status int, body string) {
	ctx, cancel := context.WithTimeout(ctx, testkit.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := alone.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil && !errors.Is(err, context.Canceled) {
		return 0, err.Error()
	}
	return resp.StatusCode, text.String()
}

var alone = &http.Transport{DisableKeepAlives: true}
