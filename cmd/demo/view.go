package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/node/admin"
)

// view shows what goes on, once a second, from two sources: the clients and
// the node's own status.
type view struct {
	out     io.Writer
	screen  bool
	world   *world
	traffic *traffic
	client  *admin.Client
	node    Node

	began   time.Time
	mu      sync.Mutex        // guards what follows, and what is written to out
	events  []string          // the last ones
	health  map[string]string // of each endpoint, as last seen
	ejected int               // ejections seen
	back    int               // and returns
}

const maxEvents = 8

// event notes something that happened.
func (v *view) event(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := fmt.Sprintf("%5.1fs  %s", time.Since(v.began).Seconds(), text)
	v.events = append(v.events, line)
	if len(v.events) > maxEvents {
		v.events = v.events[1:]
	}
	if !v.screen {
		fmt.Fprintln(v.out, line)
	}
}

func (v *view) run(ctx context.Context) {
	if v.screen {
		fmt.Fprint(v.out, "\x1b[?25l\x1b[2J")
		defer fmt.Fprint(v.out, "\x1b[?25h\n")
	} else {
		fmt.Fprintln(v.out, v.commands())
	}
	_ = admin.Stream(ctx, v.client, admin.MethodTop, admin.TopRequest{Interval: time.Second}, func(s *admin.TopSample) error {
		if v.screen {
			v.draw(s)
		} else {
			v.line(s)
		}
		return nil
	})
	<-ctx.Done()
}

// watchEndpoints turns changes of the endpoints' state into events.
func (v *view) watchEndpoints(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		status, err := admin.Call[admin.Status](ctx, v.client, admin.MethodStatus, admin.Empty{})
		if err != nil {
			continue
		}
		for _, s := range status.Services {
			for _, e := range s.Endpoints {
				v.noteHealth(e.Address, e.Health)
			}
		}
	}
}

func (v *view) noteHealth(address, health string) {
	v.mu.Lock()
	before, known := v.health[address]
	v.health[address] = health
	if known && before != health {
		if health == "ejected" {
			v.ejected++
		} else if before == "ejected" {
			v.back++
		}
	}
	v.mu.Unlock()
	if known && before != health {
		v.event(fmt.Sprintf("the node says: %s is %s (was %s)", v.world.nameOf(address), health, before))
	}
}

func (w *world) nameOf(address string) string {
	for _, s := range []*service{w.shopV1, w.shopV2, w.secure, w.flakyA, w.flakyB} {
		if s.addr == address {
			return s.name + " (" + address + ")"
		}
	}
	return address
}

// commands are what a user can try from a second terminal.
func (v *view) commands() string {
	w, addr := v.world, v.node.Admin
	edge := w.edge
	return strings.Join([]string{
		"Try it from a second terminal, in this folder:",
		"  echo hello | nc -q1 " + strings.Replace(w.shop, ":", " ", 1),
		"  echo hello | openssl s_client -quiet -connect " + edge + " -servername " + secureName + " -CAfile " + w.caFile,
		"  go run ./cmd/penstock status --addr " + addr,
		"  go run ./cmd/penstock explain --listener shop --addr " + addr,
		"  go run ./cmd/penstock explain --listener edge --sni " + secureName + " --addr " + addr,
		"  go run ./cmd/penstock get meshtcproutes -o yaml --addr " + addr,
		"  curl http://" + v.node.HTTP + "/metrics",
		"",
	}, "\n")
}

// line is one second as a plain line.
func (v *view) line(s *admin.TopSample) {
	seen := v.traffic.seen()
	var in, out, fresh float64
	for _, f := range s.Flows {
		in, out, fresh = in+f.InRate, out+f.OutRate, fresh+f.NewRate
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.out, "%5.1fs  open %d  new/s %.0f  in %s/s  out %s/s  shop v1:v2 = %d:%d of the last %d  answered %d of %d  long-lived %d, broken %d\n",
		time.Since(v.began).Seconds(), s.Connections, fresh, size(in), size(out),
		seen.v1, seen.v2, seen.v1+seen.v2, seen.answered, seen.opened, seen.long, seen.broken)
}

// draw is the live screen.
func (v *view) draw(s *admin.TopSample) {
	seen := v.traffic.seen()
	var b bytes.Buffer
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\x1b[K\n", a...) }
	line("\x1b[H\x1b[1mPenstock demo\x1b[0m  %s  (Ctrl-C ends it)", time.Since(v.began).Round(time.Second))
	line("")
	line("split of the shop, as its clients were answered (last %d):", seen.v1+seen.v2)
	bar(line, "v1", seen.v1, seen.v1+seen.v2)
	bar(line, "v2", seen.v2, seen.v1+seen.v2)
	line("")
	line("%-10s %-10s %6s %8s %10s %10s %10s", "LISTENER", "SERVICE", "OPEN", "NEW/S", "IN/S", "OUT/S", "TOTAL")
	slices.SortFunc(s.Flows, func(a, b admin.Flow) int { return strings.Compare(a.Listener, b.Listener) })
	for _, f := range s.Flows {
		line("%-10s %-10s %6d %8.0f %10s %10s %10d", f.Listener, f.Service, f.Connections, f.NewRate, size(f.InRate), size(f.OutRate), f.Total)
	}
	line("")
	v.mu.Lock()
	for _, w := range []*service{v.world.shopV1, v.world.shopV2, v.world.secure, v.world.flakyA, v.world.flakyB} {
		state := v.health[w.addr]
		color := "32"
		if state == "ejected" || state == "unhealthy" {
			color = "31"
		}
		line("  %-9s %-16s \x1b[%sm%-10s\x1b[0m %6d answers", w.name, w.addr, color, state, seen.answers[w.name])
	}
	line("")
	line("answered %d of %d connections; %d long-lived ones, %d exchanges on them, %d broken", seen.answered, seen.opened, seen.long, seen.pings, seen.broken)
	line("")
	for _, e := range v.events {
		line("%s", e)
	}
	for range maxEvents - len(v.events) {
		line("")
	}
	v.mu.Unlock()
	line("")
	for l := range strings.Lines(v.commands()) {
		line("%s", strings.TrimSuffix(l, "\n"))
	}
	b.WriteString("\x1b[J")
	_, _ = v.out.Write(b.Bytes())
}

func bar(line func(string, ...any), name string, n, of int) {
	const width = 50
	share := 0
	if of > 0 {
		share = n * width / of
	}
	line("  %s %s%s %3d %%", name, strings.Repeat("█", share), strings.Repeat("·", width-share), n*100/max(of, 1))
}

func size(n float64) string {
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if n < 1000 || unit == "GB" {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return ""
}

// summary is the last word, and the demo's verdict.
func (v *view) summary() error {
	s := v.traffic.seen()
	fmt.Fprintf(v.out, "\n%d connections opened, %d answered (shop v1 %d, shop v2 %d, secure %d, flaky a %d, flaky b %d)\n",
		s.opened, s.answered, s.answers["shop v1"], s.answers["shop v2"], s.answers["secure"], s.answers["flaky a"], s.answers["flaky b"])
	fmt.Fprintf(v.out, "%d long-lived connections, %d exchanges on them, %d broken; %d ejections and %d returns seen\n",
		s.long+s.broken, s.pings, s.broken, v.ejected, v.back)
	for _, f := range s.faults {
		fmt.Fprintln(v.out, "not answered:", f)
	}
	if s.opened == 0 || s.answered != s.opened || s.broken > 0 {
		return fmt.Errorf("%w: %d of %d, %d long-lived ones broken", ErrUnanswered, s.opened-s.answered, s.opened, s.broken)
	}
	return nil
}
