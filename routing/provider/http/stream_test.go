package http

import (
	"fmt"
	"io"
	nethttp "net/http"
	"strings"
	"testing"
	"time"
)

// streams answers each request by a stream that follows script: what to send, and
// then how long to wait.
func streams(script func(r *nethttp.Request, n int, send func(text string, wait time.Duration))) handler {
	return func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		control := nethttp.NewResponseController(w)
		control.Flush()
		script(r, n, func(text string, wait time.Duration) {
			io.WriteString(w, text)
			control.Flush()
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
			}
		})
	}
}

func data(addresses ...string) string { return "data: " + list(addresses...) + "\n\n" }

func TestStreamsReportEachEvent(t *testing.T) {
	inBubble(t, Config{Mode: SSE}, streams(func(r *nethttp.Request, _ int, send func(string, time.Duration)) {
		if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Last-Event-ID") != "" {
			t.Errorf("header %v", r.Header)
		}
		send("data: [\r\ndata: {\"address\": \"10.0.0.1:80\"}\r\ndata: ]\r\n\r\n", 30*time.Second)
		send("event: other\ndata: x\n\n", 30*time.Second)
		send(data("10.0.0.2:80"), 40*time.Second)
		send(": keep-alive\n", 40*time.Second)
		send("event: message\n"+data("10.0.0.3:80"), time.Hour)
	}), func(w *world) {
		w.want("10.0.0.1:80")
		w.after(31 * time.Second)
		w.want("10.0.0.1:80") // events of other types do not count
		w.after(30 * time.Second)
		w.want("10.0.0.2:80")
		w.after(40 * time.Second)
		w.sink.AwaitConfirmed(t, web, 1) // by a comment
		w.after(40 * time.Second)
		w.want("10.0.0.3:80")
		if n, reports := len(w.asked()), w.sink.Reports(); n != 1 || reports != 3 {
			t.Errorf("%d requests and %d reports, want 1 and 3", n, reports)
		}
	})
}

func TestSilentStreamsAreReplaced(t *testing.T) {
	inBubble(t, Config{Mode: SSE}, streams(func(r *nethttp.Request, n int, send func(string, time.Duration)) {
		send(fmt.Sprintf("id: %d\n", n)+data(fmt.Sprintf("10.0.0.%d:80", n)), time.Hour)
	}), func(w *world) {
		w.after(59 * time.Second)
		w.want("10.0.0.1:80")
		w.after(1400 * time.Millisecond)
		w.wantStale("10.0.0.1:80", "the stream was silent for 1m0s (idleTimeout): let the server send comments, or raise it")
		w.after(2 * time.Second)
		w.want("10.0.0.2:80")
		if id := w.asked()[1].Header.Get("Last-Event-ID"); id != "" {
			t.Errorf("Last-Event-ID %q is sent, after which the server need not send a list", id)
		}
	})
}

func TestStreamsThatEndAreResumed(t *testing.T) {
	inBubble(t, Config{Mode: SSE}, streams(func(r *nethttp.Request, n int, send func(string, time.Duration)) {
		switch {
		case n == 1:
			send("id: a\nretry: 20000\n"+data("10.0.0.1:80"), time.Second)
			send("id: b\ndata: [", 0) // it is cut here
		case n == 2 && r.Header.Get("Last-Event-ID") == "a":
			send(": nothing new\n\n", 15*time.Second) // for longer than the timeout
		case n == 3 && r.Header.Get("Last-Event-ID") == "a":
			send("id: c\n"+data("10.0.0.2:80"), time.Hour)
		}
	}), func(w *world) {
		w.after(18 * time.Second)
		w.want("10.0.0.1:80")
		if n := len(w.asked()); n != 1 {
			t.Errorf("%d requests, want 1: the server says retry: 20000", n)
		}
		w.after(15900 * time.Millisecond)
		w.want("10.0.0.1:80") // the end of a stream is no failure
		if n := len(w.asked()); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		w.after(30 * time.Second)
		w.want("10.0.0.2:80")
		if n := len(w.asked()); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
}

func TestStreamsOfNoUse(t *testing.T) {
	for _, test := range []struct {
		failure string
		answer  handler
	}{
		{"no list within 10s (timeout)", func(w nethttp.ResponseWriter, r *nethttp.Request, _ int) { <-r.Context().Done() }},
		{"no list within 10s (timeout)", streams(func(_ *nethttp.Request, _ int, send func(string, time.Duration)) {
			for range 100 {
				send(":\n", time.Second)
			}
		})},
		{"the stream ended before it gave a list: EOF", streams(func(*nethttp.Request, int, func(string, time.Duration)) {})},
		{
			`the answer has the content type "application/json", and an event stream has text/event-stream`,
			func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) {
				w.Header().Set("Content-Type", "application/json")
				write(w, "[]")
			},
		},
		{
			"the server answers 204 (No Content)",
			func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) { w.WriteHeader(nethttp.StatusNoContent) },
		},
		{
			"an event has more than maxBytes (1024): raise it, or serve smaller lists",
			streams(func(_ *nethttp.Request, _ int, send func(string, time.Duration)) {
				send("data: "+strings.Repeat("[", 2000), time.Hour)
			}),
		},
		{
			`event "7": the answer is not a list of endpoints: "/0" (byte 1): invalid character '}'`,
			streams(func(_ *nethttp.Request, _ int, send func(string, time.Duration)) {
				send("id: 7\ndata: [}\n\n", 45*time.Second)
			}),
		},
	} {
		inBubble(t, Config{Mode: SSE, MaxBytes: 1024}, test.answer, func(w *world) {
			w.after(10*time.Second + time.Millisecond)
			w.wantStale("", test.failure)
		})
	}
}

func TestABadEventIsNotTheEnd(t *testing.T) {
	inBubble(t, Config{Mode: SSE}, streams(func(_ *nethttp.Request, n int, send func(string, time.Duration)) {
		send("id: 1\n"+data("10.0.0.1:80"), time.Second)
		send("id: 2\ndata: {}x\n\n", 10*time.Second)
		if n == 1 {
			send("id: 3\n"+data("10.0.0.3:80"), time.Second)
			send("id: 4\ndata: nonsense\n\n", time.Second)
		}
	}), func(w *world) {
		w.after(2 * time.Second)
		w.wantStale("10.0.0.1:80", `event "2"`)
		w.after(9500 * time.Millisecond)
		w.want("10.0.0.3:80")
		w.after(time.Second)
		w.wantStale("10.0.0.3:80", `event "4"`)
		w.after(4 * time.Second)
		if id := w.asked()[1].Header.Get("Last-Event-ID"); id != "" {
			t.Errorf("Last-Event-ID %q is sent after a bad event", id)
		}
	})
}
