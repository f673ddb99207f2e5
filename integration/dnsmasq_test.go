package integration

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit/process"
	"penstock/routing/provider"
	"penstock/routing/provider/dns"
	"penstock/routing/provider/providertest"
)

// dnsmasqConfig has no server to ask: dnsmasq answers from its files alone.
const dnsmasqConfig = `no-resolv
no-hosts
bind-interfaces
listen-address=127.0.0.1
pid-file=
local=/example.test/
local-ttl=1
cname=alias.example.test,web.example.test
srv-host=_http._tcp.example.test,web.example.test,8080,1,10
srv-host=_http._tcp.example.test,other.example.test,8081,1,30
srv-host=_http._tcp.example.test,spare.example.test,8082,2,0
`

// TestEndpointsFromDNSMasq checks the dns source against a DNS server in wide
// use, which changes its answers, ends and comes back.
func TestEndpointsFromDNSMasq(t *testing.T) {
	binary := requirePeer(t, "dnsmasq")
	dir := t.TempDir()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	hosts := filepath.Join(dir, "hosts")
	write := func(lines ...string) {
		t.Helper()
		if err := os.WriteFile(hosts, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var many, manyEndpoints []string // more than fit into a datagram
	for i := range 150 {
		many = append(many, fmt.Sprintf("10.1.0.%d many.example.test", i+1))
		manyEndpoints = append(manyEndpoints, fmt.Sprintf("10.1.0.%d:80", i+1))
	}
	many = append(many, "10.0.0.3 spare.example.test")
	others := append(slices.Clone(many), "10.0.0.2 other.example.test")
	write(append(slices.Clone(others), "10.0.0.1 web.example.test", "2001:db8::1 web.example.test")...)
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "dnsmasq.conf")
	text := fmt.Sprintf("%sport=%d\nuser=%s\naddn-hosts=%s\n", dnsmasqConfig, ports[0], me.Username, hosts)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *process.Process {
		t.Helper()
		p, err := process.Start("dnsmasq", dir, []string{binary, "--keep-in-foreground", "--conf-file=" + config}, ports...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		return p
	}
	server := start()

	source, err := dns.New(dns.Config{Servers: []string{process.Loopback(ports[0])}, MinTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	query := func(name string) provider.Query { return provider.Query{Service: name + ".example.test", Port: "80"} }
	web, alias, absent, large := query("web"), query("alias"), query("absent"), query("many")
	services := provider.Query{Service: "_http._tcp.example.test"}
	sink := providertest.NewSink(web, alias, absent, large, services)
	sink.Start(t, source)
	sink.Await(t, web, "10.0.0.1:80; [2001:db8::1]:80")
	sink.Await(t, alias, "10.0.0.1:80; [2001:db8::1]:80")
	sink.Await(t, absent, "none")
	sink.Await(t, large, sorted(manyEndpoints))
	sink.Await(t, services, "10.0.0.1:8080*10; 10.0.0.2:8081*60; 10.0.0.3:8082 priority 1; [2001:db8::1]:8080*10")

	write(append(slices.Clone(others), "10.0.0.9 web.example.test")...)
	if err := server.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	sink.Await(t, web, "10.0.0.9:80")
	sink.Await(t, services, "10.0.0.2:8081*30; 10.0.0.3:8082 priority 1; 10.0.0.9:8080*10")

	server.Kill()
	sink.AwaitFailure(t, web, "connection refused")
	sink.AwaitFailure(t, services, "connection refused")
	if got := sink.Text(web); got != "10.0.0.9:80" {
		t.Errorf("without the server, web is %q, want its last answer", got)
	}
	write(append(many, "10.0.0.10 web.example.test")...)
	start()
	sink.Await(t, web, "10.0.0.10:80")
	sink.Await(t, services, "10.0.0.10:8080*10; 10.0.0.3:8082 priority 1")
}

// sorted returns endpoints as a Sink shows them.
func sorted(list []string) string {
	sink, q := providertest.NewSink(), provider.Query{}
	var endpoints []provider.Endpoint
	for _, address := range list {
		endpoints = append(endpoints, provider.Endpoint{Address: address, Weight: 1})
	}
	sink.Report(q, endpoints)
	return sink.Text(q)
}
