package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"penstock/gossip"
	"penstock/node/cluster/record"
)

// advertisedFacts is what a node publishes as gossip's facts, in JSON.
type advertisedFacts struct {
	Facts
	Index uint64 `json:"i"` // of its snapshot of the store
}

// gossiping returns the gossip; nil until it runs.
func (c *Cluster) gossiping() *gossip.Gossip {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gossip
}

// plannedGossip returns the address at which others will reach gossip; "" if
// the system picks the port.
func (c *Cluster) plannedGossip() string {
	host, port, err := net.SplitHostPort(c.cfg.Gossip)
	if err != nil || port == "0" {
		return ""
	}
	if c.cfg.Advertise != "" {
		host = c.cfg.Advertise
	}
	return net.JoinHostPort(host, port)
}

// gossipKeys returns the current gossip keys: those of the store, or those from
// bootstrap or join until the store has them.
func (c *Cluster) gossipKeys() ([][]byte, error) {
	s, _, ok, err := record.Unseal[record.GossipSecret](c.Sealer(), c.Store().Snapshot(), record.KeyGossip)
	if err != nil {
		return nil, err
	}
	if ok {
		return s.Ring(), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys, nil
}

// meta returns the metadata that gossip publishes about this node.
func (c *Cluster) meta() gossip.Meta {
	id := c.id.Load()
	return gossip.Meta{
		Name: id.Name, Cluster: c.Address(), HTTP: c.cfg.HTTP, Version: c.cfg.Version, Zone: c.cfg.Zone, Instance: id.Instance,
	}
}

// advertisedGossip returns the address that gossip advertises, which has to be
// an IP address, with port 0 for the bound one; "" without Config.Advertise.
func (c *Cluster) advertisedGossip() (string, error) {
	host := c.cfg.Advertise
	if host == "" {
		return "", nil
	}
	if _, err := netip.ParseAddr(host); err != nil {
		ctx, cancel := context.WithTimeout(c.ctx, rpcTimeout)
		defer cancel()
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return "", fmt.Errorf("--advertise %s: %w", host, err)
		}
		host = ips[0]
	}
	return net.JoinHostPort(host, "0"), nil
}

// openGossip starts gossip if the keys are known; otherwise they come with the
// log.
func (c *Cluster) openGossip() error {
	if c.gossiping() != nil {
		return nil
	}
	keys, err := c.gossipKeys()
	if err != nil || len(keys) == 0 {
		return err
	}
	advertise, err := c.advertisedGossip()
	if err != nil {
		return err
	}
	g, err := gossip.Open(gossip.Config{
		ID: c.ID(), Meta: c.meta(), Bind: c.cfg.Gossip, Advertise: advertise, Label: c.ClusterID(), Keys: keys,
		Log: c.log, Conflict: c.handleConflict,
	})
	if err != nil {
		return fmt.Errorf("--gossip %s: %w", c.cfg.Gossip, err)
	}
	c.mu.Lock()
	over := c.ctx.Err() != nil // close ran before there was gossip to close
	if !over {
		c.gossip = g
	}
	c.mu.Unlock()
	if over {
		return errors.Join(g.Close(), c.ctx.Err())
	}
	notify(c.announceWake)
	// follow may have applied newer keys before c.gossip was set.
	if keys, err = c.gossipKeys(); err != nil {
		return err
	}
	return g.SetKeys(keys)
}

// handleConflict handles another process that runs as this node. The younger
// one yields: the older has the connections. Gossip alone is no proof, since
// anyone with its key could end nodes; so the other process must show this
// node's certificate.
func (c *Cluster) handleConflict(other gossip.Member) {
	if res, err := c.locate(c.ctx, c.ID(), []string{other.Cluster}); err != nil || res.Last.Instance == c.Instance() {
		c.log.Warn("gossip reports a copy of this node, but none answers at its address", "at", other.Cluster, "gossip", other.Addr)
		return
	}
	if other.Since.After(c.opened) {
		c.log.Error("another process runs with a copy of this node's data folder and must stop", "at", other.Cluster, "gossip", other.Addr)
		return
	}
	c.fail(fmt.Errorf("%w: node %s runs at %s: stop one of the two; a second node needs its own data folder",
		ErrCopied, c.ID(), other.Cluster))
}

// newGossipEntry converts a member of gossip.
func newGossipEntry(m gossip.Member) gossipEntry {
	s := gossipEntry{
		peer: Peer{ID: m.ID, Name: m.Name, Cluster: m.Cluster, Gossip: m.Addr},
		http: m.HTTP, zone: m.Zone, version: m.Version, instance: m.Instance, since: m.Since, state: StateUnreachable,
	}
	switch m.State {
	case gossip.Alive:
		s.state = StateUp
	case gossip.Left:
		s.state = StateLeft
	}
	var t advertisedFacts
	if json.Unmarshal(m.Facts, &t) == nil {
		s.facts, s.index = t.Facts, t.Index
	}
	return s
}

const (
	// joinEvery is the least time between two attempts to join the same unseen
	// nodes in gossip.
	joinEvery = 10 * time.Second
	// joinTimeout bounds one attempt.
	joinTimeout = 5 * time.Second
	// maxSeeds bounds the addresses of one attempt.
	maxSeeds = 16
)

// joinGossip joins the members that gossip does not see, as long as there are
// any, so that partitions merge again. It first opens gossip if need be.
func (c *Cluster) joinGossip() {
	ticker := time.NewTicker(c.cfg.Timing.Tick)
	defer ticker.Stop()
	var last []string
	var at time.Time
	logged := logOnce{}
	for {
		if g := c.gossiping(); g != nil {
			seeds := c.unseen()
			if len(seeds) > 0 && (!slices.Equal(seeds, last) || time.Since(at) > joinEvery) {
				last, at = seeds, time.Now()
				ctx, cancel := context.WithTimeout(c.ctx, joinTimeout)
				if n, err := g.Join(ctx, seeds); err != nil {
					c.log.Debug("gossip: not all nodes answered", "asked", len(seeds), "answered", n, "error", err)
				}
				cancel()
			}
		} else if err := c.openGossip(); err != nil {
			logged.warn(c.log, "cannot start gossip yet", c.Name(), err)
		}
		select {
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
	}
}

// unseen lists gossip addresses of members that gossip does not see, at most
// maxSeeds: one that answers reports the others.
func (c *Cluster) unseen() (seeds []string) {
	entries := c.gossipEntries()
	for _, p := range c.known() {
		if entries[p.ID].state == StateUp {
			continue
		}
		at := []string{p.Gossip}
		for _, h := range c.addressBook.lookup(p.ID) {
			at = append(at, h.Gossip)
		}
		for _, a := range at {
			if a != "" && !slices.Contains(seeds, a) && len(seeds) < maxSeeds {
				seeds = append(seeds, a)
			}
		}
	}
	slices.Sort(seeds)
	return seeds
}

// runHousekeeping does every node's housekeeping about once a second: it
// publishes the node's facts, records which nodes are up, saves the peers, and
// renews the certificate when that is due.
func (c *Cluster) runHousekeeping() {
	ticker := time.NewTicker(c.cfg.Timing.Tick)
	defer ticker.Stop()
	renewal, advertised, logged := renewal{}, lastAdvertised{}, logOnce{}
	for {
		var changed <-chan struct{}
		g := c.gossiping()
		if g != nil {
			changed = g.Changed()
		}
		advertised.advertise(c, g)
		c.recordUpStates(time.Now())
		if err := c.addressBook.remember(c.known()); err != nil {
			logged.warn(c.log, "cannot save the known peers", peersFile, err)
		}
		renewal.renewIfDue(c)
		select {
		case <-changed:
			notify(c.leadWake)
			select { // gossip changes often in large clusters
			case <-time.After(c.cfg.Timing.Tick / 4):
			case <-c.ctx.Done():
				return
			}
		case <-ticker.C:
		case <-c.ctx.Done():
			return
		}
	}
}

// lastAdvertised is what was last passed to gossip.
type lastAdvertised struct {
	facts []byte
	phase string
	meta  gossip.Meta
}

// advertise collects this node's facts and passes them to gossip if it runs.
func (s *lastAdvertised) advertise(c *Cluster, g *gossip.Gossip) {
	f := c.cfg.Facts()
	if len(f.Hints) > maxHints {
		f.Hints = nil
	}
	c.mu.Lock()
	c.facts = f
	c.mu.Unlock()
	if g == nil {
		return
	}
	facts, err := json.Marshal(advertisedFacts{f, c.Store().Snapshot().Index()})
	if err == nil && !bytes.Equal(facts, s.facts) {
		err = g.SetFacts(facts, f.Phase != s.phase)
		s.facts, s.phase = facts, f.Phase
	}
	if meta := c.meta(); meta != s.meta {
		s.meta = meta
		err = errors.Join(err, g.SetMeta(meta))
	}
	if err != nil && c.ctx.Err() == nil {
		c.log.Warn("cannot publish this node's facts through gossip", "error", err)
	}
}

// recordUpStates records which nodes are up and since when, by this node's own
// clock, so that a new leader has this history.
func (c *Cluster) recordUpStates(now time.Time) {
	up := map[string]bool{}
	entries := c.gossipEntries()
	servers, _ := c.servers()
	for _, s := range servers { // departing nodes are not in Members, but may be up
		up[s.id] = entries[s.id].state == StateUp
	}
	for _, m := range c.Members() {
		up[m.ID] = m.Up()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]upState, len(up))
	for id, up := range up {
		if up && id != c.ID() {
			c.contacted.Store(true)
		}
		old, known := c.upStates[id]
		if !known || old.up != up {
			old = upState{up, now}
		}
		next[id] = old
	}
	c.upStates = next
}
