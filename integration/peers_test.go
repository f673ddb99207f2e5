package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/process"
)

// requirePeer returns the path of a program that setup.sh installs. If it is
// missing, the test fails in CI and is skipped elsewhere.
func requirePeer(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	if err != nil {
		testkit.NotTested(t, "%s is missing; make setup installs it", name)
	}
	return path
}

// peer runs a program to completion, with text on standard input.
func peer(t testing.TB, in, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, requirePeer(t, name), args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &out, &errs)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// peerProcess is a program that runs while the test interacts with it.
type peerProcess struct {
	t   testing.TB
	cmd *exec.Cmd
	log string
}

// startPeer starts a program and kills it at the end of the test.
func startPeer(t testing.TB, in *os.File, name string, args ...string) *peerProcess {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(requirePeer(t, name), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &peerProcess{t, cmd, out.Name()}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return r
}

// output returns what the program has printed so far.
func (r *peerProcess) output() string {
	r.t.Helper()
	text, err := os.ReadFile(r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// sClient runs openssl s_client until it has read this line from the endpoint
// or has ended by itself, and returns its output. (The line may appear in the
// middle of a longer one: s_client buffers its own output.)
func sClient(t testing.TB, address, line string, args ...string) string {
	t.Helper()
	// s_client ends at the end of its input.
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer hold.Close()
	r := startPeer(t, in, "openssl", append([]string{"s_client", "-connect", address}, args...)...)
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	over := false
	defer func() {
		if t.Failed() {
			t.Logf("s_client %s:\n%s", strings.Join(args, " "), r.output())
		}
	}()
	testkit.WaitFor(t, "s_client to read "+line, func() bool {
		select {
		case <-ended:
			over = true
		default:
		}
		return over || line != "" && strings.Contains(r.output(), line+"\n")
	})
	if !over {
		_, _ = hold.WriteString("Q\n")
		select {
		case <-ended:
		case <-time.After(testkit.Patience):
			t.Fatalf("s_client does not end:\n%s", r.output())
		}
	}
	return r.output()
}

// haproxy starts HAProxy with this configuration. Each %d is replaced by a free
// port; it returns their addresses in order.
func haproxy(t testing.TB, config string) []string {
	t.Helper()
	return daemon(t, "haproxy", config, func(file, _ string) []string { return []string{"-db", "-q", "-f", file} })
}

// nginx does the same for nginx with its stream module; config is the stream
// block.
func nginx(t testing.TB, config string) []string {
	t.Helper()
	const module = "/usr/lib/nginx/modules/ngx_stream_module.so"
	if _, err := os.Stat(module); err == nil {
		config = "load_module " + module + ";\n" + nginxFrame + "stream {\n" + config + "}\n"
	} else {
		config = nginxFrame + "stream {\n" + config + "}\n"
	}
	return daemon(t, "nginx", config, func(file, dir string) []string { return []string{"-p", dir, "-c", file, "-e", "stderr"} })
}

const nginxFrame = "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr warn;\nevents { worker_connections 512; }\n"

func daemon(t testing.TB, name, config string, args func(file, dir string) []string) []string {
	t.Helper()
	path := requirePeer(t, name)
	dir := t.TempDir()
	ports, err := process.FreePorts(strings.Count(config, "%d"))
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, p := range ports {
		config = strings.Replace(config, "%d", fmt.Sprint(p), 1)
		addresses = append(addresses, process.Loopback(p))
	}
	file := filepath.Join(dir, name+".conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(name, dir, append([]string{path}, args(file, dir)...), ports...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, p.Output())
		}
		p.Kill()
	})
	return addresses
}

// authority is a CA of the test, with its certificate in a file.
type authority struct {
	*certs.CA
	t    testing.TB
	file string
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{certs.NewCA(name), t, filepath.Join(t.TempDir(), "ca.PEM")}
	if err := os.WriteFile(a.file, []byte(a.PEM), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// pair is a certificate with its key, in files too.
type pair struct {
	certs.Pair
	certFile, keyFile string
}

// issue creates a certificate; its first name is also the common name.
func (a *authority) issue(names ...string) pair { return a.issueUntil(time.Hour, names...) }

func (a *authority) issueUntil(life time.Duration, names ...string) pair {
	a.t.Helper()
	p := a.IssueUntil(time.Now().Add(life), names...)
	cert, key, err := p.WriteFiles(a.t.TempDir())
	if err != nil {
		a.t.Fatal(err)
	}
	return pair{p, cert, key}
}

// server returns a TLS configuration with the certificate.
func (p pair) server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{p.TLS}}
}

// certificate returns a Certificate resource that refers to a pair's files.
func certificate(name string, p pair) string {
	return fmt.Sprintf("---\nkind: Certificate\nname: %s\nspec: {certFile: %q, keyFile: %q}\n", name, p.certFile, p.keyFile)
}
