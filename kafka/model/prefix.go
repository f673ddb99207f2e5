package model

import (
	"slices"
	"strings"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// namePrefixer is the configuration of a filter that keeps a cluster's names under
// a prefix. Who has one sees all names that begin with it, so on one physical
// cluster none may begin with another, with "." and "_" taken for the same.
type namePrefixer interface {
	// NamePrefix is "" where it has none.
	NamePrefix() string
}

// namePrefix is what all names of the cluster begin with, by its own filters:
// those of the physical cluster are the same for all of it. The last filter is
// the nearest to the broker. The path is that of the first filter that has one.
func (c *VirtualCluster) namePrefix() (prefix, path string) {
	for i := range c.Filters {
		p, ok := c.Filters[i].Config.(namePrefixer)
		if !ok {
			continue
		}
		if own := p.NamePrefix(); own != "" {
			if prefix = own + prefix; path == "" {
				path = resource.Item("spec.filters", i) + ".config"
			}
		}
	}
	return prefix, path
}

// foldSeparators returns the form by which prefixes are compared. Kafka treats
// "." and "_" in names of topics as equal: a topic whose name differs from
// another's in these alone cannot be created, and the refusal names the other.
func foldSeparators(prefix string) string { return strings.ReplaceAll(prefix, ".", "_") }

// prefixOf is the prefix of a virtual cluster.
type prefixOf struct {
	prefix, folded string
	owner          resource.Key
}

// checkPrefix compares the prefix with those of the physical cluster's others.
func (c *VirtualCluster) checkPrefix(v *validate.View) {
	own, path := c.namePrefix()
	if own == "" {
		return
	}
	physical := resource.Key{Kind: KindPhysical, Name: c.PhysicalClusterRef}
	type key struct{ physical string }
	all := v.Once(key{physical.Name}, func() any { return prefixesOn(v, physical) }).([]prefixOf)
	find := func(folded string) int {
		at, _ := slices.BinarySearchFunc(all, folded, func(x prefixOf, p string) int { return strings.Compare(x.folded, p) })
		return at
	}
	folded := foldSeparators(own)
	for i := find(folded); i < len(all) && strings.HasPrefix(all[i].folded, folded); i++ {
		if x := all[i]; x.owner != v.Key() && !c.checkPrefixPair(v, path, own, &x) {
			return
		}
	}
	for n := 1; n < len(folded); n++ {
		for i := find(folded[:n]); i < len(all) && all[i].folded == folded[:n]; i++ {
			if !c.checkPrefixPair(v, path, own, &all[i]) {
				return
			}
		}
	}
}

// checkPrefixPair reports the conflict of two prefixes, one of which begins with
// the other. It returns false if no other pair needs to be checked.
func (c *VirtualCluster) checkPrefixPair(v *validate.View, path, own string, x *prefixOf) bool {
	who := x.owner.String()
	switch {
	case x.prefix == own:
		v.Warn(path, "is the same prefix as that of "+who+": both clusters see the same names", own)
		return true
	case strings.HasPrefix(x.prefix, own):
		v.Fault(path, "is the beginning of the prefix "+x.prefix+" of "+who+
			" on the same physical cluster: names of that cluster would be visible in this one", own)
		return false
	case strings.HasPrefix(own, x.prefix):
		v.Fault(path, "begins with the prefix "+x.prefix+" of "+who+
			" on the same physical cluster: names of this cluster would be visible in that one", own)
		return false
	}
	message := "is too similar to the prefix " + x.prefix + " of " + who +
		" on the same physical cluster: Kafka treats \".\" and \"_\" in topic names as equal, so a topic of one could block " +
		"creating a topic of the other"
	if c.conflictedBefore(v, own, x) {
		v.Warn(path, message+"; it is kept because it is older than this check", own)
		return true
	}
	v.Fault(path, message, own)
	return false
}

// conflictedBefore reports whether both prefixes existed before the change: nodes
// of older versions accepted such pairs.
func (c *VirtualCluster) conflictedBefore(v *validate.View, own string, x *prefixOf) bool {
	had := func(k resource.Key, prefix string) bool {
		o, ok := v.Before(k)
		was, is := o.Spec.(*VirtualCluster)
		if !ok || !is {
			return false
		}
		before, _ := was.namePrefix()
		return before == prefix && was.PhysicalClusterRef == c.PhysicalClusterRef
	}
	return had(v.Key(), own) && had(x.owner, x.prefix)
}

// prefixesOn lists the prefixes on a physical cluster, sorted by what they are
// compared by.
func prefixesOn(v *validate.View, physical resource.Key) []prefixOf {
	var all []prefixOf
	for o := range v.Users(physical) {
		if c, ok := o.Spec.(*VirtualCluster); ok {
			if prefix, _ := c.namePrefix(); prefix != "" {
				all = append(all, prefixOf{prefix, foldSeparators(prefix), o.Key})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b prefixOf) int { return strings.Compare(a.folded, b.folded) })
	return all
}
