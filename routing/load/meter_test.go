package load

import (
	"math"
	"testing"
	"time"

	"penstock/routing/endpoint"
)

var testRules = Rules{
	CPU: true, Memory: true, MoveCPU: true, MoveMemory: true, High: 0.5, Gap: 0.15, MemoryHigh: 0.75, Interval: 5 * time.Second,
}

// feed gives a meter samples of CPU seconds on 4 cores, 5 s apart, and returns the time of
// the last one.
func feed(m *meter, at time.Time, seconds ...float64) time.Time {
	for _, s := range seconds {
		at = at.Add(5 * time.Second)
		m.add(Sample{CPUSeconds: s, Procs: 4, Resident: 1, Quota: 10}, at, testRules.Interval)
	}
	return at
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestMeterCPU(t *testing.T) {
	var m meter
	at := feed(&m, time.Now(), 100)
	if l := m.load(&testRules, at); l.CPU >= 0 || l.Share != 0 {
		t.Fatalf("after one sample %+v", l)
	}
	at = feed(&m, at, 110) // 10 of 20 s
	if l := m.load(&testRules, at); !near(l.CPU, 0.5) || !near(l.Latest, 0.5) || !l.At.Equal(at) || at.Sub(l.From) != 5*time.Second {
		t.Errorf("%+v", l)
	}
	at = feed(&m, at, 126)
	if l := m.load(&testRules, at); !near(l.CPU, 0.65) || !near(l.Latest, 0.8) {
		t.Errorf("smoothed %v, latest %v", l.CPU, l.Latest)
	}
	at = feed(&m, at, 1000)
	if l := m.load(&testRules, at); !near(l.Latest, 1) {
		t.Errorf("more than all cores: %v", l.Latest)
	}
	if l := m.load(&testRules, at.Add(15*time.Second)); l.CPU < 0 {
		t.Error("unknown after three intervals")
	}
	m.fail("no answer")
	if l := m.load(&testRules, at.Add(15*time.Second+1)); l.CPU >= 0 || l.Share != 0 || l.Problem != "no answer" {
		t.Errorf("after more than three intervals %+v", l)
	}
	at = feed(&m, at, 3) // it has restarted
	if l := m.load(&testRules, at); l.CPU >= 0 || l.Problem != "" {
		t.Errorf("after a restart %+v", l)
	}
	at = feed(&m, at, 5)
	if l := m.load(&testRules, at); !near(l.CPU, 0.1) || l.Class != "calm" {
		t.Errorf("then %+v", l)
	}
	m.add(Sample{Missing, 4, 1, 10}, at.Add(5*time.Second), testRules.Interval)
	if l := m.load(&testRules, at.Add(5*time.Second)); l.CPU >= 0 || l.Problem != noCPU {
		t.Errorf("without the metric %+v", l)
	}
}

// A long gap between two samples tells nothing about now.
func TestMeterForgetsOldSamples(t *testing.T) {
	var m meter
	at := feed(&m, time.Now(), 0, 10)
	at = feed(&m, at.Add(time.Minute), 20)
	if l := m.load(&testRules, at); l.CPU >= 0 {
		t.Errorf("%+v", l)
	}
}

func TestClassesHaveHysteresis(t *testing.T) {
	class := 0
	for _, tt := range []struct {
		usage float64
		want  string
	}{
		{0.52, "calm"}, {0.54, "warm"}, {0.48, "warm"}, {0.46, "calm"}, {0.9, "overloaded"}, {0.83, "overloaded"},
		{0.81, "hot"}, {0.72, "hot"}, {0.66, "warm"}, {0, "calm"},
	} {
		class = classOf(tt.usage, class)
		if got := classes[class].name; got != tt.want {
			t.Errorf("%v is %s, want %s", tt.usage, got, tt.want)
		}
	}
}

func TestMemoryRisk(t *testing.T) {
	for _, tt := range []struct {
		usage  float64
		fullIn time.Duration
		want   int
	}{
		{0.5, 0, 0}, {0.61, 0, 1}, {0.76, 0, 2}, {0.1, 4 * time.Minute, 1}, {0.1, 59 * time.Second, 2}, {0.1, 6 * time.Minute, 0},
	} {
		if got := riskOf(tt.usage, tt.fullIn, 0.75); got != tt.want {
			t.Errorf("%v, full in %v: %d, want %d", tt.usage, tt.fullIn, got, tt.want)
		}
	}
	var m meter
	at := time.Now()
	for _, used := range []float64{3, 4} { // 10 % of the limit in 5 s
		at = at.Add(5 * time.Second)
		m.add(Sample{Missing, Missing, used, 10}, at, testRules.Interval)
	}
	rules := testRules
	rules.CPU = false
	if l := m.load(&rules, at); !near(l.Memory, 0.4) || l.FullIn.Round(time.Millisecond) != 25*time.Second || l.Risk != 2 || l.Share != 0.1 {
		t.Errorf("%+v", l)
	}
	m.add(Sample{Missing, Missing, 4, 0}, at.Add(5*time.Second), testRules.Interval)
	if l := m.load(&rules, at.Add(5*time.Second)); l.Memory >= 0 || l.Share != 0 {
		t.Errorf("without a limit %+v", l)
	}
}

func TestLoadText(t *testing.T) {
	for want, l := range map[string]*endpoint.Load{
		"":                   nil,
		"load not known yet": {CPU: -1, Memory: -1, Share: 1},
		"CPU 91 % (overloaded), memory 62 %, full in 30s, counts as 10 % of its weight": {
			CPU: 0.91, Class: "overloaded", Memory: 0.62, Risk: 2, FullIn: 30 * time.Second, Share: 0.1},
		"memory 5 %, load unknown: no, counts as 40 % of its weight": {CPU: -1, Memory: 0.05, Problem: "no", Share: 0.4},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
