package demo

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	perSecond       = 40 // new connections per second and target
	longLived       = 25 // connections that stay open for the whole demo
	exchangeTimeout = 5 * time.Second
)

// traffic runs the clients and counts what they observe.
type traffic struct {
	fixtures *fixtures
	cluster  *cluster

	mu           sync.Mutex
	opened       int
	answered     int
	lostWithNode int // not answered because their node was killed
	// answers counts by the name of the service that answered.
	answers    map[string]int
	recent     []string // services of the shop's last answers, at most recentMax
	faults     []string // errors of the first unanswered connections
	longOpen   int      // open long-lived connections
	longLost   int      // long-lived, their node was killed
	longBroken int      // long-lived, broken otherwise
	exchanges  int      // exchanges on long-lived connections
}

const recentMax = 100

func newTraffic(w *fixtures, f *cluster) *traffic {
	return &traffic{fixtures: w, cluster: f, answers: map[string]int{}}
}

// start runs the clients; stop ends each after its current exchange.
func (t *traffic) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { t.shortLived(ctx, "shop ", t.plain(t.cluster.shop)) })
	wg.Go(func() { t.shortLived(ctx, "flaky ", t.plain(t.cluster.flaky)) })
	wg.Go(func() { t.shortLived(ctx, "secure", t.secure) })
	for range longLived {
		wg.Go(func() { t.keepConnection(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func (t *traffic) plain(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), exchangeTimeout)
		defer cancel()
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

// secure connects; the TLS handshake happens during the exchange.
func (t *traffic) secure() (net.Conn, error) {
	c, err := t.plain(t.cluster.edge)()
	if err != nil {
		return nil, err
	}
	return tls.Client(c, &tls.Config{RootCAs: t.fixtures.roots, ServerName: secureName}), nil
}

// shortLived opens connections at a steady rate, each for one exchange.
func (t *traffic) shortLived(ctx context.Context, want string, dial func() (net.Conn, error)) {
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			wg.Go(func() {
				name, excused, err := t.exchangeOnce(dial, fmt.Sprintf("hello %d", i))
				if err == nil && !strings.HasPrefix(name, want) {
					err = fmt.Errorf("%q answered instead of %q", name, want)
				}
				t.count(name, excused, err)
			})
		}
	}
}

// exchangeOnce opens a connection for one exchange. It returns the service that
// answered, and whether a failure is excused because the node was killed.
func (t *traffic) exchangeOnce(dial func() (net.Conn, error), text string) (name string, excused bool, err error) {
	c, err := dial()
	if err != nil {
		return "", false, err
	}
	defer c.Close()
	name, err = exchange(c, bufio.NewReader(c), text)
	return name, err != nil && t.excused(c), err
}

// excused reports whether a connection broke because its node was killed. The
// connection must not be closed on this side yet.
func (t *traffic) excused(c net.Conn) bool {
	return t.cluster.balancer.excused(client{c.LocalAddr().String(), c.RemoteAddr().String()})
}

func exchange(c net.Conn, r *bufio.Reader, text string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	name, got, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
	if got != text {
		return "", fmt.Errorf("sent %q, received %q", text, line)
	}
	return name, nil
}

func (t *traffic) count(name string, excused bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
	if excused {
		t.lostWithNode++
		return
	}
	if err != nil {
		if len(t.faults) < 10 {
			t.faults = append(t.faults, err.Error())
		}
		return
	}
	t.answered++
	t.answers[name]++
	if strings.HasPrefix(name, "shop ") {
		t.recent = append(t.recent, name)
		if len(t.recent) > recentMax {
			t.recent = t.recent[1:]
		}
	}
}

// keepConnection keeps a connection for the whole demo, uses it five times a
// second, and replaces it when it breaks.
func (t *traffic) keepConnection(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := t.plain(t.cluster.shop)()
		if err != nil {
			t.count("", false, err)
			pause(ctx, time.Second)
			continue
		}
		t.exchangeUntilBroken(ctx, c)
		c.Close()
	}
}

// exchangeUntilBroken exchanges lines on a connection until it breaks.
func (t *traffic) exchangeUntilBroken(ctx context.Context, c net.Conn) {
	t.mu.Lock()
	t.longOpen++
	t.mu.Unlock()
	r := bufio.NewReader(c)
	for {
		if pause(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return
		}
		_, err := exchange(c, r, "still there?")
		excused := err != nil && t.excused(c)
		t.mu.Lock()
		switch {
		case err == nil:
			t.exchanges++
		case excused:
			t.longOpen--
			t.longLost++
		default:
			t.longOpen--
			t.longBroken++
			if len(t.faults) < 10 {
				t.faults = append(t.faults, "long-lived: "+err.Error())
			}
		}
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// trafficStats is a snapshot of the counters.
type trafficStats struct {
	opened, answered, lostWithNode, longOpen, longLost, longBroken, exchanges int

	answers map[string]int
	v1, v2  int // of the shop's last answers
	faults  []string
}

func (t *traffic) stats() trafficStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := trafficStats{
		opened: t.opened, answered: t.answered, lostWithNode: t.lostWithNode,
		longOpen: t.longOpen, longLost: t.longLost, longBroken: t.longBroken, exchanges: t.exchanges,
		answers: maps.Clone(t.answers), faults: slices.Clone(t.faults),
	}
	for _, name := range t.recent {
		if name == "shop v1" {
			s.v1++
		} else {
			s.v2++
		}
	}
	return s
}
