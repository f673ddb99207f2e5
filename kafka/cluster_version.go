package kafka

import (
	"sync/atomic"

	"penstock/kafka/filter"
	"penstock/kafka/filter/authorize"
	"penstock/kafka/filter/topiclimit"
	"penstock/kafka/model"
	"penstock/kafka/session"
)

// clusterVersion is one version of a virtual cluster, ready for sessions. Whoever
// holds one has acquired that version.
type clusterVersion struct {
	virtual  *model.Virtual
	chain    *filter.Chain
	settings *session.Settings
	front    front
}

// front is the filters of the proxy's own, before those of the chain.
type front struct {
	guard  *authorize.Filter  // of permissions; nil: there are none
	topics *topiclimit.Filter // of limits by topic; nil: there are none
}

// filters returns them in the order in which requests see them.
func (f front) filters() (list []filter.Filter) {
	if f.guard != nil {
		list = append(list, f.guard)
	}
	if f.topics != nil {
		list = append(list, f.topics)
	}
	return list
}

// index returns which of the four that are possible it is.
func (f front) index() (i int) {
	if f.guard != nil {
		i |= 1
	}
	if f.topics != nil {
		i |= 2
	}
	return i
}

// versionCache caches the newest version of a cluster, so that its chain is compiled
// once for each front.
type versionCache struct {
	by     [4]atomic.Pointer[clusterVersion] // by front.index
	latest atomic.Pointer[model.Virtual]     // that any was made for last
}

// acquire returns a version ready for sessions. ok is false if that version is
// over: the table has a newer one or none.
func (l *versionCache) acquire(v *model.Virtual, before front) (*clusterVersion, bool) {
	if !v.Acquire() {
		return nil, false
	}
	cache := &l.by[before.index()]
	if s := cache.Load(); s != nil && s.virtual == v {
		return s, true
	}
	spec := v.Spec()
	s := &clusterVersion{virtual: v, chain: v.Compiled(), settings: session.NewSettings(session.Limits{
		MaxFrame: int(spec.MaxFrame), MaxFrameAuth: int(spec.MaxFrameBeforeAuth),
		MaxInFlight: spec.MaxInFlight, FrameTimeout: spec.FrameTimeout.D(),
	})}
	if own := before.filters(); len(own) > 0 {
		chain, err := filter.NewChain(append(own, v.Filters()...))
		if err != nil { // never: model bounds the filters to fewer
			v.Release()
			return nil, false
		}
		s.chain, s.front = chain, before
	}
	cache.Store(s)
	// A connection that keeps an older version may need it with another front, too.
	if v.State().Current() == v {
		l.latest.Store(v)
	} else {
		l.latest.CompareAndSwap(nil, v)
	}
	return s, true
}

// Chain implements session.Host. From this request on, the connection uses the
// newest version that accepts it, with the filters of permissions and of limits by topic
// if there are any for the cluster.
func (p *Connection) Chain(have *filter.Chain) *filter.Chain {
	if have == nil {
		return p.version.chain
	}
	v, before := p.version.virtual, p.proxy.front(p.stats)
	if now := p.state.Current(); now != nil && now != v && now != p.rejected {
		if now.Accepts(v) {
			v = now
		} else {
			p.rejected = now // keeps what it began with
		}
	}
	if v == p.version.virtual && before == p.version.front {
		return have
	}
	s, ok := p.stats.versions.acquire(v, before)
	if !ok && v != p.version.virtual { // a newer version has come in between
		s, ok = p.stats.versions.acquire(p.version.virtual, before)
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

// front returns the filters that a cluster needs now.
func (r *Proxy) front(s *stats) (f front) {
	if r.permissions.of(s.name) != nil {
		f.guard = s.guard
	}
	if r.cfg.LimitsTopics != nil && r.cfg.LimitsTopics(s.name) {
		f.topics = s.topics
	}
	return f
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
