// Package telemetry keeps what a node measured in the last hour: the series of its
// metrics, each second for two minutes and every ten seconds after that, in bounded
// memory. It answers queries in a form that the answers of several nodes can be added
// up in: increases of counters and of the buckets of histograms, never percentiles.
//
//	h := telemetry.New(telemetry.Config{Budget: 16 << 20})
//	h.Record(now, func(p *telemetry.Pass) { p.Set(metric, 17, "web") })
//	frame, err := h.Query(telemetry.Query{Metric: "penstock_connections", By: []string{"service"}, Since: 10 * time.Minute})
//
// Time is counted in slots from the first pass by the monotonic clock. Queries are
// answered by age, so that clocks of nodes that are apart do not matter.
package telemetry

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The resolutions of the history.
const (
	FineStep     = time.Second
	FineWindow   = 2 * time.Minute
	CoarseStep   = 10 * time.Second
	CoarseWindow = time.Hour

	finesPerCoarse = uint32(CoarseStep / FineStep)
	fineSlots      = uint32(FineWindow / FineStep)
	coarseSlots    = uint32(CoarseWindow / CoarseStep)
	// minCoarse is the shortest window to which a full budget may reduce the history:
	// two minutes.
	minCoarse = uint32(FineWindow / CoarseStep)
)

// Kind says how the values of a metric add up.
type Kind string

// The kinds of metrics.
const (
	Counter   Kind = "counter"   // increases are added
	Gauge     Kind = "gauge"     // values are added
	Histogram Kind = "histogram" // the increases of each bucket are added
)

// Metric describes a metric. Passes of one History must use one Metric for each name.
type Metric struct {
	Name    string
	Labels  []string
	Buckets []float64 // of a histogram: upper bounds in seconds, without +Inf
	// Fine metrics are recorded each second, the others every ten seconds.
	Fine bool
}

// step is the shortest time between points of the metric.
func (m *Metric) step() time.Duration {
	if m.Fine {
		return FineStep
	}
	return CoarseStep
}

// Config configures a History.
type Config struct {
	// Budget bounds the memory of the series, in bytes.
	Budget int
}

// History holds the series. Its methods are safe for concurrent use.
type History struct {
	budget int

	stats atomic.Pointer[Stats] // after the last pass

	mu      sync.RWMutex
	metrics map[string]*table
	began   time.Time // the time of slot 0
	now     uint32    // the slot of the last pass
	passes  uint32
	used    int    // bytes
	window  uint32 // coarse slots that are kept
	dropped uint64 // values without a series for lack of memory
}

// table holds the series of one metric.
type table struct {
	metric *Metric
	kind   Kind
	series map[string]*series // by labels
}

// series is one combination of labels. A histogram has a ring for each bucket that has
// counted something, and one for the sum.
type series struct {
	labels string // joined by labelSeparator
	seen   uint32 // the slot of the last pass that had it
	single *track
	parts  map[uint8]*track // of a histogram: by bucket; sumPart is the sum in seconds
}

const sumPart = math.MaxUint8

// track holds one value at both resolutions.
type track struct {
	fine   *ring // nil for metrics that are not fine
	coarse ring
}

const labelSeparator = "\xff"

// The sizes in memory that series and tracks are charged for, with their map entries.
const (
	seriesSize = 160
	trackSize  = 96
	ringSize   = 56
)

// New returns an empty History.
func New(c Config) *History {
	h := &History{budget: c.Budget, metrics: map[string]*table{}, window: coarseSlots}
	h.stats.Store(&Stats{Window: CoarseWindow})
	return h
}

// Pass is one round of recording. It is valid during the call that got it.
type Pass struct {
	h      *History
	coarse bool // this pass records all metrics
	now    uint32
	key    []byte
}

// Record makes a pass over all metrics. A pass in the slot of the one before, or before
// it, is left out.
func (h *History) Record(now time.Time, collect func(*Pass)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		h.began = now
	}
	slot := uint32(max(now.Sub(h.began), 0) / FineStep)
	if h.passes > 0 && slot <= h.now {
		return
	}
	// The first pass, and each that enters another coarse slot, has all metrics.
	coarse := h.passes == 0 || slot/finesPerCoarse != h.now/finesPerCoarse
	h.now = slot
	h.passes++
	collect(&Pass{h: h, coarse: coarse, now: slot})
	if coarse {
		h.trim()
	}
	s := &Stats{Bytes: h.used, Window: time.Duration(h.window) * CoarseStep, Dropped: h.dropped}
	for _, t := range h.metrics {
		s.Series += len(t.series)
	}
	h.stats.Store(s)
}

// Wants reports whether the pass records the metric.
func (p *Pass) Wants(m *Metric) bool { return p.coarse || m.Fine }

// Gauge records the value of a gauge. NaN and infinities are left out: they cannot be
// added up, and JSON has none.
func (p *Pass) Gauge(m *Metric, v float64, labels ...string) {
	if !math.IsNaN(v) && !math.IsInf(v, 0) {
		p.set(Gauge, m, v, labels)
	}
}

// Counter records the value of a counter.
func (p *Pass) Counter(m *Metric, v float64, labels ...string) { p.set(Counter, m, v, labels) }

func (p *Pass) set(kind Kind, m *Metric, v float64, labels []string) {
	if !p.Wants(m) {
		return
	}
	s := p.series(kind, m, labels)
	if s == nil {
		return
	}
	if s.single == nil {
		s.single = p.newTrack(kind, m, v)
	}
	p.record(s.single, v)
}

// Observed records a histogram: the counts of its buckets, one more than Buckets, not
// added up, and the sum of all values in seconds.
func (p *Pass) Observed(m *Metric, counts []uint64, sum float64, labels ...string) {
	if !p.Wants(m) {
		return
	}
	s := p.series(Histogram, m, labels)
	if s == nil {
		return
	}
	part := func(i uint8, v float64) {
		t := s.parts[i]
		if t == nil {
			if v == 0 {
				return
			}
			if s.parts == nil {
				s.parts = map[uint8]*track{}
			}
			t = p.newTrack(Histogram, m, v)
			s.parts[i] = t
		}
		p.record(t, v)
	}
	for i, n := range counts {
		part(uint8(i), float64(n))
	}
	part(sumPart, sum)
}

// series returns the series with these labels; nil if there is no memory for it.
func (p *Pass) series(kind Kind, m *Metric, labels []string) *series {
	h := p.h
	t := h.metrics[m.Name]
	if t == nil {
		t = &table{metric: m, kind: kind, series: map[string]*series{}}
		h.metrics[m.Name] = t
	}
	p.key = p.key[:0]
	for i, l := range labels {
		if i > 0 {
			p.key = append(p.key, labelSeparator...)
		}
		p.key = append(p.key, l...)
	}
	s := t.series[string(p.key)]
	if s == nil {
		if h.used+seriesSize+trackSize > h.budget {
			h.dropped++
			return nil
		}
		s = &series{labels: string(p.key)}
		t.series[s.labels] = s
		h.used += seriesSize + len(s.labels)
	}
	s.seen = p.now
	return s
}

// newTrack returns a track that begins in this pass. A counter, or a bucket, that
// appears while the node runs has counted from nothing.
func (p *Pass) newTrack(kind Kind, m *Metric, v float64) *track {
	t := new(track)
	p.h.used += trackSize
	if kind != Gauge && p.h.passes > 1 {
		v = 0
	}
	t.coarse.start(p.now/finesPerCoarse, v)
	if m.Fine {
		t.fine = new(ring)
		t.fine.start(p.now, v)
		p.h.used += ringSize
	}
	return t
}

// record records a value: at both resolutions if this pass begins a coarse slot.
func (p *Pass) record(t *track, v float64) {
	grown := 0
	if p.coarse {
		grown -= t.coarse.size()
		t.coarse.set(p.now/finesPerCoarse, v)
		grown += t.coarse.size()
	}
	if t.fine != nil {
		grown -= t.fine.size()
		t.fine.set(p.now, v)
		grown += t.fine.size()
	}
	p.h.used += grown
}

// trim forgets what is out of the window, and shortens the window while the budget is
// exceeded.
func (h *History) trim() {
	h.trimTo(h.window)
	for h.used > h.budget && h.window > minCoarse {
		h.window = max(h.window*3/4, minCoarse)
		h.trimTo(h.window)
	}
	if h.used < h.budget/2 && h.window < coarseSlots {
		h.window = min(h.window+h.window/4, coarseSlots)
	}
}

func (h *History) trimTo(window uint32) {
	fine, coarse := before(h.now, fineSlots), before(h.now/finesPerCoarse, window)
	used := 0
	for _, t := range h.metrics {
		maps.DeleteFunc(t.series, func(_ string, s *series) bool { return s.seen/finesPerCoarse < coarse })
		for _, s := range t.series {
			used += seriesSize + len(s.labels)
			for track := range s.tracks() {
				track.coarse.trim(coarse)
				used += trackSize + track.coarse.size()
				if track.fine != nil {
					track.fine.trim(fine)
					used += ringSize + track.fine.size()
				}
			}
		}
	}
	h.used = used
}

// before returns the slot n slots before at, at least 0.
func before(at, n uint32) uint32 { return at - min(at, n) }

func (s *series) tracks() func(func(*track) bool) {
	return func(yield func(*track) bool) {
		if s.single != nil && !yield(s.single) {
			return
		}
		for _, t := range s.parts {
			if !yield(t) {
				return
			}
		}
	}
}

// Stats describe the history.
type Stats struct {
	Series  int
	Bytes   int           // memory in use, an estimate
	Window  time.Duration // how far back it goes at most
	Dropped uint64        // values that had no series for lack of memory
}

// Stats returns the size of the history after its last pass. A pass may call it.
func (h *History) Stats() Stats { return *h.stats.Load() }

// Recorded is a metric of which there is a history.
type Recorded struct {
	Name   string   `json:"name"`
	Kind   Kind     `json:"kind"`
	Labels []string `json:"labels,omitempty"`
	Series int      `json:"series"`
	// Step is the shortest time between its points.
	Step time.Duration `json:"step"`
}

// Metrics returns the metrics that have been recorded, sorted by name.
func (h *History) Metrics() []Recorded {
	h.mu.RLock()
	defer h.mu.RUnlock()
	list := make([]Recorded, 0, len(h.metrics))
	for _, t := range h.metrics {
		list = append(list, Recorded{Name: t.metric.Name, Kind: t.kind, Labels: t.metric.Labels, Series: len(t.series), Step: t.metric.step()})
	}
	slices.SortFunc(list, func(a, b Recorded) int { return strings.Compare(a.Name, b.Name) })
	return list
}
