package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	nethttp "net/http"
	"time"
)

const (
	// A stream that ended is opened again after reconnectTime, or what the server's
	// retry field says, between minReconnect and maxReconnect.
	reconnectTime = 3 * time.Second
	minReconnect  = time.Second
	maxReconnect  = 5 * time.Minute
)

// stream reads an event stream to its end. It returns the pause after that. An
// end is no failure once the stream was useful: servers and proxies end streams
// that last long.
func (w *watch) stream(ctx context.Context) (pause time.Duration, err error) {
	cfg := &w.source.cfg
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first := time.AfterFunc(cfg.Timeout, func() {
		cancel(fmt.Errorf("no list within %v (timeout)", cfg.Timeout))
	})
	defer first.Stop()
	header := nethttp.Header{}
	header.Set("Accept", "text/event-stream")
	header.Set("Accept-Encoding", "identity") // compression would delay events
	header.Set("Cache-Control", "no-store")
	resumed := w.lastID != ""
	if resumed {
		header.Set("Last-Event-ID", w.lastID)
	}
	resp, err := w.source.get(ctx, w.url, header)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	contentType := resp.Header.Get("Content-Type")
	if media, _, _ := mime.ParseMediaType(contentType); media != "text/event-stream" {
		return 0, fmt.Errorf("the answer has the content type %.60q, and an event stream has text/event-stream", contentType)
	}
	idle := time.AfterFunc(cfg.IdleTimeout, func() {
		cancel(fmt.Errorf("the stream was silent for %v (idleTimeout): let the server send comments, or raise it", cfg.IdleTimeout))
	})
	defer idle.Stop()
	if resumed {
		first.Stop() // the server sends a list only when there is a new one
	}
	body := &watchedReader{r: resp.Body, idle: idle, timeout: cfg.IdleTimeout}
	events := newEventReader(body, int(cfg.MaxBytes))
	reported, err := w.readEvents(ctx, events, first, resumed)
	if events.retry > 0 {
		w.reconnect = min(max(events.retry, minReconnect), maxReconnect)
	}
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.Is(err, errEventTooLarge):
		return 0, fmt.Errorf("an event has more than maxBytes (%d): raise it, or serve smaller lists", cfg.MaxBytes)
	case !reported && (!resumed || !body.read):
		return 0, fmt.Errorf("the stream ended before it gave a list: %w", err)
	}
	return w.reconnect*9/10 + rand.N(w.reconnect/5), nil
}

// readEvents reports the documents of a stream until it ends, with the error of
// that. It stops first at the first one. reported says that there was one. Once
// the stream says what is current, which one that was resumed does from its
// beginning, its comments confirm that.
func (w *watch) readEvents(ctx context.Context, events *eventReader, first *time.Timer, resumed bool) (reported bool, err error) {
	events.comment = func() {
		if reported || resumed {
			w.confirm()
		}
	}
	for {
		e, err := events.next()
		if err != nil {
			return reported, err
		}
		if e.kind != "" && e.kind != "message" {
			continue
		}
		first.Stop()
		if err := w.report(ctx, bytes.NewReader(e.data)); err != nil {
			if ctx.Err() == nil {
				w.fail(fmt.Errorf("event %.40q: %w", e.id, err))
			}
			continue
		}
		reported = true
		w.lastID = e.id
	}
}

// watchedReader postpones a timer each time that something is read.
type watchedReader struct {
	r       io.Reader
	idle    *time.Timer
	timeout time.Duration
	read    bool // something was
}

// Read implements io.Reader.
func (b *watchedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if n > 0 {
		b.read = true
		b.idle.Reset(b.timeout)
	}
	return n, err
}
