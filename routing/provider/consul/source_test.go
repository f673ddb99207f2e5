package consul

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = provider.Query{Service: "web"}

// world is a source in virtual time and the agent that it asks.
type world struct {
	t     *testing.T
	agent *agent
	sink  *providertest.Sink
	stop  func() // ends the source and waits for it
}

// inBubble runs test while a source, which wants web, asks an agent.
func inBubble(t *testing.T, cfg Config, agent *agent, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		agent.changed = make(chan struct{}) // of this bubble
		w := &world{t: t, agent: agent, sink: providertest.NewSink(web)}
		listener := providertest.NewListener()
		server := &http.Server{Handler: agent}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
		source, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		source.transport.DialContext = listener.Dial
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			source.Run(ctx, w.sink)
		}()
		w.stop = func() {
			cancel()
			<-done
		}
		t.Cleanup(w.stop)
		test(w)
	})
}

// after lets a time pass, and what is due in it happen.
func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) asked() []*http.Request {
	synctest.Wait()
	w.agent.mu.Lock()
	defer w.agent.mu.Unlock()
	return slices.Clone(w.agent.requests)
}

// want checks the answer to web and that it is not stale.
func (w *world) want(answer string) {
	w.t.Helper()
	synctest.Wait()
	if got, err := w.sink.Text(web), w.sink.Err(web); got != answer || err != nil {
		w.t.Fatalf("web is %q (failure: %v), want %q", got, err, answer)
	}
}

// wantStale checks the last answer to web, and why there is no newer one.
func (w *world) wantStale(answer, failure string) {
	w.t.Helper()
	synctest.Wait()
	got, err := w.sink.Text(web), w.sink.Err(web)
	if got != answer || err == nil || !strings.Contains(err.Error(), failure) {
		w.t.Fatalf("web is %q, failure: %v\nwant   %q, failure: %s", got, err, answer, failure)
	}
}

func TestBlockingQueriesFollowChanges(t *testing.T) {
	inBubble(t, Config{}, newAgent(), func(w *world) {
		w.want("none")
		w.agent.set("web", entryOf("10.0.0.1", 80))
		w.want("10.0.0.1:80")
		w.after(time.Hour)
		w.sink.AwaitConfirmed(t, web, 10) // by answers of the same index
		w.agent.set("web", entryOf("10.0.0.1", 80), entryOf("10.0.0.2", 80))
		w.want("10.0.0.1:80; 10.0.0.2:80")
		if n := len(w.asked()); n < 11 || n > 18 || w.sink.Reports() != 3 {
			t.Errorf("%d requests in an hour of blocking queries of 5 minutes, %d reports", n, w.sink.Reports())
		}
		w.agent.set("web")
		w.want("none")
		waits := map[string]bool{}
		for i, r := range w.asked() {
			index, wait := r.FormValue("index"), r.FormValue("wait")
			d, _ := time.ParseDuration(wait)
			if i == 0 && (index != "" || wait != "") || i > 0 && (index == "" || d < 280*time.Second || d > 320*time.Second) {
				t.Errorf("request %d has index %q and wait %q", i, index, wait)
			}
			waits[wait] = true
		}
		if len(waits) < 5 {
			t.Errorf("the waits have no jitter: %v", waits)
		}
	})
}

func TestQueriesOfAllKinds(t *testing.T) {
	cfg := Config{
		Token: "t0ken", Datacenter: "dc2", Namespace: "n", Partition: "p", Tags: []string{"a b", "v=1"}, Stale: true,
	}
	agent := newAgent()
	agent.token, agent.leaderless = "t0ken", true
	agent.set("web", entryOf("10.0.0.1", 80, "v=1", "a b"), entryOf("10.0.0.2", 80, "v=1"), entryOf("10.0.0.3", 80))
	inBubble(t, cfg, agent, func(w *world) {
		w.want("10.0.0.1:80{a b=true v=1}")
		query := w.asked()[0].URL.Query()
		_, stale := query["stale"]
		if query.Get("dc") != "dc2" || query.Get("ns") != "n" || query.Get("partition") != "p" || !stale {
			t.Errorf("query %v", query)
		}
	})
}

func TestIndexesThatGoBackwards(t *testing.T) {
	agent := newAgent()
	agent.set("web", entryOf("10.0.0.1", 80))
	inBubble(t, Config{}, agent, func(w *world) {
		w.want("10.0.0.1:80")
		w.agent.change(func() { // the servers were restored from a snapshot
			w.agent.index = 3
			w.agent.services["web"] = []entry{entryOf("10.0.0.2", 80)}
		})
		w.after(6 * time.Minute)
		w.want("10.0.0.2:80")
		requests := w.asked()
		if index := requests[2].FormValue("index"); index != "" {
			t.Errorf("the index after it went backwards is %q, want none", index)
		}
		w.agent.set("web", entryOf("10.0.0.3", 80))
		w.want("10.0.0.3:80")
	})
	for _, test := range []struct{ asked, answered, want uint64 }{
		{0, 5, 5}, {5, 5, 5}, {5, 9, 9}, {5, 4, 0}, {0, 0, 1}, {1, 0, 1}, {5, 0, 0},
	} {
		if got := nextIndex(test.asked, test.answered); got != test.want {
			t.Errorf("the index after %d and %d is %d, want %d", test.asked, test.answered, got, test.want)
		}
	}
}

func TestAgentsThatDoNotBlock(t *testing.T) {
	for _, index := range []string{"0", "7"} {
		agent := newAgent()
		agent.instead = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("X-Consul-Index", index)
			io.WriteString(w, "[]")
			return true
		}
		inBubble(t, Config{}, agent, func(w *world) {
			w.after(10 * time.Minute)
			w.want("none")
			if n := len(w.asked()); n < 600 || n > 610 {
				t.Errorf("%d requests in 600 s, want one per second", n)
			}
		})
	}
}

func TestAnswersThatAreNoAnswers(t *testing.T) {
	say := func(status int, text string, header ...string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Consul-Index", "20")
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			io.WriteString(w, text)
		}
	}
	const where = `consul at http://127.0.0.1:8500: service "web": `
	const entry = `{"Node": {"Address": "10.0.0.9"}, "Service": {"Port": 80}, "Checks": []}`
	for _, test := range []struct {
		failure string
		answer  func(w http.ResponseWriter, r *http.Request)
	}{
		{where + `the answer is 403 (Forbidden): "ACL not found": check that the token exists and has service:read`, say(403, "ACL not found\n")},
		{where + `the answer is 403 (Forbidden): check`, say(403, "token hunter2 is unknown")},
		{`the answer is 500 (Internal Server Error): "No cluster leader"`, say(500, "No cluster leader")},
		{`the answer is 500 (Internal Server Error): "xxxx`, say(500, strings.Repeat("x", 1000))},
		{"the token may not see all instances: give it service:read", say(200, "[]", "X-Consul-Results-Filtered-By-ACLs", "true")},
		{"the server knows no leader, so its answer may be old", say(200, "[]", "X-Consul-KnownLeader", "false")},
		{"the answer has no X-Consul-Index: is there a Consul agent at the address?", say(200, "[]", "X-Consul-Index", "")},
		{"the answer is 302 (Found): is there a Consul agent at the address?", say(302, "", "Location", "http://other/?hunter2")},
		{"the answer cannot be read to its end: unexpected EOF", say(200, "["+entry, "Content-Length", "1000")},
		{`the answer is malformed: "" (byte 73): unexpected EOF`, say(200, "["+entry)},
		{"the answer is malformed: there is something after the list", say(200, "["+entry+"]]")},
		{"the answer has more than maxEndpoints (2) instances: raise it, or ask for fewer by tags", say(200, "["+entry+","+entry+","+entry+"]")},
		{"the answer is not a list: is there a Consul agent at the address?", say(200, "{}")},
		{`the answer is malformed: "" (byte 0): invalid character '<' at start of value`, say(200, "<html>")},
		{"the answer is empty", say(200, "")},
		{"no complete answer within ", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"no complete answer within ", func(w http.ResponseWriter, r *http.Request) {
			say(200, "["+entry)(w, r)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"EOF", func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			c.Close()
		}},
	} {
		agent := newAgent()
		agent.set("web", entryOf("10.0.0.1", 80))
		agent.instead = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n > 1 {
				test.answer(w, r)
			}
			return n > 1
		}
		inBubble(t, Config{Token: "hunter2", MaxEndpoints: 2, Wait: 20 * time.Second}, agent, func(w *world) {
			w.after(34 * time.Second)
			w.wantStale("10.0.0.1:80", test.failure)
			if text := w.sink.Err(web).Error(); strings.Contains(text, "hunter2") || len(text) > 400 {
				t.Errorf("failure %s", text)
			}
			w.agent.change(func() { w.agent.instead = nil })
			w.after(time.Minute)
			w.want("10.0.0.1:80") // without a change: the query after a failure does not block
		})
	}
}

func TestLargeAnswersAreRefused(t *testing.T) {
	sent := 0
	agent := newAgent()
	agent.instead = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("X-Consul-Index", "20")
		io.WriteString(w, "[")
		for chunk := strings.Repeat(" ", 1<<16); sent < 100<<20; sent += len(chunk) {
			if _, err := io.WriteString(w, chunk); err != nil {
				break
			}
		}
		return true
	}
	inBubble(t, Config{MaxBytes: 1 << 20}, agent, func(w *world) {
		w.wantStale("", "the answer has more than maxBytes (1048576): raise it, or ask for fewer instances by tags")
		if sent > 2<<20 {
			t.Errorf("%d bytes were sent", sent)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	agent := newAgent()
	agent.instead = func(w http.ResponseWriter, _ *http.Request, n int) bool {
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	inBubble(t, Config{}, agent, func(w *world) {
		w.after(299 * time.Second)
		w.wantStale("", "the answer is 429 (Too Many Requests): asks to retry after 5m0s")
		if n := len(w.asked()); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		w.after(2 * time.Second)
		if n := len(w.asked()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

func TestFailuresAreRepeatedMoreAndMoreSlowly(t *testing.T) {
	agent := newAgent()
	agent.token = "other"
	inBubble(t, Config{}, agent, func(w *world) {
		w.after(10 * time.Minute)
		before := len(w.asked())
		w.after(10 * time.Minute)
		if n := len(w.asked()) - before; n < 13 || n > 41 {
			t.Errorf("%d requests in 10 minutes, want one in 15 to 45 seconds", n)
		}
	})
}

func TestQueriesComeAndGo(t *testing.T) {
	agent := newAgent()
	agent.set("web", entryOf("10.0.0.1", 80))
	agent.set("shop/a b", entryOf("10.0.0.2", 80))
	inBubble(t, Config{MaxQueries: 2}, agent, func(w *world) {
		shop, numbered := provider.Query{Service: "shop/a b"}, provider.Query{Service: "web", Port: "8080"}
		w.want("10.0.0.1:80")
		w.sink.Want(web, shop, numbered, provider.Query{Service: ".."})
		w.sink.Await(t, shop, "10.0.0.2:80")
		w.asked() // waits until all queries block
		w.sink.AwaitFailure(t, numbered, "there are more than maxQueries (2) queries: raise it")
		w.sink.AwaitFailure(t, provider.Query{Service: ".."}, `".." cannot be the name of a Consul service`)
		w.sink.Want(web, numbered)
		w.sink.Await(t, numbered, "10.0.0.1:8080")
		w.want("10.0.0.1:80")
		counts := map[string]int{}
		for _, r := range w.asked() {
			counts[r.URL.EscapedPath()]++
		}
		if fmt.Sprint(counts) != "map[/v1/health/service/shop%2Fa%20b:2 /v1/health/service/web:4]" {
			t.Errorf("requests %v: a query that stays is not asked anew", counts)
		}
	})
}

func TestEndsAtOnce(t *testing.T) {
	inBubble(t, Config{}, newAgent(), func(w *world) {
		w.want("none")
		start := time.Now()
		w.stop()
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
	})
}

func TestUnixSockets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	agent := newAgent()
	agent.set("web", entryOf("10.0.0.1", 80))
	server := &http.Server{Handler: agent}
	go server.Serve(listener)
	defer server.Close()
	for _, address := range []string{"unix:" + path, "unix://" + path} {
		t.Run("", func(t *testing.T) {
			source, err := New(Config{Address: address})
			if err != nil {
				t.Fatal(err)
			}
			sink := providertest.NewSink(web)
			sink.Start(t, source)
			sink.Await(t, web, "10.0.0.1:80")
		})
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	_, err := New(Config{
		Address: "http://me:hunter2@h", Token: "hunter2\n", Tags: append(make([]string, 16), `a"`), Wait: time.Millisecond, Timeout: time.Hour,
		MaxBytes: 1, MaxEndpoints: -1, MaxQueries: 20_000,
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"address: must not contain a user or password; use token",
		"token: contains a character that a header must not have, perhaps a line end",
		"tags: 17; the maximum is 16",
		`tags: "" must be text without quotes and backslashes`,
		`tags: "a\"" must be text without quotes and backslashes`,
		"wait: 1ms must be 1s to 9m",
		"timeout: 1h0m0s must be 100ms to 10m",
		"maxBytes: 1 must be 1024 to 1073741824",
		"maxEndpoints: -1 must be 1 to 1000000",
		"maxQueries: 20000 must be 1 to 10000",
	} {
		if !strings.Contains("\n"+err.Error()+"\n", "\n"+want+"\n") {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is in %v", err)
	}
	for address, want := range map[string]string{
		"http://h:8500/": "", "https://h": "", "unix:/x": "", "unix:///x": "",
		"h:8500": "must be", "unix:x": "absolute path", "http://h/v1": "must end after the port", "http://h?x": "must end after the port",
		"http://h:hunter2": "must be", "": "must be",
	} {
		got := ""
		if _, _, err := parseAddress(address); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
