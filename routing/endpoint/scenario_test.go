package endpoint

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the scenario files as what is expected")

// TestEjectionScenarios runs the scenarios in testdata/ejection, which hold
// rule 16 of integration/rules_test.go. A line is a step; the lines below it that
// begin with ">" are its output: events and query results. Letters name the
// endpoints.
//
//	group N failures=F window=W duration=D share=P   a group of N endpoints
//	at T                                             the time since the start
//	connect|fail|reset X [n]                         n successes, failed connects, early resets
//	healthy|unhealthy X                              the result of an active check
//	add|remove X                                     a change of the service's endpoints
//	sweep                                            only time has passed
//	usable | standing X                              queries
func TestEjectionScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/ejection/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s scenario
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
				if err := s.step(words); err != nil {
					t.Fatalf("%s:%d: %v", file, n+1, err)
				}
				got = append(got, s.out...)
				s.out = nil
			}
			have := strings.Join(got, "\n") + "\n"
			if *rewrite {
				if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if have != string(raw) {
				t.Errorf("%s: it happened otherwise:\n%s", file, have)
			}
		})
	}
}

// scenario is a group under test and the time.
type scenario struct {
	g     *Group
	now   time.Time
	names []string // of the members
	out   []string
}

func (s *scenario) say(format string, args ...any) {
	s.out = append(s.out, "> "+fmt.Sprintf(format, args...))
}

func (s *scenario) offset(at time.Time) time.Duration { return at.Sub(t0) }

func (s *scenario) observe(ev Event) {
	switch ev.Change {
	case EventPaused, EventResumed: // tested by TestPause*
	case EventEjected:
		s.say("%s ejected until %v, %d times, after %s", ev.Endpoint.Address, s.offset(ev.Until), ev.Times, ev.Cause)
	default:
		s.say("%s %v at %v", ev.Endpoint.Address, ev.Change, s.offset(ev.At))
	}
}

func (s *scenario) update() {
	var set []Spec
	for _, n := range s.names {
		set = append(set, Spec{Address: n})
	}
	s.g.Update(set, s.now)
}

func (s *scenario) find(name string) *Endpoint {
	for _, e := range s.g.Endpoints() {
		if e.Address == name {
			return e
		}
	}
	return &Endpoint{Address: name}
}

func (s *scenario) step(words []string) error {
	verb, args := words[0], words[1:]
	switch verb {
	case "group":
		return s.group(args)
	case "at":
		d, err := time.ParseDuration(args[0])
		s.now = t0.Add(d)
		return err
	case "sweep":
		s.g.Sweep(s.now)
		return nil
	case "usable":
		var names []string
		for _, e := range s.g.Endpoints() {
			if e.Usable(s.now) {
				names = append(names, e.Address)
			}
		}
		if len(names) == 0 {
			names = []string{"none"}
		}
		s.say("%s", strings.Join(names, " "))
		return nil
	}
	e, n := s.find(args[0]), 1
	if len(args) > 1 {
		var err error
		if n, err = strconv.Atoi(args[1]); err != nil {
			return err
		}
	}
	return s.endpoint(verb, e, n)
}

// endpoint runs the steps for one endpoint.
func (s *scenario) endpoint(verb string, e *Endpoint, n int) error {
	for ; n > 0; n-- {
		switch verb {
		case "connect":
			s.g.Connected(e, s.now)
		case "fail":
			s.g.Failed(e, ConnectFailed, s.now)
		case "reset":
			s.g.Connected(e, s.now) // as in reality: it accepted the connection first
			s.g.Failed(e, EarlyReset, s.now)
		case "healthy":
			e.SetHealth(Healthy, s.now)
		case "unhealthy":
			e.SetHealth(Unhealthy, s.now)
		case "add":
			s.names = append(s.names, e.Address)
			s.update()
		case "remove":
			s.names = slices.DeleteFunc(s.names, func(n string) bool { return n == e.Address })
			s.update()
		case "standing":
			st := s.g.History(e, s.now)
			out := "in"
			if !st.EjectedUntil.IsZero() {
				out = "out until " + s.offset(st.EjectedUntil).String()
			}
			s.say("%d failures, %s, usable since %v", st.Failures, out, s.since(e))
		default:
			return fmt.Errorf("unknown step %q", verb)
		}
	}
	return nil
}

func (s *scenario) since(e *Endpoint) string {
	if e.UsableSince().IsZero() {
		return "the start"
	}
	return s.offset(e.UsableSince()).String()
}

func (s *scenario) group(args []string) error {
	s.now, s.g, s.names = t0, NewGroup("s", s.observe), nil
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	for i := range n {
		s.names = append(s.names, string(rune('a'+i)))
	}
	s.update()
	var ej Ejection
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "failures":
			ej.Failures, err = strconv.Atoi(value)
		case "share":
			ej.MaxShare, err = strconv.Atoi(value)
		case "window":
			ej.Window, err = time.ParseDuration(value)
		case "duration":
			ej.Duration, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("unknown setting %q", key)
		}
		if err != nil {
			return err
		}
	}
	s.g.Configure(&ej, s.now)
	return nil
}
