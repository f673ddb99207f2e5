package trace

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"time"
)

// Exporter takes finished spans. Export never blocks: it queues the span, or drops and
// counts it. It is safe for concurrent use.
type Exporter interface{ Export(*Span) }

// Policy is what one Telemetry resource wants of spans. It is immutable.
type Policy struct {
	// Telemetry is the name of the resource.
	Telemetry string
	// Sample, Client and Overall are shares in 0..1. Sample is of the traces that begin
	// here; Client is of those that a client has begun and sampled; Overall is of what
	// these two admit.
	Sample, Client, Overall float64
	// Errors keeps what failed, and Slow what took as long, whether it is sampled or not.
	// Slow is the time to the first answer of a connection, or that of a request; 0: none
	// is slow.
	Errors bool
	Slow   time.Duration
	// Listeners and Services select by name; nil selects all.
	Listeners, Services map[string]bool
	// To takes the spans.
	To Exporter
}

// Selects reports whether the policy is about the traffic of a listener and a service.
// Either may be "": it is not known.
func (p *Policy) Selects(listener, service string) bool {
	return (p.Listeners == nil || p.Listeners[listener]) && (p.Services == nil || p.Services[service])
}

// Samples reports whether the trace is sampled when it begins. The answer follows from
// the ID alone, so all nodes and all spans of a trace agree, and what is in a sample is in
// each larger one too. parentSampled is for a trace that a client has begun and sampled.
func (p *Policy) Samples(id TraceID, parentSampled bool) bool {
	share := p.Sample
	if parentSampled {
		share = max(share, p.Client)
	}
	return share > 0 && p.Overall > 0 && below(id, share*p.Overall)
}

// Keeps reports whether a finished connection or request is kept although its trace is not
// sampled.
func (p *Policy) Keeps(failed bool, took time.Duration) bool {
	return failed && p.Errors || p.Slow > 0 && took >= p.Slow
}

// Tail reports whether the policy keeps anything that is not sampled, so that spans must
// be recorded before that is known.
func (p *Policy) Tail() bool { return p.Errors || p.Slow > 0 }

// Export hands over a finished span.
func (p *Policy) Export(s *Span) { p.To.Export(s) }

// below compares the random part of an ID, which W3C's Trace Context level 2 puts into the
// last 7 bytes, with a share.
func below(id TraceID, share float64) bool {
	const whole = 1 << 56
	if share >= 1 {
		return true
	}
	return binary.BigEndian.Uint64(id[8:])&(whole-1) < uint64(math.Round(share*whole))
}

// Tracer holds the policies of the moment. The zero value has none, and so does nil.
type Tracer struct {
	policies atomic.Pointer[[]*Policy]
}

// Set replaces the policies, at any time. The caller must not change the list afterwards.
func (t *Tracer) Set(policies []*Policy) { t.policies.Store(&policies) }

// Policies returns the policies. The caller must not change them.
func (t *Tracer) Policies() []*Policy {
	if t == nil {
		return nil
	}
	if p := t.policies.Load(); p != nil {
		return *p
	}
	return nil
}

// Enabled reports whether there is a policy. It costs one load.
func (t *Tracer) Enabled() bool { return len(t.Policies()) > 0 }
