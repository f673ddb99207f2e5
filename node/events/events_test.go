package events

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// listener is a listener in memory, so that a server runs in a bubble of synctest.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

// served is a hub behind an HTTP server in memory.
type served struct {
	t   *testing.T
	hub *Hub
	l   *listener
	end func()
}

// serve serves a hub. A request's principal is named by its header who.
func serve(t *testing.T, cfg Config, topics ...Topic) *served {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	s := &served{t: t, hub: New(cfg, topics...), l: newListener()}
	server := &http.Server{
		ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute, // as in package ops
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p := api.Principal{Name: r.Header.Get("Who"), Role: api.RoleReader, TokenID: r.Header.Get("Who")}
			var until time.Time
			if d, err := time.ParseDuration(r.Header.Get("Until")); err == nil {
				until = time.Now().Add(d)
			}
			if err := s.hub.Serve(w, r, p, until); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		}),
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(s.l) })
	s.end = func() {
		s.hub.Close()
		_ = server.Close()
		serving.Wait()
	}
	return s
}

// browser is a stream's other side.
type browser struct {
	net.Conn
	r *bufio.Reader
}

func (s *served) open(query, who, until string) *browser {
	s.t.Helper()
	near, far := net.Pipe()
	s.l.conns <- far
	fmt.Fprintf(near, "GET /?%s HTTP/1.1\r\nHost: x\r\nWho: %s\r\nUntil: %s\r\n\r\n", query, who, until)
	return &browser{near, bufio.NewReader(near)}
}

// event returns the next event as "name data", or its error. Comments and retry are
// skipped, or with comments returned as ":".
func (b *browser) event(comments bool) string {
	name := ""
	for beats := 0; ; {
		line, err := b.r.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case strings.HasPrefix(line, "data: "):
			return name + " " + line[6:]
		case line == ":" && comments:
			return ":"
		case line == ":":
			if beats++; beats == 100 {
				return "nothing but heartbeats"
			}
		}
	}
}

// counter is a topic whose state is a number.
func counter(n *atomic.Int64, computed *atomic.Int64) Topic {
	return Topic{Name: "n", Role: api.RoleReader, Source: func(r *http.Request) (Source, error) {
		return Source{Key: r.URL.Query().Get("key"), State: func(context.Context) (any, error) {
			computed.Add(1)
			if v := n.Load(); v >= 0 {
				return v, nil
			}
			return nil, api.Errorf(api.NoLeader, "no leader")
		}}, nil
	}}
}

// A stream gets the state at once and then when it has changed, at most once per interval;
// all streams share the computing, and without streams there is none.
func TestStateIsSentWhenItChangedAndComputedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, computed atomic.Int64
		s := serve(t, Config{}, counter(&n, &computed))
		defer s.end()
		<-time.After(time.Hour) // of the bubble
		if computed.Load() != 0 {
			t.Fatalf("computed %d times without a stream", computed.Load())
		}
		fast, slow := s.open("topics=n", "a", ""), s.open("topics=n&interval=10s", "b", "")
		if got := fast.event(false) + slow.event(false); got != "n 0n 0" {
			t.Fatalf("at first: %q", got)
		}
		begin, before := time.Now(), computed.Load()
		<-time.After(20*time.Second + time.Millisecond)
		if c := computed.Load() - before; c < 19 || c > 21 {
			t.Errorf("computed %d times in 20 s for both", c)
		}
		n.Store(1)
		if got := fast.event(false); got != "n 1" || time.Since(begin) > 22*time.Second {
			t.Errorf("after %v: %q", time.Since(begin), got)
		}
		if got := slow.event(false); got != "n 1" {
			t.Errorf("the slow one: %q", got)
		}
		at := time.Now()
		n.Store(2)
		if got := slow.event(false); got != "n 2" || time.Since(at) < 9*time.Second {
			t.Errorf("the slow one after %v: %q", time.Since(at), got)
		}
		if got := fast.event(false); got != "n 2" {
			t.Errorf("the fast one: %q", got)
		}
		n.Store(-1)
		if got := fast.event(false); got != `failed {"topic":"n","error":"no leader","code":"no_leader"}` {
			t.Errorf("a topic that fails: %s", got)
		}
		n.Store(2)
		if got := fast.event(false); got != "n 2" {
			t.Errorf("a topic that works again: %s", got)
		}
		fast.Close()
		slow.Close()
		synctest.Wait()
		if st := s.hub.Stats(); st.Streams != 0 || st.Feeds != 0 || st.Ended[EndClient] != 2 {
			t.Errorf("afterwards %+v", st)
		}
	})
}

// A browser that does not read is closed when a write times out, however many events there
// are; it holds up no other, and a server's timeouts for one answer end none.
func TestBrowserThatNeverReadsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, computed atomic.Int64
		s := serve(t, Config{}, counter(&n, &computed))
		defer s.end()
		silent, good := s.open("topics=n", "a", ""), s.open("topics=n", "b", "")
		defer silent.Close()
		defer good.Close()
		for i := range int64(600) { // ten minutes
			n.Store(i)
			if got := good.event(false); got != fmt.Sprintf("n %d", i) {
				t.Fatalf("the other one: %q, want %d", got, i)
			}
		}
		if st := s.hub.Stats(); st.Ended[EndSlow] != 1 || st.Streams != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, computed atomic.Int64
		s := serve(t, Config{}, counter(&n, &computed))
		defer s.end()
		b, begin := s.open("topics=n", "a", ""), time.Now()
		defer b.Close()
		got := b.event(true)
		for range 4 {
			got += b.event(true)
		}
		if got != "n 0::::" || time.Since(begin).Round(time.Second) != time.Minute {
			t.Errorf("%q in %v", got, time.Since(begin))
		}
	})
}

// Streams beyond a bound are refused with the reason, and a place comes free again.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, computed atomic.Int64
		s := serve(t, Config{Streams: 5, PerPrincipal: 3, Feeds: 2}, counter(&n, &computed))
		defer s.end()
		open := func(query, who string) (*browser, string) {
			b := s.open(query, who, "")
			return b, b.event(false)
		}
		var all []*browser
		for _, c := range []struct{ query, who, want string }{
			{"topics=n&key=1", "a", "n 0"},
			{"topics=n&key=2", "a", "n 0"},
			{"topics=n&key=3", "b", `end {"reason":"too_many","what":"this node follows its maximum of different queries: use another node"}`},
			{"topics=n&key=1", "a", "n 0"},
			{"topics=n&key=1", "a", `end {"reason":"too_many","what":"this token has its maximum of streams at this node: close other pages, or use another node"}`},
			{"topics=n&key=1", "b", "n 0"},
			{"topics=n&key=1", "b", "n 0"},
			{"topics=n&key=1", "c", `end {"reason":"too_many","what":"this node has its maximum of streams: use another node"}`},
		} {
			b, got := open(c.query, c.who)
			if got != c.want {
				t.Errorf("%s of %s: %s\nwant %s", c.query, c.who, got, c.want)
			}
			all = append(all, b)
		}
		all[0].Close()
		synctest.Wait()
		last, got := open("topics=n&key=1", "a")
		if got != "n 0" {
			t.Errorf("in the place that came free: %q", got)
		}
		if st := s.hub.Stats(); st.Streams != 5 || st.Feeds != 2 || st.Ended[EndTooMany] != 3 {
			t.Errorf("%+v", st)
		}
		for _, b := range append(all, last) {
			b.Close()
		}
	})
}

// A stream ends with its session, with its token, with a drain and with the node, and is
// told why.
func TestStreamsEndWithTheirReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, computed atomic.Int64
		var revoked atomic.Bool
		s := serve(t, Config{Valid: func(p api.Principal) error {
			if revoked.Load() && p.TokenID == "revoked" {
				return errors.New("revoked")
			}
			return nil
		}}, counter(&n, &computed))
		defer s.end()
		var all []*browser
		for _, who := range []string{"revoked", "old", "stays"} {
			b := s.open("topics=n", who, map[string]string{"old": "10s"}[who])
			defer b.Close()
			if got := b.event(false); got != "n 0" {
				t.Fatalf("%s: %q", who, got)
			}
			all = append(all, b)
		}
		expect := func(i int, reason string) {
			t.Helper()
			if got := all[i].event(false); got != fmt.Sprintf(`end {"reason":%q}`, reason) {
				t.Errorf("%q, want the end: %s", got, reason)
			}
			if got := all[i].event(false); got != io.EOF.Error() {
				t.Errorf("after the end: %q", got)
			}
		}
		revoked.Store(true)
		s.hub.Sweep()
		expect(0, EndSession)
		<-time.After(10 * time.Second)
		s.hub.Sweep()
		expect(1, EndSession)
		s.hub.Drain()
		expect(2, EndDraining)
		all[2] = s.open("topics=n", "stays", "")
		defer all[2].Close()
		if got := all[2].event(false); got != "n 0" {
			t.Errorf("while the node drains: %q", got)
		}
		go s.hub.Close()
		expect(2, EndStopping)
		synctest.Wait()
		b := s.open("topics=n", "late", "")
		defer b.Close()
		if got := b.event(false); got != `end {"reason":"too_many","what":"the node stops"}` {
			t.Errorf("a stream at a node that stops: %q", got)
		}
	})
}

// A list loses nothing for a stream that reads, keeps a bounded number for one that does
// not, and says so.
func TestListsAreBoundedAndTellOfLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := make(chan int)
		s := serve(t, Config{WriteTimeout: time.Hour}, Topic{Name: "list", Role: api.RoleReader, Source: func(r *http.Request) (Source, error) {
			keep := 0
			if r.URL.Query().Has("keep") {
				keep = 3
			}
			return Source{Key: r.URL.RawQuery, Keep: keep, Items: func(ctx context.Context, _ time.Duration, send func(any)) error {
				for {
					select {
					case i := <-items:
						send(i)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}}, nil
		}})
		defer s.end()
		b := s.open("topics=list", "a", "")
		defer b.Close()
		if line, err := b.r.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
			t.Fatalf("%q, %v", line, err)
		}
		synctest.Wait()
		items <- 0
		if got := b.event(false); got != "list 0" {
			t.Fatalf("%q", got)
		}
		for i := range 3 * maxItems { // nobody reads
			items <- i + 1
		}
		synctest.Wait()
		got := b.event(false)
		for strings.HasPrefix(got, "list ") { // what was in the buffers
			got = b.event(false)
		}
		if got != `lost {"topic":"list"}` {
			t.Errorf("a stream that was behind: %q", got)
		}
		if got := b.event(false); got != fmt.Sprintf("list %d", 2*maxItems+1) {
			t.Errorf("the first one that is kept: %q", got)
		}
		keeps := s.open("topics=list&keep", "a", "")
		if line, err := keeps.r.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
			t.Fatalf("%q, %v", line, err)
		}
		keeps.Close()
	})
}

func TestBadStreamsAreRefused(t *testing.T) {
	list := []Topic{
		{Name: "status", Role: api.RoleReader, Source: func(*http.Request) (Source, error) { return Source{}, api.Errorf(api.Invalid, "limit: want a number") }},
		{Name: "audit", Role: api.RoleAdmin},
	}
	h := New(Config{}, list...)
	defer h.Close()
	for query, want := range map[string]string{
		"":                             `topics: there is no "": want some of audit,status`,
		"topics=status,none":           `limit: want a number`,
		"topics=none":                  `topics: there is no "none": want some of audit,status`,
		"topics=audit":                 `topics: audit requires role admin, the token "ci" has role reader`,
		"topics=status&interval=1ms":   `interval: "1ms": want 1s to 1m0s`,
		"topics=status&interval=1h":    `interval: "1h": want 1s to 1m0s`,
		"topics=status&interval=often": `interval: "often": want 1s to 1m0s`,
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/events?"+query, nil)
		err := h.Serve(httptest.NewRecorder(), r, api.Principal{Name: "ci", TokenID: "1", Role: api.RoleReader}, time.Time{})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", query, err, want)
		}
	}
}
