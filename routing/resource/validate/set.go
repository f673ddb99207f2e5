package validate

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"penstock/routing/hamt"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// Set is an immutable set of objects with the indices that let a change be
// checked at the cost of the change: references, listen addresses, and claims to
// server names. With returns the next set, which shares all that did not change.
// A Set is safe for concurrent reads and may be kept indefinitely. The zero Set
// is empty.
type Set struct {
	objects hamt.Groups[*member] // by kind and name
	// users has the treeKey of each referring object under its target's treeKey.
	users hamt.Groups[struct{}]
	// ports has "port\x00host\x00kind\x00name" for each object that listens there,
	// or "unix:PATH\x00\x00kind\x00name".
	ports *iradix.Tree[struct{}]
	// names has the claims to each server name of a listener, in normal form,
	// under the listener's name, even if that listener does not exist.
	names hamt.Groups[*claim]
	// certificateNames has the Certificates whose leaf has a name, in lower case.
	certificateNames hamt.Groups[struct{}]
	// claims has the server names that SetCheckers claim; see nameClaim.
	claims *iradix.Tree[*nameClaim]
	// setCheckers is the part of users in which the user is a SetChecker.
	setCheckers hamt.Groups[struct{}]
	// meshes has the policies of each Kuma mesh, splits the routes of each root
	// service of SMI.
	meshes, splits hamt.Groups[struct{}]
	// identities has the Services that claim an identity for their proxies.
	identities hamt.Groups[struct{}]
}

// member is an object of a set with the values derived from it once.
type member struct {
	resource.Object
	refs    []resource.Ref  // nil: Spec.Refs is called each time
	names   []string        // of a certificate's leaf, in lower case
	claims  []Claim         // of a SetChecker
	listens []listenAddress // addresses that it needs for itself; of a SetChecker one for each of Listens
}

// byKey orders members by kind and name.
func byKey(a, b *member) int { return a.Compare(b.Key) }

// references lists the references of the object.
func (m *member) references() []resource.Ref {
	if m.refs != nil {
		return m.refs
	}
	return m.Spec.Refs()
}

func treeKey(k resource.Key) string { return k.Kind + "\x00" + k.Name + "\x00" }

// tree returns t, or an empty tree if t is nil, as it is in a zero Set.
func tree[T any](t *iradix.Tree[T]) *iradix.Tree[T] {
	if t == nil {
		return iradix.New[T]()
	}
	return t
}

// Len returns the number of objects.
func (s *Set) Len() int { return s.objects.Len() }

// Count returns the number of objects of a kind.
func (s *Set) Count(kind string) int {
	group := s.objects.Group(kind)
	return group.Len()
}

// Get finds an object. The caller must not change what its Spec points to.
func (s *Set) Get(k resource.Key) (resource.Object, bool) {
	if m := s.member(k); m != nil {
		return m.Object, true
	}
	return resource.Object{}, false
}

func (s *Set) member(k resource.Key) *member {
	m, _ := s.objects.Get(k.Kind, k.Name)
	return m
}

// All iterates over the objects of a kind by name; with kind "" over all
// objects, by kind and name.
func (s *Set) All(kind string) iter.Seq[resource.Object] {
	return func(yield func(resource.Object) bool) {
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

// Users lists the references to an object. Each has the key of the referring
// object, and the path of the reference in it.
func (s *Set) Users(k resource.Key) []resource.Ref {
	var out []resource.Ref
	s.eachUser(k, func(user *member) {
		for _, r := range user.references() {
			if r.Key == k {
				out = append(out, resource.Ref{Key: user.Key, Path: r.Path, Optional: r.Optional})
			}
		}
	})
	return out
}

// eachUser calls do with the objects that refer to k, by kind and name.
func (s *Set) eachUser(k resource.Key, do func(*member)) {
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

// hasUser reports whether an object of that kind refers to k.
func (s *Set) hasUser(k resource.Key, kind string) bool {
	group := s.users.Group(treeKey(k))
	for key := range group.All() {
		if userKey(key).Kind == kind {
			return true
		}
	}
	return false
}

func userKey(treeKey string) resource.Key {
	kind, name, _ := strings.Cut(strings.TrimSuffix(treeKey, "\x00"), "\x00")
	return resource.Key{Kind: kind, Name: name}
}

// Objects checks resources together: duplicates, references to missing
// objects, and addresses that two objects listen at.
func Objects(objects []resource.Object) (resource.Faults, resource.Warnings) {
	changes := make([]resource.Change, len(objects))
	for i, o := range objects {
		changes[i] = resource.Put(o)
	}
	_, faults, warnings := new(Set).With(changes)
	return faults, warnings
}

// With applies the changes together and checks only what they affect. The next
// set is complete even if there are faults, except for a second change of the
// same key, which is a fault and left out.
func (s *Set) With(changes []resource.Change) (*Set, resource.Faults, resource.Warnings) {
	c := newChecker()
	c.before = s
	done := make(map[resource.Key]*resource.Object, len(changes))
	once := make([]resource.Change, 0, len(changes))
	for i := range changes {
		change := &changes[i]
		if first, ok := done[change.Key]; ok {
			c.fault(&change.Object, "", duplicateOf(first), nil)
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
	c.checkCovered(once)
	return c.set, c.faults, c.warnings
}

// Next applies the changes in order and checks nothing. It is for replaying
// changes that were accepted before.
func (s *Set) Next(changes []resource.Change) *Set {
	e := &setEdit{
		s.objects.Edit(), s.users.Edit(), tree(s.ports).Txn(), s.names.Edit(), s.certificateNames.Edit(),
		tree(s.claims).Txn(), s.setCheckers.Edit(), s, nil, nil, s.identities.Edit(),
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
		e.updateCertificateNames(change.Name, old, next)
		e.updateClaims(old, next)
		e.updatePolicies(change.Key, old, next)
		e.updateIdentities(change.Name, old, next)
		if next == nil {
			e.objects.Delete(change.Kind, change.Name)
		} else {
			e.objects.Set(change.Kind, change.Name, next)
		}
	}
	return &Set{
		e.objects.Groups(), e.users.Groups(), e.ports.CommitOnly(), e.names.Groups(), e.certificateNames.Groups(),
		e.claims.CommitOnly(), e.setCheckers.Groups(), e.meshesAfter(), e.splitsAfter(), e.identities.Groups(),
	}
}

// setEdit collects the edits that lead from one set to the next.
type setEdit struct {
	objects          *hamt.GroupsEdit[*member]
	users            *hamt.GroupsEdit[struct{}]
	ports            *iradix.Txn[struct{}]
	names            *hamt.GroupsEdit[*claim]
	certificateNames *hamt.GroupsEdit[struct{}]
	claims           *iradix.Txn[*nameClaim]
	setCheckers      *hamt.GroupsEdit[struct{}]
	before           *Set
	meshes           *hamt.GroupsEdit[struct{}] // nil: as before
	splits           *hamt.GroupsEdit[struct{}] // nil: as before
	identities       *hamt.GroupsEdit[struct{}]
}

func newMember(o resource.Object) *member {
	m := &member{Object: o}
	switch spec := o.Spec.(type) {
	case *resource.Host: // refs stays nil: Hosts are many and have two references each
	case *resource.Certificate:
		for _, name := range spec.Names() {
			if normal, err := hostname.ParsePattern(name); err == nil {
				name = normal
			}
			m.names = append(m.names, strings.ToLower(name))
		}
	case *resource.Listener:
		m.refs = spec.Refs()
		m.listens = []listenAddress{addressOf(spec.Address)}
	case SetChecker:
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

func isSetChecker(m *member) bool {
	if m == nil {
		return false
	}
	_, ok := m.Spec.(SetChecker)
	return ok
}

// updateUsers updates the references of one user.
func (e *setEdit) updateUsers(user resource.Key, old, next *member) {
	key := treeKey(user)
	wanted := make(map[resource.Key]bool)
	if next != nil {
		for _, r := range next.references() {
			wanted[r.Key] = true
		}
	}
	if old != nil {
		for _, r := range old.references() {
			if _, ok := wanted[r.Key]; ok {
				wanted[r.Key] = false // already present
			} else {
				e.users.Delete(treeKey(r.Key), key)
				if isSetChecker(old) {
					e.setCheckers.Delete(treeKey(r.Key), key)
				}
			}
		}
	}
	for target, missing := range wanted {
		if missing {
			e.users.Set(treeKey(target), key, struct{}{})
			if isSetChecker(next) {
				e.setCheckers.Set(treeKey(target), key, struct{}{})
			}
		}
	}
}

// updateCertificateNames updates the names of a certificate.
func (e *setEdit) updateCertificateNames(certificate string, old, next *member) {
	if old != nil {
		for _, name := range old.names {
			e.certificateNames.Delete(name, certificate)
		}
	}
	if next != nil {
		for _, name := range next.names {
			e.certificateNames.Set(name, certificate, struct{}{})
		}
	}
}

// listenAddress is an address as an index key: port first, because a wildcard
// host overlaps with every host of its port. The zero value overlaps with
// nothing.
type listenAddress struct{ port, host string }

// addressOf parses an address; with port 0, for which the system picks a free
// one, it returns the zero value.
func addressOf(s string) listenAddress {
	if strings.HasPrefix(s, "unix:") {
		return listenAddress{port: s}
	}
	host, port, ok := resource.SplitAddress(s)
	if !ok || port == "0" {
		return listenAddress{}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return listenAddress{port, host}
}

// key returns the index key of an object at the address; for the zero Key it
// returns the prefix of all objects there.
func (a listenAddress) key(owner resource.Key) []byte {
	key := a.port + "\x00" + a.host + "\x00"
	if owner != (resource.Key{}) {
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

// eachAddressConflict calls do with the objects whose listen addresses overlap
// with a: those of the same host and of the wildcards; for a wildcard, those of
// the whole port. Host "" is the node's own --bind: it overlaps with itself and
// the wildcards, and the rest depends on the node.
func (s *Set) eachAddressConflict(a listenAddress, do func(*member)) {
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
		root.WalkPrefix(listenAddress{a.port, host}.key(resource.Key{}), found)
	}
}

// The wildcard hosts; the IPv6 one accepts IPv4 as well.
const (
	wildcard4 = "0.0.0.0"
	wildcard6 = "::"
)

func isWildcard(host string) bool { return host == wildcard4 || host == wildcard6 }

// overlap reports whether one node cannot listen at both hosts.
func overlap(a, b string) bool {
	meets := func(wild, other string) bool {
		ip, err := netip.ParseAddr(other)
		return wild == wildcard6 || wild == wildcard4 && (err != nil || ip.Is4() || other == wildcard6)
	}
	return a == b || meets(a, b) || meets(b, a)
}

// duplicateOf returns the message for a second object with the key of first.
func duplicateOf(first *resource.Object) string {
	if first.File == "" {
		return "duplicate in the same change"
	}
	return "duplicate, first " + place(first)
}

// place returns where an object was read, which must be known.
func place(o *resource.Object) string { return fmt.Sprintf("at %s:%d", o.File, o.Line) }

// formatUsers formats references for a fault: the first ones, and how many more
// there are.
func formatUsers(users []resource.Ref) string {
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

// WithLabels lists the objects of a kind that have all of the labels; with kind
// "" those of every kind, by kind and name.
func (s *Set) WithLabels(kind string, labels map[string]string) []resource.Object {
	var found []*member
	for k, group := range s.objects.All() {
		if kind != "" && k != kind {
			continue
		}
		for _, m := range group.All() {
			if m.HasLabels(labels) {
				found = append(found, m)
			}
		}
	}
	slices.SortFunc(found, byKey)
	objects := make([]resource.Object, len(found))
	for i, m := range found {
		objects[i] = m.Object
	}
	return objects
}
