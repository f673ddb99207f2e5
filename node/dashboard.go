package node

import (
	"penstock/node/api"
	"penstock/node/events"
	"penstock/node/ops"
	"penstock/node/ui"
)

// newSessions makes the sessions of the dashboard.
func (n *Node) newSessions() *ui.Sessions {
	cfg := ui.Config{
		Node: n.cfg.Name, Version: n.cfg.Version, Dev: n.cfg.Dev, Keys: &n.sessionKeys, Login: n.admin.ThrottleToken, Audit: n.recordAct,
	}
	if n.cluster != nil {
		cfg.Holder, cfg.Now = n.cluster.Tokens.Holder, n.cluster.Tokens.Now
	}
	return ui.NewSessions(cfg)
}

// newEvents makes the streams of /v1/events.
func (n *Node) newEvents() *events.Hub {
	cfg := events.Config{Log: n.log, Opened: ops.KeepConn}
	if n.cluster != nil {
		cfg.Valid = func(p api.Principal) error { return n.cluster.Tokens.Check(p) }
	}
	return events.New(cfg, n.ops.Topics()...)
}

// setTicketKeys takes the keys of TLS session tickets, from which those of the dashboard's
// sessions are derived.
func (n *Node) setTicketKeys(keys [][32]byte) {
	n.tickets.SetKeys(keys)
	n.sessionKeys.Set(keys)
}

// endStreams ends the streams whose token is not valid any more.
func (n *Node) endStreams() {
	if n.componentsReady.Load() {
		n.events.Sweep()
	}
}
