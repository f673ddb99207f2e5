package node

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/nodetest"
)

// TiProxy's scripts read the configuration, change a part of it, and ask for the health.
func TestTiProxysAPI(t *testing.T) {
	t.Parallel()
	server := testkit.Serve(t, func(c net.Conn) {
		io.WriteString(c, "\x24\x00\x00\x00\x0a8.0.11-TiDB-v8.5.0\x00\x01\x00\x00\x00saltsalt\x00\xff\xf7")
		io.Copy(io.Discard, c)
	})
	free := testkit.FreeAddress(t)
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "b")))
	call := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.HTTPAddr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
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
	const config, health = "/api/admin/config/", "/api/debug/health"
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"healthy without a service for MySQL", "GET", health, "", 200, "{}"},
		{"nothing yet", "GET", config, "", 200, ""},
		{"an unknown key", "PUT", config, "[proxy]\nmax-conections = 1\n", 400, "did you mean max-connections?"},
		{"no TOML", "PUT", config, "[proxy\n", 400, "line 1"},
		{"a whole file", "PUT", config, "[proxy]\naddr = '" + free + "'\npd-addrs = '127.0.0.1:1'\n[ha]\nvirtual-ip = '10.0.0.1/24'\n", 200, "ha.virtual-ip"},
		{"what it became", "GET", config, "", 200, "addr = '" + free + "'"},
		{"no server", "GET", health, "", 502, "no service with protocol: mysql has a usable server"},
		{"a part", "PUT", config, "[proxy]\nmax-connections = 7\n", 200, `"configured"`},
		{"the part", "GET", config, "", 200, "max-connections = 7"},
		{"the rest stays", "GET", config, "", 200, "pd-addrs = '127.0.0.1:1'"},
		{"as JSON", "GET", config + "?format=json", "", 200, `"max-connections":7`},
		{"without the slash", "GET", "/api/admin/config", "", 200, "max-connections"},
		{"namespaces", "GET", "/api/admin/namespace/", "", 200, `"namespace":"default"`},
	} {
		if status, text := call(c.method, c.path, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, status, text, c.status, c.says)
		}
	}
	if err := n.apply(t, "kind: Service\nname: db\nspec: {protocol: mysql, endpoints: [{address: \""+server+"\"}]}\n"); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "a usable server", func() bool { status, _ := call("GET", health, ""); return status == 200 })
	if status, text := call("GET", "/api/admin/namespace/", ""); status != 200 || !strings.Contains(text, server) {
		t.Errorf("%d %s", status, text)
	}
}
