package node

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/kinds"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// logText is a log that can be searched.
type logText struct{ testkit.Log }

// has reports whether one line has all parts.
func (l *logText) has(parts ...string) bool {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

// resourceFile is a file of --resources.
type resourceFile struct {
	t    *testing.T
	path string
}

func (f resourceFile) write(text string) {
	f.t.Helper()
	if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// files returns the file as ResourceFiles, read as the command reads it.
func (f resourceFile) files(sync bool) *ResourceFiles {
	return &ResourceFiles{Paths: []string{f.path}, Sync: sync, Read: func() ([]resource.Object, error) {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return nil, err
		}
		list, faults := codec.Decode(f.path, data, kinds.All())
		if len(faults) > 0 {
			return nil, faults
		}
		return list, nil
	}}
}

// startWithFile starts a node whose resources come from a file.
func startWithFile(t *testing.T, sync bool, text string, change ...func(*Config)) (*testNode, resourceFile, *logText) {
	t.Helper()
	f, log := resourceFile{t, filepath.Join(t.TempDir(), "r.yaml")}, &logText{}
	f.write(text)
	n := startNode(t, text, append(change, func(c *Config) {
		c.Log, c.ResourceFiles = slog.New(slog.NewTextHandler(log, nil)), f.files(sync)
	})...)
	return n, f, log
}

func (n *testNode) services(t *testing.T) (names []string) {
	t.Helper()
	r, err := rpc.Call[api.GetResult](t.Context(), n.client, api.MethodGet, api.GetRequest{Kind: "Service"})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Documents {
		names = append(names, d.Name)
	}
	return names
}

const (
	serviceA = "kind: Service\nname: a\nspec: {endpoints: [{address: \"127.0.0.1:9\"}]}\n"
	serviceB = "kind: Service\nname: b\nspec: {endpoints: [{address: \"127.0.0.1:9\"}]}\n"
	serviceC = "kind: Service\nname: c\nspec: {endpoints: [{address: \"127.0.0.1:9\"}]}\n"
)

// With sync, each Reread applies the files' resources, deletes those that the
// files no longer contain, and keeps those from other sources.
func TestSyncedFilesAreAppliedAndPruned(t *testing.T) {
	t.Parallel()
	n, f, log := startWithFile(t, true, serviceA+"---\n"+serviceB)
	n.mustApply(t, strings.Replace(serviceC, "name: c", "name: by-hand", 1))
	testkit.WaitFor(t, "the first sync", func() bool {
		return log.has("the files of --resources are in effect", "unchanged=2", AppliedBy+"=resources-")
	})
	f.write(serviceB + "---\n" + serviceC)
	n.Reread()
	testkit.WaitFor(t, "the second sync", func() bool {
		return log.has("created=1", "deleted=1", "unchanged=1", "Service/c created, Service/a deleted")
	})
	if got := n.services(t); !slices.Equal(got, []string{"b", "by-hand", "c"}) {
		t.Errorf("services %v", got)
	}
	n.waitMetric(t, "penstock_resources_synced", "1")
}

// A fault in the files changes nothing; the log has the file and the line.
func TestFaultyFilesChangeNothing(t *testing.T) {
	t.Parallel()
	n, f, log := startWithFile(t, true, serviceA)
	testkit.WaitFor(t, "the first sync", func() bool { return log.has("the files of --resources are in effect") })
	f.write(serviceB + "---\nkind: Service\nname: a\nspec:\n  endpoint: []\n")
	n.Reread()
	testkit.WaitFor(t, "the fault", func() bool { return log.has("have faults; nothing was changed", f.path+":8: Service/a spec.endpoint") })
	n.waitMetric(t, "penstock_resources_synced", "0")
	// Faults that only the cluster finds are located too.
	f.write(serviceA + "---\nkind: Listener\nname: l\nspec:\n  address: \":0\"\n  service: nobody\n")
	n.Reread()
	testkit.WaitFor(t, "the refusal", func() bool {
		return log.has("were refused; nothing was changed", f.path+":9: Listener/l spec.service", "nobody")
	})
	if got := n.services(t); !slices.Equal(got, []string{"a"}) {
		t.Errorf("services %v", got)
	}
	f.write(serviceA + "---\n" + serviceB)
	n.Reread()
	testkit.WaitFor(t, "the mended files", func() bool { return log.has("the files of --resources are in effect", "Service/b created") })
}

// With seed, Reread logs how the files differ and applies nothing.
func TestSeedFilesAreComparedOnReread(t *testing.T) {
	t.Parallel()
	n, f, log := startWithFile(t, false, serviceA+"---\n"+serviceB)
	f.write(strings.Replace(serviceA, ":9", ":10", 1) + "---\n" + serviceB + "---\n" + serviceC)
	n.Reread()
	testkit.WaitFor(t, "the line", func() bool {
		return log.has("reread the files of --resources without applying them",
			"--resources-mode sync", "same=1", `differ="Service/a, Service/c"`)
	})
	if got := n.services(t); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("services %v", got)
	}
}

// A node that restarts logs that its files were not applied.
func TestSeedFilesIgnoredAtLaterStartAreLogged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inCluster := func(c *Config) {
		c.Dev, c.Init, c.DataDir, c.Gossip = false, true, dir, "127.0.0.1:0"
	}
	begin := func(text string) (*Node, *logText) {
		t.Helper()
		f, log := resourceFile{t, filepath.Join(t.TempDir(), "r.yaml")}, &logText{}
		f.write(text)
		cfg := Config{
			Name: "n1", Cluster: "127.0.0.1:0", HTTP: "127.0.0.1:0", Loops: 1, Resources: nodetest.Objects(t, text),
			ResourceFiles: f.files(false), Log: slog.New(slog.NewTextHandler(log, nil)),
		}
		inCluster(&cfg)
		n, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup((&testNode{Node: n}).halt)
		return n, log
	}
	n, log := begin(serviceA)
	if log.has("were not applied") {
		t.Error("a new cluster does not take its files")
	}
	(&testNode{Node: n}).halt()
	_, log = begin(serviceB)
	if !log.has("were not applied: the cluster is not new", "penstock apply -f", "r.yaml") {
		t.Error("nothing says that the files were ignored")
	}
}

// Faults in the files do not prevent a node from serving the configuration that it
// has.
func TestFaultsAtStartAreLogged(t *testing.T) {
	t.Parallel()
	_, _, log := startWithFile(t, true, serviceA, func(c *Config) {
		c.Resources = nil
	})
	n := startNode(t, "", func(c *Config) {
		c.ResourceFiles = &ResourceFiles{Sync: true, Fault: resource.Faults{{File: "x.yaml", Line: 3, Path: "Service/a", Message: "is odd"}}}
		c.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	testkit.WaitFor(t, "the fault", func() bool { return log.has("were not applied", "x.yaml:3: Service/a: is odd") })
	n.waitMetric(t, "penstock_resources_synced", "0")
}

// Only transient errors are retried.
func TestOnlyTransientErrorsAreRetried(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		again bool
	}{
		{api.Errorf(api.NoLeader, "x"), true},
		{api.Errorf(api.UnknownOutcome, "x"), true},
		{errors.Join(rpc.ErrUnreachable, io.EOF), true},
		{api.Errorf(api.Invalid, "x"), false},
		{api.Errorf(api.Refused, "x"), false},
		{api.Errorf(api.TooLarge, "x"), false},
	} {
		if isTransient(c.err) != c.again {
			t.Errorf("%v: %v", c.err, !c.again)
		}
	}
}

// Reread takes a renewed certificate of HTTP into use at once. An invalid one
// leaves the last one in use, and is logged.
func TestRereadRenewsTheCertificateOfHTTP(t *testing.T) {
	t.Parallel()
	ca, dir, log := certs.NewCA("test CA"), t.TempDir(), &logText{}
	certFile, keyFile := filepath.Join(dir, "c.PEM"), filepath.Join(dir, "k.PEM")
	put := func(cert, key string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(certFile, []byte(cert), 0o600), os.WriteFile(keyFile, []byte(key), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(name string) {
		t.Helper()
		p := ca.Issue(name)
		put(p.Cert, p.Key)
	}
	issue("first.example")
	n := startNode(t, "", func(c *Config) {
		c.HTTPCert, c.HTTPKey, c.Log = certFile, keyFile, slog.New(slog.NewTextHandler(log, nil))
	})
	serves := func(name string) bool {
		d := tls.Dialer{Config: &tls.Config{RootCAs: ca.Pool, ServerName: name}}
		conn, err := d.DialContext(t.Context(), "tcp", n.HTTPAddr())
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
	if !serves("first.example") {
		t.Fatal("the first certificate is not served")
	}
	issue("second.example")
	n.Reread()
	// The log says changed=true only if the periodic check was not faster.
	testkit.WaitFor(t, "the renewed certificate", func() bool { return serves("second.example") })
	testkit.WaitFor(t, "the log of the reread", func() bool { return log.has("reread files of --http", "what=certificate") })
	put("nothing", "nothing")
	n.Reread()
	testkit.WaitFor(t, "the fault", func() bool {
		return log.has("cannot use the reread files of --http; the last ones stay in use", certFile)
	})
	if !serves("second.example") {
		t.Error("the last usable certificate is not served any more")
	}
}
