package kafka

import (
	"sync/atomic"

	"penstock/kafka/filter"
	"penstock/kafka/model"
	"penstock/kafka/session"
)

// serving is one version of a virtual cluster, ready for sessions. Whoever
// holds one has acquired that version.
type serving struct {
	virtual  *model.Virtual
	chain    *filter.Chain
	settings *session.Settings
}

// latest caches the newest serving of a cluster, so that its chain is compiled
// once.
type latest struct{ p atomic.Pointer[serving] }

// acquire returns a version ready for sessions. ok is false if that version is
// over: the table has a newer one or none.
func (l *latest) acquire(v *model.Virtual) (*serving, bool) {
	if !v.Acquire() {
		return nil, false
	}
	if s := l.p.Load(); s != nil && s.virtual == v {
		return s, true
	}
	spec := v.Spec()
	s := &serving{virtual: v, chain: v.Compiled(), settings: session.NewSettings(session.Limits{
		MaxFrame: int(spec.MaxFrame), MaxFrameAuth: int(spec.MaxFrameBeforeAuth),
		MaxInFlight: spec.MaxInFlight, FrameTimeout: spec.FrameTimeout.D(),
	})}
	l.p.Store(s)
	return s, true
}

// Chain implements session.Host. From this request on, the connection uses the
// newest version that accepts it.
func (p *Connection) Chain(have *filter.Chain) *filter.Chain {
	if have == nil {
		return p.serving.chain
	}
	now := p.life.Current()
	if now == nil || now == p.serving.virtual || now == p.refused {
		return have
	}
	if !now.Takes(p.serving.virtual) {
		p.refused = now // keeps what it began with
		return have
	}
	s, ok := p.stats.latest.acquire(now)
	if !ok {
		return have
	}
	if s.chain == have { // other settings, the same filters
		p.serving.virtual.Release()
		p.serving = s
		return have
	}
	p.older = append(p.older, p.serving)
	p.serving = s
	return s.chain
}

// Release implements session.Host.
func (p *Connection) Release(c *filter.Chain) {
	if p.serving != nil && p.serving.chain == c {
		p.serving.virtual.Release()
		p.serving = nil
		return
	}
	for i, s := range p.older {
		if s.chain == c {
			s.virtual.Release()
			p.older = append(p.older[:i], p.older[i+1:]...)
			return
		}
	}
}
