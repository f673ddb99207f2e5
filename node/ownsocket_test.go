package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/rpc"
)

// An endpoint that leads to one of the node's own sockets, by whatever path, gives its
// clients no rights of the node's user: the node refuses itself.
func TestEndpointsAreNoWayToOwnSockets(t *testing.T) {
	t.Parallel()
	spiffe := spiffeSocket(t)
	n := founder(t, Config{Name: "n1", SPIFFESocket: spiffe})
	dir := filepath.Dir(spiffeSocket(t))
	for name, path := range map[string]string{"admin": filepath.Join(n.cfg.DataDir, SocketName), "spiffe": spiffe} {
		link := filepath.Join(dir, name+"-link")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		n.mustApply(t, fmt.Sprintf(`
kind: Listener
name: %[1]s
spec: {address: "unix:%[2]s", service: %[1]s}
---
kind: Service
name: %[1]s
spec: {endpoints: [{address: "unix:%[3]s"}]}
---
kind: WorkloadIdentity
name: web
spec: {spiffe: /web, selectors: {unix: {uid: [%[4]d]}}}
`, name, filepath.Join(dir, name), link, os.Getuid()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if c, err := rpc.Dial(ctx, "unix:"+filepath.Join(dir, "admin")); err == nil {
		defer c.Close()
		if _, err := rpc.Call[api.Status](ctx, c, api.MethodStatus, &api.Empty{}); err == nil {
			t.Error("a client of a Service has the rights of the node's user")
		}
	}
	if _, err := workloadapi.FetchX509SVID(ctx, workloadapi.WithAddr("unix://"+filepath.Join(dir, "spiffe"))); err == nil {
		t.Error("a client of a Service has the identities of the node's user")
	}
	if ctx.Err() != nil {
		t.Error("it had to wait to be refused")
	}
}
