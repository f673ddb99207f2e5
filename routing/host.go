package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// errDuplicateName reports a name that two rules claim for the same clients.
var errDuplicateName = errors.New("another rule has this name for the same protocols")

// with returns the target plus a rule, of a Host or, if host is "", of the
// listener.
func (t *target) with(r *resource.HostRule, host string) (*target, error) {
	next := target{}
	if t != nil {
		next = *t
	}
	if len(r.ALPN) == 0 {
		if next.service != "" {
			return nil, errDuplicateName
		}
		next.service, next.host = r.Service, host
		return &next, nil
	}
	for _, l := range next.limited {
		if slices.ContainsFunc(l.alpn, func(p string) bool { return slices.Contains(r.ALPN, p) }) {
			return nil, errDuplicateName
		}
	}
	next.limited = append(slices.Clip(next.limited), limited{r.ALPN, r.Service, host})
	return &next, nil
}

// without returns the target minus a rule, or nil if none is left.
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

// putListener records a listener's new resource; a nil spec removes it.
func (c *compiler) putListener(name string, spec resource.Spec) error {
	s, ok := spec.(*resource.Listener)
	c.dirtyListeners[name] = s
	if !ok && spec != nil {
		return fmt.Errorf("spec has type %T", spec)
	}
	return nil
}

// putHost records a Host's new resource; a nil spec removes it.
func (c *compiler) putHost(name string, spec resource.Spec) error {
	if _, again := c.dirtyHosts[name]; !again {
		c.dirtyHosts[name], _ = c.hosts.Get(name)
		c.hostOrder = append(c.hostOrder, name)
	}
	h, ok := spec.(*resource.Host)
	if !ok {
		c.hosts.Delete(name)
		if spec != nil {
			return fmt.Errorf("spec has type %T", spec)
		}
		return nil
	}
	c.hosts.Set(name, h)
	return nil
}

// listenerChange is the change of one listener.
type listenerChange struct {
	before         *Listener          // nil if the listener is new
	spec           *resource.Listener // nil if the resource did not change
	removed, added []hostRule
}

// hostRule is the rule that a Host adds to its listener.
type hostRule struct {
	host string
	rule *resource.HostRule
}

// makeListeners rebuilds the listeners whose resource or Hosts changed. The
// cost is proportional to the change: unchanged Hosts of an existing listener
// are not visited, nor its own rules unless its resource changed.
func (c *compiler) makeListeners() {
	changes := map[string]*listenerChange{}
	created := false
	for name, spec := range c.dirtyListeners {
		if spec == nil {
			c.listeners.Delete(name)
			continue
		}
		before, found := c.listeners.Get(name)
		created = created || !found
		changes[name] = &listenerChange{before: before, spec: spec}
	}
	changeOf := func(name string) *listenerChange {
		n, ok := changes[name]
		if before, found := c.listeners.Get(name); !ok && found {
			n = &listenerChange{before: before}
			changes[name] = n
		}
		return n // nil: no such listener
	}
	for _, name := range c.hostOrder {
		if h := c.dirtyHosts[name]; h != nil {
			if n := changeOf(h.Listener); n != nil && n.before != nil {
				n.removed = append(n.removed, hostRule{name, h.Rule()})
			}
		}
		if h, ok := c.hosts.Get(name); ok {
			if n := changeOf(h.Listener); n != nil {
				n.added = append(n.added, hostRule{name, h.Rule()})
			}
		}
	}
	if created {
		c.addExistingHosts(changes)
	}
	for name, n := range changes {
		c.makeListener(name, n)
	}
}

// addExistingHosts adds the existing Hosts to new listeners.
func (c *compiler) addExistingHosts(changes map[string]*listenerChange) {
	all := c.hosts.Map()
	for name, h := range all.All() {
		n := changes[h.Listener]
		if _, dirty := c.dirtyHosts[name]; n != nil && n.before == nil && !dirty {
			n.added = append(n.added, hostRule{name, h.Rule()})
		}
	}
}

// makeListener builds one listener. It removes all names before it adds any, so
// that a name can move to another rule in the same change.
func (c *compiler) makeListener(name string, n *listenerChange) {
	b := hostsEdit{shared: map[string]*target{}, edit: hostname.Matcher[*target]{}.Edit()}
	var next Listener
	var rules []resource.HostRule
	if n.before != nil {
		next, rules = *n.before, n.before.spec.Hosts
		b.edit = n.before.hosts.Edit()
	}
	var removed, added []resource.HostName
	if n.spec != nil {
		next = Listener{
			name:     name,
			spec:     n.spec.WithDefaults(),
			runsHere: hasTags(c.cfg.NodeTags, n.spec.Nodes),
			sources:  newNetworks(n.spec.Sources),
			users:    newUsers(n.spec.MySQL.Users),
		}
		if n.before != nil && n.before.spec.TLS != nil {
			next.certificates = n.before.certificates
		}
		// Copy the few new names and rules, so that they do not keep a document
		// with a hundred thousand names alive.
		b.clone = len(rules) > 0
		removed, added = resource.DiffHosts(rules, n.spec.Hosts)
	}
	for _, x := range removed {
		b.remove(x.Name, x.Rule)
	}
	for _, x := range n.removed {
		for _, name := range x.rule.Names {
			b.remove(name, x.rule)
		}
	}
	for _, x := range added {
		if err := b.add(x.Name, x.Rule); err != nil {
			c.listeners.Delete(name)
			c.leaveOut(resource.Key{Kind: "Listener", Name: name}, err)
			return
		}
	}
	for _, x := range n.added {
		if err := b.addHost(x); err != nil {
			c.hosts.Delete(x.host)
			c.leaveOut(resource.Key{Kind: "Host", Name: x.host}, err)
		}
	}
	next.hosts = b.edit.Matcher()
	c.listeners.Set(name, &next)
}

// hostsEdit is a matcher under construction.
type hostsEdit struct {
	edit   *hostname.Edit[*target]
	shared map[string]*target // by service: targets with a single rule for any protocol
	clone  bool
}

func (b *hostsEdit) remove(name string, rule *resource.HostRule) {
	pattern, _ := hostname.ParsePattern(name) // add has parsed it
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
	before, found := b.edit.Get(pattern)
	if !found && len(rule.ALPN) == 0 {
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

// keep returns s, copied if the original would keep a document alive.
func (b *hostsEdit) keep(s string) string {
	if b.clone {
		return strings.Clone(s)
	}
	return s
}

// copy returns a copy of a rule without its names that keeps no document alive.
func (b *hostsEdit) copy(rule *resource.HostRule) *resource.HostRule {
	out := &resource.HostRule{Service: b.keep(rule.Service), ALPN: make([]string, len(rule.ALPN))}
	for i, p := range rule.ALPN {
		out.ALPN[i] = b.keep(p)
	}
	return out
}

// addHost adds either all names of a Host or none.
func (b *hostsEdit) addHost(x hostRule) error {
	var shared *target // for names that no other rule has
	for i, name := range x.rule.Names {
		pattern, err := hostname.ParsePattern(name)
		if err == nil {
			before, found := b.edit.Get(pattern)
			t := shared
			if found || t == nil {
				t, err = before.with(x.rule, x.host)
			}
			if err == nil {
				b.edit.Set(pattern, t)
				if !found {
					shared = t
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
