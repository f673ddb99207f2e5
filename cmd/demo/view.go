package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"penstock/node/api"
)

// view prints the state once a second, from three sources: the clients, the
// balancer and the nodes' reports.
type view struct {
	out      io.Writer
	screen   bool
	fixtures *fixtures
	cluster  *cluster
	traffic  *traffic
	kafka    *kafkaTraffic
	scenario *scenario
	program  string // the command line for this program

	began     time.Time
	mu        sync.Mutex        // guards the fields below and writes to out
	events    []string          // the last maxEvents
	health    map[string]string // of each endpoint by node, as last seen
	avoided   int               // how often an endpoint became paused or ejected
	recovered int               // how often an endpoint recovered
}

const maxEvents = 12

// event records and prints an event.
func (v *view) event(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := fmt.Sprintf("%5.1fs  %s", time.Since(v.began).Seconds(), fmt.Sprintf(format, args...))
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
		// Hide the cursor, and cut long lines instead of wrapping.
		fmt.Fprint(v.out, "\x1b[?25l\x1b[?7l\x1b[2J")
		defer fmt.Fprint(v.out, "\x1b[?25h\x1b[?7h\n")
	} else {
		v.print(v.commands())
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if v.screen {
			v.draw()
		} else {
			v.printStatus()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (v *view) print(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(v.out, text)
}

// watchEndpoints reports changes of endpoint health as events.
func (v *view) watchEndpoints(ctx context.Context) {
	for ctx.Err() == nil {
		for _, n := range v.cluster.nodes {
			r := n.lastReport()
			if r == nil {
				continue
			}
			for _, s := range r.services {
				for _, e := range s.Endpoints {
					v.noteHealth(n, e.Address, e.Health)
				}
			}
		}
		pause(ctx, pollInterval)
	}
}

func (v *view) noteHealth(n *node, address, health string) {
	key := n.name + " " + address
	v.mu.Lock()
	before, known := v.health[key]
	v.health[key] = health
	changed := known && before != health
	if was, is := isAvoided(before), isAvoided(health); changed && is && !was {
		v.avoided++
	} else if changed && was && !is {
		v.recovered++
	}
	v.mu.Unlock()
	if changed {
		v.event("%s reports: %s is %s (was %s)", n.name, v.fixtures.serviceName(address), health, before)
	}
}

// isAvoided reports whether new connections avoid an endpoint in that state.
func isAvoided(health string) bool { return health == "paused" || health == "ejected" }

// worstHealth returns the worst health of an endpoint among the reports of
// running nodes.
func (v *view) worstHealth(address string) string {
	order := []string{"", "healthy", "unchecked", "unresolved", "paused", "unhealthy", "ejected"}
	worst := ""
	for _, n := range v.cluster.nodes {
		r := n.lastReport()
		if r == nil {
			continue
		}
		for _, s := range r.services {
			for _, e := range s.Endpoints {
				if e.Address == address && slices.Index(order, e.Health) > slices.Index(order, worst) {
					worst = e.Health
				}
			}
		}
	}
	return worst
}

func (w *fixtures) services() []*service {
	return []*service{w.shopV1, w.shopV2, w.secure, w.flakyA, w.flakyB}
}

func (w *fixtures) serviceName(address string) string {
	for _, s := range w.services() {
		if s.addr == address {
			return s.name + " (" + address + ")"
		}
	}
	return address
}

// program returns the command line that runs executable; a binary of `go run`
// is temporary.
func program(executable string) string {
	if strings.HasPrefix(executable, filepath.Join(os.TempDir(), "go-build")) {
		return "go run ./cmd/penstock"
	}
	return executable
}

// commands returns commands that a user can try in a second terminal. They use
// the nodes' own sockets, which need no token.
func (v *view) commands() string {
	f := v.cluster
	a, b := f.nodes[1], f.nodes[2]
	return strings.Join([]string{
		"Try it from a second terminal, in this folder (nodes are killed in turn: if one does not answer, use another):",
		"  echo hello | nc -q1 " + strings.Replace(f.shop, ":", " ", 1),
		"  echo hello | openssl s_client -quiet -connect " + f.edge + " -servername " + secureName + " -CAfile " + v.fixtures.caFile,
		"  kcat -b " + f.plain + " -L                          (tenant blue, plain text)",
		"  echo hello | kcat -b " + f.plain + " -t mine -P; kcat -b " + f.plain + " -t mine -C -e",
		"  kcat -b bootstrap" + suffix("red") + ":" + portText(f.kafka) +
			" -X security.protocol=ssl -X ssl.ca.location=" + v.fixtures.caFile + " -L",
		"    (if names under .localhost do not resolve: " +
			"echo 127.0.0.1 {bootstrap,broker-0,broker-1,broker-2}" + suffix("red") + " >> /etc/hosts)",
		"  " + v.program + " status --addr " + a.socket,
		"  " + v.program + " explain --listener shop --addr " + b.socket,
		"  " + v.program + " get meshtcproutes -o yaml --addr " + b.socket,
		"  " + v.program + " history meshtcproute canary --addr " + a.socket,
		"  curl http://" + a.http + "/readyz http://" + b.http + "/metrics",
		"  tail -f " + filepath.Join(filepath.Dir(a.log), "*.log"),
		"",
	}, "\n")
}

// totals adds up the nodes' rates of the last second, by listener.
func (v *view) totals() (flows []api.Flow, all api.Flow) {
	by := map[string]*api.Flow{}
	for _, n := range v.cluster.nodes {
		r := n.lastReport()
		if r == nil {
			continue
		}
		for _, f := range r.top.Flows {
			one := by[f.Listener]
			if one == nil {
				one = &api.Flow{Listener: f.Listener, Service: f.Service}
				by[f.Listener] = one
			}
			add(one, f)
			add(&all, f)
		}
	}
	for _, f := range by {
		flows = append(flows, *f)
	}
	slices.SortFunc(flows, func(a, b api.Flow) int { return strings.Compare(a.Listener, b.Listener) })
	return flows, all
}

func add(to *api.Flow, f api.Flow) {
	to.Connections += f.Connections
	to.NewRate += f.NewRate
	to.InRate += f.InRate
	to.OutRate += f.OutRate
}

// role returns the state of a node for display.
func (v *view) role(i int) string {
	n := v.cluster.nodes[i]
	r := n.lastReport()
	switch {
	case n.running() == nil:
		return "dead"
	case r == nil:
		return "starting"
	case n.isLeader():
		return "leader"
	case r.alone != "":
		return "alone"
	}
	return r.self.Role
}

// printStatus prints one second as a plain line.
func (v *view) printStatus() {
	clients := v.traffic.stats()
	_, all := v.totals()
	var nodes strings.Builder
	for i, n := range v.cluster.nodes {
		fmt.Fprintf(&nodes, "  %s %s %d", n.name, v.role(i), v.cluster.balancer.counts(i).open)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.out, "%5.1fs%s  new/s %.0f  in %s/s  out %s/s  shop v1:v2 = %d:%d of the last %d  answered %d of %d, %d lost with "+
		"their node  long-lived %d, broken %d\n",
		time.Since(v.began).Seconds(), nodes.String(), all.NewRate, size(all.InRate), size(all.OutRate),
		clients.v1, clients.v2, clients.v1+clients.v2, clients.answered, clients.opened,
		clients.lostWithNode+clients.longLost, clients.longOpen, clients.longBroken)
	fmt.Fprintf(v.out, "        %s\n", v.kafka.summaryLine())
}

// rows returns the number of terminal rows; a large number if unknown.
func (v *view) rows() int {
	if f, ok := v.out.(*os.File); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Row > 0 {
			return int(size.Row)
		}
	}
	return 100
}

// draw redraws the live screen.
func (v *view) draw() {
	clients, run := v.traffic.stats(), v.scenario.stats()
	var b bytes.Buffer
	left := v.rows() - 1
	line := func(format string, a ...any) {
		if left--; left >= 0 {
			fmt.Fprintf(&b, format+"\x1b[K\n", a...)
		}
	}
	b.WriteString("\x1b[H")
	line("\x1b[1mPenstock demo\x1b[0m  %s  (Ctrl-C to stop)", time.Since(v.began).Round(time.Second))
	line("")
	v.drawNodes(line)
	line("")
	line("split of the shop (v2 should get %d %%), by the last %d answers to its clients:", run.v2, clients.v1+clients.v2)
	drawBar(line, "v1", clients.v1, clients.v1+clients.v2)
	drawBar(line, "v2", clients.v2, clients.v1+clients.v2)
	line("")
	line("%-10s %-10s %6s %8s %10s %10s   (all nodes)", "LISTENER", "SERVICE", "OPEN", "NEW/S", "IN/S", "OUT/S")
	flows, _ := v.totals()
	for _, f := range flows {
		line("%-10s %-10s %6d %8.0f %10s %10s", f.Listener, f.Service, f.Connections, f.NewRate, size(f.InRate), size(f.OutRate))
	}
	line("")
	for _, w := range v.fixtures.services() {
		state := v.worstHealth(w.addr)
		color := "32"
		if isAvoided(state) || state == "unhealthy" {
			color = "31"
		}
		line("  %-9s %-16s \x1b[%sm%-10s\x1b[0m %6d answers", w.name, w.addr, color, state, clients.answers[w.name])
	}
	line("")
	line("answered %d of %d connections, %d lost with their node; %d long-lived ones, %d exchanges on them, %d lost with their "+
		"node, %d broke",
		clients.answered, clients.opened, clients.lostWithNode, clients.longOpen, clients.exchanges, clients.longLost, clients.longBroken)
	line("%d nodes killed, %d back, %d leader changes (at most %s after the kill); %d changes, the slowest took %s",
		run.kills, run.restarts, run.leaderChanges, seconds(run.slowestElection), run.changes, seconds(run.slowestChange))
	line("%s; tenants added and removed: %d", v.kafka.summaryLine(), run.tenants)
	line("")
	v.mu.Lock()
	defer v.mu.Unlock()
	// If the screen is too small, leave out the commands, then older events.
	commands := strings.Split(v.commands(), "\n")
	events := min(maxEvents, left-len(commands)-1)
	if events < 4 {
		events, commands = max(0, min(maxEvents, left)), nil
	}
	shown := v.events[max(0, len(v.events)-events):]
	for _, e := range shown {
		line("%s", e)
	}
	for range events - len(shown) {
		line("")
	}
	for i, l := range commands {
		if i == 0 {
			line("")
		}
		line("%s", l)
	}
	b.WriteString("\x1b[J")
	_, _ = v.out.Write(b.Bytes())
}

func (v *view) drawNodes(line func(string, ...any)) {
	line("%-5s %-14s %8s %-10s %8s %5s | balancer: %-6s %6s %8s %8s",
		"NODE", "ADDRESS", "PROCESS", "ROLE", "APPLIED", "LAG", "READY", "OPEN", "TOTAL", "RETRIED")
	for i, n := range v.cluster.nodes {
		c, role := v.cluster.balancer.counts(i), v.role(i)
		color := map[string]string{"leader": "1;32", "voter": "32", "dead": "1;31"}[role]
		if color == "" {
			color = "33"
		}
		var self api.NodeStatus
		if r := n.lastReport(); r != nil {
			self = r.self
		}
		line("%-5s %-14s %8d \x1b[%sm%-10s\x1b[0m %8d %5d |           %-6t %6d %8d %8d",
			n.name, n.host, n.pid(), color, role,
			self.AppliedIndex, self.Lag, c.up, c.open, c.total, c.refused)
	}
}

func drawBar(line func(string, ...any), name string, n, of int) {
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
