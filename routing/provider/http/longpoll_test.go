package http

import (
	nethttp "net/http"
	"testing"
	"time"
)

func TestLongPollWaitsForChanges(t *testing.T) {
	inBubble(t, Config{Mode: LongPoll, Wait: 2 * time.Minute}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
		switch etag, wait := r.Header.Get("If-None-Match"), r.Header.Get("Prefer"); {
		case n == 1 && etag == "" && wait == "":
			w.Header().Set("ETag", `"1"`)
			write(w, list("10.0.0.1:80"))
		case n == 2 && etag == `"1"` && wait == "wait=120":
			<-time.After(2 * time.Minute)
			w.WriteHeader(nethttp.StatusNotModified)
		case etag == `"1"` && wait == "wait=120":
			w.Header().Set("ETag", `"2"`)
			<-time.After(90 * time.Second)
			write(w, list("10.0.0.2:80"))
		default:
			hold(w, r)
		}
	}, func(w *world) {
		w.want("10.0.0.1:80")
		w.after(3 * time.Minute)
		w.want("10.0.0.1:80")
		if n, reports := len(w.asked()), w.sink.Reports(); n != 3 || reports != 1 {
			t.Errorf("%d requests and %d reports, want 3 and 1", n, reports)
		}
		w.after(30 * time.Second)
		w.want("10.0.0.2:80")
		w.after(2*time.Minute + 9*time.Second)
		w.want("10.0.0.2:80")
		w.after(2 * time.Second) // it should have answered, and had the timeout to do so
		w.wantStale("10.0.0.2:80", "no complete answer within 2m10s (timeout)")
	})
}

func TestLongPollNeedsAnETag(t *testing.T) {
	inBubble(t, Config{Mode: LongPoll}, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) {
		write(w, list("10.0.0.1:80"))
	}, func(w *world) {
		w.wantStale("", "the answer has no ETag, which a long poll needs to wait for a change: use mode poll")
	})
}

func TestLongPollOfAServerThatDoesNotWait(t *testing.T) {
	inBubble(t, Config{Mode: LongPoll}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" && n%2 == 0 {
			w.WriteHeader(nethttp.StatusNotModified)
		} else {
			write(w, list("10.0.0.1:80"))
		}
	}, func(w *world) {
		w.after(10 * time.Minute)
		w.want("10.0.0.1:80")
		if n := len(w.asked()); n < 600 || n > 610 {
			t.Errorf("%d requests in 600 s, want one per second", n)
		}
	})
}

func TestLongPollsOfNewQueriesDoNotWait(t *testing.T) {
	inBubble(t, Config{Mode: LongPoll}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
		if r.Header.Get("If-None-Match") != "" {
			hold(w, r)
		}
		w.Header().Set("ETag", `"1"`)
		write(w, list("10.0.0.1:80"))
	}, func(w *world) {
		w.want("10.0.0.1:80")
		w.sink.Want(api, web)
		w.want("10.0.0.1:80")
		if w.sink.Text(api) != "10.0.0.1:80" {
			t.Error("a new query waits")
		}
	})
}
