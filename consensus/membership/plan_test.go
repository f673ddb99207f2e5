package membership

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"penstock/internal/testkit/scenario"
)

// TestPlanScenarios runs the scenarios in testdata/plan. Steps:
//
//	set voters=N stable=D replace=D forget=D   settings
//	found N [zone=Z]          a node founds the cluster
//	join N... [zone=Z]        nodes join, up and caught up
//	up|down N...              nodes go up or down
//	behind|caughtup N         its log is far behind the leader's, or close to it
//	leave N                   it is told to leave for good
//	drain N...                it is about to stop
//	move N ADDR               it has another address now
//	at T                      the time since the beginning
//	plan                      the leader's plan
//	run                       the leader acts until its plan is empty
func TestPlanScenarios(t *testing.T) {
	scenario.Run(t, "testdata/plan", func(*testing.T) scenario.Command { return scenario.Steps(newWorld().step) })
}

func (w *world) step(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "set":
		w.set(t, d)
	case "at":
		w.now = timeOf(t, d)
	case "plan":
		return formatActions(w.plan())
	case "run":
		return w.run(t)
	case "move":
		n := w.find(d.CmdArgs[0].Key)
		if n == nil {
			d.Fatalf(t, "%s: no such node", d.FullCmd())
		}
		n.Addr = d.CmdArgs[1].Key
	default:
		w.changeNodes(t, d)
	}
	return ""
}

// timeOf returns the time of the step "at T".
func timeOf(t *testing.T, d *datadriven.TestData) time.Time {
	after, err := time.ParseDuration(d.CmdArgs[0].Key)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return t0.Add(after)
}

// idsOf returns the nodes of a step: its arguments without a value.
func idsOf(t *testing.T, d *datadriven.TestData) (ids []string) {
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			ids = append(ids, arg.Key)
		}
	}
	if len(ids) == 0 {
		d.Fatalf(t, "%s: no node", d.FullCmd())
	}
	return ids
}

// changeNodes performs the steps that concern one node, for each of several.
func (w *world) changeNodes(t *testing.T, d *datadriven.TestData) {
	zone := ""
	d.MaybeScanArgs(t, "zone", &zone)
	for _, id := range idsOf(t, d) {
		n := w.find(id)
		if (n == nil) != (d.Cmd == "join" || d.Cmd == "found") {
			d.Fatalf(t, "%s: %s is new, or is not", d.FullCmd(), id)
		}
		switch d.Cmd {
		case "join":
			w.add(id).Zone = zone
		case "found":
			w.found(id)
			w.find(id).Zone = zone
		case "up", "down":
			w.turn(n, d.Cmd == "up")
		case "behind", "caughtup":
			n.CaughtUp = d.Cmd == "caughtup"
		case "leave":
			n.Leaving = true
		case "drain":
			n.Draining = true
		default:
			d.Fatalf(t, "%s: no such step", d.Cmd)
		}
	}
}

func (w *world) set(t *testing.T, d *datadriven.TestData) {
	s := &w.settings
	settings := map[string]any{
		"voters": &s.Voters, "stable": &s.StableAfter, "replace": &s.ReplaceAfter, "forget": &s.ForgetAfter,
	}
	for _, arg := range d.CmdArgs {
		if settings[arg.Key] == nil {
			d.Fatalf(t, "no setting is called %s", arg.Key)
		}
		arg.Scan(t, 0, settings[arg.Key])
	}
}

// run performs the actions of plans until one is empty.
func (w *world) run(t *testing.T) string {
	var out strings.Builder
	for range 100 {
		actions := w.plan()
		if len(actions) == 0 {
			return out.String() + w.describe()
		}
		out.WriteString(formatActions(actions) + "\n")
		for _, a := range actions {
			if err := w.do(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("no end of actions")
	return ""
}

func formatActions(actions []Action) string {
	var lines []string
	for _, a := range actions {
		lines = append(lines, fmt.Sprintf("%s %s: %s", a.Kind, a.ID, a.Why))
	}
	return cmp.Or(strings.Join(lines, "\n"), "nothing")
}

func (w *world) describe() string {
	ids, live := w.voters()
	if w.leader == "" {
		return fmt.Sprintf("no leader: %d of the voters %s are up", live, strings.Join(ids, " "))
	}
	return fmt.Sprintf("%s leads the voters %s", w.leader, strings.Join(ids, " "))
}

// A leader without a majority of the voters has lost leadership without having
// noticed yet.
func TestPlanWithoutMajorityDoesNothing(t *testing.T) {
	now := time.Now()
	long := now.Add(-100 * time.Hour)
	voter := func(id string, up bool) Node {
		return Node{ID: id, Name: id, Server: true, Voter: true, Up: up, CaughtUp: up, Since: long, Joined: long}
	}
	o := Observed{Self: "n1", Now: now, Nodes: []Node{
		voter("n1", true), voter("n2", false), voter("n3", false),
		{ID: "n4", Name: "n4", Server: true, Up: true, CaughtUp: true, Since: long, Joined: long},
	}}
	if got := Plan(o); len(got) > 0 {
		t.Errorf("one of three voters plans %+v", got)
	}
	o.Nodes[1] = voter("n2", true)
	if got := Plan(o); len(got) == 0 {
		t.Error("two of three plan nothing")
	}
}
