package node

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/rpc"
)

// With --http-ca a client needs a certificate of one of the CAs as well as its token. The
// file is followed, and one that cannot be used leaves the CAs in use.
func TestClientsOfHTTPShowCertificates(t *testing.T) {
	server, first, second := certs.NewCA("server CA"), certs.NewCA("first CA"), certs.NewCA("second CA")
	dir := t.TempDir()
	cert, key, err := server.Issue("127.0.0.1").WriteFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, log := &followedFiles{t: t, clientCA: filepath.Join(dir, "clients.pem")}, &logText{}
	f.write(f.clientCA, first.PEM)
	n := founder(t, Config{Name: "n1", HTTPCert: cert, HTTPKey: key, HTTPCA: f.clientCA, Log: slog.New(slog.NewTextHandler(log, nil))})
	made, err := rpc.Call[api.TokenCreated](t.Context(), n.client, api.MethodTokenNew, &api.TokenCreateRequest{Name: "ci", Role: api.RoleReader})
	if err != nil {
		t.Fatal(err)
	}
	sessions := tls.NewLRUClientSessionCache(0)
	// get returns the status, or 0 without an answer.
	get := func(path, token string, clients ...*certs.CA) int {
		t.Helper()
		config := &tls.Config{RootCAs: server.Pool, ClientSessionCache: sessions}
		for _, ca := range clients {
			pair := ca.Issue("client").TLS
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+n.HTTPAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := get("/v1/services", made.Token, first); got != http.StatusOK {
		t.Errorf("with a certificate and a token: %d", got)
	}
	for _, path := range []string{"/v1/services", "/api/admin/config/", "/api/admin/namespace/"} {
		if got := get(path, "", first); got != http.StatusUnauthorized {
			t.Errorf("%s with a certificate alone: %d", path, got)
		}
	}
	if got := get("/v1/services", made.Token, second); got != 0 {
		t.Errorf("with a token and a certificate of another CA: %d", got)
	}
	if got := get("/healthz", "", first); got != http.StatusOK {
		t.Errorf("/healthz with a certificate: %d", got)
	}
	for _, path := range []string{"/v1/services", "/healthz", "/metrics"} {
		if got := get(path, made.Token); got != 0 {
			t.Errorf("%s without a certificate: %d", path, got)
		}
	}

	f.write(f.clientCA, second.PEM)
	n.Reread()
	testkit.WaitFor(t, "the new CA", func() bool { return get("/healthz", "", second) == http.StatusOK })
	if got := get("/healthz", "", first); got != 0 {
		t.Errorf("with a certificate of the old CA: %d", got)
	}
	f.write(f.clientCA, "nothing")
	n.Reread()
	testkit.WaitFor(t, "the fault", func() bool {
		return strings.Contains(strings.Join(n.mustStatus(t).Warnings, "\n"), "--http-ca: cannot use its files; what was read before stays in use: ")
	})
	if !log.has("cannot use the reread files of --http; the last ones stay in use", "CAs of clients", "must be PEM") {
		t.Error("the log does not tell of the fault")
	}
	if got := get("/healthz", "", second); got != http.StatusOK {
		t.Errorf("the last usable CA is not in use any more: %d", got)
	}
}

// A node does not start with CAs that it cannot read: it would admit nobody, or everyone.
func TestHTTPWithoutItsCAsDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	cert, key, err := certs.NewCA("CA").Issue("127.0.0.1").WriteFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, "clients.pem")
	if err := os.WriteFile(ca, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Config{
		Name: "n1", Init: true, DataDir: t.TempDir(), Cluster: "127.0.0.1:0", Gossip: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		HTTPCert: cert, HTTPKey: key, HTTPCA: ca, Loops: 1, Version: "test",
	})
	if err == nil || !strings.Contains(err.Error(), "--http-ca "+ca+": must be PEM") {
		t.Errorf("%v", err)
	}
}
