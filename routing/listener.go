package routing

import (
	"net/netip"
	"slices"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// Listener is one version of a listener.
type Listener struct {
	name         string
	spec         *resource.Listener // defaults filled in
	here         bool
	hosts        hostname.Matcher[*target]
	certificates hostname.Matcher[[]string]
	sources      networks
}

// Name is the resource's name.
func (l *Listener) Name() string { return l.name }

// Spec is the resource with its defaults filled in. It must not be changed.
func (l *Listener) Spec() *resource.Listener { return l.spec }

// Here tells whether this node is to run it, by its tags.
func (l *Listener) Here() bool { return l.here }

// Names is how many server names and wildcards it has.
func (l *Listener) Names() int { return l.hosts.Len() }

// target is where a name leads. A name belongs to its target whatever the
// client offers by ALPN: where no rule for the name takes the client's
// protocols there is no way, rather than one by a shorter wildcard or the
// listener's default, which may be somebody else's.
type target struct {
	service string // for clients that none of limited is for; "": closed
	host    string // the Host resource that says so; "": the listener itself
	limited []limited
}

// limited is a rule for clients that offer one of these protocols.
type limited struct {
	alpn          []string
	service, host string
}

// choose gives the service for a client: by the first of the protocols it
// offers, in its own order of preference, that a rule is limited to.
func (t *target) choose(offered []string) (service, protocol string) {
	if len(t.limited) > 0 {
		for _, p := range offered {
			for i := range t.limited {
				if slices.Contains(t.limited[i].alpn, p) {
					return t.limited[i].service, p
				}
			}
		}
	}
	return t.service, ""
}

// hostFor names the Host resource that choose has taken the service from.
func (t *target) hostFor(protocol string) string {
	for i := range t.limited {
		if slices.Contains(t.limited[i].alpn, protocol) {
			return t.limited[i].host
		}
	}
	return t.host
}

// networks gives tags to clients by the longest prefix that holds them.
type networks struct {
	tags map[netip.Prefix]map[string]string
	bits [2][]int // lengths of prefixes there are, the longest first: v4, v6
}

func newNetworks(rules []resource.SourceRule) networks {
	n := networks{tags: map[netip.Prefix]map[string]string{}}
	for i := range rules {
		for _, p := range rules[i].From {
			p = p.Masked()
			if p.Addr().Is4In6() && p.Bits() >= 96 {
				p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
			}
			if _, twice := n.tags[p]; twice {
				continue
			}
			n.tags[p] = rules[i].Tags
			family := familyOf(p.Addr())
			if !slices.Contains(n.bits[family], p.Bits()) {
				n.bits[family] = append(n.bits[family], p.Bits())
			}
		}
	}
	for family := range n.bits {
		slices.SortFunc(n.bits[family], func(a, b int) int { return b - a })
	}
	return n
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// find gives the tags for a client, and the network they are for.
func (n *networks) find(client netip.Addr) (map[string]string, netip.Prefix) {
	if len(n.tags) == 0 || !client.IsValid() {
		return nil, netip.Prefix{}
	}
	client = client.Unmap().WithZone("")
	for _, bits := range n.bits[familyOf(client)] {
		if p, err := client.Prefix(bits); err == nil {
			if tags, ok := n.tags[p]; ok {
				return tags, p
			}
		}
	}
	return nil, netip.Prefix{}
}
