package figures

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 3, 2, 1}, 2.5}} {
		if got := Median(c.of); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.of, got, c.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	of := []int{5, 4, 3, 2, 1}
	for p, want := range map[float64]int{0: 1, 50: 3, 99: 5, 100: 5} {
		if got := Percentile(of, p); got != want {
			t.Errorf("the %gth percentile is %d, want %d", p, got, want)
		}
	}
	if of[0] != 5 {
		t.Error("the values were sorted in place")
	}
	if got := Percentile([]int(nil), 50); got != 0 {
		t.Errorf("a percentile of nothing is %d", got)
	}
}

func TestGoals(t *testing.T) {
	var g Goals
	g.Add("below", 1, AtMost, 2, "us each")
	g.Add("above", 3, AtMost, 2, "us")
	g.Add("too little", 1, AtLeast, 2, "")
	g.Add("equal", 2, AtLeast, 2, "")
	want := [][]string{
		{"below", "1 us", "<= 2 us", "met"},
		{"above", "3 us", "<= 2 us", "**missed**"},
		{"too little", "1", ">= 2", "**missed**"},
		{"equal", "2", ">= 2", "met"},
	}
	if !slices.EqualFunc(g.rows, want, slices.Equal) {
		t.Errorf("goals %q, want %q", g.rows, want)
	}
}
