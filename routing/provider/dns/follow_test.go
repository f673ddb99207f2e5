package dns

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"penstock/routing/provider"
)

// TestRefresh checks when a query is looked up again.
func TestRefresh(t *testing.T) {
	tests := []struct {
		name, zone string
		query      provider.Query
		noSOA      bool
		due        time.Duration
		questions  int
	}{
		{"TTL", "web 60 IN A 10.0.0.1", web, false, 60 * time.Second, 2},
		{"the lowest TTL", "web 60 IN A 10.0.0.1\nweb 40 IN AAAA ::1", web, false, 40 * time.Second, 2},
		{"the TTL of an alias", "web 40 IN CNAME a\na 60 IN A 10.0.0.1", web, false, 40 * time.Second, 2},
		{"at least MinTTL", "web 0 IN A 10.0.0.1", web, false, DefaultMinTTL, 2},
		{"at most MaxTTL", "web 90000 IN A 10.0.0.1", web, false, DefaultMaxTTL, 2},
		{"no records, for the zone's time", "x 60 IN A 10.0.0.1", web, false, 20 * time.Second, 2},
		{"no records, nobody says for how long", "x 60 IN A 10.0.0.1", web, true, DefaultMinTTL, 2},
		{"services", "_http._tcp 60 IN SRV 1 1 80 a\na 90 IN A 10.0.0.1", webSRV, false, 60 * time.Second, 3},
		{"targets", "_http._tcp 60 IN SRV 1 1 80 a\na 30 IN A 10.0.0.1", webSRV, false, 30 * time.Second, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			z := newZone(t, test.zone)
			z.noSOA = test.noSOA
			inBubble(t, Config{}, []server{z.server}, []provider.Query{test.query}, func(w *world) {
				w.questions()
				w.after(test.due * 89 / 100)
				if list := w.questions(); len(list) > 0 {
					t.Errorf("looked up too early: %v", list)
				}
				w.after(test.due * 11 / 100)
				if list := w.questions(); len(list) != test.questions {
					t.Errorf("%d questions, want %d: %v", len(list), test.questions, list)
				}
			})
		})
	}
}

// TestNoRecordsIsAnAnswer checks that a name that no longer exists has no
// endpoints, which the Runner holds back if it should.
func TestNoRecordsIsAnAnswer(t *testing.T) {
	z := newZone(t, "web 10 IN A 10.0.0.1")
	inBubble(t, Config{}, []server{z.server}, []provider.Query{web}, func(w *world) {
		w.expect(web, "10.0.0.1:80")
		z.set(t, "x 10 IN A 10.0.0.1")
		w.after(10 * time.Second)
		w.expect(web, "none")
		z.set(t, "web 10 IN A 10.0.0.2")
		w.after(20 * time.Second)
		w.expect(web, "10.0.0.2:80")
	})
}

func TestNextServer(t *testing.T) {
	z := newZone(t, "web 60 IN A 10.0.0.1")
	lame := func(_ string, question *dns.Msg) (*dns.Msg, error) { return new(dns.Msg).SetReply(question), nil }
	notAllowed := answering(dns.RcodeRefused)
	for name, test := range map[string]struct {
		first server
		after time.Duration
	}{
		"no answer":                {silent, 2 * DefaultTimeout},
		"SERVFAIL":                 {answering(dns.RcodeServerFailure), 0},
		"REFUSED":                  {notAllowed, 0},
		"a code that nobody knows": {answering(dns.RcodeBadCookie), 0},
		"referral":                 {lame, 0},
		"an answer by TCP that is truncated": {func(_ string, question *dns.Msg) (*dns.Msg, error) {
			m := z.answer(question)
			m.Truncated = true
			return m, nil
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, []server{test.first, z.server}, []provider.Query{web}, func(w *world) {
				if test.after > 0 {
					w.after(test.after - 1)
					w.expect(web, "")
					w.after(1)
				}
				w.expect(web, "10.0.0.1:80")
				w.sink.AwaitWarning(w, web, "other DNS servers had to be asked (192.0.2.1:53: ")
			})
		})
	}
}

// TestAllServersFail checks that the last answer stays, and that the source
// recovers.
func TestAllServersFail(t *testing.T) {
	z := newZone(t, "web 20 IN A 10.0.0.1")
	down := atomic.Bool{}
	flaky := func(network string, question *dns.Msg) (*dns.Msg, error) {
		if down.Load() {
			return nil, errSilent
		}
		return z.server(network, question)
	}
	inBubble(t, Config{}, []server{flaky, flaky}, []provider.Query{web}, func(w *world) {
		w.expect(web, "10.0.0.1:80")
		down.Store(true)
		w.after(20*time.Second + 2*rounds*DefaultTimeout)
		w.expect(web, "10.0.0.1:80")
		w.expectFailure(web, "records of web.example.com. (192.0.2.1:53: no answer in 2s; 192.0.2.2:53: no answer in 2s): "+
			"check the servers, or list others")

		w.questions()
		w.after(10 * time.Minute)
		failing := len(w.questions()) / (2 * rounds) // attempts at two servers
		if failing < 10 || failing > 20 {
			t.Errorf("%d attempts in 10 minutes, want about one each 38 s", failing)
		}
		down.Store(false)
		z.set(t, "web 20 IN A 10.0.0.2")
		w.after(maxRetry + 2*rounds*DefaultTimeout)
		w.expect(web, "10.0.0.2:80")
		if err := w.sink.Err(web); err != nil {
			t.Error(err)
		}
		w.questions()
		down.Store(true)
		w.after(20*time.Second + 2*rounds*DefaultTimeout + 2*firstRetry)
		if n := len(w.questions()); n <= 2*rounds {
			t.Errorf("after a recovery, the first retry does not come soon: %d questions", n)
		}
	})
}

// TestQueriesComeAndGo checks that other queries go on as they were.
func TestQueriesComeAndGo(t *testing.T) {
	z := newZone(t, "web 60 IN A 10.0.0.1\nnew 60 IN A 10.0.0.2")
	z.noSOA = true
	added := provider.Query{Service: "new.example.com", Port: "81"}
	inBubble(t, Config{MinTTL: time.Minute}, []server{z.server}, []provider.Query{web}, func(w *world) {
		w.expect(web, "10.0.0.1:80")
		w.questions()
		w.after(30 * time.Second)
		w.sink.Want(web, added)
		w.after(0)
		w.expect(added, "10.0.0.2:81")
		if got := names(w.questions()); got != "new.example.com." {
			t.Errorf("asked for %s, want the new one alone", got)
		}
		w.after(30 * time.Second)
		if got := names(w.questions()); got != "web.example.com." {
			t.Errorf("asked for %s, want the first one in its time", got)
		}
		w.sink.Want(added)
		w.after(10 * time.Minute)
		if got := names(w.questions()); got != "new.example.com." {
			t.Errorf("asked for %s, though it is no longer wanted", got)
		}
	})
}

// TestMessagesInFlightAreBounded checks the bound with many queries, of which
// each is answered nevertheless.
func TestMessagesInFlightAreBounded(t *testing.T) {
	var queries []provider.Query
	text := ""
	for i := range 200 {
		queries = append(queries, provider.Query{Service: fmt.Sprintf("s%d.example.com", i), Port: "80"})
		text += fmt.Sprintf("s%d 60 IN A 10.0.0.1\n", i)
	}
	z := newZone(t, text)
	var inFlight, most atomic.Int64
	slow := func(_ string, question *dns.Msg) (*dns.Msg, error) {
		most.Store(max(most.Load(), inFlight.Add(1)))
		defer inFlight.Add(-1)
		<-time.After(100 * time.Millisecond)
		return z.answer(question), nil
	}
	inBubble(t, Config{}, []server{slow}, queries, func(w *world) {
		w.after(time.Second)
		for _, q := range queries {
			w.expect(q, "10.0.0.1:80")
		}
		if n := most.Load(); n != maxExchanges {
			t.Errorf("%d messages in flight, want %d", n, maxExchanges)
		}
	})
}
