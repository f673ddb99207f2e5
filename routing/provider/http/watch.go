package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	nethttp "net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"penstock/routing/provider"
)

const (
	// maxRetryAfter bounds the pause that a server asks for.
	maxRetryAfter = time.Hour
	// A server that answers a long poll at once, each time, is asked longPollBurst
	// times at once and then every longPollPause.
	longPollPause = time.Second
	longPollBurst = 5
)

// A watch keeps the answer of one URL current.
type watch struct {
	source *Source
	sink   provider.Sink
	url    string
	where  string // url for errors, without its query string
	// queries are answered by the URL. They change while the watch is stopped.
	queries []provider.Query
	wanted  map[string]bool // their services
	cancel  context.CancelFunc
	done    chan struct{}

	// The goroutine of the watch owns the rest.

	// etag, modified and lastID tell the server what the sink has. Without them, it
	// sends a complete document.
	etag, modified, lastID string
	failures               int           // in a row
	next                   time.Time     // of the next request
	reconnect              time.Duration // pause after a stream, as its server said last
	limiter                *rate.Limiter
}

func newWatch(s *Source, sink provider.Sink, url string) *watch {
	where, _, secret := strings.Cut(url, "?")
	if secret {
		where += "?..."
	}
	limiter := rate.NewLimiter(rate.Every(longPollPause), longPollBurst)
	return &watch{source: s, sink: sink, url: url, where: where, reconnect: reconnectTime, limiter: limiter}
}

// start begins to answer queries, from a complete document. It asks at once,
// unless the last request failed: the server is to be left alone for a while then.
func (w *watch) start(ctx context.Context, queries []provider.Query) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.done = make(chan struct{})
	w.queries, w.wanted = queries, map[string]bool{}
	for _, q := range queries {
		w.wanted[q.Service] = true
	}
	w.forget()
	if w.failures == 0 {
		w.next = time.Time{}
	}
	go func() {
		defer close(w.done)
		w.run(ctx)
	}()
}

// forget makes the next answer a complete document.
func (w *watch) forget() { w.etag, w.modified, w.lastID = "", "", "" }

func (w *watch) run(ctx context.Context) {
	once := w.poll
	switch w.source.cfg.Mode {
	case LongPoll:
		once = w.longPoll
	case SSE:
		once = w.stream
	}
	for provider.Sleep(ctx, time.Until(w.next)) {
		pause, err := once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			w.failures = 0
		} else {
			w.fail(err)
			pause = max(provider.Backoff(w.failures), retryAfter(err))
			w.failures++
		}
		w.next = time.Now().Add(pause)
	}
}

// fail reports that the URL has no usable answer. The next answer must be complete
// to end that.
func (w *watch) fail(err error) {
	w.forget()
	err = fmt.Errorf("GET %s: %w", w.where, err)
	for _, q := range w.queries {
		w.sink.Failed(q, err)
	}
}

// confirm tells that the answer is the same still.
func (w *watch) confirm() {
	for _, q := range w.queries {
		w.sink.Confirm(q)
	}
}

// poll asks once. It returns the pause after that.
func (w *watch) poll(ctx context.Context) (pause time.Duration, err error) {
	select {
	case w.source.slots <- struct{}{}:
		defer func() { <-w.source.slots }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err = w.ask(ctx, w.source.cfg.Timeout, nethttp.Header{})
	interval := w.source.cfg.Interval
	return interval*9/10 + rand.N(interval/5), err
}

// longPoll asks once, and lets the server wait for a change.
func (w *watch) longPoll(ctx context.Context) (pause time.Duration, err error) {
	header, timeout := nethttp.Header{}, w.source.cfg.Timeout
	if w.etag != "" {
		header.Set("Prefer", "wait="+strconv.Itoa(int(w.source.cfg.Wait/time.Second)))
		timeout += w.source.cfg.Wait
	}
	err = w.ask(ctx, timeout, header)
	return w.limiter.Reserve().Delay(), err
}

// ask requests the document, unless it is the one that the sink has, and reports
// it.
func (w *watch) ask(ctx context.Context, timeout time.Duration, header nethttp.Header) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no complete answer within %v (timeout)", timeout))
	defer cancel()
	if w.etag != "" {
		header.Set("If-None-Match", w.etag)
	}
	if w.modified != "" {
		header.Set("If-Modified-Since", w.modified)
	}
	header.Set("Accept", "application/json")
	resp, err := w.source.get(ctx, w.url, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == nethttp.StatusNotModified {
		if w.etag == "" && w.modified == "" {
			return errors.New("the server answers 304 (not modified) to a request without a condition")
		}
		w.confirm()
		return nil
	}
	etag := resp.Header.Get("ETag")
	if w.source.cfg.Mode == LongPoll && etag == "" {
		return errors.New("the answer has no ETag, which a long poll needs to wait for a change: use mode poll")
	}
	if err := w.report(ctx, resp.Body); err != nil {
		return err
	}
	w.etag, w.modified = etag, resp.Header.Get("Last-Modified")
	return nil
}

// report reads a document and reports it as the answer to the queries.
func (w *watch) report(ctx context.Context, r io.Reader) error {
	cfg := &w.source.cfg
	body := &provider.BoundedReader{R: r, Left: cfg.MaxBytes}
	doc, err := decoder{max: cfg.MaxEndpoints, objects: !w.source.template.service, wanted: w.wanted}.decode(body)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case body.TooLarge:
		return fmt.Errorf("the answer has more than maxBytes (%d): raise it, or serve smaller lists", cfg.MaxBytes)
	case body.Err != nil:
		return fmt.Errorf("the answer cannot be read to its end: %w", body.Err)
	case err != nil:
		return fmt.Errorf("the answer is not a list of endpoints: %w", err)
	}
	for i, q := range w.queries {
		list := doc.list
		if doc.byService != nil {
			list = doc.byService[q.Service]
		}
		if i < len(w.queries)-1 {
			list = slices.Clone(list) // the sink keeps what it gets
		}
		w.sink.Report(q, list)
	}
	return nil
}
