package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// httpExample returns the resources of a listener on a unix socket that routes
// HTTP requests, and the socket's path.
func httpExample(t *testing.T) (text, path string) {
	t.Helper()
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "shop") }))
	t.Cleanup(shop.Close)
	path = filepath.Join(t.TempDir(), "web")
	return fmt.Sprintf(`---
kind: Listener
name: web
spec: {address: "unix:%s", service: shop, tags: {protocol: http}}
---
kind: Service
name: shop
spec: {protocol: http, endpoints: [{address: %q}]}
---
kind: MeshHTTPRoute
name: shop
spec:
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules: [{matches: [{path: {type: PathPrefix, value: /}}], default: {}}]
`, path, shop.Listener.Addr()), path
}

// httpOnce makes one request that is answered and one that is refused.
func httpOnce(t *testing.T, path string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	for path, want := range map[string]int{"/": 200, "/a/../b": 400} {
		resp, err := (&http.Client{Transport: transport}).Get("http://shop.example.com" + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}
