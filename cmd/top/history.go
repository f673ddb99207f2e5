package top

import (
	"math"
	"time"

	"penstock/node/api"
	"penstock/node/telemetry"
)

// historyPoints is how many seconds of each rate are kept: as many as the nodes keep of
// each second.
const historyPoints = 120

// maxSeries bounds the rates that are kept. Above it, rows are without a picture.
const maxSeries = 10_000

// What a series is about. Names are those of its key.
const (
	ofFlow     = "flow"     // listener, service
	ofListener = "listener" // listener
	ofNode     = "node"     // node
	ofCluster  = "cluster"  // virtual cluster
	ofAll      = "all"
)

// seriesKey names a rate.
type seriesKey struct {
	of    string
	name  [2]string
	fresh bool // new connections per second; false: bytes, or requests of a virtual cluster
}

// series has the last points of a rate, one a second, the newest last. NaN: unknown.
type series struct {
	points []float64
	// What is not a whole second yet.
	pending float64
	over    time.Duration
	seen    uint64 // the round in which it was written
}

// push appends the rate of the time that has passed since the last call.
func (s *series) push(rate float64, passed time.Duration) {
	s.pending += rate * passed.Seconds()
	s.over += passed
	whole := s.over / time.Second
	if whole == 0 {
		return
	}
	average := s.pending / s.over.Seconds()
	for range min(whole, historyPoints) {
		s.points = append(s.points, average)
	}
	s.over -= whole * time.Second
	s.pending = rate * s.over.Seconds()
	if more := len(s.points) - historyPoints; more > 0 {
		s.points = append(s.points[:0], s.points[more:]...)
	}
}

// history has the rates of the last two minutes.
type history struct {
	series map[seriesKey]*series
	at     time.Time // of the last sample; zero: there was none
	round  uint64
}

func newHistory() *history { return &history{series: map[seriesKey]*series{}} }

// get returns a series, or nil if there are too many.
func (h *history) get(k seriesKey) *series {
	s := h.series[k]
	if s == nil && len(h.series) < maxSeries {
		s = &series{}
		h.series[k] = s
	}
	return s
}

// points returns the last n points of a series, all NaN if it is not known.
func (h *history) last(k seriesKey, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	if s := h.series[k]; s != nil {
		from := s.points[max(0, len(s.points)-n):]
		copy(out[n-len(from):], from)
	}
	return out
}

// sample adds the rates of a sample.
func (h *history) sample(s *api.TopSample) {
	passed := s.Interval
	if !h.at.IsZero() {
		// A clock that was set, or that of another node, says nothing.
		if d := s.At.Sub(h.at); d > 0 && d < historyPoints*time.Second {
			passed = d
		}
	}
	h.at = s.At
	h.round++
	sums := map[seriesKey]float64{}
	for i := range s.Flows {
		f := &s.Flows[i]
		for _, k := range []seriesKey{{of: ofFlow, name: [2]string{f.Listener, f.Service}}, {of: ofListener, name: [2]string{f.Listener}}, {of: ofAll}} {
			sums[k] += f.InRate + f.OutRate
			k.fresh = true
			sums[k] += f.NewRate
		}
	}
	for _, n := range s.Nodes {
		if n.Error == "" {
			k := seriesKey{of: ofNode, name: [2]string{n.Name}}
			sums[k] = n.InRate + n.OutRate
			k.fresh = true
			sums[k] = n.NewRate
		}
	}
	for _, c := range s.VirtualClusters {
		sums[seriesKey{of: ofCluster, name: [2]string{c.Name}}] = c.Requests
	}
	for k, rate := range sums {
		if one := h.get(k); one != nil {
			one.push(rate, passed)
			one.seen = h.round
		}
	}
	h.age(passed)
}

// age lets the series pass that a sample did not have, and drops those of which nothing
// is left.
func (h *history) age(passed time.Duration) {
	for k, s := range h.series {
		if s.seen == h.round {
			continue
		}
		s.push(math.NaN(), passed)
		known := false
		for _, v := range s.points {
			known = known || !math.IsNaN(v)
		}
		if !known {
			delete(h.series, k)
		}
	}
}

// historyQueries are the queries that fill a history, and what their groups are.
// Each is asked alone: a metric that was never recorded, such as that of Kafka, is an error.
func historyQueries(node string) []telemetry.Query {
	where := map[string][]string{}
	if node != "" {
		where[api.NodeLabel] = []string{node}
	}
	queries := []telemetry.Query{
		{Metric: "penstock_bytes_total", By: []string{"listener", "service"}},
		{Metric: "penstock_routed_connections_total", By: []string{"listener", "service"}},
		{Metric: "penstock_bytes_total", By: []string{api.NodeLabel}},
		{Metric: "penstock_routed_connections_total", By: []string{api.NodeLabel}},
		{Metric: "penstock_kafka_requests_total", By: []string{"virtual_cluster"}},
	}
	for i := range queries {
		queries[i].Where, queries[i].Since = where, telemetry.FineWindow
	}
	return queries
}

// fill replaces the history by what the nodes remember.
func (h *history) fill(frames []api.TelemetryFrame) {
	*h = *newHistory()
	for i := range frames {
		f := &frames[i]
		for j := range f.Groups {
			for _, k := range keysOf(f, f.Groups[j].Labels) {
				if s := h.get(k); s != nil {
					s.add(f, f.Groups[j].Values)
				}
			}
		}
	}
}

// keysOf returns the series that a group of a frame is a part of.
func keysOf(f *api.TelemetryFrame, labels []string) []seriesKey {
	fresh := f.Metric == "penstock_routed_connections_total"
	switch {
	case f.Metric == "penstock_kafka_requests_total" && len(labels) == 1:
		return []seriesKey{{of: ofCluster, name: [2]string{labels[0]}}}
	case len(labels) == 1:
		return []seriesKey{{ofNode, [2]string{labels[0]}, fresh}}
	case len(labels) == 2 && labels[1] == "": // bytes before a service was found
		return []seriesKey{{ofListener, [2]string{labels[0]}, fresh}, {of: ofAll, fresh: fresh}}
	case len(labels) == 2:
		return []seriesKey{{ofFlow, [2]string{labels[0], labels[1]}, fresh}, {ofListener, [2]string{labels[0]}, fresh}, {of: ofAll, fresh: fresh}}
	}
	return nil
}

// add adds the points of a group, which are increases during each step.
func (s *series) add(f *api.TelemetryFrame, values []float64) {
	seconds := int(f.Step / time.Second)
	if seconds < 1 {
		return
	}
	var points []float64
	for _, v := range values {
		for range min(seconds, historyPoints) {
			points = append(points, v/f.Step.Seconds())
		}
	}
	points = points[max(0, len(points)-historyPoints):]
	if short := len(points) - len(s.points); short > 0 {
		s.points = append(make([]float64, short), s.points...)
	}
	at := len(s.points) - len(points)
	for i, v := range points {
		s.points[at+i] += v
	}
}

// spark draws points as a line of bars, scaled to the largest. Any traffic is at least
// the lowest bar; the unknown is blank.
func spark(points []float64, bars []rune) string {
	top := 0.0
	for _, v := range points {
		if v > top { // false for NaN
			top = v
		}
	}
	line := make([]rune, len(points))
	for i, v := range points {
		line[i] = bars[0]
		if v > 0 {
			line[i] = bars[1+min(int(v/top*float64(len(bars)-2)+0.5), len(bars)-2)]
		}
	}
	return string(line)
}
