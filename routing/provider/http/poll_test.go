package http

import (
	"compress/gzip"
	"io"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func TestPollFollowsChanges(t *testing.T) {
	inBubble(t, Config{}, func(w nethttp.ResponseWriter, _ *nethttp.Request, n int) {
		if n < 3 {
			write(w, list("10.0.0.1:80"))
		} else {
			write(w, `[{"address": "10.0.0.1:80", "weight": 2}, {"address": "10.0.0.2:80", "state": "terminating", "tags": {"zone": "a"}}]`)
		}
	}, func(w *world) {
		w.want("10.0.0.1:80")
		w.after(30 * time.Second)
		w.want("10.0.0.1:80*2; 10.0.0.2:80{zone=a} terminating")
		w.after(10 * time.Minute)
		if n := len(w.asked()); n < 57 || n > 71 {
			t.Errorf("%d requests in 630 s, want one in 9 to 11 s", n)
		}
	})
}

func TestPollIsConditional(t *testing.T) {
	const date = "Mon, 23 Nov 2026 08:00:00 GMT"
	inBubble(t, Config{}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
		w.Header().Set("ETag", `W/"7"`)
		w.Header().Set("Last-Modified", date)
		switch {
		case n == 4:
			w.WriteHeader(nethttp.StatusInternalServerError)
		case r.Header.Get("If-None-Match") == `W/"7"` && r.Header.Get("If-Modified-Since") == date:
			w.WriteHeader(nethttp.StatusNotModified)
		default:
			write(w, list("10.0.0.1:80"))
		}
	}, func(w *world) {
		w.after(25 * time.Second)
		w.want("10.0.0.1:80")
		if n, reports := len(w.asked()), w.sink.Reports(); n != 3 || reports != 1 {
			t.Errorf("%d requests and %d reports, want 3 and 1", n, reports)
		}
		w.sink.AwaitConfirmed(t, web, 2)
		w.after(20 * time.Second) // the failure, and a complete answer after it
		w.want("10.0.0.1:80")
		requests := w.asked()
		if requests[3].Header.Get("If-None-Match") == "" || requests[4].Header.Get("If-None-Match") != "" {
			t.Error("the request after a failure must not be conditional")
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for _, value := range []string{"300", "Sat, 01 Jan 2000 00:05:00 GMT"} { // the bubble's time begins in 2000
		inBubble(t, Config{}, func(w nethttp.ResponseWriter, _ *nethttp.Request, n int) {
			if n == 2 {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(nethttp.StatusServiceUnavailable)
				return
			}
			write(w, list("10.0.0.1:80"))
		}, func(w *world) {
			w.after(4*time.Minute + 50*time.Second)
			w.wantStale("10.0.0.1:80", "GET http://lists.example/list: the server answers 503 (Service Unavailable) and asks to retry after ")
			if n := len(w.asked()); n != 2 {
				t.Errorf("%d requests, want 2", n)
			}
			w.sink.Want(web, api) // does not make it impatient
			w.after(5 * time.Second)
			if n := len(w.asked()); n != 2 {
				t.Errorf("%d requests after new queries, want 2", n)
			}
			w.after(30 * time.Second)
			w.want("10.0.0.1:80")
		})
	}
	for value, want := range map[string]time.Duration{
		"0": 0, "-5": 0, "1e3": 0, "x": 0, "": 0, "4000000000": maxRetryAfter, "1800": 30 * time.Minute,
	} {
		if got := parseRetryAfter(value); got != want {
			t.Errorf("Retry-After: %s is %v, want %v", value, got, want)
		}
	}
}

func TestFailuresAreRepeatedMoreAndMoreSlowly(t *testing.T) {
	for _, mode := range []Mode{Poll, LongPoll, SSE} {
		inBubble(t, Config{Mode: mode, Interval: 100 * time.Millisecond}, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) {
			w.WriteHeader(nethttp.StatusInternalServerError)
		}, func(w *world) {
			w.after(10 * time.Minute)
			before := len(w.asked())
			w.after(10 * time.Minute)
			if n := len(w.asked()) - before; n < 13 || n > 41 {
				t.Errorf("%s: %d requests in 10 minutes, want one in 15 to 45 seconds", mode, n)
			}
			w.wantStale("", "the server answers 500 (Internal Server Error)")
		})
	}
}

func TestAnswersThatAreNoAnswers(t *testing.T) {
	unending := func(w nethttp.ResponseWriter, r *nethttp.Request) {
		write(w, `[{"address": "10.0.0.9:80"}`)
		nethttp.NewResponseController(w).Flush()
		hold(w, r)
	}
	status := func(code int) func(nethttp.ResponseWriter, *nethttp.Request) {
		return func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(code) }
	}
	for _, test := range []struct {
		failure string
		answer  func(w nethttp.ResponseWriter, r *nethttp.Request)
	}{
		{"no complete answer within 10s (timeout)", hold},
		{"no complete answer within 10s (timeout)", unending},
		{"the answer cannot be read to its end: unexpected EOF", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Length", "100")
			write(w, `[{"address": "10.0.0.9:80"}]`) // and not the space after it
		}},
		{"byte 27: unexpected EOF", func(w nethttp.ResponseWriter, _ *nethttp.Request) { // delimited by the end of the connection
			c, out, _ := nethttp.NewResponseController(w).Hijack()
			out.WriteString("HTTP/1.0 200 OK\r\n\r\n" + `[{"address": "10.0.0.9:80"}`)
			out.Flush()
			c.Close()
		}},
		{"EOF", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			c, _, _ := nethttp.NewResponseController(w).Hijack()
			c.Close()
		}},
		{"malformed HTTP", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			c, out, _ := nethttp.NewResponseController(w).Hijack()
			out.WriteString("220 ready\r\n\r\n")
			out.Flush()
			c.Close()
		}},
		{"exceeded 65536 bytes", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("X", strings.Repeat("x", 100_000))
			write(w, "[]")
		}},
		{"the answer is empty", func(nethttp.ResponseWriter, *nethttp.Request) {}},
		{"byte 0: invalid character '<' at start of value", func(w nethttp.ResponseWriter, _ *nethttp.Request) { write(w, "<html>") }},
		{"the server answers 204 (No Content)", status(nethttp.StatusNoContent)},
		{"the server answers 304 (not modified) to a request without a condition", status(nethttp.StatusNotModified)},
		{"the server answers 401 (Unauthorized): check token, headers", status(nethttp.StatusUnauthorized)},
		{"the server answers 404 (Not Found): check the url", status(nethttp.StatusNotFound)},
		{`the answer has the encoding "br"; only gzip is understood`, func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Encoding", "br")
			write(w, "[]")
		}},
		{"the answer cannot be read to its end: gzip: invalid header", func(w nethttp.ResponseWriter, _ *nethttp.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			write(w, list("10.0.0.9:80"))
		}},
	} {
		inBubble(t, Config{}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
			if n == 1 {
				write(w, list("10.0.0.1:80"))
				return
			}
			test.answer(w, r)
		}, func(w *world) {
			w.after(25 * time.Second)
			w.wantStale("10.0.0.1:80", test.failure)
		})
	}
}

func TestRecoversFromFailures(t *testing.T) {
	for _, mode := range []Mode{Poll, LongPoll} {
		inBubble(t, Config{Mode: mode}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
			w.Header().Set("ETag", `"1"`)
			switch {
			case n < 3:
				write(w, "[")
			case r.Header.Get("If-None-Match") != "":
				hold(w, r)
			default:
				write(w, list("10.0.0.1:80"))
			}
		}, func(w *world) {
			w.wantStale("", "unexpected EOF")
			w.after(8 * time.Second)
			w.want("10.0.0.1:80")
		})
	}
}

// spaces is an endless document.
type spaces struct{ sent int }

func (s *spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	s.sent += len(p)
	return len(p), nil
}

func TestLargeAnswersAreRefused(t *testing.T) {
	for _, zipped := range []bool{false, true} {
		var source spaces
		inBubble(t, Config{MaxBytes: 1 << 20}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
			switch {
			case n == 1:
				write(w, list("10.0.0.1:80"))
			case zipped && r.Header.Get("Accept-Encoding") == "gzip":
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				io.Copy(z, io.LimitReader(&source, 100<<20))
				z.Close()
			default:
				io.Copy(w, io.LimitReader(&source, 100<<20))
			}
		}, func(w *world) {
			w.after(11 * time.Second)
			w.wantStale("10.0.0.1:80", "the answer has more than maxBytes (1048576): raise it, or serve smaller lists")
			if !zipped && source.sent > 8<<20 {
				t.Errorf("%d bytes were read", source.sent)
			}
		})
	}
}

func TestZippedAnswers(t *testing.T) {
	inBubble(t, Config{}, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, list("10.0.0.1:80"))
		z.Close()
	}, func(w *world) { w.want("10.0.0.1:80") })
}

func TestAnswersOfExactlyMaxBytes(t *testing.T) {
	for extra, failure := range []string{"", "more than maxBytes"} {
		inBubble(t, Config{MaxBytes: 2000}, func(w nethttp.ResponseWriter, _ *nethttp.Request, _ int) {
			text := list("10.0.0.1:80")
			write(w, text+strings.Repeat(" ", 2000-len(text)+extra))
		}, func(w *world) {
			if failure == "" {
				w.want("10.0.0.1:80")
			} else {
				w.wantStale("", failure)
			}
		})
	}
}

func TestOneDocumentForAllServices(t *testing.T) {
	inBubble(t, Config{}, func(w nethttp.ResponseWriter, _ *nethttp.Request, n int) {
		if n < 3 {
			write(w, `{"web": [{"address": "10.0.0.1:80"}], "api": [{"address": "10.0.0.2:80"}]}`)
		} else {
			write(w, list("10.0.0.3:80"))
		}
	}, func(w *world) {
		none := provider.Query{Service: "none"}
		w.want("10.0.0.1:80")
		w.sink.Want(web, api, none)
		w.want("10.0.0.1:80")
		w.sink.Await(t, api, "10.0.0.2:80")
		w.sink.Await(t, none, "none")
		if n := len(w.asked()); n != 2 {
			t.Errorf("%d requests for one document and new queries, want 2", n)
		}
		for _, q := range []provider.Query{web, api, none} {
			w.sink.Await(t, q, "10.0.0.3:80")
		}
	})
}

// keeper keeps the slices that are reported.
type keeper struct {
	*providertest.Sink
	reported [][]provider.Endpoint
}

func (k *keeper) Report(_ provider.Query, endpoints []provider.Endpoint) {
	k.reported = append(k.reported, endpoints)
}

func TestQueriesDoNotShareSlices(t *testing.T) {
	source, err := New(Config{URL: "http://lists.example/"})
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{Sink: providertest.NewSink()}
	w := newWatch(source, k, "http://lists.example/")
	w.queries = []provider.Query{web, api}
	if err := w.report(t.Context(), strings.NewReader(list("10.0.0.1:80"))); err != nil {
		t.Fatal(err)
	}
	if &k.reported[0][0] == &k.reported[1][0] {
		t.Error("two queries got the same slice, which the sink changes")
	}
}

func TestQueriesComeAndGo(t *testing.T) {
	inBubble(t, Config{URL: "http://lists.example/{service}/{port}?x"}, func(w nethttp.ResponseWriter, _ *nethttp.Request, n int) {
		write(w, list("10.0.0.1:80"))
	}, func(w *world) {
		a, b := provider.Query{Service: "a", Port: "1"}, provider.Query{Service: "b/c", Port: "http"}
		w.wantStale("", `port "" of the query cannot be part of a url`)
		w.sink.Want(a, b)
		w.sink.Await(t, a, "10.0.0.1:80")
		w.sink.Await(t, b, "10.0.0.1:80")
		w.sink.Want(a)
		w.after(100 * time.Second)
		w.sink.Want(b, a)
		w.after(time.Second)
		if got := w.paths(); got["/a/1"] < 10 || got["/a/1"] > 12 || got["/b%2Fc/http"] != 2 || len(got) != 2 {
			t.Errorf("requests: %v", got)
		}
	})
}

func TestURLsAreBounded(t *testing.T) {
	inBubble(t, Config{URL: "http://lists.example/{service}", MaxURLs: 1}, func(w nethttp.ResponseWriter, _ *nethttp.Request, n int) {
		write(w, list("10.0.0.1:80"))
	}, func(w *world) {
		w.sink.Want(web, api)
		w.want("10.0.0.1:80")
		w.sink.AwaitFailure(t, api, "the queries make more than maxURLs (1) URLs: raise it")
		w.sink.Want(api)
		w.sink.Await(t, api, "10.0.0.1:80")
	})
}

func TestRequestsAtTheSameTimeAreBounded(t *testing.T) {
	inBubble(t, Config{URL: "http://lists.example/{service}", MaxRequests: 2}, func(w nethttp.ResponseWriter, r *nethttp.Request, n int) {
		hold(w, r)
	}, func(w *world) {
		var queries []provider.Query
		for _, name := range strings.Split("abcdefgh", "") {
			queries = append(queries, provider.Query{Service: name})
		}
		w.sink.Want(queries...)
		w.after(time.Second)
		if n := len(w.asked()); n > 3 { // one is that of web
			t.Errorf("%d requests at the same time, want 2", n)
		}
	})
}

func TestEndsAtOnce(t *testing.T) {
	for _, mode := range []Mode{Poll, LongPoll, SSE} {
		inBubble(t, Config{Mode: mode}, func(w nethttp.ResponseWriter, r *nethttp.Request, _ int) {
			w.Header().Set("Content-Type", "text/event-stream")
			hold(w, r)
		}, func(w *world) {
			w.asked()
			start := time.Now()
			w.stop()
			if d := time.Since(start); d != 0 {
				t.Errorf("%s: it took %v", mode, d)
			}
		})
	}
}
