// Package permit decides who may connect to what: an index of TrafficPermissions
// that answers one question in a time that depends on how many shapes of patterns,
// lengths of networks and names of tags the permissions for a destination have,
// and not on how many permissions there are.
//
//	x = x.With("shop", spec.WithDefaults())
//	v := x.Decide(&permit.Query{Service: "orders", Identity: "spiffe://corp/web"})
//
// An Index is immutable; With returns the next one, which shares all that did not
// change. It knows permissions and clients only, and neither routes nor sockets.
package permit

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"penstock/routing/hamt"
	"penstock/routing/resource"
)

// Query is one question: may this client connect to this, or send this request?
type Query struct {
	// Service or Cluster is the destination; the other one is "".
	Service, Cluster string
	Listener         string
	// Identity is the client's verified SPIFFE ID; "": none. Undecided says that the
	// client has proven something from which no single ID follows, and so no service
	// and no tags either.
	Identity  string
	Undecided bool
	// ClientService is the client's service by its tags, Layers are its tags; of
	// several layers with a tag, the first counts.
	ClientService string
	Layers        [4]map[string]string
	Client        netip.Addr // invalid: none, as on a unix socket
	// Request says that Method and Path are those of an HTTP request. Otherwise the
	// question is about a connection, whose requests are unknown.
	Request bool
	Method  string
	Path    string // in normal form (package urlpath)
}

// Why is the kind of a verdict.
type Why uint8

// The kinds of verdicts.
const (
	// Open: no permission names the destination, and the mesh's default is allow.
	Open Why = iota
	// ByAllow and ByDeny: the permission in Verdict.Rule decided.
	ByAllow
	ByDeny
	// NoneAllows: a permission with allow names the destination, and none allows
	// the client. Verdict.Rule is the first that names it.
	NoneAllows
	// Closed: no permission names the destination, and the mesh's default is deny.
	Closed
)

// Verdict is an answer.
type Verdict struct {
	Why Why
	// Rule is the permission that decided, the first by name; "": none did.
	Rule string
	// Shadow is the first shadowDeny that matches; "": none does.
	Shadow string
	rule   *rule // Rule; nil: none
	shadow *rule
	// unallowed counts it if no permission allows it; nil otherwise.
	unallowed *Counters
}

// Counters count what a permission decided on this node with one action, over all its
// versions.
type Counters struct {
	// Denied counts denials, of connections and requests; of a shadowDeny what it
	// would have denied.
	Denied atomic.Uint64
}

// Count counts a verdict that takes effect.
func (v *Verdict) Count() {
	switch {
	case v.Why == ByDeny:
		v.rule.Denied.Add(1)
	case v.unallowed != nil:
		v.unallowed.Denied.Add(1)
	}
	if v.shadow != nil {
		v.shadow.Denied.Add(1)
	}
}

// Denials iterates over the permissions with deny or shadowDeny that have denied
// something, with their actions and counters. What was denied because no permission
// allows it has the name "" and the action ActionDefault.
func (x *Index) Denials() iter.Seq2[string, Denial] {
	return func(yield func(string, Denial) bool) {
		if x.unallowed != nil {
			if n := x.unallowed.Denied.Load(); n > 0 && !yield("", Denial{ActionDefault, n}) {
				return
			}
		}
		for name, rules := range x.rules.All() {
			for i, r := range rules {
				shared := slices.ContainsFunc(rules[:i], func(other *rule) bool { return other.Counters == r.Counters })
				if n := r.Denied.Load(); n > 0 && !shared && !yield(name, Denial{r.action, n}) {
					return
				}
			}
		}
	}
}

// ActionDefault is the Action of denials because no permission allows what is denied.
const ActionDefault = "default"

// Denial is how often a permission with deny or shadowDeny has matched, or none has.
type Denial struct {
	Action string
	Count  uint64
}

// Shadows reports whether there is a permission with shadowDeny.
func (x *Index) Shadows() bool { return x.shadows > 0 }

func (r *rule) isShadow() int {
	if r.action == resource.ActionShadowDeny {
		return 1
	}
	return 0
}

// Allowed reports whether the client may connect.
func (v *Verdict) Allowed() bool { return v.Why == Open || v.Why == ByAllow }

// OnChange returns what the deciding permission says about established connections
// that a change denies, and the window of a drain. Without a permission it returns
// the defaults.
func (v *Verdict) OnChange() (action string, window time.Duration) {
	if v.rule == nil {
		return resource.OnChangeDrain, defaultWindow
	}
	return v.rule.onChange, v.rule.window
}

// defaultWindow is TrafficPermission.Window's default.
const defaultWindow = 30 * time.Second

// Index holds permissions. The zero Index is empty and allows everything.
type Index struct {
	rules    hamt.Map[[]*rule] // those of each permission, by its name
	services hamt.Map[*group]
	clusters hamt.Map[*group]
	all      *group // permissions for any service and cluster; nil: none
	shadows  int    // permissions with shadowDeny
	closed   bool   // the mesh's default is deny
	// unallowed counts what no permission allows; nil in the zero Index.
	unallowed *Counters
}

// Len returns the number of permissions.
func (x *Index) Len() int { return x.rules.Len() }

// Unused reports whether the index allows everything, with no permission and no
// default that denies.
func (x *Index) Unused() bool { return x.rules.Len() == 0 && !x.closed }

// WithDefault returns the index with the mesh's default.
func (x *Index) WithDefault(deny bool) *Index {
	next := x.clone()
	next.closed = deny
	return &next
}

// clone returns a copy that shares the counters.
func (x *Index) clone() Index {
	next := *x
	if next.unallowed == nil {
		next.unallowed = new(Counters)
	}
	return next
}

// With returns the index with a permission, whose defaults are filled in; nil
// removes it.
func (x *Index) With(name string, spec *resource.TrafficPermission) *Index {
	next := x.clone()
	rules := x.rules.Edit()
	counters := map[string]*Counters{} // by action
	old, _ := x.rules.Get(name)
	for _, r := range old {
		counters[r.action] = r.Counters
		next.shadows -= r.isShadow()
		next.place(r, false)
	}
	rules.Delete(name)
	if spec != nil {
		var list []*rule
		for _, one := range spec.Split() {
			if counters[one.Action] == nil {
				counters[one.Action] = new(Counters)
			}
			r := newRule(name, one, counters[one.Action])
			next.shadows += r.isShadow()
			next.place(r, true)
			list = append(list, r)
		}
		rules.Set(name, list)
	}
	next.rules = rules.Map()
	return &next
}

// Requests reports whether a permission for the destination depends on the
// requests of a connection.
func (x *Index) Requests(service, listener string) bool {
	var found [4]*destination
	for _, d := range x.find(&Query{Service: service, Listener: listener}, &found) {
		if d.requests > 0 {
			return true
		}
	}
	return false
}

// Decide answers a question. It allocates nothing.
func (x *Index) Decide(q *Query) Verdict {
	if x.rules.Len() == 0 {
		return x.unnamed()
	}
	var found [4]*destination
	s := search{q: q, client: q.Client.Unmap().WithZone("")}
	var naming *rule
	for _, d := range x.find(q, &found) {
		s.search(d)
		if r := d.allows; len(r) > 0 {
			naming = first(naming, r[0])
		}
	}
	v := Verdict{}
	if s.shadow != nil {
		v.Shadow, v.shadow = s.shadow.name, s.shadow
	}
	switch {
	case s.deny != nil:
		v.Why, v.rule = ByDeny, s.deny
	case s.allow != nil:
		v.Why, v.rule = ByAllow, s.allow
	case naming != nil:
		v.Why, v.rule, v.unallowed = NoneAllows, naming, x.unallowed
	default:
		unnamed := x.unnamed()
		v.Why, v.unallowed = unnamed.Why, unnamed.unallowed
	}
	if v.rule != nil {
		v.Rule = v.rule.name
	}
	return v
}

func (x *Index) unnamed() Verdict {
	if x.closed {
		return Verdict{Why: Closed, unallowed: x.unallowed}
	}
	return Verdict{Why: Open}
}

// find returns what the index has for a destination.
func (x *Index) find(q *Query, found *[4]*destination) []*destination {
	list := found[:0]
	var own *group
	switch {
	case q.Service != "":
		own, _ = x.services.Get(q.Service)
	case q.Cluster != "":
		own, _ = x.clusters.Get(q.Cluster)
	}
	for _, g := range [...]*group{own, x.all} {
		if g == nil {
			continue
		}
		if g.anywhere != nil {
			list = append(list, g.anywhere)
		}
		if d, ok := g.listeners.Get(q.Listener); ok {
			list = append(list, d)
		}
	}
	return list
}

// rule is what a permission says with one action for some clients: all of it, or one
// of its rules.
type rule struct {
	*Counters
	name     string
	action   string
	onChange string
	window   time.Duration
	spec     *resource.TrafficPermission
}

func newRule(name string, spec *resource.TrafficPermission, counters *Counters) *rule {
	return &rule{counters, name, spec.Action, spec.OnChange, spec.Window.D(), spec}
}

// first returns the rule that comes first by name; either may be nil.
func first(a, b *rule) *rule {
	if a == nil || b != nil && b.name < a.name {
		return b
	}
	return a
}

// clause is one entry of a permission's from with one of its to.
type clause struct {
	rule *rule
	from *resource.TrafficSource
	http []resource.TrafficRequest // nil: all connections and requests
}

// search is the state of one Decide.
type search struct {
	q                   *Query
	client              netip.Addr // unmapped, without a zone
	allow, deny, shadow *rule
	plain               string // see plainPath; "": not made yet
}

// consider takes a clause whose key was found into account. skip is the field that
// the key has already decided.
func (s *search) consider(e *entry, skip field) {
	r := e.rule
	best := &s.deny
	switch r.action {
	case resource.ActionAllow:
		best = &s.allow
	case resource.ActionShadowDeny:
		best = &s.shadow
	}
	if *best != nil && (*best).name <= r.name || !s.from(e, skip) || !s.http(e) {
		return
	}
	*best = r
}

// from reports whether the client matches the fields that the key did not decide.
func (s *search) from(e *entry, skip field) bool {
	from := e.from
	if s.q.Undecided && len(from.Identities)+len(from.Services)+len(from.Tags) > 0 {
		return e.rule.action != resource.ActionAllow &&
			(skip == byNetwork || len(from.Networks) == 0 || s.within(from.Networks))
	}
	switch {
	case skip == byPattern:
		if !resource.MatchSPIFFE(e.pattern, s.q.Identity) {
			return false
		}
	case skip != byIdentity && len(from.Identities) > 0:
		return false // its keys are of its identities
	}
	if skip != byService && len(from.Services) > 0 && !contains(from.Services, s.q.ClientService) {
		return false
	}
	if skip != byNetwork && len(from.Networks) > 0 && !s.within(from.Networks) {
		return false
	}
	for name, want := range from.Tags {
		if have, ok := s.tag(name); !ok || have != want {
			return false
		}
	}
	return true
}

func (s *search) within(networks []netip.Prefix) bool {
	for _, p := range networks {
		if Network(p).Contains(s.client) {
			return true
		}
	}
	return false
}

// tag returns a tag of the client.
func (s *search) tag(name string) (string, bool) {
	for i := range s.q.Layers {
		if v, ok := s.q.Layers[i][name]; ok {
			return v, true
		}
	}
	return "", false
}

// http reports whether a clause applies to the request. A connection whose
// requests are unknown may carry any: it matches what denies, and not what allows.
func (s *search) http(e *entry) bool {
	if e.http == nil {
		return true
	}
	if !s.q.Request {
		return e.rule.action != resource.ActionAllow
	}
	for i := range e.http {
		t := &e.http[i]
		if len(t.Methods) > 0 && !contains(t.Methods, s.q.Method) &&
			(e.rule.action == resource.ActionAllow || !contains(t.Methods, strings.ToUpper(s.q.Method))) {
			continue // what denies GET denies get too, which some servers take for it
		}
		if len(t.Paths) == 0 || matchPath(t.Paths, s.q.Path) {
			return true
		}
		if e.rule.action != resource.ActionAllow && matchPath(t.Paths, s.plainPath()) {
			return true
		}
	}
	return false
}

// plainPath returns the path as servers may read it that merge slashes, decode
// escaped ones and semicolons, and drop parameters of segments. What denies applies to it too.
func (s *search) plainPath() string {
	if s.plain == "" {
		s.plain = plainPath(s.q.Path)
	}
	return s.plain
}

func plainPath(path string) string {
	if !strings.ContainsAny(path, "%;\\") && !strings.Contains(path, "//") {
		return path
	}
	path = strings.NewReplacer("%2F", "/", "%5C", "/", "\\", "/", "%3B", ";").Replace(path)
	var b strings.Builder
	for segment := range strings.SplitSeq(path, "/") {
		if segment, _, _ = strings.Cut(segment, ";"); segment != "" {
			b.WriteByte('/')
			b.WriteString(segment)
		}
	}
	if strings.HasSuffix(path, "/") || b.Len() == 0 {
		b.WriteByte('/')
	}
	return b.String()
}

func matchPath(patterns []string, path string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(path, prefix) || p == path {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	if s == "" {
		return false
	}
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// Network returns a network in the form in which clients are compared with it:
// masked, and IPv4 if it is of IPv4 addresses mapped to IPv6.
func Network(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked()
}
