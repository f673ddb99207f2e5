package xds

import (
	"cmp"
	"slices"
	"time"

	"penstock/node/api"
	"penstock/node/xds/snapshot"
)

// Proxies returns the connected clients, sorted by service and address. s may be
// nil: there are none.
func (s *Server) Proxies() []api.Proxy {
	if s == nil {
		return nil
	}
	byConn := map[*conn][]*client{}
	s.mu.Lock()
	for c := range s.clients {
		byConn[c.conn] = append(byConn[c.conn], c)
	}
	s.mu.Unlock()
	all := make([]api.Proxy, 0, len(byConn))
	for conn, streams := range byConn {
		slices.SortFunc(streams, func(a, b *client) int { return a.since.Compare(b.since) })
		p := api.Proxy{
			Node: s.cfg.Node, Identity: conn.identity.String(), Address: conn.remote.String(), Since: streams[0].since,
			Streams: len(streams), Announced: conn.announcedAddress(),
		}
		for _, c := range streams {
			c.addTo(&p)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b api.Proxy) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Address, b.Address))
	})
	return all
}

// announcedAddress returns the address that the connection's streams announce.
func (c *conn) announcedAddress() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.announced {
		return a.address
	}
	return ""
}

// addTo adds what a stream knows to its proxy.
func (c *client) addTo(p *api.Proxy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.Service = cmp.Or(p.Service, c.service)
	p.ID, p.Agent, p.Zone = cmp.Or(p.ID, c.node.id), cmp.Or(p.Agent, c.node.agent), cmp.Or(p.Zone, c.node.zone)
	if c.session == nil {
		return
	}
	for t, status := range c.session.Status() {
		if status == nil {
			continue
		}
		p.Types = append(p.Types, api.ProxyType{
			Type: snapshot.Type(t).String(), Delta: c.delta, All: status.All, Names: status.Names,
			Sent: status.Sent, Accepted: status.Accepted, Behind: timeOf(status.Behind),
			Rejected: status.Detail, RejectedAt: timeOf(status.RejectedAt), Refusing: status.Refused,
		})
	}
}

// timeOf returns nil for the zero time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Status returns what is wrong with the connected clients; nil: there are none.
// s may be nil.
func (s *Server) Status() *api.ProxiesStatus {
	all := s.Proxies()
	if len(all) == 0 {
		return nil
	}
	status := &api.ProxiesStatus{Node: s.cfg.Node, Connected: len(all)}
	for i := range all {
		refusing, behind := false, false
		for j := range all[i].Types {
			t := &all[i].Types[j]
			refusing = refusing || t.Refusing
			behind = behind || !t.Refusing && t.Behind != nil && time.Since(*t.Behind) > api.ProxyBehind
		}
		if refusing {
			status.Refusing++
		}
		if behind {
			status.Behind++
		}
		if (refusing || behind) && len(status.Problems) < api.MaxProxyProblems {
			status.Problems = append(status.Problems, all[i])
		}
	}
	return status
}
