package routing

import (
	"maps"
	"slices"

	"penstock/routing/resource"
)

// chooser finds the policy for a source among the policies for one destination,
// without scanning them all: there may be thousands of equal rank. A policy
// with tags is indexed by one of them, its anchor: the tag that the fewest
// policies require. So the cost grows with the number of tags of the source and
// with how many policies share an anchor.
//
// A policy is identified by its index in the order of precedence.
type chooser struct {
	policies      []*policy            // in order of precedence
	next          []int32              // by policy: the next one with the same anchor, or none
	byService     map[string]*tagIndex // policies whose source names a service, by that service; nil if there are none
	anyService    tagIndex
	ignoresSource bool // no policy looks at the source
}

// tagIndex indexes policies by the tags that they require.
type tagIndex struct {
	plain  int32         // the first policy that requires no tags
	keys   []string      // names of the anchors, without duplicates
	anchor map[tag]int32 // the first policy with this anchor
}

// tag is a tag's name and value.
type tag struct{ name, value string }

// none stands for no policy; it sorts after every index.
const none = 1<<31 - 1

// few is the number of policies up to which a scan is cheaper than the index.
const few = 4

// newChooser indexes policies, which must be in order of precedence.
func newChooser(policies []*policy) chooser {
	c := chooser{policies: policies, ignoresSource: true}
	for _, p := range policies {
		c.ignoresSource = c.ignoresSource && p.source.Kind == kindMesh
	}
	if len(policies) <= few {
		return c
	}
	c.next, c.anyService = make([]int32, len(policies)), tagIndex{plain: none}
	uses := map[string]map[tag]int{} // by service: how many policies require a tag
	for _, p := range policies {
		if uses[p.source.Name] == nil {
			uses[p.source.Name] = map[tag]int{}
		}
		for _, t := range p.requiredTags {
			uses[p.source.Name][t]++
		}
	}
	// In reverse, so that the earliest policy ends up as the first with its
	// anchor.
	for i, p := range slices.Backward(policies) {
		c.group(p).add(&c, int32(i), p, uses[p.source.Name])
	}
	return c
}

// group returns the index that a policy belongs to.
func (c *chooser) group(p *policy) *tagIndex {
	if !p.ofService() {
		return &c.anyService
	}
	if c.byService == nil {
		c.byService = map[string]*tagIndex{}
	}
	g := c.byService[p.source.Name]
	if g == nil {
		g = &tagIndex{plain: none}
		c.byService[p.source.Name] = g
	}
	return g
}

func (g *tagIndex) add(c *chooser, place int32, p *policy, uses map[tag]int) {
	if len(p.requiredTags) == 0 {
		g.plain = place
		return
	}
	anchor := p.requiredTags[0]
	for _, t := range p.requiredTags[1:] {
		if uses[t] < uses[anchor] {
			anchor = t
		}
	}
	if g.anchor == nil {
		g.anchor = map[tag]int32{}
	}
	after, ok := g.anchor[anchor]
	if !ok {
		after = none
		if !slices.Contains(g.keys, anchor.name) {
			g.keys = append(g.keys, anchor.name)
		}
	}
	c.next[place], g.anchor[anchor] = after, place
}

// scan scans the policies in order.
func (c *chooser) scan(src *source) *policy {
	service, known := "", false
	for _, p := range c.policies {
		if p.ofService() {
			if !known {
				service, known = src.service(), true
			}
			if p.source.Name != service {
				continue
			}
		}
		if src.has(p.requiredTags) {
			return p
		}
	}
	return nil
}

// ofService reports whether the policy's source names a service.
func (p *policy) ofService() bool { return p.rank >= rankOfService }

// choose returns the policy for a source, or nil if none matches.
func (c *chooser) choose(src *source) *policy {
	if len(c.policies) <= few {
		return c.scan(src)
	}
	best := int32(none)
	if c.byService != nil {
		if g := c.byService[src.service()]; g != nil {
			best = g.find(c, src)
		}
	}
	if best == none { // a policy for a service precedes all others
		best = c.anyService.find(c, src)
	}
	if best == none {
		return nil
	}
	return c.policies[best]
}

// find returns the first policy that matches, or none.
func (g *tagIndex) find(c *chooser, src *source) int32 {
	best := g.plain
	if len(g.keys) <= src.size() {
		for _, name := range g.keys {
			if value, layer := src.get(name); layer >= 0 {
				best = g.at(c, src, tag{name, value}, best)
			}
		}
		return best
	}
	for i, tags := range src.layers {
		for name, value := range tags {
			if _, layer := src.get(name); layer == i {
				best = g.at(c, src, tag{name, value}, best)
			}
		}
	}
	return best
}

// at returns the first match among the policies with an anchor, or best if that
// precedes it.
func (g *tagIndex) at(c *chooser, src *source, anchor tag, best int32) int32 {
	i, ok := g.anchor[anchor]
	for ok && i < best {
		if src.has(c.policies[i].requiredTags) {
			return i
		}
		i = c.next[i]
	}
	return best
}

// size is an upper bound of the number of tags of the source.
func (s *source) size() (n int) {
	for _, tags := range s.layers {
		n += len(tags)
	}
	return n
}

// has reports whether the source has all of the tags.
func (s *source) has(tags []tag) bool {
	for i := range tags {
		if v, layer := s.get(tags[i].name); layer < 0 || v != tags[i].value {
			return false
		}
	}
	return true
}

// requiredTags returns the tags that a targetRef requires, sorted by name.
func requiredTags(r *resource.TargetRef) []tag {
	if r.Kind == kindMesh || len(r.Tags) == 0 {
		return nil
	}
	list := make([]tag, 0, len(r.Tags))
	for _, name := range slices.Sorted(maps.Keys(r.Tags)) {
		list = append(list, tag{name, r.Tags[name]})
	}
	return list
}
