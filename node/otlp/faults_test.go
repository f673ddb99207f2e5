package otlp

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/otlp/otlptest"
	"penstock/node/tlsconfig"
	"penstock/routing/resource"
)

func noCertificates() *tlsconfig.Store { return tlsconfig.NewStore() }

// checkSecret fails if a secret shows anywhere.
func checkSecret(t *testing.T, n *testNode) {
	t.Helper()
	if text := n.log.String() + strings.Join(n.Problems("n1"), "\n"); strings.Contains(text, "hunter2") {
		t.Errorf("shows a secret: %s", text)
	}
}

// A collector that does not answer holds up nobody: what its queue cannot hold is dropped
// and counted, and nothing is lost that it can.
func TestStalledCollector(t *testing.T) {
	startBoth(t, ", queue: 64", func(t *testing.T, n *testNode, c *otlptest.Collector) {
		open := make(chan struct{})
		c.Answer(otlptest.Answer{Until: open})
		n.export("held")
		testkit.WaitFor(t, "the first request", func() bool { return c.Calls() == 1 })
		for range 1000 {
			n.export("more")
		}
		if s := n.state(Traces); s.Queued != 64 || s.Dropped[QueueFull] != 1000-64 {
			t.Errorf("%d are queued, %d dropped", s.Queued, s.Dropped[QueueFull])
		}
		c.Answer(otlptest.Answer{})
		close(open)
		waitSpans(t, c, 65)
		if s := n.state(Traces); s.Fault != "" {
			t.Errorf("fault %q", s.Fault)
		}
	})
}

// Close does not wait for a stalled collector longer than its context.
func TestCloseWithStalledCollector(t *testing.T) {
	startBoth(t, ", queue: 64", func(t *testing.T, n *testNode, c *otlptest.Collector) {
		c.Answer(otlptest.Answer{Until: make(chan struct{})})
		n.export("held")
		testkit.WaitFor(t, "the first request", func() bool { return c.Calls() == 1 })
		n.export("queued")
		counts := n.counts["otel"]
		n.closeNow()
		if lost := counts[Traces].dropped[Stopped].Load(); lost != 2 {
			t.Errorf("%d are counted as lost, want 2", lost)
		}
	})
}

// A collector that is not there gets what is queued once it is.
func TestDeadCollectorComesBack(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		address := testkit.FreeAddress(t)
		n := newNode(t)
		n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: %s", address, protocol), "traces: true")
		n.export("early")
		if fault := n.waitFault(Traces); !strings.Contains(fault, "connection refused") {
			t.Errorf("fault %q", fault)
		}
		if list := n.Problems("n1"); len(list) != 1 || !strings.HasPrefix(list[0], "node n1: Telemetry/otel: cannot send traces: ") {
			t.Errorf("problems %q", list)
		}
		c := otlptest.New(t, otlptest.Config{Protocol: protocol, Listen: address})
		waitSpans(t, c, 1)
		testkit.WaitFor(t, "no fault", func() bool { return len(n.Problems("n1")) == 0 })
		for _, want := range []string{"cannot send to the OpenTelemetry collector", "takes what is sent again"} {
			if got := strings.Count(n.log.String(), want); got != 1 {
				t.Errorf("%q is logged %d times:\n%s", want, got, n.log)
			}
		}
	})
}

// What a collector asks to wait is waited, and the batch is sent again.
func TestCollectorAsksToWait(t *testing.T) {
	startBoth(t, "", func(t *testing.T, n *testNode, c *otlptest.Collector) {
		c.Answer(otlptest.Answer{Code: codes.ResourceExhausted, HTTP: http.StatusTooManyRequests, After: time.Second, Message: "slow down hunter2-hunter2\x1b[31m"})
		n.export("throttled")
		begin := time.Now()
		fault := n.waitFault(Traces)
		if !strings.Contains(fault, "slow down (hidden)") || strings.Contains(fault, "\x1b") {
			t.Errorf("fault %q", fault)
		}
		c.Answer(otlptest.Answer{})
		waitSpans(t, c, 1)
		if waited := time.Since(begin); waited < 900*time.Millisecond || c.Calls() != 2 {
			t.Errorf("waited %v, %d requests", waited, c.Calls())
		}
		checkSecret(t, n)
	})
}

// What a collector refuses is not sent again.
func TestCollectorRefuses(t *testing.T) {
	startBoth(t, "", func(t *testing.T, n *testNode, c *otlptest.Collector) {
		c.Answer(otlptest.Answer{Code: codes.Internal, HTTP: http.StatusInternalServerError, Message: "token hunter2-hunter2 is bad\n<b>"})
		n.export("refused")
		fault := n.waitFault(Traces)
		if !strings.Contains(fault, `token (hidden) is bad`) || strings.Contains(fault, "\n") {
			t.Errorf("fault %q", fault)
		}
		testkit.WaitFor(t, "the count", func() bool { return n.state(Traces).Dropped[Refused] == 1 })
		c.Answer(otlptest.Answer{})
		n.export("taken")
		waitSpans(t, c, 1)
		if s := n.state(Traces); c.Calls() != 2 || s.Failures != 1 || c.Spans()[0].GetName() != "taken" {
			t.Errorf("%d requests, %+v", c.Calls(), s)
		}
		checkSecret(t, n)
	})
}

func TestCollectorTakesAPart(t *testing.T) {
	startBoth(t, "", func(t *testing.T, n *testNode, c *otlptest.Collector) {
		c.Answer(otlptest.Answer{Rejected: 3, Message: "too old"})
		for range 10 {
			n.export("some")
		}
		fault := n.waitFault(Traces)
		if !strings.HasSuffix(fault, `: "too old"`) || !strings.HasPrefix(fault, "the collector refused 3 of ") {
			t.Errorf("fault %q", fault)
		}
		testkit.WaitFor(t, "the counts", func() bool {
			s := n.state(Traces)
			return s.Exported+s.Dropped[Refused] == 10 && s.Dropped[Refused]%3 == 0
		})
		// More than there were, and fewer than none, are nonsense.
		for _, nonsense := range []int64{1 << 60, -5} {
			before := n.state(Traces)
			c.Answer(otlptest.Answer{Rejected: nonsense})
			n.export("one")
			testkit.WaitFor(t, "the count", func() bool {
				s := n.state(Traces)
				return s.Exported+s.Dropped[Refused] == before.Exported+before.Dropped[Refused]+1
			})
		}
	})
}

func TestSlowCollector(t *testing.T) {
	startBoth(t, ", timeout: 100ms", func(t *testing.T, n *testNode, c *otlptest.Collector) {
		c.Answer(otlptest.Answer{Until: make(chan struct{})})
		n.export("slow")
		if fault := n.waitFault(Traces); fault != "no answer within 100ms" {
			t.Errorf("fault %q", fault)
		}
		c.Answer(otlptest.Answer{})
		waitSpans(t, c, 1)
	})
}

// Something else than a collector is told from one.
func TestWrongAnswers(t *testing.T) {
	elsewhere := otlptest.New(t, otlptest.Config{Protocol: "http"})
	for name, c := range map[string]struct {
		answer otlptest.Answer
		want   string
	}{
		"a page":        {otlptest.Answer{Raw: "<html>hunter2", Type: "text/html"}, `content of type "text/html": this is no OTLP collector`},
		"no protobuf":   {otlptest.Answer{Raw: "hunter2", Type: "application/x-protobuf"}, "something else than OTLP"},
		"no JSON":       {otlptest.Answer{Raw: "hunter2", Type: "application/json"}, "something else than OTLP"},
		"a flood":       {otlptest.Answer{Raw: strings.Repeat("hunter2", 1<<20), Type: "application/x-protobuf"}, "with more than 65536 bytes"},
		"a long text":   {otlptest.Answer{HTTP: 400, Raw: strings.Repeat("x", 1<<20)}, strings.Repeat("x", maxText) + `..."`},
		"a redirection": {otlptest.Answer{HTTP: 307, Location: "http://" + elsewhere.Address + "/v1/traces"}, "a redirection, which is not followed"},
		"no such path":  {otlptest.Answer{HTTP: 404}, `answered "404 Not Found"`},
	} {
		t.Run(name, func(t *testing.T) {
			collector := otlptest.New(t, otlptest.Config{Protocol: "http"})
			collector.Answer(c.answer)
			n := newNode(t)
			n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: http, headers: [{name: key, value: hunter2}]", collector.Address), "traces: true")
			n.export("lost")
			if fault := n.waitFault(Traces); !strings.Contains(fault, c.want) {
				t.Errorf("fault %q, want %q", fault, c.want)
			}
			testkit.WaitFor(t, "the count", func() bool { return n.state(Traces).Dropped[Refused] == 1 })
			checkSecret(t, n)
		})
	}
	if elsewhere.Calls() > 0 {
		t.Error("the headers went where a redirection leads")
	}
}

// An empty answer and one in JSON are fine.
func TestRightAnswers(t *testing.T) {
	for _, answer := range []otlptest.Answer{{HTTP: 202}, {Raw: `{"partialSuccess": {}, "new": 1}`, Type: "application/json"}} {
		c := otlptest.New(t, otlptest.Config{Protocol: "http"})
		c.Answer(answer)
		n := newNode(t)
		n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: http", c.Address), "traces: true")
		n.export("taken")
		testkit.WaitFor(t, "the count", func() bool { return n.state(Traces).Exported == 1 })
		if s := n.state(Traces); s.Fault != "" {
			t.Errorf("%+v: %s", answer, s.Fault)
		}
	}
}

func TestTheOtherProtocol(t *testing.T) {
	for protocol, other := range map[string]string{"grpc": "http", "http": "grpc"} {
		c := otlptest.New(t, otlptest.Config{Protocol: other})
		n := newNode(t)
		n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: %s", c.Address, protocol), "traces: true")
		n.export("lost")
		if fault := n.waitFault(Traces); fault == "" {
			t.Errorf("%s to %s works", protocol, other)
		}
	}
}

func TestTLS(t *testing.T) {
	both(t, func(t *testing.T, protocol string) {
		ca, other := certs.NewCA("collector"), certs.NewCA("other")
		config := ca.Server("localhost")
		config.ClientAuth, config.ClientCAs = 4, ca.Issue("x").Pool() // tls.RequireAndVerifyClientCert
		config.ClientCAs.AppendCertsFromPEM([]byte(ca.PEM))
		c := otlptest.New(t, otlptest.Config{Protocol: protocol, TLS: config})
		_, port, _ := resource.SplitAddress(c.Address)
		client := ca.Issue("client.example.com")
		n := newNode(t)
		if err := n.certs.Set("client", &resource.Certificate{Cert: client.Cert, Key: resource.Secret(client.Key)}); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]struct {
			endpoint, tls, want string
		}{
			"another CA":          {"localhost:" + port, fmt.Sprintf("tls: {ca: %q, certificateRef: client}", other.PEM), "certificate signed by unknown authority"},
			"another name":        {"127.0.0.1:" + port, fmt.Sprintf("tls: {ca: %q, certificateRef: client}", ca.PEM), "127.0.0.1"},
			"no client":           {"localhost:" + port, fmt.Sprintf("tls: {ca: %q}", ca.PEM), ""},
			"a client without it": {"localhost:" + port, fmt.Sprintf("tls: {ca: %q, certificateRef: gone}", ca.PEM), "the client certificate gone is not there"},
			"in the clear":        {"localhost:" + port, "compression: gzip", ""},
		} {
			n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: %s, %s", s.endpoint, protocol, s.tls), "traces: true")
			n.export("lost")
			if fault := n.waitFault(Traces); !strings.Contains(fault, s.want) || len(c.Spans()) > 0 {
				t.Errorf("%s: %q, want %q", name, fault, s.want)
			}
		}
		n.apply("otel", fmt.Sprintf("endpoint: %q, protocol: %s, tls: {ca: %q, certificateRef: client, serverName: localhost}", c.Address, protocol, ca.PEM), "traces: true")
		n.export("safe")
		testkit.WaitFor(t, "the span", func() bool {
			for _, s := range c.Spans() {
				if s.GetName() == "safe" {
					return true
				}
			}
			return false
		})
	})
}

// The client certificate of a handshake is that of its time: one that is renewed counts.
func TestRenewedClientCertificate(t *testing.T) {
	ca, old := certs.NewCA("collector"), certs.NewCA("old")
	config := ca.Server("localhost")
	config.ClientAuth, config.ClientCAs = 4, ca.Issue("x").Pool()
	config.ClientCAs.AppendCertsFromPEM([]byte(ca.PEM))
	c := otlptest.New(t, otlptest.Config{TLS: config})
	n := newNode(t)
	set := func(p certs.Pair) {
		if err := n.certs.Set("client", &resource.Certificate{Cert: p.Cert, Key: resource.Secret(p.Key)}); err != nil {
			t.Fatal(err)
		}
	}
	set(old.Issue("client"))
	n.apply("otel", fmt.Sprintf("endpoint: %q, tls: {ca: %q, certificateRef: client, serverName: localhost}", c.Address, ca.PEM), "traces: true")
	n.export("first")
	n.waitFault(Traces)
	set(ca.Issue("client"))
	waitSpans(t, c, 1)
}

// A file of a header that cannot be used stops that Telemetry alone: without its key the
// collector would refuse all, or take it for another tenant's.
func TestHeaderWithoutItsFile(t *testing.T) {
	n := newNode(t)
	n.apply("otel", `endpoint: "127.0.0.1:1", headers: [{name: key, valueFile: /nowhere}]`, "traces: true")
	want := "node n1: Telemetry/otel: sends nothing: the file of header key cannot be used"
	if list := n.Problems("n1"); len(list) != 1 || list[0] != want || n.Tracer().Enabled() {
		t.Errorf("%q, want %q", list, want)
	}
}

// A batch that nobody takes is given up, and the waits grow up to a bound.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &testNode{log: new(testkit.Log)}
		s := &sender{
			counts: new(counts), log: newLogger(n.log), retry: time.Second, limit: giveUp, timeout: time.Second,
			hide: func(s string) string { return s }, stop: make(chan struct{}),
		}
		attempts := 0
		begin := time.Now()
		s.deliver(t.Context(), 7, func(context.Context) error { attempts++; return &sendError{text: "no", retry: true} })
		if took := time.Since(begin); took > giveUp || took < giveUp/2 || attempts < 6 || attempts > 15 {
			t.Errorf("%d attempts in %v", attempts, took)
		}
		if s.counts.dropped[Unreachable].Load() != 7 || s.counts.failures.Load() != uint64(attempts) {
			t.Errorf("%d are dropped, %d failed", s.counts.dropped[Unreachable].Load(), s.counts.failures.Load())
		}
		// A collector that asks to wait for years gets five minutes, and may ask again.
		attempts, begin = 0, time.Now()
		s.deliver(t.Context(), 1, func(context.Context) error {
			if attempts++; attempts == 3 {
				return nil
			}
			return &sendError{text: "no", retry: true, after: 10000 * time.Hour}
		})
		if took := time.Since(begin); took != 2*maxRetryAfter || s.counts.exported.Load() != 1 {
			t.Errorf("took %v, %d are exported", took, s.counts.exported.Load())
		}
		// The end of the exporter ends the wait.
		time.AfterFunc(time.Minute, func() { close(s.stop) })
		begin = time.Now()
		s.deliver(t.Context(), 2, func(context.Context) error { return &sendError{text: "no", retry: true, after: time.Hour} })
		if took := time.Since(begin); took != time.Minute || s.counts.dropped[Stopped].Load() != 2 {
			t.Errorf("took %v, %d are dropped", took, s.counts.dropped[Stopped].Load())
		}
		if got := strings.Count(n.log.String(), "cannot send"); got > 3 {
			t.Errorf("%d lines in the log", got)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-5": 0, "x": 0, "99999999999999999999": 0,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := retryAfter(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)); got < 59*time.Minute || got > time.Hour {
		t.Errorf("a date: %v", got)
	}
}

func TestHiding(t *testing.T) {
	hide := hiding(map[string]string{"a": "Bearer abcdefgh", "b": `pass"word`, "c": "x1"})
	for text, want := range map[string]string{
		"got Bearer abcdefgh":    "got (hidden)",
		"token abcdefgh is bad":  "token (hidden) is bad",
		`no pass"word today`:     "no (hidden) today",
		"c was x1":               "c was (hidden)",
		"Bearer tokens are fine": "Bearer tokens are fine",
	} {
		if got := hide(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
