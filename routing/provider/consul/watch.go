package consul

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"penstock/routing/provider"
)

const (
	// maxRetryAfter bounds the pause that Consul asks for.
	maxRetryAfter = time.Hour
	// A query that is answered at once, each time, is sent queryBurst times at once
	// and then every queryPause.
	queryPause = time.Second
	queryBurst = 5
	// maxMessage bounds the text of Consul that an error repeats.
	maxMessage = 200
)

// A watch keeps the answer to one query current.
type watch struct {
	source *Source
	sink   provider.Sink
	query  provider.Query
	cancel context.CancelFunc
	done   chan struct{}

	// index is that of the answer that the sink has. 0 asks for an answer at once.
	index uint64
}

func startWatch(ctx context.Context, s *Source, sink provider.Sink, q provider.Query) *watch {
	w := &watch{source: s, sink: sink, query: q, done: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		w.run(ctx)
	}()
	return w
}

func (w *watch) run(ctx context.Context) {
	limiter := rate.NewLimiter(rate.Every(queryPause), queryBurst)
	for failures := 0; ; {
		err := w.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		pause := limiter.Reserve().Delay()
		if err == nil {
			failures = 0
		} else {
			w.index = 0
			w.sink.Failed(w.query, fmt.Errorf("consul at %s: service %q: %w", w.source.cfg.Address, w.query.Service, err))
			pause = max(provider.Backoff(failures), retryAfter(err))
			failures++
		}
		if !provider.Sleep(ctx, pause) {
			return
		}
	}
}

// ask sends a query, which blocks while the answer has w.index, and reports the
// answer.
func (w *watch) ask(ctx context.Context) error {
	cfg := &w.source.cfg
	wait, timeout := time.Duration(0), cfg.Timeout
	if w.index > 0 {
		wait = cfg.Wait*15/16 + rand.N(cfg.Wait/8)
		timeout += wait + wait/16 // Consul adds up to a sixteenth
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no complete answer within %v (timeout)", timeout.Round(time.Second)))
	defer cancel()
	resp, err := w.send(ctx, wait)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := w.checkResponse(resp); err != nil {
		return err
	}
	index, err := strconv.ParseUint(resp.Header.Get("X-Consul-Index"), 10, 64)
	if err != nil {
		return errors.New("the answer has no X-Consul-Index: is there a Consul agent at the address?")
	}
	body := &provider.BoundedReader{R: resp.Body, Left: cfg.MaxBytes}
	endpoints, err := decoder{cfg: cfg, port: w.query.Port}.decode(body)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case body.TooLarge:
		return fmt.Errorf("the answer has more than maxBytes (%d): raise it, or ask for fewer instances by tags", cfg.MaxBytes)
	case body.Err != nil:
		return fmt.Errorf("the answer cannot be read to its end: %w", body.Err)
	case err != nil:
		return err
	}
	if w.index == 0 || index != w.index {
		w.sink.Report(w.query, endpoints)
	} else {
		w.sink.Confirm(w.query)
	}
	w.index = nextIndex(w.index, index)
	return nil
}

// nextIndex is the index to ask with after an answer, by Consul's rules for
// blocking queries: one that goes backwards begins anew, and 0, a fault of
// Consul, would not block.
func nextIndex(asked, answered uint64) uint64 {
	if next := max(answered, 1); next >= asked {
		return next
	}
	return 0
}

func (w *watch) send(ctx context.Context, wait time.Duration) (*http.Response, error) {
	params := url.Values{}
	for name, values := range w.source.params {
		params[name] = values
	}
	if w.index > 0 {
		params.Set("index", strconv.FormatUint(w.index, 10))
		params.Set("wait", strconv.FormatInt(wait.Milliseconds(), 10)+"ms")
	}
	target := w.source.origin + "/v1/health/service/" + url.PathEscape(w.query.Service) + "?" + params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if token := w.source.cfg.Token; token != "" {
		req.Header.Set("X-Consul-Token", token)
	}
	resp, err := w.source.transport.RoundTrip(req)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return resp, err
}

// statusError is a response that is no answer.
type statusError struct {
	text       string
	retryAfter time.Duration // what Consul asks for; 0: nothing
}

// Error implements error.
func (e *statusError) Error() string { return e.text }

// retryAfter is how long Consul wants to be left alone after an error.
func retryAfter(err error) time.Duration {
	if status := (*statusError)(nil); errors.As(err, &status) {
		return status.retryAfter
	}
	return 0
}

// checkResponse refuses errors, and answers that are not the whole truth.
func (w *watch) checkResponse(resp *http.Response) error {
	header := resp.Header
	if resp.StatusCode == http.StatusOK {
		switch {
		case header.Get("X-Consul-Results-Filtered-By-Acls") == "true":
			return errors.New("the token may not see all instances: give it service:read for the service and node:read for its nodes")
		case header.Get("X-Consul-Knownleader") == "false" && !w.source.cfg.Stale:
			return errors.New("the server knows no leader, so its answer may be old: check the Consul servers, or allow stale answers")
		}
		return nil
	}
	text := fmt.Sprintf("the answer is %d (%s)", resp.StatusCode, http.StatusText(resp.StatusCode))
	if message := w.message(resp.Body); message != "" {
		text += fmt.Sprintf(": %q", message)
	}
	err := &statusError{text: text}
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusNotFound:
		err.text += ": is there a Consul agent at the address?"
	case http.StatusForbidden:
		err.text += ": check that the token exists and has service:read for the service and node:read for its nodes"
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if seconds, parseErr := strconv.ParseUint(header.Get("Retry-After"), 10, 32); parseErr == nil {
			err.retryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
			err.text += fmt.Sprintf(": asks to retry after %v", err.retryAfter)
		}
	}
	return err
}

// message returns what Consul says about an error, unless it contains the token,
// which a proxy in between might repeat.
func (w *watch) message(body io.Reader) string {
	token := w.source.cfg.Token
	text, _ := io.ReadAll(io.LimitReader(body, int64(maxMessage+len(token))))
	if token != "" && bytes.Contains(text, []byte(token)) {
		return ""
	}
	return strings.TrimSpace(string(text[:min(len(text), maxMessage)]))
}
