package kafka

import (
	"sync/atomic"

	"penstock/kafka/filter"
	"penstock/kafka/model"
	"penstock/kafka/session"
)

// clusterVersion is one version of a virtual cluster, ready for sessions. Whoever
// holds one has acquired that version.
type clusterVersion struct {
	virtual  *model.Virtual
	chain    *filter.Chain
	settings *session.Settings
}

// versionCache caches the newest version of a cluster, so that its chain is compiled
// once.
type versionCache struct {
	p atomic.Pointer[clusterVersion]
}

// acquire returns a version ready for sessions. ok is false if that version is
// over: the table has a newer one or none.
func (l *versionCache) acquire(v *model.Virtual) (*clusterVersion, bool) {
	if !v.Acquire() {
		return nil, false
	}
	if s := l.p.Load(); s != nil && s.virtual == v {
		return s, true
	}
	spec := v.Spec()
	s := &clusterVersion{virtual: v, chain: v.Compiled(), settings: session.NewSettings(session.Limits{
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
		return p.version.chain
	}
	now := p.state.Current()
	if now == nil || now == p.version.virtual || now == p.rejected {
		return have
	}
	if !now.Accepts(p.version.virtual) {
		p.rejected = now // keeps what it began with
		return have
	}
	s, ok := p.stats.versions.acquire(now)
	if !ok {
		return have
	}
	if s.chain == have { // other settings, the same filters
		p.version.virtual.Release()
		p.version = s
		return have
	}
	p.olderVersions = append(p.olderVersions, p.version)
	p.version = s
	return s.chain
}

// Release implements session.Host.
func (p *Connection) Release(c *filter.Chain) {
	if p.version != nil && p.version.chain == c {
		p.version.virtual.Release()
		p.version = nil
		return
	}
	for i, s := range p.olderVersions {
		if s.chain == c {
			s.virtual.Release()
			p.olderVersions = append(p.olderVersions[:i], p.olderVersions[i+1:]...)
			return
		}
	}
}
