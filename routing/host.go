package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// errTwice is for a name that two rules claim for the same clients.
var errTwice = errors.New("another rule has this name for the same protocols")

// with gives the target with a rule more, of the listener itself or of a Host.
func (t *target) with(r *resource.HostRule, host string) (*target, error) {
	next := target{}
	if t != nil {
		next = *t
	}
	if len(r.ALPN) == 0 {
		if next.service != "" {
			return nil, errTwice
		}
		next.service, next.host = r.Service, host
		return &next, nil
	}
	for _, l := range next.limited {
		if slices.ContainsFunc(l.alpn, func(p string) bool { return slices.Contains(r.ALPN, p) }) {
			return nil, errTwice
		}
	}
	next.limited = append(slices.Clip(next.limited), limited{r.ALPN, r.Service, host})
	return &next, nil
}

// without gives the target without a rule, or nil where none is left.
func (t *target) without(r *resource.HostRule) *target {
	next := *t
	if len(r.ALPN) == 0 {
		next.service, next.host = "", ""
	} else {
		next.limited = slices.DeleteFunc(slices.Clone(next.limited), func(l limited) bool { return slices.Equal(l.alpn, r.ALPN) })
	}
	if next.service == "" && len(next.limited) == 0 {
		return nil
	}
	return &next
}

// putListener takes a listener's new resource in; nil: it is gone.
func (c *compiler) putListener(name string, spec resource.Spec) error {
	s, ok := spec.(*resource.Listener)
	c.dirtyListeners[name] = s
	if !ok && spec != nil {
		return fmt.Errorf("its spec is a %T", spec)
	}
	return nil
}

// putHost takes a Host's new resource in; nil: it is gone.
func (c *compiler) putHost(name string, spec resource.Spec) error {
	if _, again := c.dirtyHosts[name]; !again {
		c.dirtyHosts[name], _ = c.hosts.Get(name)
		c.hostOrder = append(c.hostOrder, name)
	}
	h, ok := spec.(*resource.Host)
	if !ok {
		c.hosts.Delete(name)
		if spec != nil {
			return fmt.Errorf("its spec is a %T", spec)
		}
		return nil
	}
	c.hosts.Set(name, h)
	return nil
}

// namesChange is what a change does to one listener.
type namesChange struct {
	before     *Listener          // nil: there was none
	spec       *resource.Listener // nil: as before
	gone, come []hostRule
}

// hostRule is what a Host is for its listener.
type hostRule struct {
	host string
	rule *resource.HostRule
}

// makeListeners makes the listeners whose resource, or one of whose Hosts, is
// another, at the cost of that change: nothing looks at the other Hosts of a
// listener that was there, nor at its own rules unless it comes anew itself.
func (c *compiler) makeListeners() {
	touched := map[string]*namesChange{}
	created := false
	for name, spec := range c.dirtyListeners {
		if spec == nil {
			c.listeners.Delete(name)
			continue
		}
		before, there := c.listeners.Get(name)
		created = created || !there
		touched[name] = &namesChange{before: before, spec: spec}
	}
	touch := func(name string) *namesChange {
		n, ok := touched[name]
		if before, there := c.listeners.Get(name); !ok && there {
			n = &namesChange{before: before}
			touched[name] = n
		}
		return n // nil: there is no such listener
	}
	for _, name := range c.hostOrder {
		if h := c.dirtyHosts[name]; h != nil {
			if n := touch(h.Listener); n != nil && n.before != nil {
				n.gone = append(n.gone, hostRule{name, h.Rule()})
			}
		}
		if h, ok := c.hosts.Get(name); ok {
			if n := touch(h.Listener); n != nil {
				n.come = append(n.come, hostRule{name, h.Rule()})
			}
		}
	}
	if created {
		c.giveHosts(touched)
	}
	for name, n := range touched {
		c.makeListener(name, n)
	}
}

// giveHosts gives listeners that were not there the Hosts that were.
func (c *compiler) giveHosts(touched map[string]*namesChange) {
	all := c.hosts.Map()
	for name, h := range all.All() {
		n := touched[h.Listener]
		if _, dirty := c.dirtyHosts[name]; n != nil && n.before == nil && !dirty {
			n.come = append(n.come, hostRule{name, h.Rule()})
		}
	}
}

// makeListener makes one listener. First all names go that are to go, so that
// they may go over to another rule in the same change.
func (c *compiler) makeListener(name string, n *namesChange) {
	b := hostsEdit{shared: map[string]*target{}, edit: hostname.Matcher[*target]{}.Edit()}
	var next Listener
	var rules []resource.HostRule
	if n.before != nil {
		next, rules = *n.before, n.before.spec.Hosts
		b.edit = n.before.hosts.Edit()
	}
	var gone, come []resource.HostName
	if n.spec != nil {
		next = Listener{name: name, spec: n.spec.WithDefaults(), here: hasTags(c.cfg.NodeTags, n.spec.Nodes), sources: newNetworks(n.spec.Sources)}
		if n.before != nil && n.before.spec.TLS != nil {
			next.certificates = n.before.certificates
		}
		// What is kept of a few new names are copies, so that they do not keep
		// a whole document of a hundred thousand alive.
		b.clone = len(rules) > 0
		gone, come = resource.DiffHosts(rules, n.spec.Hosts)
	}
	for _, x := range gone {
		b.remove(x.Name, x.Rule)
	}
	for _, x := range n.gone {
		for _, name := range x.rule.Names {
			b.remove(name, x.rule)
		}
	}
	for _, x := range come {
		if err := b.add(x.Name, x.Rule); err != nil {
			c.listeners.Delete(name)
			c.leaveOut(resource.Key{Kind: "Listener", Name: name}, err)
			return
		}
	}
	for _, x := range n.come {
		if err := b.addHost(x); err != nil {
			c.hosts.Delete(x.host)
			c.leaveOut(resource.Key{Kind: "Host", Name: x.host}, err)
		}
	}
	next.hosts = b.edit.Matcher()
	c.listeners.Set(name, &next)
}

// hostsEdit is a matcher in the making.
type hostsEdit struct {
	edit   *hostname.Edit[*target]
	shared map[string]*target // of names with one rule that takes any protocol
	clone  bool
}

func (b *hostsEdit) remove(name string, rule *resource.HostRule) {
	pattern, _ := hostname.ParsePattern(name) // it was added
	t, _ := b.edit.Get(pattern)
	if t = t.without(rule); t == nil {
		b.edit.Delete(pattern)
	} else {
		b.edit.Set(pattern, t)
	}
}

func (b *hostsEdit) add(name string, rule *resource.HostRule) error {
	pattern, err := hostname.ParsePattern(name)
	if err != nil {
		return fmt.Errorf("name %q: %w", name, err)
	}
	if b.clone {
		pattern = strings.Clone(pattern)
	}
	before, there := b.edit.Get(pattern)
	if !there && len(rule.ALPN) == 0 {
		t := b.shared[rule.Service]
		if t == nil {
			t = &target{service: b.keep(rule.Service)}
			b.shared[rule.Service] = t
		}
		b.edit.Set(pattern, t)
		return nil
	}
	if b.clone {
		rule = b.copy(rule)
	}
	t, err := before.with(rule, "")
	if err != nil {
		return fmt.Errorf("name %q: %w", name, err)
	}
	b.edit.Set(pattern, t)
	return nil
}

// keep gives a text that keeps no document alive.
func (b *hostsEdit) keep(s string) string {
	if b.clone {
		return strings.Clone(s)
	}
	return s
}

// copy gives a rule without its names that keeps no document alive.
func (b *hostsEdit) copy(rule *resource.HostRule) *resource.HostRule {
	out := &resource.HostRule{Service: b.keep(rule.Service), ALPN: make([]string, len(rule.ALPN))}
	for i, p := range rule.ALPN {
		out.ALPN[i] = b.keep(p)
	}
	return out
}

// addHost adds the names of a Host, all of them or none.
func (b *hostsEdit) addHost(x hostRule) error {
	var alone *target // of names that nobody else has
	for i, name := range x.rule.Names {
		pattern, err := hostname.ParsePattern(name)
		if err == nil {
			before, there := b.edit.Get(pattern)
			t := alone
			if there || t == nil {
				t, err = before.with(x.rule, x.host)
			}
			if err == nil {
				b.edit.Set(pattern, t)
				if !there {
					alone = t
				}
				continue
			}
		}
		for _, name := range x.rule.Names[:i] {
			b.remove(name, x.rule)
		}
		return fmt.Errorf("name %q: %w", name, err)
	}
	return nil
}
