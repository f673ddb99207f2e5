package otlp

import "sync/atomic"

// Signal is what is sent.
type Signal uint8

// The signals.
const (
	Traces Signal = iota
	Logs
	Metrics
	signals
)

func (s Signal) String() string { return [...]string{"traces", "logs", "metrics"}[s] }

// Reason is why something was not sent.
type Reason uint8

// The reasons.
const (
	QueueFull   Reason = iota // the collector takes less than comes
	Unreachable               // it did not take it within a minute
	Refused                   // it answered that it does not want it
	Stopped                   // the node or the exporter ended first
	reasons
)

func (r Reason) String() string {
	return [...]string{"queue_full", "unreachable", "refused", "stopped"}[r]
}

// counts are those of one signal of one Telemetry, over all exporters that it has had.
type counts struct {
	exported, failures atomic.Uint64
	dropped            [reasons]atomic.Uint64
}

func (c *counts) drop(r Reason, n int) {
	if n > 0 {
		c.dropped[r].Add(uint64(n))
	}
}
