package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/node/trust"
)

// follow acts on what was agreed about the cluster itself: the members, the
// CAs, the gossip keys, the keys of session tickets.
func (c *Cluster) follow() {
	var at versions
	view, last := c.Store().Snapshot(), uint64(0)
	for {
		if err := c.act(view, last, &at); err != nil {
			c.fail(err)
			return
		}
		last = view.Index()
		var err error
		if view, err = c.Store().Wait(c.ctx, last); err != nil {
			if !errors.Is(err, context.Canceled) && !errors.Is(err, consensus.ErrClosed) {
				c.fail(err)
			}
			return
		}
	}
}

// versions are of the entries that act here.
type versions struct{ cluster, gossip, tickets uint64 }

// act brings this node in line with a view; last is the index of the one
// before.
func (c *Cluster) act(view consensus.Snapshot, last uint64, at *versions) error {
	for _, k := range touches(view, last, kindNode) {
		if e, ok := view.Get(k); ok {
			r, err := unmarshal[Record](k, e.Value)
			if err != nil {
				return err
			}
			if last > 0 && !r.member() {
				c.work.Go(func() { c.partWith(r.ID) })
			}
		}
		poke(c.leading)
	}
	if last > 0 && len(touches(view, last, kindToken)) > 0 {
		c.connServers.recheck()
	}
	for _, act := range []func(consensus.Snapshot, *versions) error{c.actCAs, c.actGossip, c.actTickets} {
		if err := act(view, at); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if trusted := max(at.cluster, at.gossip); trusted != c.trusted {
		c.trusted = trusted
		poke(c.announcing)
	}
	return nil
}

// partingTime is what a node that leaves has to hear that it has left.
const partingTime = 5 * time.Second

// partWith ends what connects this node with one that is no member any more;
// new connections are refused from the moment that it is none.
func (c *Cluster) partWith(id string) {
	for first := true; first || c.votes(id); first = false {
		select {
		case <-time.After(partingTime):
		case <-c.ctx.Done():
			return
		}
	}
	c.addressBook.remove(id)
	c.pool.Drop(id)
	c.port.Drop(id)
}

// actGossip takes the gossip keys that were agreed.
func (c *Cluster) actGossip(view consensus.Snapshot, at *versions) error {
	if e, ok := view.Get(keyGossip); !ok || e.Version == at.gossip {
		return nil
	}
	s, version, _, err := unseal[gossipSecret](c.Sealer(), view, keyGossip)
	if err != nil {
		return err
	}
	if g := c.gossiping(); g != nil { // else it begins with those of the store
		if err := g.SetKeys(s.ring()); err != nil && c.ctx.Err() == nil {
			return err
		}
	}
	at.gossip = version
	return nil
}

// actTickets hands on the keys of session tickets that were agreed.
func (c *Cluster) actTickets(view consensus.Snapshot, at *versions) error {
	if e, ok := view.Get(keyTickets); !ok || e.Version == at.tickets {
		return nil
	}
	s, version, _, err := unseal[ticketSecret](c.Sealer(), view, keyTickets)
	if err != nil {
		return err
	}
	at.tickets = version
	c.cfg.Tickets(s.keys())
	return nil
}

// actCAs trusts the CAs that were agreed.
func (c *Cluster) actCAs(view consensus.Snapshot, at *versions) error {
	e, ok := view.Get(keyCluster)
	if !ok || e.Version == at.cluster {
		return nil
	}
	r, err := unmarshal[clusterRecord](keyCluster, e.Value)
	if err != nil {
		return err
	}
	if r.ID != c.ClusterID() {
		return fmt.Errorf("%w: the log is of cluster %s, the data folder of %s", ErrForeign, r.ID, c.ClusterID())
	}
	err = c.replaceIdentity(func(id *trust.Identity) (*trust.Identity, error) { return id.WithBundle(r.CAs) })
	switch {
	case errors.Is(err, trust.ErrCertificate) && c.id.Load().NewerThan(r.CAs):
		// A power cut took the last entries that acted here, not the
		// certificate that came of them. They come again.
		c.log.Warn("the log on this disk is older than this node's certificate; it waits for the rest")
		err = nil
	case errors.Is(err, trust.ErrCertificate):
		// Its own certificate does not hold under them: it comes from a CA
		// that was retired while this node was away.
		return fmt.Errorf("the CA was replaced while this node was away, and its certificate is worth nothing any more: remove the node and let it join anew with an empty data folder: %w", err)
	}
	if err != nil {
		return err
	}
	at.cluster = e.Version
	return nil
}

// replaceIdentity saves and puts in force what change makes of the identity.
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
	poke(c.announcing)
	return nil
}

// renewal is the care for the node's own certificate.
type renewal struct {
	next  time.Time     // no attempt before
	pause time.Duration // after one that failed
	told  logOnce
}

// renewPause is the first wait after a failed renewal; the longest is an hour.
const renewPause = 5 * time.Second

// keep asks for the next certificate when it is time for one.
func (r *renewal) keep(c *Cluster) {
	now := time.Now()
	if now.Before(r.next) || !c.id.Load().NeedsRenewal(now) {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, rpcTimeout)
	defer cancel()
	if err := c.renew(ctx); err != nil {
		r.pause = min(max(2*r.pause, min(renewPause, 5*c.cfg.Timing.Tick)), time.Hour)
		r.next = now.Add(r.pause)
		if r.told == nil {
			r.told = logOnce{}
		}
		r.told.warn(c.log, "the node's certificate cannot be renewed yet", c.Name(), err)
		return
	}
	*r = renewal{}
	c.log.Info("certificate renewed", "expires", c.id.Load().Expires())
}

// renew gets the next certificate from the leader. With one that does not hold
// now nobody would listen, and where all nodes were off for long there would
// never be a leader: so this node, which can open the CA as all can, signs it.
func (c *Cluster) renew(ctx context.Context) error {
	id := c.id.Load()
	csr, err := id.Request()
	if err != nil {
		return err
	}
	if !id.Holds(time.Now()) {
		res, err := c.sign(c.Store().Snapshot(), c.ID(), csr)
		if err != nil {
			return err
		}
		return c.renewed(res)
	}
	res, err := ask(ctx, c, admin.MethodRenew, &RenewRequest{CSR: csr}, func(ctx context.Context, r *RenewRequest) (*RenewResult, error) {
		return c.issue(ctx, c.ID(), r.CSR)
	})
	if err != nil {
		return err
	}
	return c.renewed(res)
}

func (c *Cluster) renewed(res *RenewResult) error {
	return c.replaceIdentity(func(id *trust.Identity) (*trust.Identity, error) {
		return id.Renewed(nil, res.Certificate, res.CAs)
	})
}

// handleRenew gives another node its next certificate, on the leader.
func (c *Cluster) handleRenew(ctx context.Context, req *RenewRequest) (*RenewResult, error) {
	return c.issue(ctx, admin.Caller(ctx).Node, req.CSR)
}

// issue signs a certificate for a member, on the leader.
func (c *Cluster) issue(ctx context.Context, id string, csr []byte) (*RenewResult, error) {
	view, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	return c.sign(view, id, csr)
}

// sign signs a certificate for a member of a view.
func (c *Cluster) sign(view consensus.Snapshot, id string, csr []byte) (*RenewResult, error) {
	r, ok := record(view, id)
	if !ok || !r.member() {
		return nil, admin.Errorf(admin.Forbidden, "node %.40q is no member of this cluster", id)
	}
	req, err := trust.CheckRequest(csr)
	if err != nil || req.NodeID != id {
		return nil, admin.Errorf(admin.Invalid, "the request is not one of node %.40q", id)
	}
	ca, err := c.signer(view)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(req.Public, id, r.Name, time.Now())
	if err != nil {
		return nil, err
	}
	return &RenewResult{CAs: ca.Bundle(), Certificate: leaf}, nil
}

// signer is the CA of now, with its key.
func (c *Cluster) signer(view consensus.Snapshot) (*trust.CA, error) {
	s, _, ok, err := unseal[caSecret](c.Sealer(), view, keyCA)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errors.New("this node does not have the CA yet")
	}
	return trust.ParseCA(s.CA)
}

// nextTickets puts a new key before the others; the oldest goes.
func nextTickets(cur ticketSecret) ticketSecret {
	k := trust.NewTicketKey()
	keys := append([][]byte{k[:]}, cur.Keys...)
	return ticketSecret{Format: recordFormat, Keys: keys[:min(len(keys), maxTickets)]}
}

// maxTickets is how many keys of tickets there are: tickets of the day before
// yesterday still open.
const maxTickets = 3

func (t ticketSecret) keys() (keys [][32]byte) {
	for _, k := range t.Keys {
		if len(k) == 32 {
			keys = append(keys, [32]byte(k))
		}
	}
	return keys
}
