package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// oldFolders are data folders written by earlier versions, one for each format.
// Every later version must open them.
const oldFolders = "testdata/datafolder-*.tgz"

// This version continues with the data of a node of an earlier version.
// (PENSTOCK_REWRITE=N rewrites the folder of format N; only for a new format.)
func TestOldDataFoldersOpen(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	if format := os.Getenv("PENSTOCK_REWRITE"); format != "" {
		createOldFolder(t, ca.issueUntil(20*365*24*time.Hour, "old.example.com"), "testdata/datafolder-"+format+".tgz")
	}
	files, err := filepath.Glob(oldFolders)
	if err != nil || len(files) == 0 {
		t.Fatalf("no old data folder: %v", err)
	}
	for _, file := range files {
		f := &cluster{t: t}
		m := f.add("old", newNetwork()+"1")
		if out, err := exec.Command("tar", "-C", m.dir, "-xzf", file).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		// Its token expires 8000 hours after it was made, and is deleted a week
		// later: close to that time the node's clock is set back by the folder's age.
		made, err := os.Stat(filepath.Join(m.dir, "node.crt"))
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(made.ModTime()); age > 7000*time.Hour {
			m.skewClock(-int(age.Hours()))
		}
		m.launch()
		for _, c := range []struct{ command, want string }{
			{"get listeners", "edge"},
			{"get service apps -o yaml", "127.0.0.1:2"},
			{"get certificates", "cert"},
			{"history service apps", "apply"},
			{"token list", "an-old-one"},
			{"members", "leader"},
		} {
			if out := m.must(strings.Fields(c.command)...); !strings.Contains(out, c.want) {
				t.Errorf("%s: %s has no %q:\n%s", file, c.command, c.want, out)
			}
		}
		if lines := strings.Count(m.must("history", "service", "apps"), "\n"); lines != 3 {
			t.Errorf("%s: the history has %d lines, want a header and two revisions", file, lines)
		}
		// The node commits changes, and its private key works.
		m.apply(listener("new", "service: apps"))
		if a := m.addr("tls"); a == "" {
			t.Errorf("%s: the listener that ends TLS is not there", file)
		}
	}
}

// createOldFolder creates a data folder with this version.
func createOldFolder(t *testing.T, p pair, file string) {
	t.Helper()
	f := &cluster{t: t}
	m := f.add("old", newNetwork()+"1")
	m.launch("--init")
	m.apply("kind: Service\n" +
		"name: apps\n" +
		"spec: {endpoints: [{address: \"127.0.0.1:1\"}]}\n" +
		"---\n" +
		"kind: Listener\n" +
		"name: edge\n" +
		"spec: {address: \":9100\", service: apps}\n")
	m.apply("kind: Service\nname: apps\nspec: {endpoints: [{address: \"127.0.0.1:2\"}]}\n")
	m.apply(certificate("cert", p) + "---\n" +
		"kind: Listener\n" +
		"name: tls\n" +
		"spec: {address: \":9443\", protocol: tls, service: apps, tls: {mode: terminate, certificateRefs: [cert]}}\n")
	m.must("token", "create", "--name", "an-old-one", "--role", "reader", "--ttl", "8000h")
	m.stop()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tar", "-C", m.dir,
		"--exclude", "*.log", "--exclude", "penstock.sock", "--exclude", "lock", "-czf", file, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
}
