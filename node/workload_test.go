package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/node/trust"
)

func workloadIdentity(onRevoke string) string {
	return fmt.Sprintf("kind: WorkloadIdentity\nname: web\nspec: {spiffe: /ns/shop/web, onRevoke: %s, selectors: {unix: {uid: [%d]}}}\n",
		onRevoke, os.Getuid())
}

// A program with go-spiffe gets its identity at the socket and is admitted by it.
// What is revoked is refused; by its WorkloadIdentity it gets none, or another.
func TestWorkloadConnectsByItsSPIFFEIdentity(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "spiffe.sock")
	n := founder(t, Config{Name: "n1", SPIFFESocket: socket, withClients: true})
	bundle, err := n.cluster.Identities.Bundle(ctx, &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	edge, b := certs.NewCA("test CA"), nodetest.NewBackend(t, "b")
	n.mustApply(t, nodetest.Certificate("edge", edge.Issue("edge.example"))+"---\n"+nodetest.OneService(b)+"---\n"+workloadIdentity("deny")+
		fmt.Sprintf(`---
kind: Listener
name: secured
spec:
  address: "127.0.0.1:0"
  protocol: tls
  service: apps
  tls:
    mode: terminate
    certificateRefs: [edge]
    clientAuth: {mode: require, ca: %q, spiffe: ["spiffe://%s/ns/shop/*"]}
`, trust.CertificatesPEM(bundle.Roots...), n.cluster.ClusterID()))
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+socket)))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	dial := func() error {
		cfg := &tls.Config{RootCAs: edge.Pool, ServerName: "edge.example", GetClientCertificate: tlsconfig.GetClientCertificate(source)}
		c, _, err := nodetest.DialTLS(t, n.at(t, "secured"), cfg)
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := dial(); err != nil {
		t.Fatal(err)
	}
	n.waitMetric(t, `penstock_held_identities{state="valid"}`, "1")
	n.revoke(ctx, t)
	testkit.WaitFor(t, "the revoked certificate to be refused", func() bool { return dial() != nil })
	testkit.WaitFor(t, "the warning", func() bool { return strings.Contains(strings.Join(n.mustStatus(t).Warnings, "\n"), "revoked") })
	n.waitMetric(t, `penstock_held_identities{state="missing"}`, "1")

	n.mustApply(t, workloadIdentity("reissue"))
	testkit.WaitFor(t, "another certificate", func() bool { return dial() == nil })
	before := serialOf(t, source)
	n.revoke(ctx, t)
	testkit.WaitFor(t, "one after the next revocation", func() bool { return serialOf(t, source) != before })
	if err := dial(); err != nil {
		t.Error(err)
	}
}

// A program with go-spiffe gets an identity by the token that it shows, until that is
// revoked.
func TestWorkloadShowsAToken(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "spiffe.sock")
	n := founder(t, Config{Name: "n1", SPIFFESocket: socket, withClients: true})
	n.mustApply(t, "kind: WorkloadIdentity\nname: web\nspec: {spiffe: /ns/shop/web, selectors: {token: true}}\n")
	made, err := rpc.Call[api.TokenCreated](ctx, n.client, api.MethodTokenNew,
		&api.TokenCreateRequest{Name: "shop", Role: api.RoleIssuer, Path: "/ns/shop/**", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(options ...grpc.DialOption) (string, error) {
		svid, err := workloadapi.FetchX509SVID(ctx, workloadapi.WithAddr("unix://"+socket), workloadapi.WithDialOptions(options...))
		if err != nil {
			return "", err
		}
		return svid.ID.String(), nil
	}
	shown := grpc.WithPerRPCCredentials(bearer(made.Token))
	if id, err := fetch(shown); err != nil || id != "spiffe://"+n.cluster.ClusterID()+"/ns/shop/web" {
		t.Errorf("with the token: %q, %v", id, err)
	}
	if _, err := fetch(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("without one: %v", err)
	}
	if _, err := rpc.Call[api.Empty](ctx, n.client, api.MethodRevoke, &api.TokenRevokeRequest{Token: made.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(shown); status.Code(err) != codes.Unauthenticated || strings.Contains(err.Error(), made.Token) {
		t.Errorf("with the revoked token: %v", err)
	}
}

// bearer shows a token with each call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false } // the socket is local

// A rotation of the CA renews what a workload has, before its certificate is due.
func TestRotationReachesWorkloads(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "spiffe.sock")
	n := founder(t, Config{Name: "n1", SPIFFESocket: socket, withClients: true})
	n.mustApply(t, workloadIdentity("deny"))
	source, err := workloadapi.NewX509Source(ctx, workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+socket)))
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	before := serialOf(t, source)
	if _, err := rpc.Call[api.Empty](ctx, n.client, api.MethodRotate, api.RotateRequest{What: "ca"}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "another certificate", func() bool { return serialOf(t, source) != before })
	svid, err := source.GetX509SVID()
	if err != nil || time.Until(svid.Certificates[0].NotAfter) < 50*time.Minute {
		t.Errorf("%v, %v", svid, err)
	}
}

func serialOf(t *testing.T, source *workloadapi.X509Source) string {
	t.Helper()
	svid, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	return svid.Certificates[0].SerialNumber.String()
}

// revoke revokes what the workload has.
func (n *testNode) revoke(ctx context.Context, t *testing.T) {
	t.Helper()
	r, err := rpc.Call[api.IdentityRevoked](ctx, n.client, api.MethodIdentityRevoke, api.IdentityRevokeRequest{Identity: "/ns/shop/web"})
	if err != nil || r.Count == 0 {
		t.Fatal(r, err)
	}
}

func TestSPIFFESettingsAreChecked(t *testing.T) {
	t.Parallel()
	base := Config{
		Init: true, DataDir: "/d", Cluster: "127.0.0.1:1", Gossip: "127.0.0.1:2", HTTP: "127.0.0.1:3", SPIFFESocket: "/run/spiffe.sock",
	}
	for what, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"as it should be": {func(*Config) {}, ""},
		"for everyone":    {func(c *Config) { c.SPIFFESocketMode = "0666" }, ""},
		"with --dev": {func(c *Config) {
			*c = Config{Dev: true, Cluster: c.Cluster, HTTP: c.HTTP, SPIFFESocket: c.SPIFFESocket}
		}, "no CA"},
		"a relative path": {func(c *Config) { c.SPIFFESocket = "spiffe.sock" }, "absolute path"},
		"a long path":     {func(c *Config) { c.SPIFFESocket = "/" + strings.Repeat("a", 200) }, "absolute path"},
		"no mode":         {func(c *Config) { c.SPIFFESocketMode = "rw" }, "octal"},
		"setuid":          {func(c *Config) { c.SPIFFESocketMode = "4660" }, "octal"},
		"not its own":     {func(c *Config) { c.SPIFFESocketMode = "0060" }, "octal"},
		"a trust domain":  {func(c *Config) { c.TrustDomain = "prod_1.example-2.com" }, ""},
		"in upper case":   {func(c *Config) { c.TrustDomain = "Prod.example" }, `--trust-domain "Prod.example": the trust domain must consist of lower-case`},
		"an ID":           {func(c *Config) { c.TrustDomain = "spiffe://prod" }, "use a name such as prod.example.com"},
		"a port":          {func(c *Config) { c.TrustDomain = "prod.example:443" }, "it has no port"},
		"a long one":      {func(c *Config) { c.TrustDomain = strings.Repeat("a", 256) }, "1 to 255 bytes"},
		"one with --dev": {func(c *Config) {
			*c = Config{Dev: true, Cluster: c.Cluster, HTTP: c.HTTP, TrustDomain: "prod"}
		}, "leave out --init, --expect, --join, --token and --trust-domain"},
	} {
		cfg := base
		c.change(&cfg)
		got := strings.Join(cfg.Validate(), "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}
