package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
)

// followedFiles are the files of a node's resources: the certificate of a listener, the
// CA of its clients, and the CA of its endpoint.
type followedFiles struct {
	t                              *testing.T
	cert, key, clientCA, serviceCA string
}

func newFollowedFiles(t *testing.T) *followedFiles {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	return &followedFiles{t, at("tls.crt"), at("tls.key"), at("clients.pem"), at("endpoints.pem")}
}

// write replaces a file in one step.
func (f *followedFiles) write(path, content string) {
	f.t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
}

// resources returns a listener whose TLS comes from the files alone.
func (f *followedFiles) resources(endpoint *nodetest.Backend) string {
	return fmt.Sprintf(`
kind: Certificate
name: edge
spec: {follow: true, certFile: %q, keyFile: %q}
---
kind: Listener
name: edge
spec:
  address: "127.0.0.1:0"
  protocol: tls
  service: apps
  tls: {mode: terminate, certificateRefs: [edge], clientAuth: {mode: require, caFile: %q}}
---
kind: Service
name: apps
spec: {tls: {caFile: %q}, endpoints: [{address: %q}]}
`, f.cert, f.key, f.clientCA, f.serviceCA, endpoint.At())
}

// Each TLS role of a node has its files: what is replaced holds from the next handshake
// on, and established connections continue. Keys are shown nowhere.
func TestFilesOfResourcesAreFollowed(t *testing.T) {
	first, second := certs.NewCA("first CA"), certs.NewCA("second CA")
	endpoint := first.Server("127.0.0.1")
	b := nodetest.ServeBackend(t, "b", endpoint)
	f, log := newFollowedFiles(t), &logText{}
	pair := first.Issue("edge.example")
	f.write(f.cert, pair.Cert)
	f.write(f.key, pair.Key)
	f.write(f.clientCA, first.PEM)
	f.write(f.serviceCA, first.PEM)
	n := startNode(t, f.resources(b), func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	edge := n.at(t, "edge")
	dial := func(server, client *certs.CA) (net.Conn, error) {
		c, name, err := nodetest.DialTLS(t, edge, &tls.Config{
			RootCAs: server.Pool, ServerName: "edge.example", Certificates: []tls.Certificate{client.Issue("client").TLS},
		})
		if err == nil && name != "b" {
			err = fmt.Errorf("came to %q", name)
		}
		return c, err
	}
	wait := func(what string, server, client *certs.CA) {
		t.Helper()
		n.Reread()
		testkit.WaitFor(t, what, func() bool {
			c, err := dial(server, client)
			if err == nil {
				c.Close()
			}
			return err == nil
		})
	}
	open, err := dial(first, first)
	if err != nil {
		t.Fatal(err)
	}
	pair = second.Issue("edge.example")
	f.write(f.cert, pair.Cert)
	f.write(f.key, pair.Key)
	wait("the new certificate", second, first)
	f.write(f.clientCA, second.PEM)
	wait("the new CA of clients", second, second)
	if _, err := dial(second, first); err == nil {
		t.Error("a client of the old CA is admitted")
	}
	f.write(f.serviceCA, second.PEM)
	n.Reread()
	testkit.WaitFor(t, "the endpoint to be refused", func() bool { _, err := dial(second, second); return err != nil })
	f.write(f.serviceCA, second.PEM+first.PEM)
	wait("the endpoint to be trusted", second, second)
	nodetest.Echo(t, open)

	// Faults change nothing, and are told.
	f.write(f.key, first.Issue("other").Key)
	f.write(f.clientCA, "nothing")
	if err := os.Remove(f.serviceCA); err != nil {
		t.Fatal(err)
	}
	n.Reread()
	for name, fault := range map[string]string{
		"Certificate/edge": "keyFile has no key that belongs to", "Listener/edge": "caFile must be PEM", "Service/apps": "no such file",
	} {
		testkit.WaitFor(t, "the fault of "+name, func() bool {
			return strings.Contains(strings.Join(n.mustStatus(t).Warnings, "\n"),
				"node n1: "+name+": cannot use its files; what was read before stays in use: ")
		})
		if text := strings.Join(n.mustStatus(t).Warnings, "\n"); !strings.Contains(text, fault) || !log.has(fault, name) {
			t.Errorf("status and log do not say %q of %s: %s", fault, name, text)
		}
		if got := n.metric(t, fmt.Sprintf("penstock_followed_files_usable{resource=%q}", name)); got != "0" {
			t.Errorf("the metric of %s is %q", name, got)
		}
	}
	if c, err := dial(second, second); err != nil {
		t.Errorf("with faults: %v", err)
	} else {
		c.Close()
	}
	got, err := rpc.Call[api.GetResult](t.Context(), n.client, api.MethodGet, api.GetRequest{Kind: "Certificate"})
	if err != nil || len(got.Documents) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	if text := fmt.Sprintf("%s", got.Documents); strings.Contains(text, "BEGIN") || !strings.Contains(text, f.key) || log.has(pair.Key[40:70]) {
		t.Errorf("get shows %s", text)
	}
}

// Without files nobody is trusted: not the clients, not the endpoints, and there is no
// certificate.
func TestMissingFilesTrustNobody(t *testing.T) {
	ca := certs.NewCA("test CA")
	b := nodetest.ServeBackend(t, "b", ca.Server("127.0.0.1"))
	f := newFollowedFiles(t)
	n := startNode(t, f.resources(b))
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "edge.example", Certificates: []tls.Certificate{ca.Issue("client").TLS}}
	refused := func(reason string) {
		t.Helper()
		before := strings.Count(n.lines.String(), "reason="+reason)
		if c, name, err := nodetest.DialTLS(t, n.at(t, "edge"), config); err == nil && name != "" {
			c.Close()
			t.Fatal("the client came to " + name)
		}
		testkit.WaitFor(t, "reason "+reason, func() bool { return strings.Count(n.lines.String(), "reason="+reason) > before })
	}
	appears := func(name string) {
		t.Helper()
		n.Reread()
		testkit.WaitFor(t, name+" to be read", func() bool {
			return n.metric(t, fmt.Sprintf("penstock_followed_files_usable{resource=%q}", name)) == "1"
		})
	}
	refused("no_certificate")
	pair := ca.Issue("edge.example")
	f.write(f.cert, pair.Cert)
	f.write(f.key, pair.Key)
	appears("Certificate/edge")
	refused("handshake_bad_certificate")
	f.write(f.clientCA, ca.PEM)
	appears("Listener/edge")
	refused("upstream_tls")
	f.write(f.serviceCA, ca.PEM)
	appears("Service/apps")
	testkit.WaitFor(t, "the endpoint", func() bool {
		c, name, err := nodetest.DialTLS(t, n.at(t, "edge"), config)
		if err == nil {
			c.Close()
		}
		return name == "b"
	})
}

// A followed path is one on the nodes, so it cannot be relative to a client's folder.
func TestFollowedPathsAreAbsolute(t *testing.T) {
	n := startNode(t, "")
	err := n.apply(t, "kind: Certificate\nname: a\nspec: {follow: true, certFile: a.crt, keyFile: /a.key}\n")
	var refusal *api.Error
	if !errors.As(err, &refusal) || len(refusal.Faults) != 1 || refusal.Faults[0].Path != "spec.certFile" ||
		!strings.HasPrefix(refusal.Faults[0].Message, "must be an absolute path") {
		t.Errorf("%+v", err)
	}
}
