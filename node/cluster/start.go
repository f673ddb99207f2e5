package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"penstock/consensus/replica"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/datadir"
	"penstock/node/mux"
	"penstock/node/trust"
)

// Open brings the node to its cluster. A folder that belongs to a member opens
// at once, whether or not other nodes are up. A new folder founds a cluster,
// joins one, or forms one with others, until ctx ends. After a crash at any
// point the same call resumes where the first one ended.
func Open(ctx context.Context, cfg Config) (_ *Cluster, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		cfg.Listener.Close()
		return nil, err
	}
	id, fresh, err := openIdentity(cfg)
	if err != nil {
		cfg.Listener.Close()
		return nil, err
	}
	c := newCluster(cfg, id, fresh)
	defer func() {
		if err != nil {
			_ = c.close() // the first error says more
		}
	}()
	// The port opens before the node is in a cluster: nodes that form one call
	// it, and connections that come too early wait (serverWait).
	c.port = mux.New(mux.Config{
		Listener: cfg.Listener, TLS: trust.WithProxies(trust.ServerConfig(c.id.Load), c.proxies.Config()),
		Peer: c.peer, Admin: c.serveAdmin, Log: c.log,
	})
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	c.run()
	return c, nil
}

// openIdentity loads the folder's identity, or creates one; fresh reports that
// it was created.
func openIdentity(cfg Config) (id *trust.Identity, fresh bool, err error) {
	if err := checkNotLeft(cfg); err != nil {
		return nil, false, err
	}
	id, err = trust.LoadIdentity(cfg.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := bootstrap.RemoveBegun(cfg.Dir); err != nil {
			return nil, false, err
		}
		if id, err = trust.NewIdentity(cfg.Name); err != nil {
			return nil, false, err
		}
		// The ID is saved first: a node that is killed while it joins must
		// retry under the same ID.
		return id, true, id.Save(cfg.Dir)
	case err != nil:
		return nil, false, err
	}
	for _, note := range id.Notes {
		cfg.Log.Warn("corrected permissions in the data folder", "note", note)
	}
	if id.Name != cfg.Name {
		id, err = id.WithName(cfg.Name)
	}
	return id, false, err
}

// checkNotLeft refuses the folder of a node that is no longer a member. With
// Config.Rejoin it empties the folder instead.
func checkNotLeft(cfg Config) error {
	text, err := os.ReadFile(filepath.Join(cfg.Dir, datadir.LeftFile))
	switch why := strings.TrimSpace(string(text)); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case cfg.Rejoin:
		cfg.Log.Warn("the node of this data folder is no longer a member: emptying the folder, and starting over as a new node", "why", why)
		return bootstrap.StartOver(cfg.Dir)
	default:
		// An earlier process may have been killed between marking the folder and removing its keys.
		if err := datadir.RemoveLeftIdentity(cfg.Dir); err != nil {
			cfg.Log.Warn("cannot delete the keys of a node that has left", "error", err)
		}
		return fmt.Errorf("%w (%s): to use this machine in a cluster again, start it with another or an empty --data-dir, or with --rejoin",
			ErrLeft, why)
	}
}

// begin opens the store, after the node has founded, formed or joined a cluster
// if it is in none.
func (c *Cluster) begin(ctx context.Context) error {
	switch id := c.id.Load(); {
	case id.Joined():
		return c.reopen(ctx)
	case c.cfg.Init:
		return c.bootstrap.Found(ctx, trust.Token{})
	case c.cfg.Expect > 0:
		return c.bootstrap.Form(ctx)
	case len(c.cfg.Join) > 0 && c.cfg.Token != "":
		return c.bootstrap.JoinCluster(ctx)
	case len(c.cfg.Join) > 0:
		return fmt.Errorf("%w: --join needs --token: create one with penstock token create on a node of the cluster", ErrNew)
	}
	return fmt.Errorf("%w: start with --init to found one, with --join and --token to join one, "+
		"or with --expect to form one with others", ErrNew)
}

// reopen opens the store of a node that is in a cluster, and first finishes a
// founding that was cut short.
func (c *Cluster) reopen(ctx context.Context) error {
	if err := c.checkSameCluster(); err != nil {
		return err
	}
	if resumed, err := c.bootstrap.Resume(ctx); resumed || err != nil {
		return err
	}
	if err := c.Directory.CheckNotRunning(ctx); err != nil {
		return err
	}
	return c.openStore()
}

// checkSameCluster refuses to start a node of one cluster with a token or a trust
// domain of another.
func (c *Cluster) checkSameCluster() error {
	if err := bootstrap.CheckTrustDomain(c.id.Load(), c.cfg.TrustDomain); err != nil {
		return err
	}
	if c.cfg.Token == "" {
		return nil
	}
	t, err := trust.ParseToken(c.cfg.Token)
	if err != nil {
		return fmt.Errorf("--token: %w", err)
	}
	if own := c.ClusterID(); t.ClusterID != "" && t.ClusterID != own {
		return fmt.Errorf("%w: the data folder %s belongs to cluster %s, the token to %s: omit --token, or start with an empty --data-dir",
			bootstrap.ErrForeign, c.cfg.Dir, own, t.ClusterID)
	}
	return nil
}

// raftTimeout bounds each step between Raft's servers
// (replica.Config.Timeout).
const raftTimeout = 10 * time.Second

// openStore counts the start and opens the store. From then on Store has a
// snapshot.
func (c *Cluster) openStore() error {
	id, err := c.id.Load().Start(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	c.id.Store(id)
	dir := filepath.Join(c.cfg.Dir, datadir.RaftDir)
	if err := datadir.CheckLogPresent(c.cfg.Dir); err != nil {
		return err
	}
	store, err := replica.Open(replica.Config{
		ID: id.NodeID, Dir: dir, Streams: c.Directory.Streams(c.port.Raft()), Addr: c.Directory.Address, Log: c.log,
		Heartbeat: c.cfg.Timing.Heartbeat, Election: c.cfg.Timing.Election, Timeout: raftTimeout,
	})
	if errors.Is(err, replica.ErrNoLog) {
		return fmt.Errorf("%w: %s (%w): %s", datadir.ErrNoLog, dir, err, datadir.LostLogAdvice)
	}
	if err != nil {
		return err
	}
	store.SetGroupsDisabled(true) // until this node leads and all members understand groups of batches
	c.replica.Store(store)
	if err := datadir.MarkLogBegun(c.cfg.Dir); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// Close hands the lead over if this node has it, and stops everything. The
// store's last snapshot stays readable.
func (c *Cluster) Close() error {
	if c.Store() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timing.HandOver)
		c.handOver.Do(ctx, false)
		c.Directory.LeaveGossip(ctx)
		cancel()
	}
	return c.close()
}

// close stops everything: it cancels the loops first, since they use all the
// rest, then closes the connections, so that Raft does not wait for a peer, and
// the store last.
func (c *Cluster) close() (err error) {
	c.closed.Do(func() {
		c.cancel()
		err = c.Directory.Close()
		if c.port != nil {
			err = errors.Join(err, c.port.Close())
		}
		if c.Store() != nil {
			err = errors.Join(err, c.Store().Close())
		}
		c.work.Wait()
		if err := datadir.RemoveLeftIdentity(c.cfg.Dir); err != nil { // nothing writes to the folder any more; the next start retries
			c.log.Warn("cannot delete the keys of a node that has left", "error", err)
		}
	})
	return err
}

// run starts the loops that end with Close.
func (c *Cluster) run() {
	c.work.Go(c.follow)
	c.work.Go(c.watchLeader)
	c.work.Go(c.runHousekeeping)
	c.work.Go(c.announce)
	c.work.Go(func() { c.lead.Run(c.ctx) })
	c.work.Go(c.Directory.JoinGossip)
	c.work.Go(c.Directory.ProbeWhileLeaderless)
}
