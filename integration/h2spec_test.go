package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/integration/realkafka"
	"penstock/internal/testkit"
)

// h2specVersion is the version that setup.sh installs.
const h2specVersion = "2.2.1"

// All cases of h2spec, in strict mode too, pass on listeners that route
// requests, over h2c with prior knowledge and over TLS with ALPN. Passing cases
// do not wait, so the timeout of 30 s only catches hangs.
func TestH2spec(t *testing.T) {
	t.Parallel()
	tool := filepath.Join(realkafka.Peers(), "h2spec-"+h2specVersion, "h2spec")
	if _, err := os.Stat(tool); err != nil {
		testkit.NotTested(t, "%v; make setup installs it", err)
	}
	n := startNode(t, certificate("web", newAuthority(t, "ca").issue("web.example.com"))+`---
kind: Listener
name: web
spec: {address: "127.0.0.1:0", service: shop, tags: {protocol: http}}
---
kind: Listener
name: secure
spec:
  address: "127.0.0.1:0"
  protocol: tls
  noServerName: service
  tls: {mode: terminate, certificateRefs: [web], alpn: [h2, http/1.1]}
  service: shop
  tags: {protocol: http}
---
kind: Service
name: shop
spec: {protocol: http, endpoints: [{address: "`+httpServerNamed(t, "shop")+`"}]}
---
kind: MeshHTTPRoute
name: shop
spec:
  to:
  - targetRef: {kind: MeshService, name: shop}
    rules:
    - {matches: [{path: {type: PathPrefix, value: /}}], default: {backendRefs: [{kind: MeshService, name: shop}]}}
`)
	// The node runs until both subtests have ended.
	t.Run("all", func(t *testing.T) {
		for listener, flags := range map[string][]string{"web": nil, "secure": {"--tls", "--insecure"}} {
			t.Run(listener, func(t *testing.T) {
				t.Parallel()
				host, port, _ := strings.Cut(n.addr(listener), ":")
				r := peer(t, "", tool, append(flags, "--strict", "--timeout", "30", "--host", host, "--port", port)...)
				_, failures, _ := strings.Cut(r.out, "Failures:")
				if r.code != 0 || !strings.Contains(r.out, "\n146 tests, 146 passed, 0 skipped, 0 failed") {
					t.Errorf("exit code %d\n%s%s", r.code, failures, r.err)
				}
			})
		}
	})
}
