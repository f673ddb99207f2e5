package trace

import "time"

// Outcome is what the policies decide by about a connection or a request.
type Outcome struct {
	Listener, Service string // "": not known
	TraceID           ID
	// Continued says that a caller has begun the trace, and Sampled that the caller has
	// sampled it. A trace that its caller has not sampled is kept by the tail rule alone.
	Continued, Sampled bool
	Failed             bool
	Took               time.Duration
}

// sampledBy reports whether a policy samples the trace.
func (o *Outcome) sampledBy(p *Policy) bool {
	if o.Continued && !o.Sampled {
		return false
	}
	return p.Samples(o.TraceID, o.Sampled)
}

// wantedBy reports whether a policy keeps what has ended.
func (o *Outcome) wantedBy(p *Policy) bool {
	return p.Selects(o.Listener, o.Service) && (o.sampledBy(p) || p.Keeps(o.Failed, o.Took))
}

// SampledBy reports whether one of the policies samples the trace, which is known before
// the end.
func (o *Outcome) SampledBy(policies []*Policy) bool {
	for _, p := range policies {
		if p.Selects(o.Listener, o.Service) && o.sampledBy(p) {
			return true
		}
	}
	return false
}

// WantedBy reports whether one of the policies keeps what has ended, so that its spans
// have to be made.
func (o *Outcome) WantedBy(policies []*Policy) bool {
	for _, p := range policies {
		if o.wantedBy(p) {
			return true
		}
	}
	return false
}

// Export hands spans to the policies that keep what they are about. Nobody may change
// the spans any more.
func (o *Outcome) Export(policies []*Policy, spans ...*Span) {
	for _, p := range policies {
		if !o.wantedBy(p) {
			continue
		}
		for _, s := range spans {
			if p.HideClients {
				s = s.withoutClient()
			}
			p.Export(s)
		}
	}
}

// AddClient adds attributes that tell who the client is. All others come before.
func (s *Span) AddClient(attrs ...Attr) {
	s.Attrs = append(s.Attrs, attrs...)
	s.private += len(attrs)
}

// withoutClient returns the span without them.
func (s *Span) withoutClient() *Span {
	if s.private == 0 {
		return s
	}
	other := *s
	other.Attrs, other.private = s.Attrs[:len(s.Attrs)-s.private], 0
	return &other
}

// ExportAfter is Export for a span that went to those who had kept it by an earlier
// outcome.
func (o *Outcome) ExportAfter(earlier *Outcome, policies []*Policy, s *Span) {
	for _, p := range policies {
		if o.wantedBy(p) && !earlier.wantedBy(p) {
			o.Export([]*Policy{p}, s)
		}
	}
}
