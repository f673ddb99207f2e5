package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Query asks for one metric.
type Query struct {
	Metric string `json:"metric"`
	// Where keeps series whose label has one of the values.
	Where map[string][]string `json:"where,omitempty"`
	// By are labels: series that agree in them are added up. Without them all are.
	By []string `json:"by,omitempty"`
	// Since is the age of the oldest point, at most an hour; 0: two minutes.
	Since time.Duration `json:"since,omitempty"`
	// Step is the time between points: a second, or a multiple of ten seconds; 0: as
	// fine as there is.
	Step time.Duration `json:"step,omitempty"`
}

// Frame is the answer to a Query. Its points end now and are Step apart: the last one
// of each group has age 0. There are fewer than asked for if the history does not go
// back that far.
type Frame struct {
	Metric  string        `json:"metric"`
	Kind    Kind          `json:"kind"`
	Buckets []float64     `json:"buckets,omitempty"` // upper bounds in seconds, without +Inf
	Step    time.Duration `json:"step"`
	Points  int           `json:"points"`
	Groups  []Group       `json:"groups"`
}

// Group is the sum of the series that agree in the labels of Query.By.
type Group struct {
	Labels []string `json:"labels,omitempty"` // the values of Query.By
	// Values has, for each point, the increase of a counter during the step before it,
	// or the value of a gauge. NaN never occurs; a gauge without series is 0.
	Values []float64 `json:"values,omitempty"`
	// Counts has the increases of a histogram's buckets, not added up: len(Buckets)+1
	// for each point. Sums has the increases of the sum of all values, in seconds.
	Counts []float64 `json:"counts,omitempty"`
	Sums   []float64 `json:"sums,omitempty"`
}

// maxCells bounds the numbers in a Frame.
const maxCells = 1 << 18

// Errors of queries.
var (
	ErrNoMetric = errors.New("no such metric has been recorded")
	ErrTooMany  = fmt.Errorf("the answer has more than %d numbers: ask for fewer series, a longer step or a shorter time", maxCells)
)

// Check returns what is wrong with a query, if it is wrong for every node.
func (q *Query) Check() error {
	switch {
	case q.Metric == "":
		return errors.New("metric: missing")
	case q.Since < 0 || q.Since > CoarseWindow:
		return fmt.Errorf("since: %v is not between 0 and %v", q.Since, CoarseWindow)
	case q.Step != 0 && q.Step != FineStep && (q.Step < CoarseStep || q.Step%CoarseStep != 0):
		return fmt.Errorf("step: %v is neither %v nor a multiple of %v", q.Step, FineStep, CoarseStep)
	case q.Step == FineStep && q.Since > FineWindow:
		return fmt.Errorf("step: points of %v are kept for %v only", FineStep, FineWindow)
	case q.Step > CoarseWindow:
		return fmt.Errorf("step: %v is more than %v", q.Step, CoarseWindow)
	}
	return nil
}

// Query answers a query. The errors are those of Check, ErrNoMetric, ErrTooMany, and a
// label that the metric does not have.
func (h *History) Query(q Query) (*Frame, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	t := h.metrics[q.Metric]
	if t == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoMetric, q.Metric)
	}
	match, err := t.matcher(&q)
	if err != nil {
		return nil, err
	}
	r := h.reach(t.metric, &q)
	f := &Frame{Metric: q.Metric, Kind: t.kind, Buckets: t.metric.Buckets, Step: r.step, Points: r.points, Groups: []Group{}}
	perPoint := 1
	if f.Kind == Histogram {
		perPoint = len(f.Buckets) + 2
	}
	groups := map[string]*Group{}
	for _, s := range t.series {
		labels, ok := match(s)
		if !ok {
			continue
		}
		key := strings.Join(labels, labelSeparator)
		g := groups[key]
		if g == nil {
			if (len(groups)+1)*f.Points*perPoint > maxCells {
				return nil, ErrTooMany
			}
			g = f.newGroup(labels)
			groups[key] = g
		}
		r.add(g, s, f)
	}
	for _, g := range groups {
		f.Groups = append(f.Groups, *g)
	}
	sortGroups(f.Groups)
	return f, nil
}

func sortGroups(g []Group) {
	slices.SortFunc(g, func(a, b Group) int { return slices.Compare(a.Labels, b.Labels) })
}

func (f *Frame) newGroup(labels []string) *Group {
	g := &Group{Labels: labels}
	if f.Kind == Histogram {
		g.Counts, g.Sums = make([]float64, f.Points*(len(f.Buckets)+1)), make([]float64, f.Points)
	} else {
		g.Values = make([]float64, f.Points)
	}
	return g
}

// matcher returns a function that returns the labels in q.By of a series, and whether it
// is asked for.
func (t *table) matcher(q *Query) (func(*series) ([]string, bool), error) {
	position := func(label string) (int, error) {
		if i := slices.Index(t.metric.Labels, label); i >= 0 {
			return i, nil
		}
		return 0, fmt.Errorf("%s has no label %q; it has: %s", t.metric.Name, label, cmp.Or(strings.Join(t.metric.Labels, ", "), "none"))
	}
	by := make([]int, len(q.By))
	where := map[int][]string{}
	var err error
	for i, label := range q.By {
		if by[i], err = position(label); err != nil {
			return nil, err
		}
	}
	for _, label := range slices.Sorted(maps.Keys(q.Where)) {
		i, err := position(label)
		if err != nil {
			return nil, err
		}
		where[i] = q.Where[label]
	}
	return func(s *series) ([]string, bool) {
		all := strings.Split(s.labels, labelSeparator)
		for i, values := range where {
			if !slices.Contains(values, all[i]) {
				return nil, false
			}
		}
		labels := make([]string, len(by))
		for i, at := range by {
			labels[i] = all[at]
		}
		return labels, true
	}, nil
}

// reach is the part of the history that a query reads: points+1 slots of one
// resolution, each slots apart, of which the last one is the newest.
type reach struct {
	step   time.Duration
	fine   bool
	first  uint32 // the slot of the beginning of the first point
	slots  uint32 // per point
	points int
	seen   uint32 // fine slots per slot
}

func (h *History) reach(m *Metric, q *Query) reach {
	since := cmp.Or(q.Since, FineWindow)
	r := reach{step: q.Step, fine: m.Fine && (q.Step == FineStep || q.Step == 0 && since <= FineWindow), seen: finesPerCoarse}
	now, oldest, unit := h.now/finesPerCoarse, before(h.now/finesPerCoarse, h.window), CoarseStep
	if r.fine {
		r.seen = 1
		now, oldest, unit = h.now, before(h.now, fineSlots), FineStep
	}
	r.step = max(r.step, unit)
	r.slots = uint32(r.step / unit)
	points := min(uint32((since+r.step-1)/r.step), (now-oldest)/r.slots)
	r.first, r.points = now-points*r.slots, int(points)
	return r
}

// add adds a series to a group.
func (r *reach) add(g *Group, s *series, f *Frame) {
	if f.Kind != Histogram {
		if s.single != nil {
			r.addTrack(g.Values, 0, 1, s, s.single, f.Kind)
		}
		return
	}
	for part, t := range s.parts {
		if part == sumPart {
			r.addTrack(g.Sums, 0, 1, s, t, Counter)
		} else {
			r.addTrack(g.Counts, int(part), len(f.Buckets)+1, s, t, Counter)
		}
	}
}

// addTrack adds the points of a track to every stride-th number from first on.
func (r *reach) addTrack(to []float64, first, stride int, s *series, t *track, kind Kind) {
	from := &t.coarse
	if r.fine {
		from = t.fine
	}
	slot, last := r.first, 0.0
	for v, ok := range from.values(r.first, r.first+uint32(r.points)*r.slots) {
		past := slot - r.first
		switch {
		case past == 0:
		case kind != Gauge && v < last: // it has begun anew
			to[first+int((past-1)/r.slots)*stride] += v
		case kind != Gauge:
			to[first+int((past-1)/r.slots)*stride] += v - last
		case past%r.slots == 0 && ok && slot <= s.seen/r.seen:
			to[first+int((past-1)/r.slots)*stride] += v
		}
		last = v
		slot++
	}
}

// Add adds the answer of another node. Points are matched by their age: what one of the
// two does not reach counts as nothing. An error means that the nodes do not agree in
// what the metric is.
func (f *Frame) Add(o *Frame) error {
	if o.Kind != f.Kind || !slices.Equal(o.Buckets, f.Buckets) || o.Step != f.Step {
		return fmt.Errorf("the nodes have different versions of %s", f.Metric)
	}
	if o.Points < 0 || o.Points > int(coarseSlots) {
		return fmt.Errorf("a malformed answer about %s", f.Metric)
	}
	if o.Points > f.Points {
		f.grow(o.Points)
	}
	perPoint := 1
	if f.Kind == Histogram {
		perPoint = len(f.Buckets) + 2
	}
	at := map[string]int{}
	for i, g := range f.Groups {
		at[strings.Join(g.Labels, labelSeparator)] = i
	}
	for _, g := range o.Groups {
		if len(g.Values)+len(g.Sums) != o.Points || f.Kind == Histogram && len(g.Counts) != o.Points*(len(f.Buckets)+1) {
			return fmt.Errorf("a malformed answer about %s", f.Metric)
		}
		key := strings.Join(g.Labels, labelSeparator)
		i, ok := at[key]
		if !ok {
			if (len(f.Groups)+1)*f.Points*perPoint > maxCells {
				return ErrTooMany
			}
			i = len(f.Groups)
			at[key] = i
			f.Groups = append(f.Groups, *f.newGroup(g.Labels))
		}
		to := &f.Groups[i]
		addTail(to.Values, g.Values)
		addTail(to.Counts, g.Counts)
		addTail(to.Sums, g.Sums)
	}
	sortGroups(f.Groups)
	return nil
}

// addTail adds numbers to the last ones of to.
func addTail(to, numbers []float64) {
	for i, v := range numbers {
		to[len(to)-len(numbers)+i] += v
	}
}

// grow adds points before the first one.
func (f *Frame) grow(points int) {
	old := f.Groups
	f.Points, f.Groups = points, make([]Group, len(old))
	for i, g := range old {
		f.Groups[i] = *f.newGroup(g.Labels)
		addTail(f.Groups[i].Values, g.Values)
		addTail(f.Groups[i].Counts, g.Counts)
		addTail(f.Groups[i].Sums, g.Sums)
	}
}

// Quantile returns, for each point of a group of a histogram, the value in seconds below
// which the share q of what was counted lies: the upper bound of its bucket, with linear
// interpolation inside it, as Prometheus' histogram_quantile. A point that counted
// nothing is NaN; what lies above the last bound is that bound.
func (f *Frame) Quantile(g *Group, q float64) []float64 {
	points := make([]float64, f.Points)
	width := len(f.Buckets) + 1
	for i := range points {
		points[i] = quantile(f.Buckets, g.Counts[i*width:(i+1)*width], q)
	}
	return points
}

func quantile(bounds, counts []float64, q float64) float64 {
	total := 0.0
	for _, n := range counts {
		total += n
	}
	if total == 0 || len(bounds) == 0 {
		return math.NaN()
	}
	rank, below, low := q*total, 0.0, 0.0
	for i, bound := range bounds {
		if n := counts[i]; n > 0 && below+n >= rank {
			return low + (bound-low)*(rank-below)/n
		}
		below += counts[i]
		low = bound
	}
	return bounds[len(bounds)-1]
}
