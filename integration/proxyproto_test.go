package integration

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	pires "github.com/pires/go-proxyproto"
	"github.com/pires/go-proxyproto/tlvparse"
)

// frontConfig configures HAProxy with one port per version of the header, all
// forwarding to the same address.
const frontConfig = `
defaults
  mode tcp
  timeout connect 10s
  timeout client 60s
  timeout server 60s
listen v1
  bind 127.0.0.1:%%d
  server penstock %[1]s send-proxy
listen v2
  bind 127.0.0.1:%%d
  server penstock %[1]s send-proxy-v2 proxy-v2-options unique-id,crc32c
  unique-id-format %%[uuid]
`

// rule 12: headers from HAProxy, v1 and v2, determine the client address.
func TestHAProxyInFront(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()}, "proxyProtocol: {send: v1}")+
		listener("edge", "service: upstream", "proxyProtocol: {accept: [127.0.0.0/8]}", "limits: {perSource: 1}"))
	for i, front := range haproxy(t, fmt.Sprintf(frontConfig, n.addr("edge"))) {
		// HAProxy connects from 127.0.0.1 each time: the limit counts the clients in
		// its headers.
		client := dialFrom(t, fmt.Sprintf("127.0.0.%d", 20+i), front)
		mustWrite(t, client, "hello")
		from, to := client.LocalAddr().(*net.TCPAddr), client.RemoteAddr().(*net.TCPAddr)
		endpoint := upstream.acceptReading(fmt.Sprintf("PROXY TCP4 %s %s %d %d\r\nhello", from.IP, to.IP, from.Port, to.Port))
		mustWrite(t, endpoint, "world")
		mustRead(t, client, "world")
		client.Close()
		endpoint.Close()
		if a := n.end(client.LocalAddr()); a.In != 5 || a.Out != 5 {
			t.Errorf("the header counts as bytes: %+v", a)
		}
	}
}

// behindConfig answers with HAProxy's interpretation of the header.
const behindConfig = `
defaults
  mode http
  timeout connect 10s
  timeout client 60s
  timeout server 60s
frontend behind
  bind 127.0.0.1:%d accept-proxy
  http-request return status 200 content-type text/plain lf-string "%[src]:%[src_port] %[dst]:%[dst_port]` +
	` authority=%[fc_pp_authority] id=%[fc_pp_unique_id,hex,length]\n"
`

// rule 12: HAProxy and nginx accept the headers that Penstock sends.
// rule 13: behind a wildcard they carry the address that the client connected to.
func TestHAProxyAndNginxBehind(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	ha := haproxy(t, behindConfig)[0]
	ng := nginx(t, `server {
		listen 127.0.0.1:%d proxy_protocol;
		return "$proxy_protocol_addr:$proxy_protocol_port $proxy_protocol_server_addr:$proxy_protocol_server_port\n";
	}`)[0]
	resources := certificate("web", ca.issue("web.example.com"))
	for _, version := range []string{"v1", "v2"} {
		send := "proxyProtocol: {send: " + version + "}"
		resources += service("ha-"+version, []string{ha}, send) + listenerAt("ha-"+version, "0.0.0.0:0", "service: ha-"+version) +
			service("ng-"+version, []string{ng}, send) + listenerAt("ng-"+version, "0.0.0.0:0", "service: ng-"+version)
	}
	resources += service("ha-tls", []string{ha}, "proxyProtocol: {send: v2, clientIdentity: true}") + listener("tls", "protocol: tls",
		fmt.Sprintf("tls: {mode: terminate, certificateRefs: [web], clientAuth: {ca: %q}}", ca.file), "service: ha-tls")
	n := startNode(t, resources)
	for _, name := range []string{"ha-v1", "ha-v2", "ng-v1", "ng-v2"} {
		_, port, _ := net.SplitHostPort(n.addr(name))
		client := dialFrom(t, "127.0.0.31", "127.0.0.77:"+port)
		want := fmt.Sprintf("%s 127.0.0.77:%s", client.LocalAddr(), port)
		if got := answer(t, client); !strings.HasPrefix(got, want) {
			t.Errorf("%s was told %q, want %q", name, got, want)
		}
	}
	config := ca.Client("web.example.com")
	workload := &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "prod.example", Path: "/web"}}}
	config.Certificates = []tls.Certificate{ca.Sign(workload).TLS}
	client := dialTLS(t, n.addr("tls"), config)
	got := answer(t, client)
	if want := fmt.Sprintf("%s %s authority=web.example.com id=", client.LocalAddr(), n.addr("tls")); !strings.HasPrefix(got, want) ||
		strings.HasSuffix(got, "id=0") {
		t.Errorf("HAProxy was told %q, want %q and an id", got, want)
	}
}

// answer sends a request and returns the last line of the answer.
func answer(t *testing.T, c io.ReadWriter) string {
	t.Helper()
	mustWrite(t, c, "GET / HTTP/1.0\r\n\r\n")
	text, err := io.ReadAll(c)
	if err != nil && len(text) == 0 {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return all[len(all)-1]
}

// rule 12: a v2 header describes TLS with the client, and has the server name,
// the protocol and a unique ID.
func TestProxyHeaderReportsTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	upstream := newManualServer(t)
	n := startNode(t, certificate("web", ca.issue("web.example.com"))+
		service("upstream", []string{upstream.addr()}, "proxyProtocol: {send: v2}")+
		listener("end", "protocol: tls",
			fmt.Sprintf("tls: {mode: terminate, certificateRefs: [web], alpn: [h2], clientAuth: {ca: %q}}", ca.file),
			"service: upstream"))
	config := ca.Client("web.example.com")
	config.NextProtos = []string{"h2"}
	config.Certificates = append(config.Certificates, ca.issue("the client").TLS)
	ids := map[string]bool{}
	for range 2 {
		client := dialTLS(t, n.addr("end"), config)
		in := bufio.NewReader(upstream.accept())
		header, err := pires.Read(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := header.SourceAddr.String(); got != client.LocalAddr().String() {
			t.Errorf("source %s, want %s", got, client.LocalAddr())
		}
		tlvs, err := header.TLVs()
		if err != nil {
			t.Fatal(err)
		}
		said := map[pires.PP2Type]string{}
		for _, v := range tlvs {
			said[v.Type] = string(v.Value)
		}
		if said[pires.PP2_TYPE_AUTHORITY] != "web.example.com" || said[pires.PP2_TYPE_ALPN] != "h2" || said[pires.PP2_TYPE_UNIQUE_ID] == "" {
			t.Errorf("TLVs: %q", said)
		}
		ids[said[pires.PP2_TYPE_UNIQUE_ID]] = true
		ssl, ok := tlvparse.FindSSL(tlvs)
		if version, _ := ssl.SSLVersion(); !ok || version != "TLSv1.3" || !ssl.Verified() {
			t.Errorf("TLS: %q, verified %v", version, ssl.Verified())
		}
		if name, _ := ssl.ClientCN(); name != "the client" {
			t.Errorf("common name %q", name)
		}
	}
	if len(ids) != 2 {
		t.Errorf("two connections have the ids %v", ids)
	}
}

// rule 12: from an untrusted source a header is not parsed: it is payload for
// the endpoint.
func TestProxyHeaderOfUntrustedSourceIsPayload(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()})+
		listener("plain", "service: upstream", "proxyProtocol: {accept: [127.0.0.200/32]}")+
		listener("tls", "protocol: tls", "service: upstream", "proxyProtocol: {accept: [127.0.0.200/32]}"))
	const header = "PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n"
	for _, text := range []string{header, "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"} {
		client := dial(t, n.addr("plain"))
		mustWrite(t, client, text+"more")
		endpoint := upstream.accept()
		mustRead(t, endpoint, text+"more")
		client.Close()
		endpoint.Close()
		n.end(client.LocalAddr()) // logged under its own address
		client = dial(t, n.addr("tls"))
		mustWrite(t, client, text)
		mustClose(t, client)
		n.wantEnd(client, "bad_hello")
	}
	trusted := dialFrom(t, "127.0.0.200", n.addr("plain"))
	mustWrite(t, trusted, header+"more")
	endpoint := upstream.accept()
	mustRead(t, endpoint, "more")
	trusted.Close()
	endpoint.Close()
	n.end(net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.1:1000")))
}

// rule 12: accepted headers of trusted sources, and the errors for others.
func TestProxyHeadersOfTrustedSources(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()}, "proxyProtocol: {send: v1}")+
		listener("edge", "service: upstream", "proxyProtocol: {accept: [127.0.0.0/8]}", "timeouts: {proxyHeader: 3s}"))
	addr := n.addr("edge")
	const v1, v2 = "PROXY TCP4 192.0.2.1 192.0.2.2 1000 443\r\n", "\r\n\r\n\x00\r\nQUIT\n"
	unheard := dial(t, addr) // sends nothing: its deadline runs in parallel with the rest
	own := func(c net.Conn) string {
		a, b := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
		return fmt.Sprintf("PROXY TCP4 %s %s %d %d\r\n", a.IP, b.IP, a.Port, b.Port)
	}
	for name, test := range map[string]struct{ header, want string }{
		"v1":               {v1, v1},
		"v1 UNKNOWN":       {"PROXY UNKNOWN\r\n", ""},
		"v2":               {v2 + "\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x03\xe8\x01\xbb", v1},
		"v2 LOCAL":         {v2 + "\x20\x00\x00\x00", ""},
		"v2 LOCAL, length": {v2 + "\x20\x11\x00\x0f" + strings.Repeat("x", 15), ""},
		"v2 unknown TLV":   {v2 + "\x21\x11\x00\x11\xc0\x00\x02\x01\xc0\x00\x02\x02\x03\xe8\x01\xbb\xe5\x00\x02ab", v1},
	} {
		client := dial(t, addr)
		want := test.want
		if want == "" {
			want = own(client)
		}
		for _, b := range []byte(test.header) { // byte by byte
			mustWrite(t, client, string([]byte{b}))
		}
		mustWrite(t, client, "payload")
		endpoint := upstream.accept()
		got := make([]byte, len(want)+7)
		if _, err := io.ReadFull(endpoint, got); err != nil || string(got) != want+"payload" {
			t.Errorf("%s: the endpoint read %q, %v; want %q", name, got, err, want+"payload")
		}
		client.Close()
		endpoint.Close()
	}
	for name, text := range map[string]string{
		"absent":         "GET / HTTP/1.1\r\n\r\n",
		"v1 oversized":   "PROXY UNKNOWN " + strings.Repeat("x", 200) + "\r\n",
		"v1 wrong":       "PROXY TCP4 192.0.2.1 192.0.2.2 1000 99999\r\n",
		"v2 oversized":   v2 + "\x21\x11\xff\xff" + strings.Repeat("x", 100),
		"v2 wrong":       v2 + "\x31\x11\x00\x0c",
		"v2 cut in TLVs": v2 + "\x21\x11\x00\x0d\xc0\x00\x02\x01\xc0\x00\x02\x02\x03\xe8\x01\xbb\xe5",
	} {
		client := dial(t, addr)
		mustWrite(t, client, text)
		mustClose(t, client)
		if a := n.wantEnd(client, "bad_proxy_header"); a.Service != "" {
			t.Errorf("%s: it was routed: %+v", name, a)
		}
	}
	cut := dial(t, addr)
	mustWrite(t, cut, v1[:20])
	closeWrite(cut)
	mustClose(t, cut)
	n.wantEnd(cut, "client_gone")
	mustClose(t, unheard)
	n.wantEnd(unheard, "proxy_timeout")
	if len(upstream.accepted) > 0 {
		t.Errorf("%d more connections reached the endpoint", len(upstream.accepted))
	}
}
