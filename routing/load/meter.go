package load

import (
	"time"

	"penstock/routing/endpoint"
)

const (
	// expiry is for how many intervals a measured value counts.
	expiry = 3
	// smoothing is the part of the latest value in the smoothed one.
	smoothing = 0.5
	// fullMemory is the share of its limit at which a server counts as full: it may be
	// killed before it reaches all of it.
	fullMemory = 0.9
	// soon and later are the times to full memory that are a high and some risk.
	soon, later = time.Minute, 5 * time.Minute
	// riskBelow is how far below the high usage the risk begins.
	riskBelow = 0.15
	// hysteresis is how far beyond a bound the usage must be to change the class.
	hysteresis = 0.03
	// grows is the least growth of memory that counts, as a share of the limit.
	grows = 0.0001
)

// classes are those of the CPU usage: each from its usage up, with the part of its weight
// that a server has for new sessions.
var classes = [...]struct {
	from  float64
	name  string
	share float64
}{{0, "calm", 1}, {0.5, "warm", 0.7}, {0.7, "hot", 0.4}, {0.85, "overloaded", 0.2}}

// riskShares are the parts of its weight that a server has by its risk.
var riskShares = [...]float64{1, 0.5, 0.1}

const (
	noCPU    = "the server does not tell its CPU usage"
	noMemory = "the server does not tell its memory usage, or has no limit"
)

// Rules say what of a load counts, and when sessions move because of it.
type Rules struct {
	// CPU and Memory say whether these usages count.
	CPU, Memory bool
	// MoveCPU and MoveMemory say whether sessions move because of them.
	MoveCPU, MoveMemory bool
	// High is the CPU usage from which a server loses sessions to one whose usage is
	// lower by Gap; both are shares.
	High, Gap float64
	// MemoryHigh is the share of the memory limit that is a high risk.
	MemoryHigh float64
	// Interval is the time between two samples.
	Interval time.Duration
}

// meter makes the load of one server of its samples.
type meter struct {
	last        Sample
	lastAt      time.Time // zero: no sample
	cpu, latest float64
	from, at    time.Time // of latest; zero: not known
	class       int
	memory      float64
	memoryAt    time.Time // zero: not known
	fullIn      time.Duration
	problem     string
}

// add records a sample that was taken at that time.
func (m *meter) add(s Sample, at time.Time, interval time.Duration) {
	before, beforeAt := m.last, m.lastAt
	fresh := !beforeAt.IsZero() && at.After(beforeAt) && at.Sub(beforeAt) <= expiry*interval
	m.last, m.lastAt, m.problem = s, at, ""
	m.addMemory(s, before, at, beforeAt, fresh)
	if s.CPUSeconds == Missing || s.Procs <= 0 {
		m.at, m.problem = time.Time{}, noCPU
		return
	}
	if !fresh || before.CPUSeconds == Missing || s.CPUSeconds < before.CPUSeconds { // it has restarted
		m.at = time.Time{}
		return
	}
	m.latest = min((s.CPUSeconds-before.CPUSeconds)/at.Sub(beforeAt).Seconds()/s.Procs, 1)
	if m.at.IsZero() {
		m.cpu = m.latest
	} else {
		m.cpu += (m.latest - m.cpu) * smoothing
	}
	m.from, m.at = beforeAt, at
	m.class = classOf(m.cpu, m.class)
}

func (m *meter) addMemory(s, before Sample, at, beforeAt time.Time, fresh bool) {
	if s.Resident == Missing || s.Quota <= 0 {
		m.memoryAt, m.problem = time.Time{}, noMemory
		return
	}
	m.memory, m.memoryAt, m.fullIn = s.Resident/s.Quota, at, 0
	if !fresh || before.Resident == Missing || before.Quota <= 0 {
		return
	}
	if growth := m.memory - before.Resident/before.Quota; growth > grows {
		left := max(fullMemory-m.memory, 0) / growth * float64(at.Sub(beforeAt))
		m.fullIn = time.Duration(min(max(left, 1), float64(time.Hour)))
	}
}

// fail records that no sample could be taken.
func (m *meter) fail(err string) { m.problem = err }

// classOf returns the class of a usage that had a class before.
func classOf(usage float64, before int) int {
	class := 0
	for i := 1; i < len(classes); i++ {
		bound := classes[i].from + hysteresis
		if i <= before {
			bound = classes[i].from - hysteresis
		}
		if usage >= bound {
			class = i
		}
	}
	return class
}

// load returns the load at that time. Its Share is 0 while neither usage is known.
func (m *meter) load(r *Rules, now time.Time) endpoint.Load {
	l := endpoint.Load{CPU: endpoint.Unknown, Latest: endpoint.Unknown, Memory: endpoint.Unknown}
	counts := func(at time.Time) bool { return !at.IsZero() && now.Sub(at) <= expiry*r.Interval }
	if counts(m.memoryAt) {
		l.Memory, l.MemoryAt, l.FullIn = m.memory, m.memoryAt, m.fullIn
		l.Risk = riskOf(m.memory, m.fullIn, r.MemoryHigh)
	}
	if counts(m.at) {
		l.CPU, l.Latest, l.From, l.At, l.Class = m.cpu, m.latest, m.from, m.at, classes[m.class].name
	}
	known := false
	l.Share = 1
	if r.CPU && l.CPU >= 0 {
		l.Share, known = classes[m.class].share, true
	}
	if r.Memory && l.Memory >= 0 {
		l.Share = min(l.Share, riskShares[l.Risk])
		known = known || !r.CPU || l.Risk > 0
	}
	if !known {
		l.Share = 0
	}
	if r.CPU && l.CPU < 0 || r.Memory && l.Memory < 0 {
		l.Problem = m.problem
	}
	return l
}

// riskOf returns the risk of a server whose memory is used so far and full in that time;
// 0: it does not grow.
func riskOf(usage float64, fullIn time.Duration, high float64) int {
	grows := fullIn > 0
	switch {
	case usage > high || grows && fullIn < soon:
		return 2
	case usage > high-riskBelow || grows && fullIn < later:
		return 1
	}
	return 0
}
