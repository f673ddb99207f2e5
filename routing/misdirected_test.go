package routing

import (
	"testing"

	"penstock/routing/resource"
)

// A request on a connection for one name is refused for a name of another rule
// of the listener, or of another Host.
func TestMisdirectedRequests(t *testing.T) {
	t.Parallel()
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "a", service(1)), put("Service", "b", service(1)), put("Service", "other", service(1)),
		put("Listener", "edge", &resource.Listener{
			Protocol: "tls", Service: "other", NoServerName: "service",
			TLS: &resource.ListenerTLS{Mode: "terminate"},
			Hosts: []resource.HostRule{
				{Names: []string{"a.example.com", "*.a.example.com"}, Service: "a"},
				{Names: []string{"b.example.com"}, Service: "b"},
			},
		}),
		put("Host", "tenant", &resource.Host{Listener: "edge", Names: []string{"tenant.example.com"}, Service: "a"}),
		put("Listener", "plain", &resource.Listener{Protocol: "tcp", Service: "a"}))
	for _, c := range []struct {
		sni, host string
		want      bool
	}{
		{"a.example.com", "a.example.com", false},
		{"a.example.com", "A.Example.COM.:8443", false},
		{"a.example.com", "x.a.example.com", false},
		{"x.a.example.com", "a.example.com:1", false},
		{"a.example.com", "b.example.com", true},
		{"a.example.com", "B.EXAMPLE.com.", true},
		{"b.example.com", "x.a.example.com", true},
		{"a.example.com", "tenant.example.com", true},
		{"tenant.example.com", "a.example.com", true},
		{"a.example.com", "nobody.example.com", false},
		{"a.example.com", "192.0.2.1", false},
		{"a.example.com", "", false},
		{"nobody.example.com", "b.example.com", true},
		{"nobody.example.com", "else.example.com", false},
		{"", "b.example.com", true},
		{"", "127.0.0.1:80", false},
	} {
		in := &Input{Listener: "edge", ServerName: c.sni, HasServerName: c.sni != ""}
		if got := r.Table().Misdirected(in, c.host); got != c.want {
			t.Errorf("%s on a connection for %s: %v", c.host, c.sni, got)
		}
	}
	if r.Table().Misdirected(&Input{Listener: "plain"}, "b.example.com") {
		t.Error("a listener without names has misdirected requests")
	}
}
