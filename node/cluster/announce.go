package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// A node without a leader announces itself to maxAnnounceTargets known nodes at
// most, and to maxParallelCalls of them at the same time.
const (
	maxParallelCalls   = 8
	maxAnnounceTargets = 64
)

// announcement returns what this node publishes about itself.
func (c *Cluster) announcement() directory.Announcement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Directory.Announcement(c.trusted)
}

// announce sends this node's announcement to the leader: when either changes,
// and every Timing.Announce. Without a leader it sends the announcement to all
// known nodes, which need the address to elect one.
func (c *Cluster) announce() {
	ticker := time.NewTicker(c.cfg.Timing.Tick)
	defer ticker.Stop()
	var sent directory.Announcement // the last one that was sent
	var to string                   // the leader that took it; "": it went to all
	var at time.Time
	changed := false
	for {
		a := c.announcement()
		leader, _, self := c.Leader()
		switch {
		case sent == a && leader != "" && to == leader && time.Since(at) < c.cfg.Timing.Announce:
		case self:
			sent, to, at = a, leader, time.Now()
			c.lead.Wake() // updateOwnRecord, a task of the leader, does the rest
		case leader != "" && c.announceTo(c.ctx, leader, a) == nil:
			sent, to, at = a, leader, time.Now()
		case sent != a || changed || time.Since(at) > 5*c.cfg.Timing.Tick:
			sent, to, at, changed = a, "", time.Now(), false
			c.announceToAll(a)
		}
		select {
		case <-ticker.C:
		case <-c.announceWake:
			changed = true
		case <-c.leader.Changed():
		case <-c.ctx.Done():
			return
		}
	}
}

// announceTo sends an announcement to the node with that ID.
func (c *Cluster) announceTo(ctx context.Context, id string, a directory.Announcement) error {
	ctx, cancel := context.WithTimeout(ctx, directory.CallTimeout)
	defer cancel()
	client, err := c.Directory.Pool.Get(ctx, id)
	if err != nil {
		return err
	}
	return c.announceVia(ctx, client, a)
}

func (c *Cluster) announceVia(ctx context.Context, client *rpc.Client, a directory.Announcement) error {
	asked := time.Now()
	res, err := rpc.Call[directory.AnnounceResult](ctx, client, api.MethodAnnounce, &a)
	if err != nil {
		return err
	}
	c.clock.Note(res.Clock, asked)
	c.applyAnnounceResult(res, a)
	return nil
}

// applyAnnounceResult acts on another node's answer to an announcement.
func (c *Cluster) applyAnnounceResult(res *directory.AnnounceResult, a directory.Announcement) {
	switch {
	case res.Removed && c.leaving.Load(): // as requested
	case res.Removed:
		if err := datadir.MarkLeft(c.cfg.Dir, "the cluster removed it"); err != nil {
			c.log.Warn("cannot mark the data folder as removed", "error", err)
		}
		c.fail(bootstrap.ErrRemovedFrom)
	case res.Copied != "":
		c.fail(fmt.Errorf("%w: %s: stop one of the two; a second node needs its own data folder", directory.ErrCopied, res.Copied))
	case res.Name != "" && res.Name != a.Name:
		c.log.Warn("another node has this name; this node keeps its old one", "name", a.Name, "old", res.Name)
		if err := c.replaceIdentity(func(id *trust.Identity) (*trust.Identity, error) { return id.WithName(res.Name) }); err != nil {
			c.log.Warn("cannot change back to the old name", "error", err)
		}
	}
	news := false
	for _, p := range res.Peers[:min(len(res.Peers), directory.MaxPeers)] {
		if p.ID != c.ID() {
			news = c.Directory.Book.AddReported(p) || news
		}
	}
	if news {
		notify(c.announceWake)
	}
}

// announceToAll sends an announcement to all known nodes and to the addresses
// of --join.
func (c *Cluster) announceToAll(a directory.Announcement) {
	var all sync.WaitGroup
	places := make(chan struct{}, maxParallelCalls)
	each := func(to func(ctx context.Context) error) {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(c.ctx, directory.CallTimeout)
			defer cancel()
			if err := to(ctx); err != nil {
				c.log.Debug("announcement failed", "error", err)
			}
		})
	}
	known := c.Directory.Known()
	for _, p := range known[:min(len(known), maxAnnounceTargets)] {
		each(func(ctx context.Context) error { return c.announceTo(ctx, p.ID, a) })
	}
	addrs := map[string]bool{c.Directory.Address: true}
	for _, p := range known {
		addrs[p.Cluster] = true
	}
	for _, addr := range c.cfg.Join {
		if addrs[addr] {
			continue
		}
		each(func(ctx context.Context) error {
			client, err := rpc.DialConfig{TLS: trust.ClientConfig(c.id.Load, "")}.Dial(ctx, addr)
			if err != nil {
				return err
			}
			defer client.Close()
			return c.announceVia(ctx, client, a)
		})
	}
	all.Wait()
}

// handleAnnounce records another node's announcement. The leader updates the
// node's record with it; any other node relays it to the leader.
func (c *Cluster) handleAnnounce(ctx context.Context, a *directory.Announcement) (*directory.AnnounceResult, error) {
	caller := rpc.Caller(ctx)
	if cs := rpc.TLS(ctx); caller.Role != api.RoleNode && cs != nil {
		if id, ok := trust.PeerNode(*cs); ok && c.Directory.Departed(id) {
			return c.removedResult(), nil
		}
	}
	switch {
	case c.Directory.Departed(a.ID) && caller.Role == api.RoleNode:
		return c.removedResult(), nil
	case caller.Role != api.RoleNode:
		return nil, api.Errorf(api.Forbidden, "only nodes may call %s", api.MethodAnnounce)
	case a.ID != caller.Node && !a.Relayed, !a.Peer().Valid(), !directory.BoundedTexts(a.HTTP, a.Zone, a.Version, a.Issuer, a.Last.Instance):
		return nil, api.Errorf(api.Invalid, "node %.40q sent an invalid announcement of %.40q", caller.Node, a.ID)
	}
	c.Directory.NoteContact()
	if c.Directory.Book.AddAnnounced(a.Peer(), a.Last.Instance) {
		c.Directory.Pool.Drop(a.ID) // the next dial uses the new address
		notify(c.announceWake)
	}
	leader, _, self := c.Leader()
	res := &directory.AnnounceResult{Leader: leader}
	switch {
	case self:
		if err := c.lead.RecordAnnouncement(ctx, *a, res); err != nil {
			return nil, err
		}
		res.Clock = time.Now().UnixMilli()
	case leader != "" && leader != a.ID && !a.Relayed:
		c.relay(ctx, leader, *a, res)
	}
	if !a.Relayed {
		res.Peers = append(c.Directory.Known(), c.Directory.Own())
		res.Peers = slices.DeleteFunc(res.Peers, func(p directory.Peer) bool { return p.ID == a.ID || !p.Valid() })
	}
	return res, nil
}

// removedResult is the answer to a node that is no longer a member and no
// longer votes.
func (c *Cluster) removedResult() *directory.AnnounceResult {
	res := &directory.AnnounceResult{Removed: true}
	servers, _ := c.Store().Servers()
	for _, s := range servers {
		if s.Voter {
			res.Voters = append(res.Voters, s.ID)
		}
	}
	return res
}

// relay forwards an announcement to the leader. A failure does not matter: the
// node sends it again once it knows the leader.
func (c *Cluster) relay(ctx context.Context, leader string, a directory.Announcement, res *directory.AnnounceResult) {
	ctx, cancel := context.WithTimeout(ctx, directory.CallTimeout/2)
	defer cancel()
	a.Relayed = true
	client, err := c.Directory.Pool.Get(ctx, leader)
	if err != nil {
		return
	}
	if answer, err := rpc.Call[directory.AnnounceResult](ctx, client, api.MethodAnnounce, &a); err == nil {
		res.Removed, res.Copied, res.Name = answer.Removed, answer.Copied, answer.Name
	}
}
