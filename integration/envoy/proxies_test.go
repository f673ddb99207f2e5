package envoy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/process"
)

// proxy is a running Envoy of a service.
type proxy struct {
	t       *testing.T
	c       *cluster
	service string
	dir     string // of its bootstrap files
	admin   string // address of its admin interface
	proc    *process.Process
}

// startEnvoy issues a certificate for an Envoy of a service and starts it.
func startEnvoy(t *testing.T, c *cluster, service string, flags ...string) *proxy {
	t.Helper()
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, c: c, service: service, dir: filepath.Join(scratch, service), admin: fmt.Sprint("127.0.0.1:", ports[0])}
	p.bootstrap(append(flags, "--admin", p.admin)...)
	p.start()
	return p
}

// start starts the Envoy and waits until it is ready.
func (p *proxy) start() {
	p.t.Helper()
	proc, err := process.Start("envoy-"+p.service, scratch, []string{requireEnvoy(p.t), "-c", p.dir + "/envoy.yaml",
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.proc = proc
	p.t.Cleanup(func() {
		proc.Kill()
		if p.t.Failed() {
			p.t.Logf("the Envoy of %s:\n%s", p.service, proc.Output())
		}
	})
	testkit.WaitFor(p.t, "the Envoy of "+p.service+" to be live", func() bool {
		status, _ := fetch(p.t.Context(), "http://"+p.admin+"/ready")
		return status == http.StatusOK
	})
}

// bootstrap writes the bootstrap files, as for the first time so for a renewal.
func (p *proxy) bootstrap(flags ...string) {
	p.t.Helper()
	p.c.penstock(nil, append([]string{"xds", "bootstrap", "--for", p.service, "--out", p.dir}, flags...)...)
}

// get returns a page of the admin interface.
func (p *proxy) get(path string) string {
	_, body := fetch(p.t.Context(), "http://"+p.admin+path)
	return body
}

// tcpBackend serves its name on each TCP connection.
func tcpBackend(t *testing.T, name string) (addr string) {
	t.Helper()
	return testkit.Serve(t, func(conn net.Conn) { io.WriteString(conn, name) })
}

// httpBackend answers each request with its name.
func httpBackend(t *testing.T, name string) (addr string) {
	t.Helper()
	return testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) })
}

// connect returns what a TCP server says; "": nothing.
func connect(addr string) string {
	conn, err := net.DialTimeout("tcp", addr, testkit.Patience)
	if err != nil {
		return ""
	}
	defer conn.Close()
	text, _ := io.ReadAll(conn)
	return string(text)
}

// shares counts the answers of n calls.
func shares(n int, call func() string) map[string]int {
	got := map[string]int{}
	for range n {
		got[call()]++
	}
	return got
}

// wantShares expects each share within 5 points of what it should be, in percent.
func wantShares(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	sum := 0
	for _, n := range got {
		sum += n
	}
	for name, percent := range want {
		if share := 100 * float64(got[name]) / float64(sum); share < float64(percent)-5 || share > float64(percent)+5 {
			t.Errorf("%s: %s got %.1f %%, want %d %% (%v)", what, name, share, percent, got)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %q answered: %v", what, name, got)
		}
	}
}

// endpoints returns a list of endpoints with a tag each.
func endpoints(list ...string) string {
	var b strings.Builder
	for i := 0; i < len(list); i += 2 {
		fmt.Fprintf(&b, "{address: %q, tags: {version: %s}}, ", list[i+1], list[i])
	}
	return "[" + strings.TrimSuffix(b.String(), ", ") + "]"
}
