package cli

import (
	"strings"
	"testing"
	"time"

	"penstock/node/api"
)

func TestProxyStates(t *testing.T) {
	ago := func(d time.Duration) *time.Time { at := time.Now().Add(-d); return &at }
	ok := api.ProxyType{Type: "cluster", Sent: "7.ab", Accepted: "7.ab"}
	refused := api.ProxyType{
		Type: "listener", Sent: "9.cd", Accepted: "7.ab", Refusing: true, Rejected: "bind:\x1b[31m in use", RejectedAt: ago(time.Minute),
		Behind: ago(time.Minute),
	}
	behind := api.ProxyType{Type: "endpoint", Sent: "9.cd", Behind: ago(12 * time.Second)}
	for _, c := range []struct {
		types            []api.ProxyType
		states, versions []string // parts
	}{
		{[]api.ProxyType{ok}, []string{"ok"}, []string{"cluster=7.ab"}},
		{[]api.ProxyType{ok, refused}, []string{"refuses listener since 1m0s: ", "in use"}, []string{"listener=7.ab (sent 9.cd)"}},
		{[]api.ProxyType{behind, ok}, []string{"endpoint behind for 12"}, []string{"endpoint=none (sent 9.cd)"}},
	} {
		p := api.Proxy{Service: "web", Address: "10.0.0.1:1234", Types: c.types}
		var table strings.Builder
		printProxies(&table, []api.ProxiesStatus{{Node: "n1", Connected: 3, Refusing: 1, Problems: []api.Proxy{p}}})
		for _, part := range c.states {
			if !strings.Contains(proxyState(&p), part) || !strings.Contains(table.String(), part) {
				t.Errorf("%q is not in %q and %q", part, proxyState(&p), table.String())
			}
		}
		for _, part := range c.versions {
			if !strings.Contains(versionsText(&p), part) {
				t.Errorf("%q is not in %q", part, versionsText(&p))
			}
		}
		if strings.Contains(table.String(), "\x1b") {
			t.Errorf("a client's escape sequence is printed: %q", table.String())
		}
	}
	var none strings.Builder
	printProxies(&none, nil)
	if none.Len() > 0 {
		t.Errorf("%q without proxies", none.String())
	}
}
