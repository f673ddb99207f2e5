package model

import (
	"slices"
	"strings"

	"penstock/routing/resource"
)

// prefixed is the configuration of a filter that keeps a cluster's names under
// a prefix. Who has one sees all names that begin with it, so on one physical
// cluster none may begin with another.
type prefixed interface {
	// NamePrefix is "" where it has none.
	NamePrefix() string
}

// namePrefix is what all names of the cluster begin with, by its own filters:
// those of the physical cluster are the same for all of it. The last filter is
// the nearest to the broker. The path is that of the first filter that has one.
func (c *VirtualCluster) namePrefix() (prefix, path string) {
	for i := range c.Filters {
		p, ok := c.Filters[i].Config.(prefixed)
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

// prefixOf is the prefix of a virtual cluster.
type prefixOf struct {
	prefix string
	owner  resource.Key
}

// checkPrefix compares the prefix with those of the physical cluster's others.
func (c *VirtualCluster) checkPrefix(v *resource.View) {
	own, path := c.namePrefix()
	if own == "" {
		return
	}
	physical := resource.Key{Kind: KindPhysical, Name: c.PhysicalClusterRef}
	type key struct{ physical string }
	all := v.Once(key{physical.Name}, func() any { return prefixesOn(v, physical) }).([]prefixOf)
	find := func(prefix string) int {
		at, _ := slices.BinarySearchFunc(all, prefix, func(x prefixOf, p string) int { return strings.Compare(x.prefix, p) })
		return at
	}
	for i := find(own); i < len(all) && strings.HasPrefix(all[i].prefix, own); i++ {
		switch x := all[i]; {
		case x.owner == v.Key():
		case x.prefix == own:
			v.Warn(path, "gives it all that is of "+x.owner.String()+" as well: the prefix is the same", own)
		default:
			v.Fault(path, "begins the prefix "+x.prefix+" of "+x.owner.String()+" on the same physical cluster, whose names it would show", own)
			return
		}
	}
	for n := 1; n < len(own); n++ {
		if at := find(own[:n]); at < len(all) && all[at].prefix == own[:n] {
			v.Fault(path, "begins with the prefix "+own[:n]+" of "+all[at].owner.String()+" on the same physical cluster, which would show its names", own)
			return
		}
	}
}

// prefixesOn lists the prefixes on a physical cluster, sorted.
func prefixesOn(v *resource.View, physical resource.Key) []prefixOf {
	var all []prefixOf
	for o := range v.Users(physical) {
		if c, ok := o.Spec.(*VirtualCluster); ok {
			if prefix, _ := c.namePrefix(); prefix != "" {
				all = append(all, prefixOf{prefix, o.Key})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b prefixOf) int { return strings.Compare(a.prefix, b.prefix) })
	return all
}
