package xds

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"penstock/node/xds/snapshot"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// announcement is an endpoint that a connection announces.
type announcement struct {
	service, address string
	tags             string // as text, to be compared
}

// announced counts the streams of a connection that announce the same.
type announced struct {
	streams  int
	withdraw func()
}

// announceAs announces the client as its view says, or not any more.
func (c *client) announceAs(view snapshot.View) {
	spec := view.Announce()
	if spec == c.announceSpec && c.node.zone == c.announceZone {
		return
	}
	c.announceSpec, c.announceZone = spec, c.node.zone
	if c.server.cfg.Announcer == nil || spec == nil || !c.announces() || !allowed(spec, c.conn.remote.Addr()) {
		c.announce(nil, nil)
		return
	}
	tags := maps.Clone(spec.Tags)
	if c.node.zone != "" {
		if tags == nil {
			tags = map[string]string{}
		}
		tags[provider.ZoneTag] = c.node.zone
	}
	want := announcement{service: view.Service(), address: netip.AddrPortFrom(c.conn.remote.Addr(), uint16(spec.Port)).String()}
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		want.tags += fmt.Sprintf("%q=%q ", k, tags[k])
	}
	if c.announced == nil || *c.announced != want {
		c.announce(&want, tags)
	}
}

// announces reports whether the stream shows that the client serves traffic. A
// client that asks for listeners, routes or secrets alone may be a tool.
func (c *client) announces() bool {
	return c.only == snapshot.Types || c.only == snapshot.Cluster || c.only == snapshot.Endpoint
}

// allowed reports whether proxies at an address may be endpoints.
func allowed(spec *resource.Announce, at netip.Addr) bool {
	return at.IsValid() && (len(spec.From) == 0 || slices.ContainsFunc(spec.From, func(text string) bool {
		network, err := netip.ParsePrefix(strings.TrimSpace(text))
		return err == nil && network.Contains(at)
	}))
}

// announce replaces what the stream announces; nil: nothing.
func (c *client) announce(want *announcement, tags map[string]string) {
	before := c.announced
	c.announced = want
	if want != nil {
		c.conn.announce(c.server.cfg.Announcer, *want, tags)
	}
	if before != nil {
		c.conn.withdraw(*before)
	}
}

// announce announces an endpoint for one more stream. It is announced once.
func (c *conn) announce(to Announcer, want announcement, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.announced[want]
	if a == nil {
		a = &announced{withdraw: to.Announce(want.service, provider.Endpoint{Address: want.address, Weight: 1, Tags: tags})}
		if c.announced == nil {
			c.announced = map[announcement]*announced{}
		}
		c.announced[want] = a
	}
	a.streams++
}

// withdraw undoes announce for one stream.
func (c *conn) withdraw(was announcement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.announced[was]
	if a.streams--; a.streams == 0 {
		delete(c.announced, was)
		a.withdraw()
	}
}
