package routing

import (
	"maps"
	"slices"

	"penstock/routing/resource"
)

// chooser finds the policy for a source among those for one destination, of
// which there may be thousands of equal rank, without looking at each. A
// policy that wants tags is found by one of them, its anchor: that which the
// fewest policies want. So the cost goes with the tags that a source has, and
// with how many policies share an anchor.
//
// Policies are known by their place in the order of precedence.
type chooser struct {
	policies  []*policy          // in order
	next      []int32            // for each: the next one with the same anchor; none: the last
	byService map[string]*tagged // those for a service, or a part of it; nil: there is none
	others    tagged
	blind     bool // no policy looks at the source
}

// tagged are policies of which each wants other tags.
type tagged struct {
	plain  int32         // the first that wants none
	keys   []string      // names of the anchors, each once
	anchor map[tag]int32 // the first policy with this anchor
}

// tag is one tag with its value.
type tag struct{ name, value string }

// none is no policy's place: it comes after all.
const none = 1<<31 - 1

// few policies are walked: to look at each costs less than to find one.
const few = 4

// newChooser indexes policies that are in order.
func newChooser(policies []*policy) chooser {
	c := chooser{policies: policies, blind: true}
	for _, p := range policies {
		c.blind = c.blind && p.source.Kind == kindMesh
	}
	if len(policies) <= few {
		return c
	}
	c.next, c.others = make([]int32, len(policies)), tagged{plain: none}
	wanted := map[string]map[tag]int{} // by service: how many policies want a tag
	for _, p := range policies {
		if wanted[p.source.Name] == nil {
			wanted[p.source.Name] = map[tag]int{}
		}
		for _, t := range p.wants {
			wanted[p.source.Name][t]++
		}
	}
	// Backwards, so that each becomes the first with its anchor.
	for i, p := range slices.Backward(policies) {
		c.group(p).add(&c, int32(i), p, wanted[p.source.Name])
	}
	return c
}

// group is where a policy is.
func (c *chooser) group(p *policy) *tagged {
	if !p.ofService() {
		return &c.others
	}
	if c.byService == nil {
		c.byService = map[string]*tagged{}
	}
	g := c.byService[p.source.Name]
	if g == nil {
		g = &tagged{plain: none}
		c.byService[p.source.Name] = g
	}
	return g
}

func (g *tagged) add(c *chooser, place int32, p *policy, wanted map[tag]int) {
	if len(p.wants) == 0 {
		g.plain = place
		return
	}
	anchor := p.wants[0]
	for _, t := range p.wants[1:] {
		if wanted[t] < wanted[anchor] {
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

// walk looks at one policy after the other.
func (c *chooser) walk(src *source) *policy {
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
		if src.has(p.wants) {
			return p
		}
	}
	return nil
}

// ofService tells whether the policy is for sources of one service.
func (p *policy) ofService() bool { return p.rank >= rankOfService }

// choose is the policy for a source; nil: none.
func (c *chooser) choose(src *source) *policy {
	if len(c.policies) <= few {
		return c.walk(src)
	}
	best := int32(none)
	if c.byService != nil {
		if g := c.byService[src.service()]; g != nil {
			best = g.find(c, src)
		}
	}
	if best == none { // whatever is for a service comes before all others
		best = c.others.find(c, src)
	}
	if best == none {
		return nil
	}
	return c.policies[best]
}

// find gives the first policy that matches; none: none does.
func (g *tagged) find(c *chooser, src *source) int32 {
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

// at gives the first that matches among the policies with an anchor, or best
// where that comes before it.
func (g *tagged) at(c *chooser, src *source, anchor tag, best int32) int32 {
	i, ok := g.anchor[anchor]
	for ok && i < best {
		if src.has(c.policies[i].wants) {
			return i
		}
		i = c.next[i]
	}
	return best
}

// size is at most how many tags the source has.
func (s *source) size() (n int) {
	for _, tags := range s.layers {
		n += len(tags)
	}
	return n
}

// has tells whether the source has all of the tags.
func (s *source) has(tags []tag) bool {
	for i := range tags {
		if v, layer := s.get(tags[i].name); layer < 0 || v != tags[i].value {
			return false
		}
	}
	return true
}

// wants are the tags that a targetRef wants, by name.
func wants(r *resource.TargetRef) []tag {
	if r.Kind == kindMesh || len(r.Tags) == 0 {
		return nil
	}
	list := make([]tag, 0, len(r.Tags))
	for _, name := range slices.Sorted(maps.Keys(r.Tags)) {
		list = append(list, tag{name, r.Tags[name]})
	}
	return list
}
