package kafka

import (
	"sync/atomic"

	"penstock/kafka/filter"
	"penstock/kafka/filter/authorize"
	"penstock/kafka/model"
	"penstock/kafka/session"
)

// clusterVersion is one version of a virtual cluster, ready for sessions. Whoever
// holds one has acquired that version.
type clusterVersion struct {
	virtual  *model.Virtual
	chain    *filter.Chain
	settings *session.Settings
	// guard is the filter of permissions in front of the chain; nil: there is none.
	guard *authorize.Filter
}

// versionCache caches the newest version of a cluster, so that its chain is compiled
// once: without the filter of permissions, and with it.
type versionCache struct {
	p, guarded atomic.Pointer[clusterVersion]
	latest     atomic.Pointer[model.Virtual] // that either was made for last
}

// acquire returns a version ready for sessions. ok is false if that version is
// over: the table has a newer one or none.
func (l *versionCache) acquire(v *model.Virtual, guard *authorize.Filter) (*clusterVersion, bool) {
	if !v.Acquire() {
		return nil, false
	}
	cache := &l.p
	if guard != nil {
		cache = &l.guarded
	}
	if s := cache.Load(); s != nil && s.virtual == v {
		return s, true
	}
	spec := v.Spec()
	s := &clusterVersion{virtual: v, chain: v.Compiled(), settings: session.NewSettings(session.Limits{
		MaxFrame: int(spec.MaxFrame), MaxFrameAuth: int(spec.MaxFrameBeforeAuth),
		MaxInFlight: spec.MaxInFlight, FrameTimeout: spec.FrameTimeout.D(),
	})}
	if guard != nil {
		chain, err := filter.NewChain(append([]filter.Filter{guard}, v.Filters()...))
		if err != nil { // never: model bounds the filters to fewer
			v.Release()
			return nil, false
		}
		s.chain, s.guard = chain, guard
	}
	cache.Store(s)
	// A connection that keeps an older version may need it with permissions, too.
	if v.State().Current() == v {
		l.latest.Store(v)
	} else {
		l.latest.CompareAndSwap(nil, v)
	}
	return s, true
}

// Chain implements session.Host. From this request on, the connection uses the
// newest version that accepts it, with the filter of permissions if there are any
// for the cluster.
func (p *Connection) Chain(have *filter.Chain) *filter.Chain {
	if have == nil {
		return p.version.chain
	}
	v, guard := p.version.virtual, p.guard()
	if now := p.state.Current(); now != nil && now != v && now != p.rejected {
		if now.Accepts(v) {
			v = now
		} else {
			p.rejected = now // keeps what it began with
		}
	}
	if v == p.version.virtual && guard == p.version.guard {
		return have
	}
	s, ok := p.stats.versions.acquire(v, guard)
	if !ok && v != p.version.virtual { // a newer version has come in between
		s, ok = p.stats.versions.acquire(p.version.virtual, guard)
	}
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

// guard returns the filter of permissions if the cluster has any.
func (p *Connection) guard() *authorize.Filter {
	if p.proxy.permissions.of(p.state.Name()) == nil {
		return nil
	}
	return p.stats.guard
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
