package integration

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// tlsService returns a service and a listener that terminates TLS for it, on
// every node.
func tlsService(p pair, name, port, backend string) string {
	return certificate("cert", p) + service("svc", []string{backend}) +
		fmt.Sprintf("---\n"+
			"kind: Listener\n"+
			"name: tls\n"+
			"spec: {address: \":%s\", protocol: tls, tls: {mode: terminate, certificateRefs: [cert]}, hosts: [{names: [%s], "+
			"service: svc}]}\n", port, name)
}

// No node has a private key in plain text on its disk or in its answers, and
// yet every node serves with it, also after a restart.
func TestPrivateKeysAreEncrypted(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	ca := newAuthority(t, "ca")
	p := ca.issue("secret.example.com")
	f.members[1].apply(tlsService(p, "secret.example.com", "9443", named(t, "b")))
	f.members[2].stop()
	f.members[2].launch()
	for _, m := range f.members {
		c := dialTLS(t, m.ip+":9443", ca.Client("secret.example.com"))
		mustRead(t, c, "b\n")
	}
	// The first line of the PEM text is its header; take one of the key's own.
	key := []byte(strings.Split(p.Key, "\n")[1])
	if len(key) < 32 {
		t.Fatalf("not a line of a key: %q", key)
	}
	for _, m := range f.members {
		looked := 0
		err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) { // a temporary file that was removed
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			looked++
			if bytes.Contains(text, key) {
				t.Errorf("%s has the private key", path)
			}
			if info, err := d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 &&
				!strings.Contains(path, "/snapshots/") && !strings.HasSuffix(path, ".log") {
				t.Errorf("%s is open to others: %v", path, info.Mode())
			}
			return nil
		})
		if err != nil || looked < 5 {
			t.Errorf("looked at %d files: %v", looked, err)
		}
		for _, args := range [][]string{
			{"get", "certificates", "-o", "yaml"},
			{"history", "certificate", "cert", "-o", "yaml"},
			{"status", "-o", "json"},
		} {
			if out := m.must(args...); strings.Contains(out, string(key)) {
				t.Errorf("%v shows the private key", args)
			}
		}
	}
}

// A client that has a TLS session with one node resumes it with any other.
func TestSessionsResumeOnAnyNode(t *testing.T) {
	t.Parallel()
	startCluster(t, 3).mustResumeAnywhere()
}

// mustResumeAnywhere makes a client resume one session on three nodes.
func (f *cluster) mustResumeAnywhere() {
	t := f.t
	t.Helper()
	ca := newAuthority(t, "ca")
	p := ca.issueUntil(48*time.Hour, "any.example.com")
	f.members[0].apply(tlsService(p, "any.example.com", "9443", named(t, "b")))
	config := ca.Client("any.example.com")
	config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	for i, m := range []*member{f.members[0], f.members[1], f.members[2], f.members[0]} {
		resumed := false
		// The session keys are replicated shortly after the cluster has formed.
		testkit.WaitFor(t, "a session that is resumed at "+m.name, func() bool {
			c := dialTLS(t, m.ip+":9443", config)
			defer c.Close()
			mustRead(t, c, "b\n")
			resumed = c.ConnectionState().DidResume
			return resumed || i == 0
		})
	}
}

// /v1 requires a token, and permits what its role may do.
func TestV1RequiresToken(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	m := f.members[2]
	call := func(token, method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+m.http+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	token := func(role string) string {
		return strings.TrimSpace(m.must("token", "create", "--name", role, "--role", role))
	}
	reader, administrator, join := token("reader"), token("admin"), token("join")
	const body = `{"kind":"Service","name":"s","spec":{"endpoints":[{"address":"127.0.0.1:9"}]}}`
	for _, c := range []struct {
		name, token, method, path, body string
		status                          int
	}{
		{"alive", "", "GET", "/healthz", "", 200},
		{"ready", "", "GET", "/readyz", "", 200},
		{"metrics", "", "GET", "/metrics", "", 200},
		{"no token", "", "GET", "/v1/status", "", 401},
		{"garbage", "pst1.garbage", "GET", "/v1/status", "", 401},
		{"a token to join", join, "GET", "/v1/status", "", 401},
		{"reader reads", reader, "GET", "/v1/members", "", 200},
		{"reader writes", reader, "PUT", "/v1/services/s", body, 403},
		{"admin writes", administrator, "PUT", "/v1/services/s", body, 200},
		{"reader sees it", reader, "GET", "/v1/services/s", "", 200},
		{"reader deletes", reader, "DELETE", "/v1/services/s", "", 403},
		{"internal entries", administrator, "GET", "/v1/_secret", "", 404},
		{"admin deletes", administrator, "DELETE", "/v1/services/s", "", 200},
	} {
		status, text := call(c.token, c.method, c.path, c.body)
		if status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, status, text, c.status)
		}
		if c.token != "" && strings.Contains(text, c.token) {
			t.Errorf("%s: the answer has the token: %s", c.name, text)
		}
	}
}
