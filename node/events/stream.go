package events

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"penstock/node/api"
)

// stream is one browser that follows topics.
type stream struct {
	principal api.Principal
	until     time.Time     // when its session ends; zero: never
	wake      chan struct{} // capacity 1: a feed has something
	ending    chan string   // capacity 1: why the node ends it
	ended     sync.Once
	feeds     []*subscription
}

// end has the stream's goroutine end it.
func (s *stream) end(reason string) { s.ended.Do(func() { s.ending <- reason }) }

// wanted is a topic that a stream asks for.
type wanted struct {
	topic  *Topic
	source Source
}

// Serve streams the topics that the query names until the stream ends. It returns an error
// if the stream has not begun, and has written nothing then. until is when the caller's
// session ends; zero: never.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, p api.Principal, until time.Time) error {
	list, interval, err := h.parse(r, p)
	if err != nil {
		return err
	}
	out := &writer{w: w, control: http.NewResponseController(w), timeout: h.cfg.WriteTimeout}
	s := &stream{principal: p, until: until, wake: make(chan struct{}, 1), ending: make(chan string, 1)}
	tooMany := h.open(s, list, interval)
	if tooMany == "" {
		defer h.remove(s)
		h.cfg.Opened(r)
	}
	out.begin()
	if tooMany != "" {
		_ = out.end(EndTooMany, tooMany) // to a browser that may have gone
		return nil
	}
	reason := h.pump(r.Context(), s, out)
	h.count(reason)
	return nil
}

// parse reads the query of a stream.
func (h *Hub) parse(r *http.Request, p api.Principal) (list []wanted, interval time.Duration, err error) {
	q := r.URL.Query()
	interval = MinInterval
	if text := q.Get("interval"); text != "" {
		if interval, err = time.ParseDuration(text); err != nil || interval < MinInterval || interval > MaxInterval {
			return nil, 0, api.Errorf(api.Invalid, "interval: %.40q: want %v to %v", text, MinInterval, MaxInterval)
		}
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(q.Get("topics"), ",") {
		t, err := h.topic(name)
		switch {
		case err != nil:
			return nil, 0, err
		case seen[name]:
			continue
		case !p.Role.May(t.Role):
			return nil, 0, api.Errorf(api.Forbidden, "topics: %s requires role %s, %v has role %s", name, t.Role, p, p.Role)
		}
		seen[name] = true
		source, err := t.Source(r)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, wanted{t, source})
	}
	return list, interval, nil
}

// open adds a stream. If there are too many it returns what to do.
func (h *Hub) open(s *stream, list []wanted, interval time.Duration) (tooMany string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	who := s.who()
	switch {
	case h.closed:
		tooMany = "the node stops"
	case len(h.streams) >= h.cfg.Streams:
		tooMany = "this node has its maximum of streams: use another node"
	case h.by[who] >= h.cfg.PerPrincipal:
		tooMany = "this token has its maximum of streams at this node: close other pages, or use another node"
	}
	for _, one := range list {
		if tooMany != "" {
			break
		}
		if sub, ok := h.subscribe(one.topic, one.source, interval, s.wake); ok {
			s.feeds = append(s.feeds, sub)
		} else {
			tooMany = "this node follows its maximum of different queries: use another node"
		}
	}
	if tooMany != "" {
		for _, sub := range s.feeds {
			h.unsubscribe(sub)
		}
		h.ended[EndTooMany]++
		return tooMany
	}
	h.streams[s] = struct{}{}
	h.by[who]++
	return ""
}

// who is the principal by which streams are counted.
func (s *stream) who() string { return s.principal.TokenID + "\x00" + s.principal.Name }

func (h *Hub) remove(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, sub := range s.feeds {
		h.unsubscribe(sub)
	}
	delete(h.streams, s)
	if who := s.who(); h.by[who] > 1 {
		h.by[who]--
	} else {
		delete(h.by, who)
	}
}

func (h *Hub) count(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended[reason]++
}

// pump sends what is due until the stream ends, and returns why.
func (h *Hub) pump(ctx context.Context, s *stream, out *writer) (reason string) {
	heartbeat := time.NewTicker(h.cfg.Heartbeat)
	defer heartbeat.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done(): // the browser has gone, or a write has failed
			return out.reason()
		case reason = <-s.ending:
			_ = out.end(reason, "") // the browser may have gone
			return reason
		case <-heartbeat.C:
			out.write([]byte(":\n\n"))
		case <-timer.C:
		case <-s.wake:
		}
		again := h.send(s, out)
		if out.flush() != nil {
			return out.reason()
		}
		timer.Stop()
		if !again.IsZero() {
			timer.Reset(time.Until(again))
		}
	}
}

// send writes what is due, and returns when more will be; zero: when a feed has something.
func (h *Hub) send(s *stream, out *writer) (again time.Time) {
	for _, sub := range s.feeds {
		h.mu.Lock()
		frames, lost, next := sub.take(time.Now())
		h.mu.Unlock()
		if lost {
			if frame, err := encode(eventLost, map[string]string{"topic": sub.feed.topic}); err == nil {
				out.write(frame)
			}
		}
		for _, f := range frames {
			out.write(f)
		}
		if !next.IsZero() && (again.IsZero() || next.Before(again)) {
			again = next
		}
	}
	return again
}

// writer writes to a browser. After an error it writes nothing any more.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	err     error
}

// begin sends the header.
func (o *writer) begin() {
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx in front would collect the events
	h.Set("Connection", "close")     // the connection is the stream's alone
	o.write([]byte("retry: 3000\n\n"))
	_ = o.flush() // the next one tells
}

func (o *writer) write(b []byte) {
	if o.err == nil {
		_ = o.control.SetWriteDeadline(time.Now().Add(o.timeout)) // not supported: then without
		_, o.err = o.w.Write(b)
	}
}

func (o *writer) flush() error {
	if o.err == nil {
		o.err = o.control.Flush()
	}
	return o.err
}

// reason is why the stream has ended, if the node has not ended it.
func (o *writer) reason() string {
	if errors.Is(o.err, os.ErrDeadlineExceeded) {
		return EndSlow
	}
	return EndClient
}

// end tells the browser why the stream ends.
func (o *writer) end(reason, what string) error {
	data := map[string]string{"reason": reason}
	if what != "" {
		data["what"] = what
	}
	frame, err := encode(eventEnd, data)
	if err != nil {
		return err
	}
	o.write(frame)
	return o.flush()
}
