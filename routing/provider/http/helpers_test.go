package http

import (
	"context"
	nethttp "net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web = provider.Query{Service: "web"}
	api = provider.Query{Service: "api"}
)

// world is a source in virtual time with the web server that it asks, which is
// in memory.
type world struct {
	t    *testing.T
	sink *providertest.Sink
	stop func() // ends the source and waits for it

	mu       sync.Mutex
	requests []*nethttp.Request
}

// handler answers the nth request, counted from 1.
type handler func(w nethttp.ResponseWriter, r *nethttp.Request, n int)

// inBubble runs test while a source, which wants web, asks answer.
func inBubble(t *testing.T, cfg Config, answer handler, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, sink: providertest.NewSink(web)}
		listener := providertest.NewListener()
		server := &nethttp.Server{Handler: nethttp.HandlerFunc(func(rw nethttp.ResponseWriter, r *nethttp.Request) {
			w.mu.Lock()
			w.requests = append(w.requests, r)
			n := len(w.requests)
			w.mu.Unlock()
			answer(rw, r, n)
		})}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
		if cfg.URL == "" {
			cfg.URL = "http://lists.example/list"
		}
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

// asked returns the requests so far.
func (w *world) asked() []*nethttp.Request {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// paths returns how often each path was asked for.
func (w *world) paths() map[string]int {
	counts := map[string]int{}
	for _, r := range w.asked() {
		counts[r.URL.EscapedPath()]++
	}
	return counts
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

// list is a document with these addresses.
func list(addresses ...string) string {
	var items []string
	for _, a := range addresses {
		items = append(items, `{"address": "`+a+`"}`)
	}
	return "[" + strings.Join(items, ",") + "]"
}

func write(w nethttp.ResponseWriter, text string) { w.Write([]byte(text)) }

// hold keeps a request open until the client goes.
func hold(_ nethttp.ResponseWriter, r *nethttp.Request) {
	<-r.Context().Done()
}
