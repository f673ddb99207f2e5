package web_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"penstock/internal/testkit"
	"penstock/netio/web"
)

// Headers that say who a client is are the proxy's to write, and names that an
// endpoint could take for them do not pass.
func TestWhatAClientSaysOfItself(t *testing.T) {
	t.Parallel()
	const request = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-Real-Ip, T_a, Sum\r\n" +
		"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: gopher\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Client-Cert: By=me\r\n" +
		"X-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nX-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\nProxy: http://evil\r\n" +
		"X_Forwarded_Client_Cert: By=me\r\nX_Real_IP: 6.6.6.6\r\nx.forwarded.for: 6.6.6.6\r\nX!Real+IP: 6.6.6.6\r\nA_b: c\r\nA-B: d\r\n\r\n" +
		"0\r\nX-Real-IP: 6.6.6.6\r\nT_a: b\r\nSum: 1\r\n\r\n"
	for _, c := range []struct {
		rules web.Rules
		want  string
	}{
		{web.Rules{}, "A-B=d X-Forwarded-For=127.0.0.1 X-Forwarded-Host=x X-Forwarded-Proto=http Sum=1"},
		{web.Rules{Underscores: web.AllowUnderscores},
			"A-B=d A_b=c X-Forwarded-For=127.0.0.1 X-Forwarded-Host=x X-Forwarded-Proto=http Sum=1 T_a=b"},
		{web.Rules{Trusted: true}, "A-B=d Forwarded=for=6.6.6.6 X-Forwarded-Client-Cert=By=me X-Forwarded-For=6.6.6.6, 127.0.0.1 " +
			"X-Forwarded-Host=evil X-Forwarded-Proto=gopher X-Original-Url=/admin X-Real-Ip=6.6.6.6 X-Rewrite-Url=/admin Sum=1"},
		{web.Rules{Trusted: true, ClientCert: true, Underscores: web.AllowUnderscores}, "A-B=d A_b=c Forwarded=for=6.6.6.6 " +
			"X!real+ip=6.6.6.6 X-Forwarded-For=6.6.6.6, 127.0.0.1 X-Forwarded-Host=evil X-Forwarded-Proto=gopher " +
			"X-Original-Url=/admin X-Real-Ip=6.6.6.6 X-Rewrite-Url=/admin X.forwarded.for=6.6.6.6 X_real_ip=6.6.6.6 Sum=1 T_a=b"},
		{web.Rules{ClientCert: true, KeepClientCert: true, Underscores: web.AllowUnderscores}, "A-B=d A_b=c X-Forwarded-Client-Cert=By=me " +
			"X-Forwarded-For=127.0.0.1 X-Forwarded-Host=x X-Forwarded-Proto=http Sum=1 T_a=b"},
		{web.Rules{Underscores: web.RefuseUnderscores}, "400"},
	} {
		t.Run(fmt.Sprint(c.rules), func(t *testing.T) {
			t.Parallel()
			for _, to2 := range []bool{false, true} {
				r := newRig(t, &web.Profile{HTTP2: to2}, testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) {
					_, _ = io.Copy(io.Discard, q.Body)
					_, _ = io.WriteString(w, said(q.Header)+" "+said(q.Trailer))
				}))
				r.rules.Store(&c.rules)
				conn := r.dial()
				_, _ = io.WriteString(conn, request)
				status, body := readAnswer(t, conn)
				if status != http.StatusOK {
					body = fmt.Sprint(status)
				}
				if body != c.want {
					t.Errorf("to HTTP/2 %v, the endpoint got\n%s, want\n%s", to2, body, c.want)
				}
			}
		})
	}
}

// said writes headers in order.
func said(h http.Header) string {
	var all []string
	for name, values := range h {
		if name != "Accept-Encoding" && name != "User-Agent" {
			all = append(all, name+"="+strings.Join(values, ", "))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func readAnswer(t *testing.T, c io.Reader) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// What two servers could read in two ways is answered 400, and no endpoint is
// asked; what came before it on the connection is answered first.
func TestRequestsThatCanBeReadInTwoWays(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	to := testkit.ServeHTTP(t, func(w http.ResponseWriter, q *http.Request) { asked <- q.URL.Path })
	r := newRig(t, &web.Profile{}, to)
	const first = "GET /first HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, text := range map[string]string{
		"length and chunks": "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
		"LF in the first line":     "GET / HTTP/1.1\nHost: x\r\n\r\n",
		"LF in the header":         "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
		"LF at the header's end":   "GET / HTTP/1.1\r\nHost: x\r\n\n",
		"a fold":                   "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
		"a blank before the colon": "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
		"NUL":                      "GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n",
		"lengths that differ":      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"chunks in HTTP/1.0":       "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a blank in the path":      "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
		"no host":                  "GET / HTTP/1.1\r\n\r\n",
		"two hosts":                "GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
		"a trailer with LF":        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n",
		"a chunk's size with LF":   "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n",
		"a last chunk with LF behind an extension": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0;x\n\r\n",
		"NUL behind a last chunk":                  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0;\x00\r\n\r\n",
		"NUL in a trailer":                         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: \x00\r\n\r\n",
		"a control character in a trailer":         "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: \x01\r\n\r\n",
		"CR in a trailer":                          "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\rC: d\r\n\r\n",
		"an empty host":                            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"a length and a blank more":                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1 1\r\n\r\na",
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial()
			_, _ = io.WriteString(c, first+text)
			in := bufio.NewReader(c)
			for _, want := range []int{http.StatusOK, http.StatusBadRequest} {
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("%s, want %d", resp.Status, want)
				}
			}
			if name == "an empty host" { // found by the request, so that the connection stays
				return
			}
			if b, err := in.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("behind the answer: %q %v", b, err)
			}
		})
	}
	for len(asked) > 0 {
		if path := <-asked; path != "/first" && path != "/" { // with a body that fails an endpoint may have been asked
			t.Errorf("an endpoint was asked for %s", path)
		}
	}
	if len(r.refused) == 0 {
		t.Error("no one was notified")
	}
}

// A request of HTTP/2 names one host.
func TestTheHostOfHTTP2(t *testing.T) {
	t.Parallel()
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(http.ResponseWriter, *http.Request) {}))
	for name, c := range map[string]struct {
		want   string
		fields []string
	}{
		"none":        {"400", []string{":method", "GET", ":scheme", "http", ":path", "/"}},
		"an empty":    {"400", []string{":method", "GET", ":scheme", "http", ":authority", "", ":path", "/"}},
		"two":         {"400", []string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/", "host", "y"}},
		"Host alone":  {"200", []string{":method", "GET", ":scheme", "http", ":path", "/", "host", "y"}},
		"twice one":   {"200", []string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/", "host", "X"}},
		":authority":  {"200", []string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/"}},
		"Host, twice": {"400", []string{":method", "GET", ":scheme", "http", ":path", "/", "host", "y", "host", "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newRawHTTP2(t, r.addr)
			h.ask(1, true, c.fields...)
			if got, err := h.answer(1); err != nil || got != c.want {
				t.Errorf("%s %v, want %s", got, err, c.want)
			}
		})
	}
}

// A request of HTTP/2 with fields that belong to a connection of HTTP/1 has its
// stream reset (RFC 9113, section 8.2.2); the others of its connection go on, as
// does what the compression of headers remembers.
func TestFieldsOfConnectionsInHTTP2(t *testing.T) {
	t.Parallel()
	r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Kept") != "of the first" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	h := newRawHTTP2(t, r.addr)
	request := func(more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "http", ":authority", "x", ":path", "/", "x-kept", "of the first"}, more...)
	}
	stream := uint32(1)
	for _, c := range []struct {
		name, value, want string
	}{
		{"connection", "close", "RST PROTOCOL_ERROR"},
		{"connection", "close", "RST PROTOCOL_ERROR"}, // by the table of the encoder
		{"keep-alive", "timeout=5", "RST PROTOCOL_ERROR"},
		{"proxy-connection", "keep-alive", "RST PROTOCOL_ERROR"},
		{"transfer-encoding", "chunked", "RST PROTOCOL_ERROR"},
		{"upgrade", "websocket", "RST PROTOCOL_ERROR"},
		{"te", "gzip", "RST PROTOCOL_ERROR"},
		{"te", "trailers", "200"},
		{"x", "y", "200"},
	} {
		h.status = ""
		h.ask(stream, true, request(c.name, c.value)...)
		if got, err := h.answer(stream); err != nil || got != c.want {
			t.Errorf("%s: %s: %q, %v, want %q", c.name, c.value, got, err, c.want)
		}
		if strings.HasPrefix(c.want, "RST") {
			if got := <-r.refused; got.status != 0 || !errors.Is(got.err, web.ErrForeign) || !strings.HasSuffix(got.err.Error(), c.name) {
				t.Errorf("%s: %v", c.name, got)
			}
		}
		stream += 2
	}
}

// Who has negotiated h2 is not answered in HTTP/1, and who speaks no HTTP is not
// answered at all.
func TestWhatIsNoHTTPHasNoAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ alpn, send, want string }{
		"h2 after ALPN":       {"h2", http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00"},
		"HTTP/1 after h2":     {"h2", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ""},
		"HTTP/1 after its":    {"http/1.1", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 "},
		"something else":      {"", "INVALID CONNECTION PREFACE\r\n\r\n", ""},
		"something else, TLS": {"h2", "INVALID CONNECTION PREFACE\r\n\r\n", ""},
		"it comes second":     {"", "GET / HTTP/1.1\r\nHost: x\r\n\r\nINVALID CONNECTION PREFACE\r\n\r\n", "HTTP/1.1 200 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &web.Profile{}, testkit.ServeHTTP(t, func(http.ResponseWriter, *http.Request) {}))
			r.alpn.Store(&c.alpn)
			conn := r.dial()
			_, _ = io.WriteString(conn, c.send)
			got := make([]byte, max(len(c.want), 1))
			n, err := io.ReadFull(conn, got)
			if string(got[:n]) != c.want || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q, %v, want %q", got[:n], err, c.want)
			}
		})
	}
}
