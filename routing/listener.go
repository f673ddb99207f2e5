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
	runsHere     bool
	hosts        hostname.Matcher[*target]
	certificates hostname.Matcher[[]string]
	// certificatesForAny are presented for names that have none of these.
	certificatesForAny []string
	sources            networks
	users              users // of a mysql listener
}

// Name returns the resource's name.
func (l *Listener) Name() string { return l.name }

// Spec returns the resource with defaults filled in. It must not be changed.
func (l *Listener) Spec() *resource.Listener { return l.spec }

// RunsHere reports whether this node's tags select it to run the listener.
func (l *Listener) RunsHere() bool { return l.runsHere }

// conflict returns why connections of the listener cannot go to a backend: both would
// have the TLS that goes there, or only one of them speaks MySQL's protocol.
func (l *Listener) conflict(b *backend) Reason {
	switch {
	case l.spec.Originates() != nil && b.spec.Mesh:
		return OriginateConflict
	case l.speaksMySQL() != (b.spec.Protocol == resource.ProtocolMySQL):
		return NoBackend
	}
	return OK
}

// Names returns the number of server names and wildcards.
func (l *Listener) Names() int { return l.hosts.Len() }

// target is the destination of a name. A name belongs to its target whatever
// ALPN the client offers: if no rule for the name accepts the client's
// protocols, the connection is closed. It does not fall back to a shorter
// wildcard or to the listener's default, which may belong to another team.
type target struct {
	service string // for clients that no rule in limited accepts; "": closed
	host    string // the Host resource of that rule; "": the listener itself
	limited []limited
}

// limited is a rule for clients that offer one of its protocols.
type limited struct {
	alpn          []string
	service, host string
}

// choose returns the service for a client: by the first protocol in the
// client's order of preference for which there is a rule.
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

// hostFor returns the Host resource whose rule choose applied.
func (t *target) hostFor(protocol string) string {
	for i := range t.limited {
		if slices.Contains(t.limited[i].alpn, protocol) {
			return t.limited[i].host
		}
	}
	return t.host
}

// networks maps client addresses to tags, by longest prefix.
type networks struct {
	tags map[netip.Prefix]map[string]string
	bits [2][]int // existing prefix lengths of IPv4 and IPv6, longest first
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

// find returns the tags for a client, and their network.
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
