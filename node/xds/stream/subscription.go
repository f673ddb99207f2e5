package stream

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/node/xds/snapshot"
)

// maxDetail bounds what is kept of the reason for which a client refuses a
// response, in bytes.
const maxDetail = 1 << 10

// maxRetired bounds the clusters that are gone and are kept until the client has
// accepted the routes that changed with them. Beyond it they go at once.
const maxRetired = 1000

// subscription is the state of one type of resources.
type subscription struct {
	session *Session
	t       snapshot.Type

	// What the client has subscribed to. legacy: it has named nothing yet, so that
	// a request without names means all.
	all, legacy bool
	names       *names
	listed      uint64 // hash of the names of the last request, in its order (state of the world)

	// content is the digest of all that is subscribed to and exists in the view.
	content digest
	// retired are clusters that are gone and not yet taken away from the client.
	retired map[string]*snapshot.Resource

	// What is to be sent: everything, these names, or (with full) a list that may
	// be the same as before. rejected are the names of refused responses, which go
	// along with the next response.
	whole, force    bool
	dirty, rejected map[string]struct{}

	// had is the version that the client had before this stream, if hasVersion. It
	// counts until the first response is due. waits is until when the client waits
	// for this node to catch up with it; zero: it does not.
	had        version
	hasVersion bool
	waits      time.Time

	// The last response.
	nonce    string   // "": none
	answered bool     // it is accepted or refused, or there is none
	sent     digest   // what the client has, once it accepts it
	carried  []string // the names of its resources, until it is answered

	status Status
}

func newSubscription(s *Session, t snapshot.Type) *subscription {
	return &subscription{
		session: s, t: t, names: noNames, legacy: t == snapshot.Cluster || t == snapshot.Listener, answered: true,
	}
}

// full reports whether each response has all resources of the subscription: in
// the state of the world, a cluster or listener that is missing counts as removed.
func (s *subscription) full() bool {
	return !s.session.cfg.Delta && (s.t == snapshot.Cluster || s.t == snapshot.Listener)
}

// open takes the first request of the stream for this type.
func (s *subscription) open(r *Request, now time.Time) {
	s.whole = true
	if s.session.cfg.Delta {
		s.all = s.legacy && len(r.Subscribe) == 0 && len(r.Unsubscribe) == 0
		if s.all {
			s.content = s.total()
		}
		s.edit(r)
		s.dirty = nil
		if len(r.Known) > 0 {
			s.whole = false
			// An Envoy that gets a cluster waits for its endpoints.
			s.compare(r.Known, s.t == snapshot.Endpoint && s.session.sentClusters)
		}
		s.whole = s.whole && (s.all || len(s.names.sorted) > 0)
		return
	}
	s.all = s.legacy && len(r.Names) == 0
	if s.all {
		s.content = s.total()
	}
	s.replace(r.Names)
	if s.had, s.hasVersion = parseVersion(r.Version); s.hasVersion {
		s.status.Accepted = r.Version
		if s.had.index > s.session.state.Index() {
			s.waits = now.Add(MaxWait)
		}
	}
}

// compare marks what differs from the resources that a client of the delta
// variant has, and with again also what does not.
func (s *subscription) compare(known map[string]string, again bool) {
	for r := range s.each(s.session.view) {
		if again || known[r.Name] != r.Version {
			s.mark(r.Name)
		}
	}
	gone := func(name string) {
		if s.has(name) && s.find(s.session.view, name) == nil {
			s.mark(name)
		}
	}
	for name := range known {
		gone(name)
	}
	for _, name := range s.names.sorted {
		gone(name)
	}
}

// answer takes what a request says about the last response.
func (s *subscription) answer(r *Request, now time.Time) Result {
	switch {
	case s.session.cfg.Delta && r.Nonce == "":
		return Subscribed
	case s.nonce != "" && r.Nonce != s.nonce:
		return Stale
	case s.answered:
		return Subscribed
	}
	s.answered = true
	carried := s.carried
	s.carried = nil
	if !r.Rejected {
		s.status.Accepted, s.status.Refused = s.status.Sent, false
		return Accepted
	}
	s.status.Detail, s.status.RejectedAt, s.status.Refused = shorten(r.Detail), now, true
	if s.rejected == nil {
		s.rejected = map[string]struct{}{}
	}
	for _, name := range carried {
		s.rejected[name] = struct{}{}
	}
	return Rejected
}

// shorten returns a text of a client as valid UTF-8 of at most maxDetail bytes.
func shorten(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxDetail)]), "?")
}

// replace takes the names of a request in the state of the world.
func (s *subscription) replace(list []string) {
	if s.legacy && len(list) == 0 {
		return
	}
	s.legacy = false
	listed := hashNames(list)
	if listed == s.listed {
		return
	}
	s.listed = listed
	sorted, all := sortedSet(list)
	set, changed := s.session.cfg.Names.edit(s.names, sorted, without(s.names.sorted, sorted))
	if all == s.all && len(changed) == 0 {
		return
	}
	s.force = s.full()
	if all && !s.all {
		s.whole = true
	}
	s.subscribe(all, set, changed)
	for _, name := range changed {
		if set.has(name) {
			s.mark(name)
		}
	}
}

// edit takes the names of a request of the delta variant.
func (s *subscription) edit(r *Request) {
	add, all := sortedSet(r.Subscribe)
	remove, none := sortedSet(r.Unsubscribe)
	if len(r.Subscribe) > 0 {
		s.legacy = false
	}
	if all && !s.all {
		s.whole = true
	}
	before := s.names
	set, changed := s.session.cfg.Names.edit(s.names, add, without(remove, add))
	s.subscribe((s.all || all) && !none, set, changed)
	for _, name := range add { // again too: the client may have forgotten the resource
		s.mark(name)
	}
	for _, name := range remove {
		if s.all && before.has(name) && !set.has(name) {
			s.mark(name) // the client must learn whether it still has it
		}
	}
}

// subscribe sets what is subscribed to. changed are the names in which the set
// differs from the one before.
func (s *subscription) subscribe(all bool, set *names, changed []string) {
	defer maps.DeleteFunc(s.retired, func(name string, _ *snapshot.Resource) bool { return !s.has(name) })
	if all != s.all {
		s.all, s.names = all, set
		s.content = s.total()
		return
	}
	for _, name := range changed {
		s.count(nil, s.find(s.session.view, name))
	}
	s.names = set
	for _, name := range changed {
		s.count(s.find(s.session.view, name), nil)
	}
}

// update marks what differs from an earlier state.
func (s *subscription) update(since *State, before snapshot.View) {
	view := s.session.view
	if changed, known := s.session.state.changed(since, s.t); known {
		for _, name := range changed {
			if s.has(name) {
				s.differ(name, s.find(before, name), s.find(view, name))
			}
		}
		return
	}
	old := slices.Collect(s.each(before))
	for r := range s.each(view) {
		for len(old) > 0 && old[0].Name < r.Name {
			s.differ(old[0].Name, old[0], nil)
			old = old[1:]
		}
		if len(old) > 0 && old[0].Name == r.Name {
			s.differ(r.Name, old[0], r)
			old = old[1:]
		} else {
			s.differ(r.Name, nil, r)
		}
	}
	for _, r := range old {
		s.differ(r.Name, r, nil)
	}
}

// differ marks a resource if it is not what it was.
func (s *subscription) differ(name string, before, now *snapshot.Resource) {
	if before == now || before != nil && now != nil && before.Version == now.Version {
		return
	}
	s.count(now, before)
	if now != nil {
		delete(s.retired, name)
		s.mark(name)
		return
	}
	if s.t == snapshot.Cluster && len(s.retired) < maxRetired {
		if s.retired == nil {
			s.retired = map[string]*snapshot.Resource{}
		}
		s.retired[name] = before
		return
	}
	s.mark(name)
}

// count adds a resource to the content's digest and removes another; nil: none.
func (s *subscription) count(added, removed *snapshot.Resource) {
	if added != nil {
		s.content.add(digestOfResource(added))
	}
	if removed != nil {
		s.content.subtract(digestOfResource(removed))
	}
}

func (s *subscription) mark(name string) {
	if s.whole {
		return
	}
	if s.dirty == nil {
		s.dirty = map[string]struct{}{}
	}
	s.dirty[name] = struct{}{}
}

// settle records since when the client is behind.
func (s *subscription) settle(now time.Time) {
	switch {
	case s.answered && !s.status.Refused && !s.pending():
		s.status.Behind = time.Time{}
	case s.status.Behind.IsZero():
		s.status.Behind = now
	}
}

var hashSeed = maphash.MakeSeed()

// hashNames returns a hash of a list of names in its order.
func hashNames(list []string) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for _, name := range list {
		h.WriteString(name)
		h.WriteByte(0)
	}
	return h.Sum64() | 1
}
