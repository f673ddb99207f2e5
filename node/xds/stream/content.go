package stream

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/node/xds/snapshot"
)

// has reports whether the client has subscribed to a name.
func (s *subscription) has(name string) bool { return s.all || s.names.has(name) }

// find returns a resource of a view that is subscribed to; nil: there is none.
func (s *subscription) find(v snapshot.View, name string) *snapshot.Resource {
	if s.names.has(name) {
		return v.Get(s.t, name)
	}
	if s.all {
		list := v.All(s.t)
		if i, found := slices.BinarySearchFunc(list, name, compareName); found {
			return list[i]
		}
	}
	return nil
}

func compareName(r *snapshot.Resource, name string) int { return strings.Compare(r.Name, name) }

// each yields the resources of a view that are subscribed to, sorted by name.
func (s *subscription) each(v snapshot.View) iter.Seq[*snapshot.Resource] {
	return func(yield func(*snapshot.Resource) bool) {
		var list []*snapshot.Resource
		if s.all {
			list = v.All(s.t)
		}
		for _, name := range s.names.sorted {
			for len(list) > 0 && list[0].Name < name {
				if !yield(list[0]) {
					return
				}
				list = list[1:]
			}
			if len(list) > 0 && list[0].Name == name {
				continue // it comes with the list
			}
			if r := v.Get(s.t, name); r != nil && !yield(r) {
				return
			}
		}
		for _, r := range list {
			if !yield(r) {
				return
			}
		}
	}
}

// total returns the digest of all that is subscribed to.
func (s *subscription) total() (sum digest) {
	for r := range s.each(s.session.view) {
		sum.add(digestOfResource(r))
	}
	return sum
}

// target returns the digest of what the client should have: the content, and
// clusters that are still kept for it.
func (s *subscription) target() digest {
	sum := s.content
	for _, r := range s.retired {
		sum.add(digestOfResource(r))
	}
	return sum
}

// pending reports whether there is something to send, now or after an answer.
func (s *subscription) pending() bool {
	if s == nil {
		return false
	}
	return s.whole || s.force || len(s.dirty) > 0
}

// next returns a response, if one is due.
func (s *subscription) next(now time.Time) (Response, bool) {
	s.release()
	if !s.answered || !s.pending() || s.catchingUp(now) || s.unchanged() {
		return Response{}, false
	}
	resources, removed := s.collect()
	whole, dirty := s.whole, s.dirty
	opening := whole && (s.full() || s.session.cfg.Delta)
	s.whole, s.force, s.dirty, s.rejected = false, false, nil, nil
	s.sent = s.target()
	if len(resources) == 0 && len(removed) == 0 && !opening && !s.full() {
		return Response{}, false
	}
	r := s.session.respond(s.t, s.sent, resources, removed)
	s.nonce, s.answered, s.carried, s.status.Sent = r.Nonce, false, r.shared.names, r.Version
	if s.t == snapshot.Cluster {
		s.session.warm(resources, whole, dirty)
	}
	return r, true
}

// catchingUp reports whether the client waits for this node.
func (s *subscription) catchingUp(now time.Time) bool {
	if s.waits.IsZero() {
		return false
	}
	if s.session.state.Index() < s.had.index && now.Before(s.waits) {
		return true
	}
	s.waits = time.Time{}
	return false
}

// unchanged reports whether the client has everything already: from an earlier
// stream, or because what changed is again as it was.
func (s *subscription) unchanged() bool {
	known := s.hasVersion
	s.hasVersion = false
	switch {
	case known && s.whole && s.had.digest == s.target():
		// An Envoy that gets a cluster waits for its endpoints.
		if s.t == snapshot.Endpoint && s.session.sentClusters {
			return false
		}
		s.sent = s.had.digest
	case s.full() && !s.whole && !s.force && s.sent == s.target():
	default:
		return false
	}
	s.whole, s.force, s.dirty = false, false, nil
	return true
}

// collect returns what is to be sent: resources, and the names of those that are
// gone.
func (s *subscription) collect() (resources []*snapshot.Resource, removed []string) {
	view := s.session.view
	if s.whole || s.full() {
		resources = slices.Collect(s.each(view))
		if s.full() && len(s.retired) > 0 {
			resources = append(resources, slices.Collect(maps.Values(s.retired))...)
			slices.SortFunc(resources, func(a, b *snapshot.Resource) int { return strings.Compare(a.Name, b.Name) })
		}
		if s.session.cfg.Delta {
			for _, name := range s.names.sorted {
				if view.Get(s.t, name) == nil {
					removed = append(removed, name)
				}
			}
		}
		return resources, removed
	}
	due := make([]string, 0, len(s.dirty)+len(s.rejected))
	due = slices.AppendSeq(due, maps.Keys(s.dirty))
	due = slices.AppendSeq(due, maps.Keys(s.rejected))
	slices.Sort(due)
	for _, name := range slices.Compact(due) {
		if !s.has(name) {
			continue // it was unsubscribed from
		}
		if r := s.find(view, name); r != nil {
			resources = append(resources, r)
		} else if s.session.cfg.Delta && s.retired[name] == nil {
			removed = append(removed, name)
		}
	}
	return resources, removed
}

// release lets go of clusters that are gone, once the client has answered the
// listeners and routes that changed with them.
func (s *subscription) release() {
	if len(s.retired) == 0 || !s.session.routesSettled() {
		return
	}
	retired := s.retired
	s.retired = nil
	for name := range retired {
		s.mark(name)
	}
}

// warm makes the endpoints of clusters follow them, changed or not: an Envoy
// that gets a cluster, new or changed, waits for them. The assignment of a
// cluster has its name.
func (s *Session) warm(clusters []*snapshot.Resource, whole bool, dirty map[string]struct{}) {
	s.sentClusters = true
	endpoints := s.subs[snapshot.Endpoint]
	if endpoints == nil {
		return
	}
	for _, r := range clusters {
		_, changed := dirty[r.Name]
		if (whole || changed) && endpoints.has(r.Name) {
			endpoints.mark(r.Name)
		}
	}
}
