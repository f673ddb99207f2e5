package validate

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"penstock/routing/resource"
)

// SetChecker is a spec of another package that can conflict with other objects:
// it lists what it needs for itself, and checks itself in the set that it would
// be part of. It is checked when it is put and when a resource that it refers
// to is put, so a check costs what a change touches.
type SetChecker interface {
	resource.Spec
	// Claims lists the server names that it needs of listeners. The set finds
	// other claims to them; CheckIn decides what those mean.
	Claims() []Claim
	// Listens lists the addresses where it listens itself. The set reports objects
	// that listen at the same address.
	Listens() []Listen
	// CheckInSet reports the faults that it has in the set.
	CheckInSet(v *View)
}

// Listen is an address where an object listens.
type Listen struct {
	// Address is host:port or ":port", as in a Listener.
	Address string
	Path    string // "spec.brokers.discover.bootstrapPort"
}

// View is the set as CheckIn sees it.
type View struct {
	c *checker
	m *member
}

// Key returns the key of the object that is checked.
func (v *View) Key() resource.Key { return v.m.Key }

// Get finds an object. The caller must not change what its Spec points to.
func (v *View) Get(k resource.Key) (resource.Object, bool) { return v.c.set.Get(k) }

// Before finds an object as it was before the changes that are checked.
func (v *View) Before(k resource.Key) (resource.Object, bool) { return v.c.before.Get(k) }

// All iterates over the objects of a kind by name. The caller must not change
// what their Specs point to.
func (v *View) All(kind string) iter.Seq[resource.Object] { return v.c.set.All(kind) }

// Users iterates over the objects that refer to k, by kind and name. The caller
// must not change what their Specs point to.
func (v *View) Users(k resource.Key) iter.Seq[resource.Object] {
	return func(yield func(resource.Object) bool) {
		done := false
		v.c.set.eachUser(k, func(user *member) {
			done = done || !yield(user.Object)
		})
	}
}

// Once returns the result of make, which is called once per key in all that is
// checked together. It is for costly results that many checks share.
func (v *View) Once(key any, make func() any) any {
	made, ok := v.c.memo[key]
	if !ok {
		made = make()
		if v.c.memo == nil {
			v.c.memo = map[any]any{}
		}
		v.c.memo[key] = made
	}
	return made
}

// Fault reports an error. The path begins with "spec".
func (v *View) Fault(path, message string, value any) { v.c.fault(&v.m.Object, path, message, value) }

// Warn reports what is probably not intended.
func (v *View) Warn(path, message string, value any) { v.c.warn(&v.m.Object, path, message, value) }

// Conflict is a claim that overlaps with another.
type Conflict struct {
	Owner resource.Key
	Claim
}

// String returns the owner and the path of the claim.
func (r Conflict) String() string { return r.Owner.String() + " " + r.Path }

// FirstConflict returns the first claim, by owner, that overlaps with c. Of two
// overlapping claims of one object the later one has the conflict, and of two
// objects that are put together the later one.
func (v *View) FirstConflict(c Claim) (Conflict, bool) {
	first, found := Conflict{}, false
	v.c.set.eachOverlap(c, func(x *nameClaim) bool {
		if v.conflicts(&c, x) && (!found || x.compare(&first) < 0) {
			first, found = Conflict{x.owner, x.Claim}, true
		}
		return true
	})
	return first, found
}

// OtherClaims iterates over the claims that other objects have to names of c's
// listener, and over the object's own that come before c.
func (v *View) OtherClaims(c Claim) iter.Seq[Conflict] {
	return func(yield func(Conflict) bool) {
		v.c.set.eachClaim(c.Listener, func(x *nameClaim) bool {
			return !v.conflicts(&c, x) || yield(Conflict{x.owner, x.Claim})
		})
	}
}

// conflicts reports whether x is to be reported as a conflict of the object's
// own claim.
func (v *View) conflicts(own *Claim, x *nameClaim) bool {
	if x.owner == v.m.Key {
		return x.order < own.order
	}
	return !v.c.pending[x.owner]
}

// compare orders claims by owner and by their order in it.
func (x *nameClaim) compare(other *Conflict) int {
	return cmp.Or(x.owner.Compare(other.Owner), cmp.Compare(x.order, other.order))
}

// CertificateCovers calls Set.Covers.
func (v *View) CertificateCovers(certificate, name string) bool {
	return v.c.set.CertificateCovers(certificate, name)
}

// CertificateCovers reports whether a Certificate is valid for a server name,
// exact or a wildcard. It returns true if the Certificate is missing or was not
// read yet, which is reported elsewhere.
func (s *Set) CertificateCovers(certificate, name string) bool {
	m := s.member(resource.Key{Kind: "Certificate", Name: certificate})
	if m == nil || len(m.names) == 0 {
		return true
	}
	covered := func(name string) bool {
		_, ok := s.certificateNames.Get(name, certificate)
		return ok
	}
	_, parent, ok := strings.Cut(name, ".")
	return covered(name) || ok && covered("*."+parent)
}

// OwnClaims returns the object's claims, in its order.
func (v *View) OwnClaims() []Claim { return v.m.claims }

// checkInSet checks a SetChecker, once.
func (c *checker) checkInSet(m *member, spec SetChecker) {
	if c.setChecked[m.Key] {
		return
	}
	c.setChecked[m.Key] = true
	type pair struct {
		path  string
		rival resource.Key
	}
	reported := map[pair]bool{} // a range of ports is reported once
	for i, l := range spec.Listens() {
		c.set.eachAddressConflict(m.listens[i], func(rival *member) {
			if at := (pair{l.Path, rival.Key}); rival.Key != m.Key && !reported[at] {
				reported[at] = true
				c.fault(&m.Object, l.Path, "overlaps with the address of "+rival.String(), l.Address)
			}
		})
	}
	spec.CheckInSet(&View{c, m})
}

// checkReferrers checks the SetCheckers that refer to an object.
func (c *checker) checkReferrers(k resource.Key) {
	group := c.set.setCheckers.Group(treeKey(k))
	all := make([]*member, 0, group.Len())
	for key := range group.All() {
		if m := c.set.member(userKey(key)); m != nil && !c.pending[m.Key] {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, byKey)
	for _, m := range all {
		if spec, ok := m.Spec.(SetChecker); ok {
			c.checkInSet(m, spec)
		}
	}
}

// updateClaims updates the claims of a SetChecker.
func (e *setEdit) updateClaims(old, next *member) {
	for i := range memberClaims(old) {
		e.claims.Delete(old.claims[i].key(old.Key))
	}
	for i := range memberClaims(next) {
		x := &nameClaim{next.claims[i], next.Key}
		e.claims.Insert(x.key(next.Key), x)
	}
}

func memberClaims(m *member) []Claim {
	if m == nil {
		return nil
	}
	return m.claims
}
