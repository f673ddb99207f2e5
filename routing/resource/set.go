package resource

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"penstock/routing/hamt"
)

// Set is an immutable set of objects with what is needed to check a change at
// the cost of the change: who refers to whom, who listens where, and whose a
// server name is. With makes the next set, which shares what did not change; a
// Set may be read from anywhere and kept as long as wanted. The zero Set is
// empty.
type Set struct {
	objects hamt.Groups[*member] // by kind and name
	// users has, for each reference, the user's treeKey under the target's.
	users hamt.Groups[struct{}]
	// ports has "port\x00host\x00kind\x00name" of who listens there, or
	// "unix:PATH\x00\x00kind\x00name".
	ports *iradix.Tree[struct{}]
	// names has the claims to each server name of a listener, in normal form,
	// under the listener's name, whether or not there is such a listener.
	names hamt.Groups[*claim]
	// covers has the Certificates that are for a name, in lower case.
	covers hamt.Groups[struct{}]
	// claims has the names that Joints have of listeners; see nameClaim.
	claims *iradix.Tree[*nameClaim]
	// joints is users of the users that are Joints.
	joints hamt.Groups[struct{}]
	// meshes has the policies of each of Kuma's meshes, splits those that split
	// a root service of SMI.
	meshes, splits hamt.Groups[struct{}]
}

// member is an object of a set with what is derived from it once.
type member struct {
	Object
	refs    []Ref           // nil: few, and made when asked for
	names   []string        // of a certificate's leaf, in lower case
	claims  []Claim         // of a Joint
	listens []listenAddress // where it wants to be alone; of a Joint as many as it lists
}

// byKey orders members by kind and name.
func byKey(a, b *member) int { return a.compare(b.Key) }

// references lists what the object refers to.
func (m *member) references() []Ref {
	if m.refs != nil {
		return m.refs
	}
	return m.Spec.Refs()
}

// compare orders objects by kind and name.
func (k Key) compare(other Key) int {
	return cmp.Or(strings.Compare(k.Kind, other.Kind), strings.Compare(k.Name, other.Name))
}

// Change puts an object in place of the one of its key, or deletes that one.
type Change struct {
	Object
	Delete bool // only the key counts
}

// Put is the change that puts o.
func Put(o Object) Change { return Change{Object: o} }

// Delete is the change that deletes the object of a key.
func Delete(k Key) Change { return Change{Object: Object{Key: k}, Delete: true} }

func treeKey(k Key) string { return k.Kind + "\x00" + k.Name + "\x00" }

// tree is t, or an empty tree where the set is a zero one.
func tree[T any](t *iradix.Tree[T]) *iradix.Tree[T] {
	if t == nil {
		return iradix.New[T]()
	}
	return t
}

// Len is the number of objects.
func (s *Set) Len() int { return s.objects.Len() }

// Count is the number of objects of a kind.
func (s *Set) Count(kind string) int {
	group := s.objects.Group(kind)
	return group.Len()
}

// Get finds an object. What its Spec points to must not be changed.
func (s *Set) Get(k Key) (Object, bool) {
	if m := s.member(k); m != nil {
		return m.Object, true
	}
	return Object{}, false
}

func (s *Set) member(k Key) *member {
	m, _ := s.objects.Get(k.Kind, k.Name)
	return m
}

// All gives the objects of a kind by name; those of every kind where kind is "".
func (s *Set) All(kind string) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		var all []*member
		for k, group := range s.objects.All() {
			if kind == "" || k == kind {
				for _, m := range group.All() {
					all = append(all, m)
				}
			}
		}
		slices.SortFunc(all, byKey)
		for _, m := range all {
			if !yield(m.Object) {
				return
			}
		}
	}
}

// Users lists who refers to an object: the key is the user's, the path is
// where in it the reference stands.
func (s *Set) Users(k Key) []Ref {
	var out []Ref
	s.eachUser(k, func(user *member) {
		for _, r := range user.references() {
			if r.Key == k {
				out = append(out, Ref{Key: user.Key, Path: r.Path, Optional: r.Optional})
			}
		}
	})
	return out
}

// eachUser calls do with the users of an object, by kind and name.
func (s *Set) eachUser(k Key, do func(*member)) {
	group := s.users.Group(treeKey(k))
	all := make([]*member, 0, group.Len())
	for key := range group.All() {
		if m := s.member(userKey(key)); m != nil {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, byKey)
	for _, m := range all {
		do(m)
	}
}

// hasUser tells whether an object has a user of a kind.
func (s *Set) hasUser(k Key, kind string) bool {
	group := s.users.Group(treeKey(k))
	for key := range group.All() {
		if userKey(key).Kind == kind {
			return true
		}
	}
	return false
}

func userKey(treeKey string) Key {
	kind, name, _ := strings.Cut(strings.TrimSuffix(treeKey, "\x00"), "\x00")
	return Key{kind, name}
}

// ValidateSet checks resources together: duplicates, references that lead
// nowhere, addresses that two listeners want.
func ValidateSet(objects []Object) (Faults, Warnings) {
	changes := make([]Change, len(objects))
	for i, o := range objects {
		changes[i] = Put(o)
	}
	_, faults, warnings := new(Set).With(changes)
	return faults, warnings
}

// With makes the changes at once and checks what they concern, and nothing
// else. The next set is complete in any case, apart from second changes of one
// key, which are faults.
func (s *Set) With(changes []Change) (*Set, Faults, Warnings) {
	c := newChecker()
	c.before = s
	done := make(map[Key]*Object, len(changes))
	once := make([]Change, 0, len(changes))
	for i := range changes {
		change := &changes[i]
		if first, ok := done[change.Key]; ok {
			c.fault(&change.Object, "", "stands here twice, first "+place(first), nil)
			continue
		}
		done[change.Key] = &change.Object
		c.pending[change.Key] = true
		once = append(once, *change)
	}
	c.set = s.Next(once)
	for i := range once {
		delete(c.pending, once[i].Key)
		c.check(&once[i])
	}
	return c.set, c.faults, c.warnings
}

// Next makes the changes, one after another, without checking anything: for
// who repeats what was decided.
func (s *Set) Next(changes []Change) *Set {
	e := &setEdit{
		s.objects.Edit(), s.users.Edit(), tree(s.ports).Txn(), s.names.Edit(), s.covers.Edit(),
		tree(s.claims).Txn(), s.joints.Edit(), s, nil, nil,
	}
	for i := range changes {
		change := &changes[i]
		var next *member
		if !change.Delete {
			next = newMember(change.Object)
		}
		old, _ := e.objects.Get(change.Kind, change.Name)
		e.updateUsers(change.Key, old, next)
		updatePorts(e.ports, old, next)
		e.updateNames(change.Key, old, next)
		e.updateCovers(change.Name, old, next)
		e.updateJoint(old, next)
		e.updateForeign(change.Key, old, next)
		if next == nil {
			e.objects.Delete(change.Kind, change.Name)
		} else {
			e.objects.Set(change.Kind, change.Name, next)
		}
	}
	return &Set{
		e.objects.Groups(), e.users.Groups(), e.ports.CommitOnly(), e.names.Groups(), e.covers.Groups(),
		e.claims.CommitOnly(), e.joints.Groups(), e.meshesAfter(), e.splitsAfter(),
	}
}

// setEdit is a set in the making.
type setEdit struct {
	objects *hamt.GroupsEdit[*member]
	users   *hamt.GroupsEdit[struct{}]
	ports   *iradix.Txn[struct{}]
	names   *hamt.GroupsEdit[*claim]
	covers  *hamt.GroupsEdit[struct{}]
	claims  *iradix.Txn[*nameClaim]
	joints  *hamt.GroupsEdit[struct{}]
	before  *Set
	meshes  *hamt.GroupsEdit[struct{}] // nil: as before
	splits  *hamt.GroupsEdit[struct{}] // nil: as before
}

func newMember(o Object) *member {
	m := &member{Object: o}
	switch spec := o.Spec.(type) {
	case *Host: // there are many, each of few references
	case *Certificate:
		if leaf, err := spec.Leaf(); err == nil {
			for _, name := range leaf.DNSNames {
				m.names = append(m.names, strings.ToLower(name))
			}
		}
	case *Listener:
		m.refs = spec.Refs()
		m.listens = []listenAddress{addressOf(spec.Address)}
	case Joint:
		m.refs = spec.Refs()
		for i, c := range spec.Claims() {
			c.order = i
			m.claims = append(m.claims, c)
		}
		for _, l := range spec.Listens() {
			m.listens = append(m.listens, addressOf(l.Address))
		}
	default:
		m.refs = spec.Refs()
	}
	return m
}

func isJoint(m *member) bool {
	if m == nil {
		return false
	}
	_, ok := m.Spec.(Joint)
	return ok
}

// updateUsers adds and removes the entries of one user.
func (e *setEdit) updateUsers(user Key, old, next *member) {
	key := treeKey(user)
	wanted := make(map[Key]bool)
	if next != nil {
		for _, r := range next.references() {
			wanted[r.Key] = true
		}
	}
	if old != nil {
		for _, r := range old.references() {
			if _, ok := wanted[r.Key]; ok {
				wanted[r.Key] = false // it is there already
			} else {
				e.users.Delete(treeKey(r.Key), key)
				if isJoint(old) {
					e.joints.Delete(treeKey(r.Key), key)
				}
			}
		}
	}
	for target, missing := range wanted {
		if missing {
			e.users.Set(treeKey(target), key, struct{}{})
			if isJoint(next) {
				e.joints.Set(treeKey(target), key, struct{}{})
			}
		}
	}
}

// updateCovers adds and removes the names of a certificate.
func (e *setEdit) updateCovers(certificate string, old, next *member) {
	if old != nil {
		for _, name := range old.names {
			e.covers.Delete(name, certificate)
		}
	}
	if next != nil {
		for _, name := range next.names {
			e.covers.Set(name, certificate, struct{}{})
		}
	}
}

// listenAddress is an address as the set finds it: port first, because a
// wildcard host meets all others of its port. The zero one is none that others
// could want.
type listenAddress struct{ port, host string }

// addressOf reads an address. With port 0 the system picks a free one.
func addressOf(s string) listenAddress {
	if strings.HasPrefix(s, "unix:") {
		return listenAddress{port: s}
	}
	host, port, ok := splitAddress(s)
	if !ok || port == "0" {
		return listenAddress{}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return listenAddress{port, host}
}

// key finds an object at the address; all of them for the zero Key.
func (a listenAddress) key(owner Key) []byte {
	key := a.port + "\x00" + a.host + "\x00"
	if owner != (Key{}) {
		key += owner.Kind + "\x00" + owner.Name
	}
	return []byte(key)
}

func updatePorts(ports *iradix.Txn[struct{}], old, next *member) {
	var before, after []listenAddress
	if old != nil {
		before = old.listens
	}
	if next != nil {
		after = next.listens
	}
	if slices.Equal(before, after) {
		return
	}
	for _, a := range before {
		ports.Delete(a.key(old.Key))
	}
	for _, a := range after {
		if a != (listenAddress{}) {
			ports.Insert(a.key(next.Key), struct{}{})
		}
	}
}

// rivals calls do with those who listen at addresses that overlap with a:
// those of the same host and of the wildcards, for a wildcard all of the port.
// "" is the node's own --bind: it meets itself and the wildcards, and what
// else it meets depends on the node.
func (s *Set) rivals(a listenAddress, do func(*member)) {
	if a == (listenAddress{}) {
		return
	}
	found := func(key []byte, _ struct{}) bool {
		_, rest, _ := strings.Cut(string(key), "\x00")
		host, owner, _ := strings.Cut(rest, "\x00")
		if m := s.member(userKey(owner)); m != nil && overlap(a.host, host) {
			do(m)
		}
		return false
	}
	root := tree(s.ports).Root()
	if isWildcard(a.host) {
		root.WalkPrefix([]byte(a.port+"\x00"), found)
		return
	}
	for _, host := range []string{a.host, wildcard4, wildcard6} {
		root.WalkPrefix(listenAddress{a.port, host}.key(Key{}), found)
	}
}

// The hosts that stand for every address; that of IPv6 takes IPv4 as well.
const (
	wildcard4 = "0.0.0.0"
	wildcard6 = "::"
)

func isWildcard(host string) bool { return host == wildcard4 || host == wildcard6 }

// overlap tells whether one node could not listen at both hosts.
func overlap(a, b string) bool {
	meets := func(wild, other string) bool {
		ip, err := netip.ParseAddr(other)
		return wild == wildcard6 || wild == wildcard4 && (err != nil || ip.Is4() || other == wildcard6)
	}
	return a == b || meets(a, b) || meets(b, a)
}

// place says where an object was read.
func place(o *Object) string {
	if o.File == "" {
		return "in the same change"
	}
	return fmt.Sprintf("at %s:%d", o.File, o.Line)
}

// userList names users for a fault: the first ones, and how many more.
func userList(users []Ref) string {
	const most = 5
	words := make([]string, 0, most+1)
	for _, u := range users[:min(most, len(users))] {
		words = append(words, u.String()+" ("+u.Path+")")
	}
	if n := len(users) - most; n > 0 {
		words = append(words, fmt.Sprintf("%d more", n))
	}
	return strings.Join(slices.Compact(words), ", ")
}
