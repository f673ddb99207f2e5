package endpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"penstock/internal/testkit/scenario"
)

// TestEjectionScenarios runs the scenarios in testdata/ejection, which hold
// rule 16 of integration/rules_test.go. The output of a step is events and query
// results. Letters name the endpoints.
//
//	group N failures=F window=W duration=D share=P   a group of N endpoints
//	at T                                             the time since the start
//	connect|fail|reset X [n]                         n successes, failed connects, early resets
//	healthy|unhealthy X                              the result of an active check
//	add|remove X                                     a change of the service's endpoints
//	sweep                                            only time has passed
//	usable | standing X                              queries
func TestEjectionScenarios(t *testing.T) {
	scenario.Run(t, "testdata/ejection", func(*testing.T) scenario.Command {
		return scenario.Steps(new(world).step)
	})
}

// world is a group under test and the time.
type world struct {
	g     *Group
	now   time.Time
	names []string // of the members
	out   []string
}

func (w *world) say(format string, args ...any) { w.out = append(w.out, fmt.Sprintf(format, args...)) }

func (w *world) offset(at time.Time) time.Duration { return at.Sub(t0) }

func (w *world) observe(ev Event) {
	switch ev.Change {
	case EventPaused, EventResumed: // tested by TestPause*
	case EventEjected:
		w.say("%s ejected until %v, %d times, after %s", ev.Endpoint.Address, w.offset(ev.Until), ev.Times, ev.Cause)
	default:
		w.say("%s %v at %v", ev.Endpoint.Address, ev.Change, w.offset(ev.At))
	}
}

func (w *world) update() {
	var set []Spec
	for _, n := range w.names {
		set = append(set, Spec{Address: n})
	}
	w.g.Update(set, w.now)
}

func (w *world) find(name string) *Endpoint {
	for _, e := range w.g.Endpoints() {
		if e.Address == name {
			return e
		}
	}
	return &Endpoint{Address: name}
}

func (w *world) step(t *testing.T, d *datadriven.TestData) string {
	w.out = nil
	switch d.Cmd {
	case "group":
		w.group(t, d)
	case "at":
		after, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.now = t0.Add(after)
	case "sweep":
		w.g.Sweep(w.now)
	case "usable":
		var names []string
		for _, e := range w.g.Endpoints() {
			if e.Usable(w.now) {
				names = append(names, e.Address)
			}
		}
		w.say("%s", cmp.Or(strings.Join(names, " "), "none"))
	default:
		e, n := w.find(d.CmdArgs[0].Key), 1
		if len(d.CmdArgs) > 1 {
			n = number(t, d.CmdArgs[1].Key)
		}
		for range n {
			w.endpoint(t, d, e)
		}
	}
	return strings.Join(w.out, "\n")
}

// endpoint runs a step for one endpoint.
func (w *world) endpoint(t *testing.T, d *datadriven.TestData, e *Endpoint) {
	switch d.Cmd {
	case "connect":
		w.g.Connected(e, w.now)
	case "fail":
		w.g.Failed(e, ConnectFailed, w.now)
	case "reset":
		w.g.Connected(e, w.now) // as in reality: it accepted the connection first
		w.g.Failed(e, EarlyReset, w.now)
	case "healthy":
		e.SetHealth(Healthy, w.now)
	case "unhealthy":
		e.SetHealth(Unhealthy, w.now)
	case "add":
		w.names = append(w.names, e.Address)
		w.update()
	case "remove":
		w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == e.Address })
		w.update()
	case "standing":
		st := w.g.History(e, w.now)
		out := "in"
		if !st.EjectedUntil.IsZero() {
			out = "out until " + w.offset(st.EjectedUntil).String()
		}
		w.say("%d failures, %s, usable since %v", st.Failures, out, w.since(e))
	default:
		d.Fatalf(t, "unknown step %q", d.Cmd)
	}
}

func (w *world) since(e *Endpoint) string {
	if e.UsableSince().IsZero() {
		return "the start"
	}
	return w.offset(e.UsableSince()).String()
}

func (w *world) group(t *testing.T, d *datadriven.TestData) {
	w.now, w.g, w.names = t0, NewGroup("s", w.observe), nil
	for i := range number(t, d.CmdArgs[0].Key) {
		w.names = append(w.names, string(rune('a'+i)))
	}
	w.update()
	var ej Ejection
	d.ScanArgs(t, "failures", &ej.Failures)
	d.ScanArgs(t, "window", &ej.Window)
	d.ScanArgs(t, "duration", &ej.Duration)
	d.ScanArgs(t, "share", &ej.MaxShare)
	w.g.Configure(&ej, w.now)
}

func number(t *testing.T, arg string) int {
	t.Helper()
	n, err := strconv.Atoi(arg)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
