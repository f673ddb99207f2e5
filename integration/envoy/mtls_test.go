package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/internal/testkit/process"
)

// peers is a cluster and an Envoy without xDS, whose certificates are files: those of
// the cluster's CA, and of another CA for certificates that no cluster issues.
type peers struct {
	*cluster
	ca     *certs.CA         // of the clients that only xfcc has
	at     map[string]string // where Envoy or a node listens, by what is there
	envoy  *process.Process
	domain string // trust domain of the cluster
	dir    string // a folder of files for each identity
}

// seen answers with what the service gets in X-Forwarded-Client-Cert.
func seen(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "seen "+strings.Join(r.Header.Values("X-Forwarded-Client-Cert"), " | "))
}

func startPeers(t *testing.T) *peers {
	t.Helper()
	requireEnvoy(t)
	p := &peers{cluster: startCluster(t, "--access-log", "closed"), ca: certs.NewCA("clients"), at: map[string]string{}, dir: t.TempDir()}
	onNode := []string{"node xfcc", "node append", "node forward", "node mtls", "to envoy", "to envoy as batch", "to envoy expecting other"}
	names := append([]string{"admin", "envoy xfcc", "envoy append", "envoy forward", "envoy mtls", "as web", "as batch", "expecting other"}, onNode...)
	ports, err := process.FreePorts(len(names))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		host := "127.0.0.1"
		if slices.Contains(onNode, name) {
			host = p.nodes[0].ip
		}
		p.at[name] = fmt.Sprint(host, ":", ports[i])
	}
	for _, who := range []string{"server", "web", "batch", "proxy", "envoy"} {
		out := p.penstock(nil, "identity", "issue", "/peers/"+who, "--dns", who+".example", "--out-dir", filepath.Join(p.dir, who))
		p.domain, _, _ = strings.Cut(strings.TrimPrefix(out, "spiffe://"), "/")
	}
	// The certificate of a server without a SPIFFE ID: Envoy writes By for one.
	pair := p.ca.Issue("server.example")
	if err := errors.Join(os.Mkdir(filepath.Join(p.dir, "public"), 0o700), os.WriteFile(p.file("public", "svid.pem"), []byte(pair.Cert), 0o600),
		os.WriteFile(p.file("public", "svid_key.pem"), []byte(pair.Key), 0o600)); err != nil {
		t.Fatal(err)
	}
	p.at["service"] = testkit.ServeHTTP(t, seen)
	p.applyPeers()
	p.startEnvoy()
	return p
}

func (p *peers) id(who string) string { return "spiffe://" + p.domain + "/peers/" + who }

func (p *peers) file(who, name string) string { return filepath.Join(p.dir, who, name) }

// port is the address of a listener on every node, at its --bind.
func (p *peers) port(name string) string { return p.at[name][strings.LastIndexByte(p.at[name], ':'):] }

// applyPeers applies the resources.
func (p *peers) applyPeers() {
	p.t.Helper()
	bundle, err := os.ReadFile(p.file("server", "bundle.pem"))
	if err != nil {
		p.t.Fatal(err)
	}
	var b strings.Builder
	for _, who := range []string{"server", "proxy", "batch"} {
		cert, err1 := os.ReadFile(p.file(who, "svid.pem"))
		key, err2 := os.ReadFile(p.file(who, "svid_key.pem"))
		if err1 != nil || err2 != nil {
			p.t.Fatal(err1, err2)
		}
		fmt.Fprintf(&b, "---\nkind: Certificate\nname: peers-%s\nspec:\n  cert: %q\n  key: %q\n", who, cert, key)
	}
	for name, c := range map[string]struct{ ca, auth, mode string }{
		"xfcc": {p.ca.PEM, "require", "set"}, "append": {p.ca.PEM, "request", "append"}, "forward": {p.ca.PEM, "request", "forward"},
		"mtls": {string(bundle), "require", "set"},
	} {
		fmt.Fprintf(&b, "---\nkind: Listener\nname: peers-%s\nspec:\n  address: %q\n  protocol: tls\n  service: peers-%s\n  tags: {protocol: http}\n"+
			"  http: {forwardClientCert: true, forwardClientCertMode: %s}\n"+
			"  tls: {mode: terminate, certificateRefs: [peers-server], clientAuth: {mode: %s, ca: %q}}\n"+
			"---\nkind: Service\nname: peers-%s\nspec: {protocol: http, endpoints: [{address: %q}]}\n",
			name, p.port("node "+name), name, c.mode, c.auth, c.ca, name, p.at["service"])
	}
	fmt.Fprintf(&b, "---\nkind: TrafficPermission\nname: peers-web\nspec:\n  from: [{identities: [%q]}]\n  to: [{services: [peers-mtls]}]\n"+
		"  action: allow\n", p.id("web"))
	for _, c := range []struct{ name, as, expects string }{
		{"to envoy", "proxy", "envoy"}, {"to envoy as batch", "batch", "envoy"}, {"to envoy expecting other", "proxy", "other"},
	} {
		name := strings.ReplaceAll("peers "+c.name, " ", "-")
		fmt.Fprintf(&b, "---\nkind: Listener\nname: %s\nspec: {address: %q, service: %s}\n---\nkind: Service\nname: %s\nspec:\n"+
			"  endpoints: [{address: %q}]\n  tls: {certificateRef: peers-%s, ca: %q, verify: {spiffe: [%q]}}\n",
			name, p.port(c.name), name, name, p.at["envoy mtls"], c.as, bundle, p.id(c.expects))
	}
	p.apply(strings.TrimPrefix(b.String(), "---\n"))
}

// startEnvoy starts an Envoy with listeners for clients with certificates, and
// three for plain clients that it passes on to the node.
func (p *peers) startEnvoy() {
	p.t.Helper()
	clients := filepath.Join(p.dir, "clients.pem")
	if err := os.WriteFile(clients, []byte(p.ca.PEM), 0o600); err != nil {
		p.t.Fatal(err)
	}
	var listeners, clusters []any
	listen := func(name, cluster, details string, transport object) {
		chain := object{"filters": []any{object{"name": "http", "typed_config": passOn(cluster, details)}}}
		if transport != nil {
			chain["transport_socket"] = transport
		}
		listeners = append(listeners, object{"name": name, "address": address(p.at[name]), "filter_chains": []any{chain}})
	}
	send := func(name, to string, transport object) {
		c := object{"name": name, "connect_timeout": "60s", "load_assignment": object{"cluster_name": name, "endpoints": []any{object{
			"lb_endpoints": []any{object{"endpoint": object{"address": address(p.at[to])}}}}}}}
		if transport != nil {
			c["transport_socket"] = transport
		}
		clusters = append(clusters, c)
	}
	send("service", "service", nil)
	listen("envoy xfcc", "service", "SANITIZE_SET", p.transport("Downstream", "public", clients, ""))
	for name, details := range map[string]string{"envoy append": "APPEND_FORWARD", "envoy forward": "FORWARD_ONLY"} {
		transport := p.transport("Downstream", "public", clients, "")
		transport["typed_config"].(object)["require_client_certificate"] = false
		listen(name, "service", details, transport)
	}
	listen("envoy mtls", "service", "SANITIZE_SET", p.transport("Downstream", "envoy", p.file("envoy", "bundle.pem"), p.id("proxy")))
	for name, c := range map[string][2]string{"as web": {"web", "server"}, "as batch": {"batch", "server"}, "expecting other": {"web", "other"}} {
		send(name, "node mtls", p.transport("Upstream", c[0], p.file(c[0], "bundle.pem"), p.id(c[1])))
		listen(name, name, "SANITIZE_SET", nil)
	}
	config := filepath.Join(scratch, "peers.json")
	text, err := json.Marshal(object{"admin": object{"address": address(p.at["admin"])},
		"static_resources": object{"listeners": listeners, "clusters": clusters}})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(config, text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	proc, err := process.Start("envoy-peers", scratch, []string{requireEnvoy(p.t), "-c", config,
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.envoy = proc
	p.t.Cleanup(func() {
		proc.Kill()
		if p.t.Failed() {
			p.t.Logf("the Envoy:\n%s", proc.Output())
		}
	})
	testkit.WaitFor(p.t, "the Envoy to be live", func() bool {
		status, _ := fetch(p.t.Context(), "http://"+p.at["admin"]+"/ready")
		return status == http.StatusOK
	})
}

// passOn sends all requests to a cluster, with a header that says who the client is.
func passOn(cluster, details string) object {
	const types = "type.googleapis.com/envoy.extensions.filters."
	route := object{"match": object{"prefix": "/"}, "route": object{"cluster": cluster}}
	return object{
		"@type":                           types + "network.http_connection_manager.v3.HttpConnectionManager",
		"stat_prefix":                     "in",
		"forward_client_cert_details":     details,
		"set_current_client_cert_details": object{"subject": true, "uri": true, "dns": true},
		"http_filters":                    []any{object{"name": "router", "typed_config": object{"@type": types + "http.router.v3.Router"}}},
		"route_config":                    object{"virtual_hosts": []any{object{"name": "all", "domains": []any{"*"}, "routes": []any{route}}}},
	}
}

// transport is mutual TLS by files: the certificate of who, and peers of the CA that
// have the URI SAN, if there is one.
func (p *peers) transport(side, who, ca, peer string) object {
	valid := object{"trusted_ca": object{"filename": ca}}
	if peer != "" {
		valid["match_typed_subject_alt_names"] = []any{object{"san_type": "URI", "matcher": object{"exact": peer}}}
	}
	context := object{"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3." + side + "TlsContext",
		"common_tls_context": object{
			"tls_certificates": []any{object{"certificate_chain": object{"filename": p.file(who, "svid.pem")},
				"private_key": object{"filename": p.file(who, "svid_key.pem")}}},
			"validation_context": valid,
		}}
	if side == "Downstream" {
		context["require_client_certificate"] = true
	} else {
		context["sni"] = "server.example"
	}
	return object{"name": "tls", "typed_config": context}
}

// A real Envoy and a node speak mutual TLS with certificates of the cluster, each as
// the client of the other, and refuse a peer with another SPIFFE ID.
func TestEnvoyAsPeerOfMutualTLS(t *testing.T) {
	p := startPeers(t)
	answer := func(at string) string { return request(t.Context(), p.at[at], nil) }
	logged := func(what string, parts ...string) {
		t.Helper()
		testkit.WaitFor(t, "the log of "+what, func() bool { return p.logged(parts...) })
	}
	t.Run("Envoy is the client", func(t *testing.T) {
		if got := answer("as web"); !strings.Contains(got, "URI="+p.id("web")) {
			t.Errorf("with the ID that is permitted: %s", got)
		}
		if got := answer("as batch"); !strings.HasPrefix(got, "403 ") {
			t.Errorf("with another ID: %s", got)
		}
		logged("the denial", "reason=permission_denied", "identity="+p.id("batch"), "permission=peers-web")
		if got := answer("expecting other"); !strings.HasPrefix(got, "503 ") {
			t.Errorf("an Envoy that expects another ID of the node: %s", got)
		}
		logged("Envoy's refusal", "listener=peers-mtls", "reason=handshake_refused")
	})
	t.Run("a node is the client", func(t *testing.T) {
		if got := answer("to envoy"); !strings.Contains(got, "By="+p.id("envoy")) || !strings.Contains(got, "URI="+p.id("proxy")) {
			t.Errorf("with the ID that Envoy expects: %s", got)
		}
		if got := answer("to envoy as batch"); !strings.HasPrefix(got, "0 ") {
			t.Errorf("with another ID: %s", got)
		}
		logged("Envoy's alert", "listener=peers-to-envoy-as-batch", "reason=upstream_reset", "certificate")
		if got := answer("to envoy expecting other"); !strings.HasPrefix(got, "0 ") {
			t.Errorf("a node that expects another ID of Envoy: %s", got)
		}
		logged("the wrong ID", "listener=peers-to-envoy-expecting-other", "reason=upstream_tls", p.id("envoy"))
	})
	t.Run("the header", p.compareHeaders)
	t.Run("modes of the header", p.compareModes)
}

type object = map[string]any

// address is a socket address of Envoy's configuration.
func address(at string) object {
	host, port, _ := net.SplitHostPort(at)
	number, _ := strconv.Atoi(port)
	return object{"socket_address": object{"address": host, "port_value": number}}
}

// logged reports whether a line of the first node's log has all parts.
func (p *peers) logged(parts ...string) bool {
	text, _ := os.ReadFile(p.nodes[0].proc.Log())
	for line := range strings.Lines(string(text)) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return true
		}
	}
	return false
}
