package resource

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Joint is a spec of another package that can be wrong beside other objects:
// it says what it wants for itself, and checks itself in the set that it would
// be part of. It is asked when it is put, and when a resource that it refers to
// is put; so a check costs what a change touches.
type Joint interface {
	Spec
	// Claims lists the server names that it has of listeners. The set finds
	// who else has them; what that means is for CheckIn to say.
	Claims() []Claim
	// Listens lists the addresses where it listens itself. Two objects at one
	// are a fault without its doing.
	Listens() []Listen
	// CheckIn reports what is wrong with it in the set.
	CheckIn(v *View)
}

// Listen is an address where an object listens.
type Listen struct {
	// Address is host:port or ":port", as a listener has it.
	Address string
	Path    string // "spec.brokers.discover.bootstrapPort"
}

// View is a set as a Joint sees it.
type View struct {
	c *checker
	m *member
}

// Key is that of the object that is checked.
func (v *View) Key() Key { return v.m.Key }

// Get finds an object. What its Spec points to must not be changed.
func (v *View) Get(k Key) (Object, bool) { return v.c.set.Get(k) }

// Before finds an object as it was before the changes that are checked.
func (v *View) Before(k Key) (Object, bool) { return v.c.before.Get(k) }

// All gives the objects of a kind by name. What their Specs point to must not
// be changed.
func (v *View) All(kind string) iter.Seq[Object] { return v.c.set.All(kind) }

// Users iterates over the objects that refer to one, by kind and name. What
// their Specs point to must not be changed.
func (v *View) Users(k Key) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		done := false
		v.c.set.eachUser(k, func(user *member) {
			done = done || !yield(user.Object)
		})
	}
}

// Once gives what make gives, which is called once for all that is checked
// together: for what is costly to find out and the same for many.
func (v *View) Once(key any, make func() any) any {
	made, ok := v.c.once[key]
	if !ok {
		made = make()
		if v.c.once == nil {
			v.c.once = map[any]any{}
		}
		v.c.once[key] = made
	}
	return made
}

// Fault reports what must not be. The path begins with "spec".
func (v *View) Fault(path, message string, value any) { v.c.fault(&v.m.Object, path, message, value) }

// Warn reports what is probably not meant.
func (v *View) Warn(path, message string, value any) { v.c.warn(&v.m.Object, path, message, value) }

// Rival is a claim that meets another.
type Rival struct {
	Owner Key
	Claim
}

// String says whose claim it is and where it stands.
func (r Rival) String() string { return r.Owner.String() + " " + r.Path }

// Rival finds a claim that meets one of the object's own, the first by owner.
// Of two claims of one object the later one has the other for a rival, and of
// two objects that are put together the later one.
func (v *View) Rival(c Claim) (Rival, bool) {
	first, found := Rival{}, false
	v.c.set.meeting(c, func(x *nameClaim) bool {
		if v.counts(&c, x) && (!found || x.compare(&first) < 0) {
			first, found = Rival{x.owner, x.Claim}, true
		}
		return true
	})
	return first, found
}

// Claimed gives the claims of a listener's names that others have, and those
// of the object's own that come before c.
func (v *View) Claimed(c Claim) iter.Seq[Rival] {
	return func(yield func(Rival) bool) {
		v.c.set.claimed(c.Listener, func(x *nameClaim) bool {
			return !v.counts(&c, x) || yield(Rival{x.owner, x.Claim})
		})
	}
}

// counts tells whether a claim is to be told as a rival of the object's own.
func (v *View) counts(own *Claim, x *nameClaim) bool {
	if x.owner == v.m.Key {
		return x.order < own.order
	}
	return !v.c.pending[x.owner]
}

// compare orders claims by owner and place.
func (x *nameClaim) compare(other *Rival) int {
	return cmp.Or(x.owner.compare(other.Owner), cmp.Compare(x.order, other.order))
}

// Covers is Set.Covers of the set.
func (v *View) Covers(certificate, name string) bool { return v.c.set.Covers(certificate, name) }

// Covers tells whether a Certificate is for a server name, exact or a
// wildcard; true where there is none or it was not read yet, which is told
// elsewhere.
func (s *Set) Covers(certificate, name string) bool {
	m := s.member(Key{"Certificate", certificate})
	if m == nil || len(m.names) == 0 {
		return true
	}
	covered := func(name string) bool {
		_, ok := s.covers.Get(name, certificate)
		return ok
	}
	_, parent, ok := strings.Cut(name, ".")
	return covered(name) || ok && covered("*."+parent)
}

// Own lists the object's claims, in its order.
func (v *View) Own() []Claim { return v.m.claims }

// checkJoint checks an object that asked for it.
func (c *checker) checkJoint(m *member, spec Joint) {
	if c.joined[m.Key] {
		return
	}
	c.joined[m.Key] = true
	type pair struct {
		path  string
		rival Key
	}
	told := map[pair]bool{} // a range of ports is told of once
	for i, l := range spec.Listens() {
		c.set.rivals(m.listens[i], func(rival *member) {
			if at := (pair{l.Path, rival.Key}); rival.Key != m.Key && !told[at] {
				told[at] = true
				c.fault(&m.Object, l.Path, "overlaps with the address of "+rival.String(), l.Address)
			}
		})
	}
	spec.CheckIn(&View{c, m})
}

// checkJoints checks the Joints that refer to an object.
func (c *checker) checkJoints(k Key) {
	group := c.set.joints.Group(treeKey(k))
	all := make([]*member, 0, group.Len())
	for key := range group.All() {
		if m := c.set.member(userKey(key)); m != nil && !c.pending[m.Key] {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, byKey)
	for _, m := range all {
		if spec, ok := m.Spec.(Joint); ok {
			c.checkJoint(m, spec)
		}
	}
}

// updateJoint brings what the set knows of a Joint to what it is now.
func (e *setEdit) updateJoint(old, next *member) {
	for i := range membersClaims(old) {
		e.claims.Delete(old.claims[i].key(old.Key))
	}
	for i := range membersClaims(next) {
		x := &nameClaim{next.claims[i], next.Key}
		e.claims.Insert(x.key(next.Key), x)
	}
}

func membersClaims(m *member) []Claim {
	if m == nil {
		return nil
	}
	return m.claims
}
