package dataplane

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"penstock/node/nodetest"
	"penstock/node/trace"
)

// BenchmarkHTTP makes sequential requests on one connection: directly, through
// net/http/httputil's reverse proxy, through Penstock with requests routed
// individually, and through Penstock with the connection routed. Client and
// endpoint run in this process and count too, so only comparisons are meaningful.
func BenchmarkHTTP(b *testing.B) {
	end := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	b.Cleanup(end.Close)
	to := end.Listener.Addr().String()
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: to})
			p.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	})
	b.Cleanup(proxy.Close)
	n := benchHTTPNode(b, to, nil)
	for _, c := range []struct{ name, addr string }{
		{"direct", to}, {"plain reverse proxy", proxy.Listener.Addr().String()}, {"penstock", n.at(b, "web")},
		{"penstock, traces 1 %", benchHTTPNode(b, to, tracerOf(0.01)).at(b, "web")},
		{"penstock, traces 100 %", benchHTTPNode(b, to, tracerOf(1)).at(b, "web")},
		{"penstock connection", n.at(b, "tcp")},
	} {
		b.Run(c.name, func(b *testing.B) {
			transport := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			b.ReportAllocs()
			for b.Loop() {
				resp, err := client.Get("http://" + c.addr + "/cart/7")
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
}

// BenchmarkHTTPDownload moves 64 MiB in one answer.
func BenchmarkHTTPDownload(b *testing.B) {
	const size = 64 << 20
	chunk := make([]byte, 64<<10)
	end := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range size / len(chunk) {
			_, _ = w.Write(chunk)
		}
	}))
	b.Cleanup(end.Close)
	to := end.Listener.Addr().String()
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: to}) },
	})
	b.Cleanup(proxy.Close)
	n := benchHTTPNode(b, to, nil)
	web := ""
	for _, l := range n.Engine.Listeners() {
		if l.Name == "web" {
			web = l.Address
		}
	}
	for _, c := range []struct{ name, addr string }{{"plain reverse proxy", proxy.Listener.Addr().String()}, {"penstock", web}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				resp, err := http.Get("http://" + c.addr)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); n != size {
					b.Fatal(n, err)
				}
				_ = resp.Body.Close()
			}
		})
	}
}

// benchHTTPNode starts a data plane with two listeners: "web" routes requests
// individually, "tcp" routes connections.
func benchHTTPNode(b *testing.B, endpoint string, tracer *trace.Tracer) *testPlane {
	b.Helper()
	return start(b, nodetest.WebListener+nodetest.WebService("shop", "", endpoint)+
		nodetest.WebRoute(nodetest.Rule("/", ""), nodetest.Rule("/cart", nodetest.To("shop")))+
		"\n---\nkind: Listener\nname: tcp\nspec: {address: \"127.0.0.1:0\", service: shop}\n", func(c *Config) { c.Access, c.Tracer = nil, tracer })
}
