package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// A revocation closes the connections of the identity, of no other, and refuses new
// ones.
func TestRevokedIdentityLosesItsConnections(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	n := founder(t, Config{Name: "n1"})
	web, ca := issue(ctx, t, n.client, "/ns/shop/web")
	other, _ := issue(ctx, t, n.client, "/ns/shop/other")
	edge, b := certs.NewCA("test CA"), nodetest.NewBackend(t, "b")
	n.mustApply(t, nodetest.Certificate("edge", edge.Issue("edge.example"))+"---\n"+nodetest.OneService(b)+fmt.Sprintf(`---
kind: Listener
name: secured
spec:
  address: "127.0.0.1:0"
  protocol: tls
  service: apps
  tls: {mode: terminate, certificateRefs: [edge], clientAuth: {mode: require, ca: %q}}
`, ca))
	dial := func(cert tls.Certificate) (*tls.Conn, error) {
		c, _, err := nodetest.DialTLS(t, n.at(t, "secured"), &tls.Config{
			RootCAs: edge.Pool, ServerName: "edge.example", Certificates: []tls.Certificate{cert},
		})
		return c, err
	}
	first, err := dial(web)
	if err != nil {
		t.Fatal(err)
	}
	second, err := dial(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rpc.Call[api.IdentityRevoked](ctx, n.client, api.MethodIdentityRevoke,
		api.IdentityRevokeRequest{Identity: "/ns/shop/web"}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(first); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "the access log", func() bool { return strings.Contains(n.lines.String(), "reason=identity_revoked") })
	nodetest.Echo(t, second)
	if c, err := dial(web); err == nil {
		c.Close()
		t.Error("a revoked identity connects again")
	}
	testkit.WaitFor(t, "the refused handshake", func() bool { return strings.Contains(n.lines.String(), "reason=handshake_bad_certificate") })
	if !regexp.MustCompile(`the certificate was revoked: spiffe://[^ ]*/ns/shop/web, serial [0-9a-f]+`).MatchString(n.lines.String()) {
		t.Errorf("the log does not name the revoked certificate:\n%s", n.lines.String())
	}
}

// issue issues the certificate of a workload, and returns the trust bundle as well.
func issue(ctx context.Context, t *testing.T, c *rpc.Client, id string) (cert tls.Certificate, bundle string) {
	t.Helper()
	key, csr, err := trust.NewWorkloadRequest()
	if err != nil {
		t.Fatal(err)
	}
	issued, err := rpc.Call[api.IdentityIssued](ctx, c, api.MethodIdentityIssue, api.IdentityRequest{ID: id, CSR: csr})
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = tls.X509KeyPair(trust.CertificatesPEM(issued.Certificate), key); err != nil {
		t.Fatal(err)
	}
	return cert, string(trust.CertificatesPEM(issued.Roots...))
}
