package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/trust"
)

// follow applies what was agreed about the cluster itself: the members, the
// CAs, the gossip keys, the keys of session tickets.
func (c *Cluster) follow() {
	var at versions
	snap, last := c.Store().Snapshot(), uint64(0)
	for {
		if err := c.applySnapshot(snap, last, &at); err != nil {
			c.fail(err)
			return
		}
		last = snap.Index()
		var err error
		if snap, err = c.Store().Wait(c.ctx, last); err != nil {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrClosed) {
				c.fail(err)
			}
			return
		}
	}
}

// versions are those of the entries that this node has applied.
type versions struct{ cluster, gossip, tickets uint64 }

// applySnapshot applies a snapshot to this node; last is the index of the one
// before.
func (c *Cluster) applySnapshot(snap store.Snapshot, last uint64, at *versions) error {
	for _, k := range record.Changed(snap, last, record.KindNode) {
		if e, ok := snap.Get(k); ok {
			r, err := record.Unmarshal[record.Node](k, e.Value)
			if err != nil {
				return err
			}
			if last > 0 && !r.Member() {
				c.work.Go(func() { c.disconnectDeparted(r.ID) })
			}
		}
		c.lead.Wake()
	}
	if last > 0 && len(record.Changed(snap, last, record.KindToken)) > 0 {
		c.connServers.recheck()
		c.cfg.TokensChanged()
	}
	switch revoked, err := c.Identities.Follow(snap, last); {
	case err != nil:
		return err
	case revoked:
		c.cfg.IdentitiesRevoked()
	}
	for _, act := range []func(store.Snapshot, *versions) error{c.applyCAs, c.applyGossipKeys, c.applyTickets} {
		if err := act(snap, at); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if trusted := max(at.cluster, at.gossip); trusted != c.trusted {
		c.trusted = trusted
		notify(c.announceWake)
	}
	return nil
}

// disconnectDelay is how long connections to a departed node stay open, so that
// it learns that it has left.
const disconnectDelay = 5 * time.Second

// disconnectDeparted ends the connections between this node and a departed one,
// after disconnectDelay and once that one no longer votes. New connections are
// refused as soon as it does not vote (peer).
func (c *Cluster) disconnectDeparted(id string) {
	for first := true; first || c.Directory.Votes(id); first = false {
		select {
		case <-time.After(disconnectDelay):
		case <-c.ctx.Done():
			return
		}
	}
	c.Directory.Book.Remove(id)
	c.Directory.Pool.Drop(id)
	c.port.Drop(id)
}

// applyGossipKeys applies the gossip keys that were agreed.
func (c *Cluster) applyGossipKeys(snap store.Snapshot, at *versions) error {
	if e, ok := snap.Get(record.KeyGossip); !ok || e.Version == at.gossip {
		return nil
	}
	s, version, _, err := record.Unseal[record.GossipSecret](c.Sealer(), snap, record.KeyGossip)
	if err != nil {
		return err
	}
	if err := c.Directory.SetGossipKeys(s.Ring()); err != nil {
		return err
	}
	at.gossip = version
	return nil
}

// applyTickets passes the session ticket keys that were agreed to
// Config.Tickets.
func (c *Cluster) applyTickets(snap store.Snapshot, at *versions) error {
	if e, ok := snap.Get(record.KeyTickets); !ok || e.Version == at.tickets {
		return nil
	}
	s, version, _, err := record.Unseal[record.TicketSecret](c.Sealer(), snap, record.KeyTickets)
	if err != nil {
		return err
	}
	at.tickets = version
	c.cfg.Tickets(s.TicketKeys())
	return nil
}

// applyCAs trusts the CAs that were agreed.
func (c *Cluster) applyCAs(snap store.Snapshot, at *versions) error {
	e, ok := snap.Get(record.KeyCluster)
	if !ok || e.Version == at.cluster {
		return nil
	}
	r, err := record.Unmarshal[record.Cluster](record.KeyCluster, e.Value)
	if err != nil {
		return err
	}
	if r.ID != c.ClusterID() {
		return fmt.Errorf("%w: the log belongs to cluster %s, the data folder to %s", bootstrap.ErrForeign, r.ID, c.ClusterID())
	}
	err = c.replaceIdentity(func(id *trust.Identity) (*trust.Identity, error) { return id.WithBundle(r.CAs) })
	switch {
	case errors.Is(err, trust.ErrCertificate) && c.id.Load().NewerThan(r.CAs):
		// A power cut lost the last entries that were applied here, but not the
		// certificate that they led to. They will be replicated again.
		c.log.Warn("the log on this disk is older than this node's certificate; waiting for newer entries")
		err = nil
	case errors.Is(err, trust.ErrCertificate):
		// This node's certificate is not valid under these CAs: the CA that
		// signed it was retired while the node was away.
		return fmt.Errorf("the CA was replaced while this node was down, so its certificate is no longer valid: "+
			"remove the node, then join it again with an empty data folder: %w", err)
	}
	if err != nil {
		return err
	}
	at.cluster = e.Version
	return nil
}

// replaceIdentity saves the identity that change returns, and puts it in force.
func (c *Cluster) replaceIdentity(change func(*trust.Identity) (*trust.Identity, error)) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	next, err := change(c.id.Load())
	if err != nil {
		return err
	}
	if err := next.Save(c.cfg.Dir); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	c.id.Store(next)
	notify(c.announceWake)
	return nil
}

// runHousekeeping does every node's housekeeping about once a second: it
// publishes the node's facts, records which nodes are up, saves the peers, and
// renews the certificate when that is due.
func (c *Cluster) runHousekeeping() {
	ticker := time.NewTicker(c.cfg.Timing.Tick)
	defer ticker.Stop()
	renewal, logged := renewal{}, directory.LogOnce{}
	for {
		changed := c.Directory.GossipChanged()
		c.Directory.Publish()
		c.Directory.RecordUpStates(time.Now())
		if err := c.Directory.Book.Remember(c.Directory.Known()); err != nil {
			logged.Warn(c.log, "cannot save the known peers", directory.PeersFile, err)
		}
		renewal.renewIfDue(c)
		select {
		case <-changed:
			c.lead.Wake()
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

// renewal renews the node's own certificate.
type renewal struct {
	next   time.Time     // no attempt before
	pause  time.Duration // after a failed attempt
	logged directory.LogOnce
}

// The pauses after failed renewals. A rotation of the CA waits for the last node's
// renewal, so the longest is not for long.
const (
	renewPause    = 5 * time.Second
	maxRenewPause = time.Minute
)

// renewIfDue requests the next certificate when it is due.
func (r *renewal) renewIfDue(c *Cluster) {
	now := time.Now()
	if now.Before(r.next) || !c.id.Load().NeedsRenewal(now) {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, directory.CallTimeout)
	defer cancel()
	if err := c.renew(ctx); err != nil {
		r.pause = min(max(2*r.pause, min(renewPause, 5*c.cfg.Timing.Tick)), maxRenewPause)
		r.next = now.Add(r.pause)
		if r.logged == nil {
			r.logged = directory.LogOnce{}
		}
		r.logged.Warn(c.log, "cannot renew the node's certificate yet", c.Name(), err)
		return
	}
	*r = renewal{}
	c.log.Info("certificate renewed", "expires", c.id.Load().Expires())
}

// renew gets the next certificate from the leader. If the current one is not
// valid now, no other node accepts it; if that holds for all nodes, none can be
// elected leader. So this node then signs the next certificate itself: every
// node can open the CA.
func (c *Cluster) renew(ctx context.Context) error {
	id := c.id.Load()
	csr, err := id.Request()
	if err != nil {
		return err
	}
	if !id.ValidAt(time.Now()) {
		res, err := c.lead.Sign(c.Store().Snapshot(), c.ID(), csr)
		if err != nil {
			return err
		}
		return c.applyRenewal(res)
	}
	act := func(ctx context.Context, r *leader.RenewRequest) (*leader.RenewResult, error) {
		return c.lead.Issue(ctx, c.ID(), r.CSR)
	}
	res, err := leader.Ask(ctx, c.requests, api.MethodRenew, &leader.RenewRequest{CSR: csr}, act)
	if err != nil {
		return err
	}
	return c.applyRenewal(res)
}

func (c *Cluster) applyRenewal(res *leader.RenewResult) error {
	return c.replaceIdentity(func(id *trust.Identity) (*trust.Identity, error) {
		return id.Renewed(nil, res.Certificate, res.CAs)
	})
}
