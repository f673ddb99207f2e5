package routing

import (
	"cmp"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"penstock/routing/endpoint"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

var update = flag.Bool("update", false, "rewrite what the scenarios in testdata expect")

var t0 = time.Unix(1_700_000_000, 0)

// TestScenarios runs scenario files: a command with its input, a line of
// dashes, and the output. testdata/README.md explains the commands.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	steps := 0
	for i := 0; i < len(lines); {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			out.WriteString(lines[i] + "\n")
			i++
			continue
		}
		at := i
		for i < len(lines) && lines[i] != "----" {
			i++
		}
		if i == len(lines) {
			t.Fatalf("%s:%d: a command without ----", file, at+1)
		}
		command, input := lines[at], strings.Join(lines[at+1:i], "\n")
		i++
		from := i
		for i < len(lines) && lines[i] != "" {
			i++
		}
		got, want := strings.TrimRight(w.do(command, input), "\n"), strings.Join(lines[from:i], "\n")
		if got != want && !*update {
			t.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", file, at+1, command, got, want)
		}
		out.WriteString(strings.Join(lines[at:from], "\n") + "\n" + got + "\n")
		steps++
	}
	if steps == 0 {
		t.Errorf("%s has no steps", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// world is a router with a clock and host names controlled by the test.
type world struct {
	t      *testing.T
	router *Router
	now    time.Time
	hosts  map[string][]netip.Addr
	events []string
	held   []*Decision
	set    *validate.Set // resources applied by gateway
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: t0, hosts: map[string][]netip.Addr{}}
	w.router = w.newRouter(nil)
	return w
}

func (w *world) newRouter(tags map[string]string) *Router {
	return NewRouter(Config{NodeTags: tags, Hosts: w, Observe: func(ev endpoint.Event) {
		w.events = append(w.events, fmt.Sprintf("%s %s is %s", ev.Service, ev.Endpoint.Address, ev.Change))
	}})
}

func (w *world) Lookup(host string) ([]netip.Addr, bool) {
	addrs, ok := w.hosts[host]
	return addrs, ok
}

// do runs one command.
func (w *world) do(command, input string) string {
	words := strings.Fields(command)
	args := words[1:]
	switch words[0] {
	case "node":
		w.router = w.newRouter(parseTags(strings.Join(args, ",")))
	case "apply":
		return w.apply(input)
	case "delete":
		kind, name, _ := strings.Cut(args[0], "/")
		return w.change([]resource.Change{resource.Delete(resource.Key{Kind: kind, Name: name})})
	case "policies":
		return w.policies(input)
	case "gateway":
		return w.gateway(args, input)
	case "status":
		return w.status(args[0])
	case "rollout":
		return w.rollout(args)
	case "effective":
		return w.effective(args)
	case "source":
		return w.source(args)
	case "diff":
		return w.diff(input)
	case "simulate":
		return w.simulate(args, input)
	case "connect":
		return w.connect(args)
	case "request":
		return w.request(args)
	case "explain":
		e := w.explain(args)
		return e.Text()
	case "close":
		for _, d := range w.held {
			d.Closed()
		}
		w.held = nil
	case "health":
		return w.health(args[0], args[1], args[2])
	case "after":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
		for s := range w.router.Table().Services() {
			s.Group().Sweep(w.now)
		}
	case "resolve":
		w.hosts[args[0]] = nil
		for _, a := range args[1:] {
			w.hosts[args[0]] = append(w.hosts[args[0]], netip.MustParseAddr(a))
		}
		return applied(w.router.Resolved(args[:1], w.now), nil)
	case "hosts":
		return w.hostList()
	default:
		w.t.Fatalf("unknown command %q", words[0])
	}
	return w.takeEvents()
}

// takeEvents returns the events since the last command, or "ok".
func (w *world) takeEvents() string {
	s := cmp.Or(strings.Join(w.events, "\n"), "ok")
	w.events = nil
	return s
}

func (w *world) apply(input string) string {
	objects, faults := decodeInput(input)
	if len(faults) > 0 {
		return faults.Error()
	}
	var changes []resource.Change
	for _, o := range objects {
		changes = append(changes, resource.Put(o))
	}
	return w.change(changes)
}

// policies replaces all routes, so that a scenario does not depend on those
// before it.
func (w *world) policies(input string) string {
	var changes []resource.Change
	for name := range w.router.Table().routes.All() {
		changes = append(changes, resource.Delete(resource.Key{Kind: "MeshTCPRoute", Name: name}))
	}
	for name := range w.router.Table().httpRoutes.All() {
		changes = append(changes, resource.Delete(resource.Key{Kind: "MeshHTTPRoute", Name: name}))
	}
	w.change(changes) // in a change of its own, so that no split continues an old one
	changes = nil
	objects, faults := decodeInput(input)
	if len(faults) == 0 {
		faults, _ = validate.Objects(objects)
	}
	if len(faults) > 0 {
		return faults.Error()
	}
	for _, o := range objects {
		if o.Kind != "MeshTCPRoute" && o.Kind != "MeshHTTPRoute" {
			w.t.Fatalf("policies: %v is none", o.Key)
		}
		changes = append(changes, resource.Put(o))
	}
	if _, err := w.router.Apply(changes, w.now); err != nil {
		return err.Error()
	}
	return "ok"
}

// effective prints which policies decide for which sources; "all" includes
// services without policies.
func (w *world) effective(args []string) string {
	q := EffectiveQuery{All: slices.Contains(args, "all")}
	if len(args) > 0 && !q.All {
		q.Destination = args[0]
	}
	list, _ := w.router.Table().Effective(&q)
	var b strings.Builder
	for _, e := range list {
		if e.Missing {
			fmt.Fprintf(&b, "%s: there is no such service\n", e.Destination)
		}
		for i := range e.Sources {
			effectiveSource(&b, e.Destination, &e.Sources[i])
		}
		if e.NoRequests != "" {
			fmt.Fprintf(&b, "requests to %s are not routed individually: %s\n", e.Destination, e.NoRequests)
		}
		for i := range e.Requests {
			effectiveSource(&b, "requests to "+e.Destination, &e.Requests[i])
		}
	}
	return cmp.Or(b.String(), "none")
}

func effectiveSource(b *strings.Builder, destination string, s *EffectiveSource) {
	fmt.Fprintf(b, "%s from %s: %s\n", destination, s.Source, cmp.Or(s.Policy, s.Never, "the destination itself"))
	if s.Reason != OK {
		fmt.Fprintf(b, "  closed: %s\n", s.Reason)
	}
	for i := range s.Rules {
		fmt.Fprintf(b, "  rules[%d] %s\n", i, s.Rules[i].Text())
	}
	for _, x := range s.Backends {
		line := BackendState{Service: x.Service, Tags: tagList(x.Tags), Weight: x.Weight, Share: x.Share, Skipped: x.Skipped, Closed: x.Closed}
		fmt.Fprintf(b, "  %s\n", line.text())
	}
	if s.Rollout != nil {
		fmt.Fprintf(b, "  %s\n", s.Rollout)
	}
	for _, l := range s.Losers {
		fmt.Fprintf(b, "  not %s for %s: %s\n", l.Policy, l.Source, l.Why)
	}
	for _, x := range s.Except {
		fmt.Fprintf(b, "  but %s for those that are %s\n", x.Policy, x.Source)
	}
}

// source prints the tags of a connection and the layer of each.
func (w *world) source(args []string) string {
	in := parseInput(w.t, args)
	l, ok := w.router.Table().Listener(in.Listener)
	if !ok {
		w.t.Fatalf("no listener %q", in.Listener)
	}
	src := w.router.Table().source(in, l)
	var lines []string
	for _, t := range src.all() {
		lines = append(lines, fmt.Sprintf("%s=%s (%s)", t.Name, t.Value, t.From))
	}
	return cmp.Or(strings.Join(lines, "\n"), "no tags")
}

func (w *world) change(changes []resource.Change) string {
	return applied(w.router.Apply(changes, w.now))
}

func applied(a Applied, err error) string {
	var parts []string
	if len(a.Listeners) > 0 {
		parts = append(parts, "listeners "+strings.Join(a.Listeners, " "))
	}
	if len(a.Services) > 0 {
		parts = append(parts, "services "+strings.Join(a.Services, " "))
	}
	if a.Hosts {
		parts = append(parts, "hosts")
	}
	s := "changed: " + cmp.Or(strings.Join(parts, ", "), "nothing")
	if err != nil {
		s += "\n" + err.Error()
	}
	return s
}

func (w *world) health(service, address, state string) string {
	s, ok := w.router.Table().Service(service)
	if !ok {
		w.t.Fatalf("no service %q", service)
	}
	i := slices.Index([]string{"unchecked", "healthy", "unhealthy"}, state)
	for _, e := range s.Group().Endpoints() {
		if e.Address == address || e.Addr.String() == address {
			e.SetHealth(endpoint.Health(i), w.now)
			return w.takeEvents()
		}
	}
	w.t.Fatalf("no endpoint %q", address)
	return ""
}

func (w *world) hostList() string {
	var all []string
	for host, every := range w.router.Table().Hosts() {
		all = append(all, fmt.Sprintf("%s every %v", host, every))
	}
	slices.Sort(all)
	return cmp.Or(strings.Join(all, "\n"), "none")
}

// connect opens connections. "times=N" is their number, endpoints in
// "failing=A,B" refuse, those in "dropping=A,B" time out, and "hold" keeps the
// connections open. Consecutive equal outcomes are counted.
func (w *world) connect(args []string) string {
	in := parseInput(w.t, args)
	times := 1
	var failing, dropping []string
	hold, order := false, false
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "times":
			times, _ = strconv.Atoi(v)
		case "failing":
			failing = strings.Split(v, ",")
		case "dropping":
			dropping = strings.Split(v, ",")
		case "hold":
			hold = true
		case "order":
			order = true
		}
	}
	var outcomes []string
	for range times {
		outcomes = append(outcomes, w.connectOnce(in, failing, dropping, hold))
	}
	outcomes = append(outcomes, w.events...)
	w.events = nil
	if !order {
		slices.Sort(outcomes)
	}
	var lines []string
	for len(outcomes) > 0 {
		n := 1
		for n < len(outcomes) && outcomes[n] == outcomes[0] {
			n++
		}
		line := outcomes[0]
		if times > 1 {
			line = fmt.Sprintf("%d x %s", n, line)
		}
		lines, outcomes = append(lines, line), outcomes[n:]
	}
	return strings.Join(lines, "\n")
}

func (w *world) connectOnce(in *Input, failing, dropping []string, hold bool) string {
	d, reason := w.router.Decide(in)
	if reason != OK {
		return "closed: " + string(reason)
	}
	said := d.Destination()
	if d.HTTP() {
		return said + ": its requests are routed individually"
	}
	if d.Service() != d.Destination() {
		said += ", by policy " + d.Service()
	}
	for {
		e, reason := d.Next(w.now)
		if reason != OK {
			d.Closed()
			return said + ": closed: " + string(reason)
		}
		at := e.Addr.String()
		if e.Unix != "" {
			at = "unix:" + e.Unix
		}
		if slices.Contains(failing, at) {
			said += ", " + at + " fails"
			continue
		}
		if slices.Contains(dropping, at) {
			said += ", " + at + " times out"
			s, _ := w.router.Table().Service(d.Service())
			w.now = w.now.Add(s.Spec().Connect.Timeout.D())
			d.RecordFault(endpoint.ConnectTimedOut, "", w.now)
			continue
		}
		d.Connected(w.now)
		if hold {
			w.held = append(w.held, &d)
		} else {
			d.Closed()
		}
		return said + " -> " + at
	}
}

// parseInput parses "LISTENER sni=NAME alpn=A,B from=IP tags=k=v,...".
func parseInput(t *testing.T, args []string) *Input {
	in := &Input{Listener: args[0], Client: netip.MustParseAddr("192.0.2.1")}
	for _, a := range args[1:] {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "sni":
			name, err := strconv.Unquote(v)
			if err != nil {
				name = v
			}
			in.ServerName, in.HasServerName = name, true
		case "alpn":
			in.ALPN = strings.Split(v, ",")
		case "from":
			in.Client = netip.MustParseAddr(v)
		case "tags":
			in.Tags = parseTags(v)
		case "times", "failing", "dropping", "hold", "order", "method", "path", "host", "headers", "to":
		default:
			t.Fatalf("unknown argument %q", a)
		}
	}
	return in
}

func parseTags(s string) map[string]string {
	tags := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			tags[k] = v
		}
	}
	return tags
}
