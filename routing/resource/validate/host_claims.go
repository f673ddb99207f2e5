package validate

import (
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// claim is the claim of one owner to a name of a listener. Claims are immutable.
type claim struct {
	host string // the Host's name; "": the listener itself
	alpn []string
	next *claim // claims to the same name for other protocols
}

// claimOfListener is shared by a listener's own names that are not limited by ALPN.
var claimOfListener = &claim{}

// conflicts reports whether a ClientHello could match both claims equally well.
func (c *claim) conflicts(alpn []string) bool {
	if len(c.alpn) == 0 || len(alpn) == 0 {
		return len(c.alpn) == len(alpn)
	}
	return slices.ContainsFunc(c.alpn, func(p string) bool { return slices.Contains(alpn, p) })
}

// owner returns the key of the object that has the claim.
func (c *claim) owner(listener string) resource.Key {
	if c.host == "" {
		return resource.Key{Kind: "Listener", Name: listener}
	}
	return resource.Key{Kind: "Host", Name: c.host}
}

// without returns the list without its first claim equal to x.
func (c *claim) without(x *claim) *claim {
	switch {
	case c == nil:
		return nil
	case c.host == x.host && slices.Equal(c.alpn, x.alpn):
		return c.next
	}
	return &claim{c.host, c.alpn, c.next.without(x)}
}

// updateNames updates the claims to names for the change of a Host or Listener.
func (e *setEdit) updateNames(key resource.Key, old, next *member) {
	e.claimHost(old, (*nameClaims).remove)
	e.claimHost(next, (*nameClaims).add)
	before, after := rulesOf(old), rulesOf(next)
	if len(before)+len(after) == 0 {
		return
	}
	// A few new names are copied, so that they do not keep a whole document of a
	// hundred thousand alive.
	n := nameClaims{edit: e, listener: key.Name, clone: len(before) > 0}
	removed, added := resource.DiffHosts(before, after)
	for _, x := range removed {
		n.remove(x.Name, listenerClaim(x.Rule))
	}
	for _, x := range added {
		n.add(x.Name, listenerClaim(x.Rule))
	}
}

func listenerClaim(r *resource.HostRule) *claim {
	if len(r.ALPN) == 0 {
		return claimOfListener
	}
	return &claim{alpn: r.ALPN}
}

func rulesOf(m *member) []resource.HostRule {
	if m == nil {
		return nil
	}
	l, ok := m.Spec.(*resource.Listener)
	if !ok {
		return nil
	}
	return l.Hosts
}

func (e *setEdit) claimHost(m *member, do func(n *nameClaims, name string, x *claim)) {
	if m == nil {
		return
	}
	h, ok := m.Spec.(*resource.Host)
	if !ok {
		return
	}
	n, x := nameClaims{edit: e, listener: h.Listener}, &claim{host: m.Name, alpn: h.ALPN}
	for _, name := range h.Names {
		do(&n, name, x)
	}
}

// nameClaims changes the claims of one listener's names.
type nameClaims struct {
	edit     *setEdit
	listener string
	clone    bool
}

func (n *nameClaims) add(name string, x *claim) {
	pattern, err := hostname.ParsePattern(name)
	if err != nil {
		return // reported by Validate
	}
	if n.clone {
		pattern = strings.Clone(pattern)
	}
	if before, ok := n.edit.names.Get(n.listener, pattern); ok {
		x = &claim{x.host, x.alpn, before}
	}
	n.edit.names.Set(n.listener, pattern, x)
}

func (n *nameClaims) remove(name string, x *claim) {
	pattern, err := hostname.ParsePattern(name)
	if err != nil {
		return
	}
	before, _ := n.edit.names.Get(n.listener, pattern)
	if left := before.without(x); left != nil {
		n.edit.names.Set(n.listener, pattern, left)
	} else {
		n.edit.names.Delete(n.listener, pattern)
	}
}
