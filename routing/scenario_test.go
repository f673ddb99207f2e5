package routing

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"penstock/internal/testkit/scenario"
	"penstock/routing/endpoint"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

var t0 = time.Unix(1_700_000_000, 0)

// TestScenarios runs the scenarios in testdata, whose README.md explains the
// commands.
func TestScenarios(t *testing.T) {
	scenario.Run(t, "testdata", func(t *testing.T) scenario.Command { return newWorld(t).do })
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

var commandsWithInput = []string{"apply", "policies", "gateway", "diff", "simulate"}

// do runs one command.
func (w *world) do(_ *testing.T, d *datadriven.TestData) string {
	if d.Input != "" && !slices.Contains(commandsWithInput, d.Cmd) {
		d.Fatalf(w.t, "%s has no input: a line of dashes is missing", d.Cmd)
	}
	var args []string // those without a value
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			args = append(args, a.Key)
		}
	}
	switch d.Cmd {
	case "node":
		tags := map[string]string{}
		for _, a := range d.CmdArgs {
			tags[a.Key] = a.SingleVal(w.t)
		}
		w.router = w.newRouter(tags)
	case "apply":
		return w.apply(d.Input)
	case "delete":
		return w.change([]resource.Change{resource.Delete(keyOf(args[0]))})
	case "policies":
		return w.policies(d.Input)
	case "gateway":
		return w.gateway(args, d.Input)
	case "status":
		return w.status(keyOf(args[0]))
	case "rollout":
		return w.rollout(args)
	case "effective":
		return w.effective(args)
	case "source":
		return w.source(d)
	case "diff":
		return w.diff(d.Input)
	case "simulate":
		return w.simulate(d)
	case "connect":
		return w.connect(d)
	case "request":
		return w.request(d)
	case "explain":
		e := w.explain(d)
		return e.Text()
	case "close":
		for _, d := range w.held {
			d.Closed()
		}
		w.held = nil
	case "health":
		return w.health(args[0], args[1], args[2])
	case "after":
		w.after(args[0])
	case "resolve":
		w.hosts[args[0]] = nil
		for _, a := range args[1:] {
			w.hosts[args[0]] = append(w.hosts[args[0]], netip.MustParseAddr(a))
		}
		return applied(w.router.Resolved(args[:1], w.now), nil)
	case "hosts":
		return w.hostList()
	default:
		d.Fatalf(w.t, "unknown command")
	}
	return w.takeEvents()
}

func keyOf(arg string) resource.Key {
	kind, name, _ := strings.Cut(arg, "/")
	return resource.Key{Kind: kind, Name: name}
}

func (w *world) after(arg string) {
	d, err := time.ParseDuration(arg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = w.now.Add(d)
	for s := range w.router.Table().Services() {
		s.Group().Sweep(w.now)
	}
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
func (w *world) source(d *datadriven.TestData) string {
	in := parseInput(w.t, d.CmdArgs)
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
// "failing=(A, B)" refuse, those in "dropping=(A, B)" time out, and "hold" keeps
// the connections open. Consecutive equal outcomes are counted.
func (w *world) connect(d *datadriven.TestData) string {
	in := parseInput(w.t, d.CmdArgs)
	times := 1
	var failing, dropping []string
	d.MaybeScanArgs(w.t, "times", &times)
	d.MaybeScanArgs(w.t, "failing", &failing)
	d.MaybeScanArgs(w.t, "dropping", &dropping)
	var outcomes []string
	for range times {
		outcomes = append(outcomes, w.connectOnce(in, failing, dropping, d.HasArg("hold")))
	}
	outcomes = append(outcomes, w.events...)
	w.events = nil
	if !d.HasArg("order") {
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

// parseInput parses "LISTENER sni=NAME alpn=(A, B) from=IP tags=(k=v, ...)".
func parseInput(t *testing.T, args []datadriven.CmdArg) *Input {
	in := &Input{Listener: args[0].Key, Client: netip.MustParseAddr("192.0.2.1")}
	for _, a := range args[1:] {
		switch a.Key {
		case "sni":
			in.ServerName, in.HasServerName = a.SingleVal(t), true
			if name, err := strconv.Unquote(in.ServerName); err == nil {
				in.ServerName = name
			}
		case "alpn":
			in.ALPN = a.Vals
		case "user":
			in.User = a.SingleVal(t)
		case "from":
			in.Client = netip.MustParseAddr(a.SingleVal(t))
		case "tags":
			in.Tags = map[string]string{}
			for _, tag := range a.Vals {
				k, v, _ := strings.Cut(tag, "=")
				in.Tags[k] = v
			}
		case "times", "failing", "dropping", "hold", "order", "method", "path", "host", "headers", "to":
		default:
			t.Fatalf("unknown argument %q", a.Key)
		}
	}
	return in
}
