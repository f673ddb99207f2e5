package demo

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	perSecond = 40 // new connections a second and target
	longLived = 25 // connections that stay for the whole demo
	patience  = 5 * time.Second
)

// traffic is the clients and what they saw.
type traffic struct {
	world *world

	mu       sync.Mutex
	opened   int
	answered int
	// answers counts by the name of the service that answered.
	answers map[string]int
	recent  []string // names of the shop's last answers, at most recentMax
	faults  []string // the first few connections that were not answered
	long    int      // long-lived connections that live
	broken  int      // and that were broken
	pings   int      // exchanges on them
}

const recentMax = 200

func newTraffic(w *world) *traffic {
	return &traffic{world: w, answers: map[string]int{}}
}

// start runs the clients; stop ends them, each after its exchange.
func (t *traffic) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { t.shortLived(ctx, "shop ", t.plain(t.world.shop)) })
	wg.Go(func() { t.shortLived(ctx, "flaky ", t.plain(t.world.flaky)) })
	wg.Go(func() { t.shortLived(ctx, "secure", t.secure) })
	for range longLived {
		wg.Go(func() { t.stay(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func (t *traffic) plain(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
}

func (t *traffic) secure() (net.Conn, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: patience},
		Config:    &tls.Config{RootCAs: t.world.roots, ServerName: secureName},
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return d.DialContext(ctx, "tcp", t.world.edge)
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
				name, err := ask(dial, fmt.Sprintf("hello %d", i))
				if err == nil && !strings.HasPrefix(name, want) {
					err = fmt.Errorf("%q answered for %q", name, want)
				}
				t.count(name, err)
			})
		}
	}
}

// ask opens a connection for one exchange and returns who answered.
func ask(dial func() (net.Conn, error), text string) (string, error) {
	c, err := dial()
	if err != nil {
		return "", err
	}
	defer c.Close()
	return exchange(c, bufio.NewReader(c), text)
}

func exchange(c net.Conn, r *bufio.Reader, text string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
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
		return "", fmt.Errorf("sent %q, the answer is %q", text, line)
	}
	return name, nil
}

func (t *traffic) count(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
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

// stay keeps one connection for the whole demo and uses it five times a second.
func (t *traffic) stay(ctx context.Context) {
	c, err := t.plain(t.world.shop)()
	if err != nil {
		t.count("", err)
		return
	}
	defer c.Close()
	t.mu.Lock()
	t.long++
	t.mu.Unlock()
	r := bufio.NewReader(c)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_, err := exchange(c, r, "still there?")
		t.mu.Lock()
		if err != nil {
			t.long--
			t.broken++
			if len(t.faults) < 10 {
				t.faults = append(t.faults, "long-lived: "+err.Error())
			}
			t.mu.Unlock()
			return
		}
		t.pings++
		t.mu.Unlock()
	}
}

// seen is a copy of what the clients saw so far.
type seen struct {
	opened, answered, long, broken, pings int
	answers                               map[string]int
	v1, v2                                int // of the shop's last answers
	faults                                []string
}

func (t *traffic) seen() seen {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := seen{
		opened: t.opened, answered: t.answered, long: t.long, broken: t.broken, pings: t.pings,
		answers: map[string]int{}, faults: append([]string(nil), t.faults...),
	}
	for k, v := range t.answers {
		s.answers[k] = v
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
