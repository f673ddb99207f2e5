package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
)

// Points are a second each, however samples come.
func TestRatesBecomePointsOfASecond(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples string // rate*milliseconds
		want    string
	}{
		{"each second", "5*1000 7*1000", "[5 7]"},
		{"a little early", "5*999 7*999 7*1002", "[6 7 7]"},
		{"ten a second", strings.Repeat("1*100 3*100 ", 5), "[2]"},
		{"every three seconds", "4*3000", "[4 4 4]"},
		{"a part of the next", "4*2500 8*500", "[4 4 6]"},
	} {
		var s series
		for _, one := range strings.Fields(c.samples) {
			var rate float64
			var ms int
			if _, err := fmt.Sscanf(one, "%f*%d", &rate, &ms); err != nil {
				t.Fatal(err)
			}
			s.push(rate, time.Duration(ms)*time.Millisecond)
		}
		for i := range s.points {
			s.points[i] = math.Round(s.points[i])
		}
		if got := fmt.Sprint(s.points); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// Two minutes are kept, and what no sample mentions any more is dropped after that.
func TestAHistoryIsBounded(t *testing.T) {
	h := newHistory()
	at := time.Unix(1_700_000_000, 0)
	add := func(n int, service string) {
		for range n {
			at = at.Add(time.Second)
			h.sample(&api.TopSample{At: at, Interval: time.Second, Flows: []api.Flow{{Listener: "l", Service: service, InRate: 1}}})
		}
	}
	add(300, "old")
	k := seriesKey{of: ofFlow, name: [2]string{"l", "old"}}
	if got := len(h.series[k].points); got != historyPoints {
		t.Errorf("%d points are kept", got)
	}
	add(historyPoints-1, "new")
	if h.series[k] == nil {
		t.Error("dropped while its last point could be shown")
	}
	add(1, "new")
	if h.series[k] != nil {
		t.Errorf("kept although nothing of it is left: %v", h.series[k].points)
	}
	many := &api.TopSample{At: at.Add(time.Second), Interval: time.Second}
	for i := range maxSeries {
		many.Flows = append(many.Flows, api.Flow{Listener: "l", Service: fmt.Sprint(i)})
	}
	h.sample(many)
	if len(h.series) != maxSeries {
		t.Errorf("%d series, the bound is %d", len(h.series), maxSeries)
	}
}

// A clock that jumps adds one interval.
func TestAClockThatJumpsLeavesNoHole(t *testing.T) {
	h := newHistory()
	at := time.Unix(1_700_000_000, 0)
	for _, d := range []time.Duration{0, time.Second, -time.Hour, 24 * time.Hour} {
		at = at.Add(d)
		h.sample(&api.TopSample{At: at, Interval: time.Second, Nodes: []api.NodeSample{{Name: "n1", InRate: 3}}})
	}
	if got := h.last(seriesKey{of: ofNode, name: [2]string{"n1"}}, 5); !math.IsNaN(got[0]) || !slices.Equal(got[1:], []float64{3, 3, 3, 3}) {
		t.Errorf("%v", got)
	}
}

func TestSparksAreScaledToTheLargest(t *testing.T) {
	nan := math.NaN()
	for want, points := range map[string][]float64{
		"":         {},
		"    ":     {nan, 0, nan, 0},
		"▁▂▃▄▅▆▇█": {1, 15, 29, 43, 57, 71, 86, 100},
		" ▁█":      {0, 0.001, 1e9}, // any traffic shows
	} {
		if got := spark(points, unicodeGlyphs.bars); got != want {
			t.Errorf("%v is drawn %q, want %q", points, got, want)
		}
	}
}
