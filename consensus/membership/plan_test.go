package membership

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scenario files")

// runScenarios runs the scenarios in a directory. A line is a step; the lines
// below it that begin with ">" are its expected output.
func runScenarios[S any](t *testing.T, folder string, begin func() S, step func(s S, words []string) ([]string, error)) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario in %s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := begin()
			var got []string
			for n, line := range strings.Split(strings.TrimRight(string(raw), "\n"), "\n") {
				if strings.HasPrefix(line, ">") {
					continue
				}
				got = append(got, line)
				words := strings.Fields(line)
				if len(words) == 0 || words[0] == "#" {
					continue
				}
				out, err := step(s, words)
				if err != nil {
					t.Fatalf("%s:%d: %v", file, n+1, err)
				}
				for _, line := range out {
					got = append(got, "> "+line)
				}
			}
			have := strings.Join(got, "\n") + "\n"
			if *update {
				if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if have != string(raw) {
				t.Errorf("%s: the output differs:\n%s", file, have)
			}
		})
	}
}

var errArguments = errors.New("invalid arguments for this step")

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
func TestPlanScenarios(t *testing.T) { runScenarios(t, "plan", newWorld, (*world).step) }

func (w *world) step(words []string) ([]string, error) {
	verb, args := words[0], words[1:]
	switch {
	case verb == "set":
		return nil, w.set(args)
	case verb == "plan":
		return formatActions(w.plan()), nil
	case verb == "run":
		return w.run()
	case len(args) == 0:
		return nil, errArguments
	case verb == "at":
		d, err := time.ParseDuration(args[0])
		w.now = t0.Add(d)
		return nil, err
	}
	zone := ""
	if last, ok := strings.CutPrefix(args[len(args)-1], "zone="); ok {
		zone, args = last, args[:len(args)-1]
	}
	if verb == "move" {
		if len(args) != 2 || w.find(args[0]) == nil {
			return nil, errArguments
		}
		w.find(args[0]).Addr = args[1]
		return nil, nil
	}
	for _, id := range args {
		if err := w.change(verb, id, zone); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// change performs the steps that concern one node.
func (w *world) change(verb, id, zone string) error {
	n := w.find(id)
	if (n == nil) != (verb == "join" || verb == "found") {
		return fmt.Errorf("%s: %w", id, errArguments)
	}
	switch verb {
	case "join":
		w.add(id).Zone = zone
	case "found":
		w.found(id)
		w.find(id).Zone = zone
	case "up", "down":
		w.turn(n, verb == "up")
	case "behind", "caughtup":
		n.CaughtUp = verb == "caughtup"
	case "leave":
		n.Leaving = true
	case "drain":
		n.Draining = true
	default:
		return fmt.Errorf("%s: no such step", verb)
	}
	return nil
}

func (w *world) set(args []string) (err error) {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "voters":
			w.settings.Voters, err = strconv.Atoi(value)
		case "stable":
			w.settings.StableAfter, err = time.ParseDuration(value)
		case "replace":
			w.settings.ReplaceAfter, err = time.ParseDuration(value)
		case "forget":
			w.settings.ForgetAfter, err = time.ParseDuration(value)
		default:
			err = errArguments
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// run performs the actions of plans until one is empty.
func (w *world) run() (out []string, err error) {
	for range 100 {
		actions := w.plan()
		if len(actions) == 0 {
			return append(out, w.describe()), nil
		}
		out = append(out, formatActions(actions)...)
		for _, a := range actions {
			if err := w.do(a); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.New("no end of actions")
}

func formatActions(actions []Action) (out []string) {
	for _, a := range actions {
		out = append(out, fmt.Sprintf("%s %s: %s", a.Kind, a.ID, a.Why))
	}
	if len(out) == 0 {
		out = []string{"nothing"}
	}
	return out
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
