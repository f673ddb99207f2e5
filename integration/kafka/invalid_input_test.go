package kafka

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
)

// announced returns the length prefix of a frame.
func announced(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// framed prefixes bytes with their length.
func framed(b []byte) []byte { return append(announced(int32(len(b))), b...) }

// head returns a request header with a client ID and without tagged fields.
func head(key, version int16, correlation int32) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0, 1, 'x')
	if req := kmsg.RequestForKey(key); req != nil {
		if req.SetVersion(version); req.IsFlexible() {
			b = append(b, 0)
		}
	}
	return b
}

// TestInvalidInputClosesOnlyItsConnection sends invalid input: each connection is
// closed with its reason, and neighbouring ones continue.
func TestInvalidInputClosesOnlyItsConnection(t *testing.T) {
	w := newInvalidInputNode(t)
	hello := "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + strings.Repeat("r", 32)
	for _, one := range []struct {
		what   string
		at     target
		send   []byte
		reason string
	}{
		{"a frame of no bytes", w.plain, announced(0), "kafka_bad_frame"},
		{"a frame of one byte", w.plain, framed([]byte{0}), "kafka_bad_frame"},
		{"a frame without a correlation id", w.plain, framed([]byte{0, 18, 0, 0, 0, 0, 0}), "kafka_bad_frame"},
		{"a client id longer than the frame", w.plain, framed([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0x7f, 0xff}), "kafka_bad_frame"},
		{"a negative length", w.plain, announced(-1), "kafka_bad_frame"},
		{"the most negative length", w.tenant, announced(math.MinInt32), "kafka_bad_frame"},
		{"a greeting over the bound", w.plain, append(announced(8<<10+1), head(18, 3, 1)...), "kafka_frame_too_large"},
		{"the largest length", w.tenant, append(announced(math.MaxInt32), head(3, 9, 1)...), "kafka_frame_too_large"},
		{"an API that nobody has", w.plain, framed(head(999, 0, 1)), "kafka_unknown_api"},
		{"a negative API", w.plain, framed(head(-1, 0, 1)), "kafka_unknown_api"},
		{"an API between controllers", w.plain, framed(head(52, 0, 1)), "kafka_unknown_api"},
		{"an API between brokers", w.tenant, framed(head(4, 1, 1)), "kafka_unknown_api"},
		{"an API that tenants have not", w.tenant, framed(head(49, 0, 1)), "kafka_unknown_api"},
		{"a version of tomorrow", w.plain, framed(head(3, 99, 1)), "kafka_unsupported_version"},
		{"a negative version", w.plain, framed(head(3, -1, 1)), "kafka_unsupported_version"},
		{"SaslHandshake v0", w.sasl, framed(append(head(17, 0, 1), 0, 5, 'P', 'L', 'A', 'I', 'N')), "kafka_unsupported_version"},
		{"TLS in the clear", w.plain, []byte(hello), "kafka_not_kafka"},
		{"HTTP", w.tenant, []byte("GET / HTTP/1.1\r\nHost: kafka\r\n\r\n"), "kafka_not_kafka"},
		{"SSH", w.plain, []byte("SSH-2.0-OpenSSH_9.2\r\n"), "kafka_not_kafka"},
		{"Kafka where TLS is due", w.byTLS, framed(head(18, 0, 1)), "bad_hello"},
		{"HTTP where TLS is due", w.byTLS, []byte("GET / HTTP/1.1\r\nHost: kafka\r\n\r\n"), "bad_hello"},
	} {
		t.Run(one.what, func(t *testing.T) {
			c := w.connect(t, one.at)
			_, err := c.Write(one.send)
			must(t, err)
			w.wantEnd(t, c, one.reason)
		})
	}
	t.Run("frames at the bounds", w.bounds)
	t.Run("tokens", w.tokens)
	t.Run("cut short", w.cutShort)
	t.Run("server names", w.serverNames)
	t.Run("correlation ids", w.correlations)
	t.Run("ApiVersions of tomorrow", w.newerHello)
	w.wantCounted(t)
}

// bounds sends frames of the maximum size, and of one byte more.
func (w *invalidInputNode) bounds(t *testing.T) {
	const greeting, most = 8 << 10, 100 << 20
	send := func(c *rawConn, b []byte) {
		t.Helper()
		must(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		_, err := c.Write(b)
		must(t, err)
	}
	answered := func(c *rawConn, b []byte) {
		t.Helper()
		send(c, b)
		frame, err := c.readFrame()
		if err != nil || binary.BigEndian.Uint32(frame) != 1 {
			t.Fatalf("an answer of %d bytes, %v", len(frame), err)
		}
	}
	for _, g := range []target{w.plain, w.tenant, w.sasl} {
		// The first request has a lower limit.
		b := append(head(18, 3, 1), 2, 'n', 2, '1', 1, 77) // a name, a version, and one unknown tagged field
		tag := greeting - len(b) - 2                       // the length takes two bytes
		b = append(binary.AppendUvarint(b, uint64(tag)), make([]byte, tag)...)
		b = framed(b)
		if len(b) != greeting+4 {
			t.Fatalf("%d bytes", len(b))
		}
		c := &rawConn{Conn: w.connect(t, g)}
		answered(c, b)
		c.Close()
		if g.name == "sasl" {
			continue
		}
		// Later requests may be large at once: names of unknown topics.
		const names = 1000
		b = binary.BigEndian.AppendUint32(head(3, 1, 1), names)
		for range names {
			b = append(append(b, 0, 200), strings.Repeat("x", 200)...)
		}
		c = &rawConn{Conn: w.connect(t, g)}
		answered(c, framed(b))
		send(c, append(announced(most+1), head(3, 9, 1)...))
		w.wantEnd(t, c, "kafka_frame_too_large")
		// A frame of permitted size that is truncated.
		c = w.greeted(t, g)
		answered(c, framed(b)) // the broker has answered: no login is expected
		send(c, append(announced(most/4), head(3, 9, 1)...))
		must(t, c.Conn.(*net.TCPConn).CloseWrite())
		w.wantEnd(t, c, "client_gone", "client_fin", "client_reset", "kafka_bad_frame", "upstream_fin")
	}
}

// tokens announces login tokens that are too large.
func (w *invalidInputNode) tokens(t *testing.T) {
	handshake := func() *rawConn {
		c := &rawConn{Conn: w.connect(t, w.sasl), limit: testkit.Patience}
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Mechanism, req.Version = "PLAIN", 1
		resp, _, err := c.ask(req)
		if err != nil || resp.(*kmsg.SASLHandshakeResponse).ErrorCode != 0 {
			t.Fatalf("%v, %v", resp, err)
		}
		return c
	}
	resident := w.RSS()
	const token = 100 << 20
	c := handshake()
	_, err := c.Write(append(announced(token+20), append(head(36, 1, 2), announced(token)...)...))
	must(t, err)
	w.wantEnd(t, c, "kafka_frame_too_large")
	// Other frames must not be large before the login either.
	c = handshake()
	_, err = c.Write(append(announced(64<<10+1), head(3, 9, 2)...))
	must(t, err)
	w.wantEnd(t, c, "kafka_frame_too_large")
	// Only the token inside of a small frame is too large.
	c = handshake()
	_, err = c.Write(framed(append(head(36, 1, 2), announced(token)...)))
	must(t, err)
	w.wantEnd(t, c, "kafka_bad_frame", "upstream_fin", "upstream_reset")
	if grown := w.RSS() - resident; grown > token/2 {
		t.Errorf("%d MB more are resident after tokens that never came", grown>>20)
	}
}

// cutShort sends truncated messages.
func (w *invalidInputNode) cutShort(t *testing.T) {
	o := objectNames{topic: "cut", group: "cut", share: "cut", txn: "cut", user: "cut", numbers: map[string]int64{"Acks": 1}}
	for _, one := range []struct{ key, version int16 }{
		{0, 9}, {1, 12}, {2, 7}, {3, 12}, {8, 8}, {9, 8}, {10, 4}, {11, 5}, {14, 5}, {19, 7}, {20, 6}, {24, 3}, {32, 4}, {61, 0}, {68, 0},
	} {
		req := o.fill(request(one.key, one.version))
		whole := rawFormat.AppendRequest(nil, req, 1)[4:]
		for _, g := range []target{w.plain, w.tenant} {
			t.Run(fmt.Sprint(kmsg.NameForKey(one.key), ", ", g.name), func(t *testing.T) {
				c := w.greeted(t, g)
				_, err := c.Write(framed(whole[:len(whole)-len(whole)/4]))
				must(t, err)
				if g.name == "tenant" && one.key != 0 {
					w.wantEnd(t, c, "kafka_bad_frame")
				} else { // no filter reads it, or it is streamed: the broker closes the connection
					w.wantEnd(t, c, "kafka_bad_frame", "upstream_fin", "upstream_reset")
				}
			})
		}
	}
}

// serverNames connects with unroutable server names, and with a certificate
// that the client does not trust.
func (w *invalidInputNode) serverNames(t *testing.T) {
	for _, one := range []struct {
		name   string
		config *tls.Config
		reason string
	}{
		{"another domain's", &tls.Config{ServerName: "kafka.example.org", RootCAs: w.ca.Pool}, "no_route"},
		{"none", &tls.Config{InsecureSkipVerify: true}, "no_sni"}, //nolint:gosec // the server closes it
		{"one that is not trusted", &tls.Config{ServerName: "bootstrap." + domain}, "handshake_refused"},
	} {
		t.Run(one.name, func(t *testing.T) {
			c := w.connect(t, w.byTLS)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if err := tls.Client(c, one.config).HandshakeContext(ctx); err == nil {
				t.Error("the handshake succeeds")
			}
			must(t, c.(*net.TCPConn).CloseWrite())
			w.wantEnd(t, c, one.reason)
		})
	}
}

// correlations pipelines requests with equal IDs, and with IDs that wrap
// around: the answers come in order, with the original IDs.
func (w *invalidInputNode) correlations(t *testing.T) {
	for _, ids := range [][]int32{
		{7, 7, 7, 7, 7, 7, 7, 7},
		{math.MaxInt32 - 1, math.MaxInt32, math.MinInt32, math.MinInt32 + 1, -1, 0, 1},
		{0, 0, -1, -1, math.MinInt32, 0},
	} {
		for _, g := range []target{w.plain, w.tenant} {
			c := w.greeted(t, g)
			var all []byte
			for i, id := range ids {
				// One that filters read whole, and one that no filter reads.
				req := []kmsg.Request{request(3, 12), request(18, 0), request(22, 4)}[i%3]
				all = append(all, rawFormat.AppendRequest(nil, req, id)...)
			}
			must(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
			_, err := c.Write(all)
			must(t, err)
			for i, id := range ids {
				frame, err := c.readFrame()
				if err != nil {
					t.Fatalf("%s: answer %d of %v: %v", g.name, i, ids, err)
				}
				if got := int32(binary.BigEndian.Uint32(frame)); got != id {
					t.Fatalf("%s: answer %d of %v has the id %d", g.name, i, ids, got)
				}
			}
			c.Close()
		}
	}
	w.wantNeighbours(t)
}

// newerHello sends ApiVersions at an unknown version: the answer is of version
// 0 with an error code, and the connection continues.
func (w *invalidInputNode) newerHello(t *testing.T) {
	for _, g := range []target{w.plain, w.tenant, w.sasl} {
		c := &rawConn{Conn: w.connect(t, g), limit: testkit.Patience}
		must(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
		_, err := c.Write(framed(head(18, 99, 5)))
		must(t, err)
		frame, err := c.readFrame()
		must(t, err)
		resp, err := decode(request(18, 0), frame)
		must(t, err)
		if code := resp.(*kmsg.ApiVersionsResponse).ErrorCode; code != 35 {
			t.Errorf("%s: error %d, not UNSUPPORTED_VERSION", g.name, code)
		}
		if _, _, err := c.ask(request(18, 0)); err != nil {
			t.Errorf("%s: afterwards: %v", g.name, err)
		}
		c.Close()
	}
}

// wantCounted compares the metrics with the expected closing reasons.
func (w *invalidInputNode) wantCounted(t *testing.T) {
	t.Helper()
	got := map[string]int{}
	// A connection is counted at about the time it is logged.
	testkit.WaitFor(t, "the metrics to have all", func() bool {
		clear(got)
		for _, m := range endedCount.FindAllStringSubmatch(w.metrics(t), -1) {
			var n int
			_, err := fmt.Sscan(m[2], &n)
			must(t, err)
			got[m[1]] += n
		}
		for reason, n := range w.counted {
			if strings.HasPrefix(reason, "kafka_") && got[reason] != n {
				return got[reason] > n // can no longer become right
			}
		}
		return true
	})
	for reason, n := range w.counted {
		if strings.HasPrefix(reason, "kafka_") && got[reason] != n {
			t.Errorf("%s: %d connections in the metrics, %d here", reason, got[reason], n)
		}
	}
	t.Logf("ended: %v", w.counted)
}

var endedCount = regexp.MustCompile(`(?m)^penstock_connections_total\{.*result="(\w+)".*\} (\d+)$`)

func (w *invalidInputNode) metrics(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.http+"/metrics", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(text)
}
