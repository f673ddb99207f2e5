package endpoint

import (
	"fmt"
	"strings"
	"time"
)

// Unknown is a usage that is not known.
const Unknown = -1

// Load is how busy a server is by its own metrics. It must not be changed.
type Load struct {
	// CPU is the share of its cores that the server uses, 0 to 1, smoothed over the last
	// intervals. Latest is that of the last one, from From to At. Unknown: not measured.
	CPU, Latest float64
	From, At    time.Time
	// Memory is the share of its memory limit that it uses, 0 to 1, at MemoryAt, or
	// Unknown. FullIn is the time in which it reaches the most that is safe if it grows on
	// as in the last interval; 0: it does not grow.
	Memory   float64
	MemoryAt time.Time
	FullIn   time.Duration
	// Risk is that of running out of memory: 0 none, 1 some, 2 high.
	Risk int
	// Class is the word for CPU, "" if that is unknown, and Share the part of its weight
	// with which the server counts for new sessions, above 0 and at most 1.
	Class string
	Share float64
	// Problem is why a usage is unknown; "": none is.
	Problem string
}

// String describes a load for status and explain; "" for none.
func (l *Load) String() string {
	if l == nil {
		return ""
	}
	var parts []string
	if l.CPU >= 0 {
		parts = append(parts, fmt.Sprintf("CPU %.0f %% (%s)", l.CPU*100, l.Class))
	}
	if l.Memory >= 0 {
		text := fmt.Sprintf("memory %.0f %%", l.Memory*100)
		if l.Risk > 0 && l.FullIn > 0 {
			text += fmt.Sprintf(", full in %v", l.FullIn.Round(time.Second))
		}
		parts = append(parts, text)
	}
	if l.Problem != "" {
		parts = append(parts, "load unknown: "+l.Problem)
	}
	if len(parts) == 0 {
		parts = []string{"load not known yet"}
	}
	if l.Share < 1 {
		parts = append(parts, fmt.Sprintf("counts as %.0f %% of its weight", l.Share*100))
	}
	return strings.Join(parts, ", ")
}

// Load returns how busy the server is; nil: its load does not count.
func (e *Endpoint) Load() *Load { return e.state().load.Load() }

// SetLoad records how busy the server is; nil: its load does not count.
func (e *Endpoint) SetLoad(l *Load) { e.state().load.Store(l) }

// LoadShare returns the part of its weight that the endpoint's load leaves it.
func (e *Endpoint) LoadShare() float64 {
	if l := e.Load(); l != nil && l.Share > 0 {
		return l.Share
	}
	return 1
}
