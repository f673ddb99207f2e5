package http

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestConfigurationsThatAreRefused(t *testing.T) {
	_, err := New(Config{
		URL: "http://me:hunter2@h/", Mode: "push", Interval: time.Millisecond, Wait: 1500 * time.Millisecond, IdleTimeout: 2 * time.Hour,
		Timeout: -1, Token: "hunter2\n", MaxBytes: 1, MaxEndpoints: -1, MaxURLs: 20_000, MaxRequests: 2000,
		Headers: map[string]string{"a b": "hunter2", "if-none-match": "hunter2", "authorization": "hunter2", "X": "hunter2\r"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"url: must not contain a user or password; use token or headers",
		`mode: "push" must be poll, longPoll or sse`,
		"interval: 1ms must be 100ms to 24h0m0s",
		"wait: 1.5s must be whole seconds",
		"idleTimeout: 2h0m0s must be 1s to 1h0m0s",
		"timeout: -1ns must be 100ms to 10m0s",
		"maxBytes: 1 must be 1024 to 1073741824",
		"maxEndpoints: -1 must be 1 to 1000000",
		"maxURLs: 20000 must be 1 to 10000",
		"maxRequests: 2000 must be 1 to 1000",
		"token: contains a character that a header must not have, perhaps a line end",
		`headers: "a b" is not the name of a header`,
		`headers: "if-none-match" cannot be set`,
		`headers: "authorization" is set by token as well; give one of them`,
		`headers: the value of "X" contains a character that a header must not have, perhaps a line end`,
	} {
		if !strings.Contains("\n"+err.Error()+"\n", "\n"+want+"\n") {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is in %v", err)
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 15 {
		t.Errorf("%d faults, want 15:\n%v", n, err)
	}
}

func TestHeadersAreSent(t *testing.T) {
	cfg := Config{Token: "t0ken", Headers: map[string]string{"x-tenant": "a"}}
	inBubble(t, cfg, func(w nethttp.ResponseWriter, r *nethttp.Request, _ int) {
		if r.Header.Get("Authorization") == "Bearer t0ken" && r.Header.Get("X-Tenant") == "a" && r.Header.Get("Accept") == "application/json" {
			write(w, list("10.0.0.1:80"))
		}
	}, func(w *world) { w.want("10.0.0.1:80") })
}

// TestSecretsStayOutOfErrors fails in many ways with secrets in all places.
func TestSecretsStayOutOfErrors(t *testing.T) {
	const secret = "hunter2"
	answers := []func(w nethttp.ResponseWriter, r *nethttp.Request){
		hold,
		func(w nethttp.ResponseWriter, r *nethttp.Request) { write(w, r.URL.RawQuery) },
		func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.Error(w, r.Header.Get("Authorization"), nethttp.StatusUnauthorized)
		},
		func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.Redirect(w, r, "http://other/?"+r.URL.RawQuery, nethttp.StatusFound)
		},
		func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.Redirect(w, r, "http://"+secret+"@lists.example/", nethttp.StatusFound)
		},
		func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.Redirect(w, r, "/?"+r.URL.RawQuery, nethttp.StatusFound)
		},
		func(w nethttp.ResponseWriter, r *nethttp.Request) {
			nethttp.Redirect(w, r, "http://%zz/?"+r.URL.RawQuery, nethttp.StatusFound)
		},
		func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			c, _, _ := nethttp.NewResponseController(w).Hijack()
			c.Close()
		},
	}
	for i, answer := range answers {
		cfg := Config{
			URL: "http://lists.example/list?key=" + secret, Token: secret, Headers: map[string]string{"X-Key": secret, "Cookie": secret},
		}
		inBubble(t, cfg, func(w nethttp.ResponseWriter, r *nethttp.Request, _ int) { answer(w, r) }, func(w *world) {
			w.after(11 * time.Second)
			err := w.sink.Err(web)
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("answer %d: %v", i, err)
			}
			w.wantStale("", "GET http://lists.example/list?...: ")
		})
	}
}

func TestRedirects(t *testing.T) {
	for _, test := range []struct {
		from, to, token, failure string
	}{
		{"http://a/x", "/list", "t", ""},
		{"http://a/x", "http://A/list", "t", ""},
		{"http://a/x", "http://b/list", "", ""},
		{"http://a/x?key", "http://b/list", "", ""},
		{"http://a/x", "http://b/list", "t", `is redirected to "http://b", and credentials are not sent elsewhere: configure the final url`},
		{"http://a/x", "http://a:81/list", "t", `is redirected to "http://a:81", and credentials are not sent elsewhere`},
		{"http://a/x", "/x", "", "is redirected more than 3 times"},
		{"http://a/x", "http://me@a/list", "", "is redirected to something other than an http or https URL without a user"},
		{"http://a/x", "ftp://a/list", "", "is redirected to something other than an http or https URL without a user"},
	} {
		inBubble(t, Config{URL: test.from, Token: test.token}, func(w nethttp.ResponseWriter, r *nethttp.Request, _ int) {
			if r.Header.Get("Referer") != "" {
				t.Errorf("Referer %q", r.Header.Get("Referer"))
			}
			if r.URL.Path != "/list" {
				w.Header().Set("Location", test.to)
				w.WriteHeader(nethttp.StatusFound)
				return
			}
			write(w, list("10.0.0.1:80"))
		}, func(w *world) {
			if test.failure == "" {
				w.want("10.0.0.1:80")
			} else {
				w.wantStale("", test.failure)
			}
			if n := len(w.asked()); n > maxRedirects+1 {
				t.Errorf("%s to %s: %d requests", test.from, test.to, n)
			}
		})
	}
	if err := checkRedirect(&url.URL{Scheme: "https", Host: "a"}, &url.URL{Scheme: "http", Host: "a"}, false); err == nil ||
		err.Error() != "is redirected from https to http" {
		t.Errorf("https to http: %v", err)
	}
}

func TestTLS(t *testing.T) {
	slow := provider.Query{Service: "slow"}
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if r.URL.Path == "/slow" {
			hold(w, r)
		}
		write(w, list(fmt.Sprintf("10.0.0.%d:80", r.ProtoMajor)))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for _, test := range []struct {
		tls     *tls.Config
		failure string
	}{
		{&tls.Config{RootCAs: roots, ServerName: "example.com", Certificates: server.TLS.Certificates}, ""},
		{&tls.Config{RootCAs: roots, ServerName: "other.example", Certificates: server.TLS.Certificates}, "certificate is valid for"},
		{&tls.Config{RootCAs: roots, ServerName: "example.com"}, "certificate required"},
		{nil, "failed to verify certificate"},
	} {
		source, err := New(Config{URL: server.URL + "/{service}", TLS: test.tls, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		sink := providertest.NewSink(web, slow)
		t.Run("", func(t *testing.T) {
			sink.Start(t, source)
			if test.failure == "" {
				sink.Await(t, web, "10.0.0.2:80") // HTTP/2
				sink.AwaitFailure(t, slow, "no complete answer within 1s (timeout)")
			} else {
				sink.AwaitFailure(t, web, test.failure)
			}
		})
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	source, err := New(Config{URL: "http://h/"})
	if err != nil || source.transport.Proxy != nil {
		t.Errorf("%v, or there is a proxy", err)
	}
}
