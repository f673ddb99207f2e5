package node

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// mount writes the content of a volume as a kubelet does: into a folder of its own, to
// which the link ..data is turned in one step. Files are links through it.
func mount(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, ".."+version), 0o755))
	for name, text := range files {
		must(os.WriteFile(filepath.Join(dir, ".."+version, name), []byte(text), 0o440))
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			must(os.Symlink("..data/"+name, filepath.Join(dir, name)))
		}
	}
	before, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(os.Symlink(".."+version, filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if before != "" {
		must(os.RemoveAll(filepath.Join(dir, before)))
	}
}

// Secrets that are mounted in the chart's roles are followed as a kubelet replaces them,
// without a signal.
func TestMountedSecretsAreFollowed(t *testing.T) {
	first, second := certs.NewCA("first CA"), certs.NewCA("second CA")
	dir := t.TempDir()
	role := func(name string) string { return filepath.Join(dir, name) }
	write := func(version string, ca *certs.CA) {
		pair := ca.Issue("edge.example")
		mount(t, role("clients"), version, map[string]string{"tls.crt": pair.Cert, "tls.key": pair.Key})
		mount(t, role("servers"), version, map[string]string{"ca.crt": ca.PEM})
		mount(t, role("sql"), version, map[string]string{"ca.crt": first.PEM + second.PEM})
	}
	write("2026_01", first)
	b := nodetest.ServeBackend(t, "b", second.Server("127.0.0.1"))
	f := &followedFiles{t, role("clients/tls.crt"), role("clients/tls.key"), role("servers/ca.crt"), role("sql/ca.crt")}
	n := startNode(t, f.resources(b))
	attempt := func(ca *certs.CA) bool {
		c, name, err := nodetest.DialTLS(t, n.at(t, "edge"), &tls.Config{
			RootCAs: ca.Pool, ServerName: "edge.example", Certificates: []tls.Certificate{ca.Issue("client").TLS},
		})
		if err != nil {
			return false
		}
		c.Close()
		return name == "b"
	}
	if !attempt(first) {
		t.Fatal("the first Secrets are not used")
	}
	write("2026_02", second)
	testkit.WaitFor(t, "the new Secrets", func() bool { return attempt(second) })
	if attempt(first) {
		t.Error("a client of the old CA is admitted")
	}
	mount(t, role("sql"), "2026_03", map[string]string{"ca.crt": first.PEM})
	testkit.WaitFor(t, "the endpoint to be refused", func() bool { return !attempt(second) })
}
