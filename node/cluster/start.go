package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"penstock/consensus/replica"
	"penstock/node/mux"
	"penstock/node/trust"
)

// leftFile, if it exists, says why the folder's node is no longer a member, and
// keeps the node from starting.
const leftFile = "left"

const (
	// raftDir is the folder of the Raft log.
	raftDir = "raft"
	// logFile, if it exists, records that the log was begun.
	logFile = "log-begun"
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
		Listener: cfg.Listener, TLS: trust.ServerConfig(c.id.Load), Peer: c.peer, Admin: c.serveAdmin, Log: c.log,
	})
	var bookErr error
	if c.addressBook, bookErr = openAddressBook(cfg.Dir); bookErr != nil {
		c.log.Warn("cannot read the remembered peers; starting without them", "error", bookErr)
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	c.run()
	return c, nil
}

// openIdentity loads the folder's identity, or creates one; fresh reports that
// it was created.
func openIdentity(cfg Config) (id *trust.Identity, fresh bool, err error) {
	if why, err := os.ReadFile(filepath.Join(cfg.Dir, leftFile)); err == nil {
		// An earlier process may have been killed between marking the folder and removing its keys.
		if err := removeLeftIdentity(cfg.Dir); err != nil {
			cfg.Log.Warn("cannot delete the keys of a node that has left", "error", err)
		}
		return nil, false, fmt.Errorf("%w (%s): to use this machine in a cluster again, start it with another or an empty --data-dir",
			ErrLeft, strings.TrimSpace(string(why)))
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, false, err
	}
	id, err = trust.LoadIdentity(cfg.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := removeBegun(cfg.Dir); err != nil {
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

// begin opens the store, after the node has founded, formed or joined a cluster
// if it is in none.
func (c *Cluster) begin(ctx context.Context) error {
	switch id := c.id.Load(); {
	case id.Joined():
		return c.reopen(ctx)
	case c.cfg.Init:
		return c.bootstrap(ctx, trust.Token{})
	case c.cfg.Expect > 0:
		return c.expect(ctx)
	case len(c.cfg.Join) > 0 && c.cfg.Token != "":
		return c.joinCluster(ctx)
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
	founding, err := loadBootstrapping(c.cfg.Dir)
	if err != nil {
		return err
	}
	switch {
	case founding != nil && founding.Charter != nil:
		return c.resume(ctx, founding)
	case founding != nil:
		return c.finish(ctx, founding, nil)
	}
	if err := c.checkNotRunning(ctx); err != nil {
		return err
	}
	return c.openStore()
}

// checkSameCluster refuses to start a node of one cluster with a token of
// another.
func (c *Cluster) checkSameCluster() error {
	if c.cfg.Token == "" {
		return nil
	}
	t, err := trust.ParseToken(c.cfg.Token)
	if err != nil {
		return fmt.Errorf("--token: %w", err)
	}
	if own := c.ClusterID(); t.ClusterID != "" && t.ClusterID != own {
		return fmt.Errorf("%w: the data folder %s belongs to cluster %s, the token to %s: omit --token, or start with an empty --data-dir",
			ErrForeign, c.cfg.Dir, own, t.ClusterID)
	}
	return nil
}

// openStore counts the start and opens the store. From then on Store has a
// snapshot.
func (c *Cluster) openStore() error {
	id, err := c.id.Load().Start(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	c.id.Store(id)
	dir := filepath.Join(c.cfg.Dir, raftDir)
	if err := checkLogPresent(c.cfg.Dir); err != nil {
		return err
	}
	r, err := replica.Open(replica.Config{
		ID: id.NodeID, Dir: dir, Streams: streams{c.port.Raft(), c}, Addr: c.Address(), Log: c.log,
		Heartbeat: c.cfg.Timing.Heartbeat, Election: c.cfg.Timing.Election, Timeout: raftTimeout,
	})
	if errors.Is(err, replica.ErrNoLog) {
		return fmt.Errorf("%w: %s (%w): %s", ErrNoLog, dir, err, lostLogAdvice)
	}
	if err != nil {
		return err
	}
	r.SetGroupsDisabled(true) // until this node leads and all members understand groups of batches
	c.replica.Store(r)
	if err := markLogBegun(c.cfg.Dir); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

const lostLogAdvice = "it recorded this node's votes: remove the node from the cluster (penstock remove), " +
	"then join it as a new one with an empty data folder"

// checkLogPresent refuses to begin a second log after the node has lost its
// first: it would vote without its earlier votes, and entries committed with
// those could be lost.
func checkLogPresent(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, logFile)); err != nil {
		return nil //nolint:nilerr // there was none, as far as is known
	}
	log := filepath.Join(dir, raftDir, "raft.db")
	if info, err := os.Stat(log); errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return fmt.Errorf("%w: %s: %s", ErrNoLog, log, lostLogAdvice)
	}
	return nil
}

// markLogBegun records that the log was begun.
func markLogBegun(dir string) error {
	path := filepath.Join(dir, logFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	return writeFile(path, []byte("The node's log is in "+raftDir+". Without it the node must not start again.\n"))
}

// markLeft keeps the folder's node from starting again.
func (c *Cluster) markLeft(why string) error {
	return writeFile(filepath.Join(c.cfg.Dir, leftFile), []byte(why+"\n"))
}

// isMarkedLeft reports whether the folder is marked as that of a former member.
func isMarkedLeft(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, leftFile))
	return err == nil
}

// removeLeftIdentity removes the identity from a folder that is marked as left:
// its keys open the cluster's secrets and are no longer needed. An unmarked
// folder keeps them, since its node would come back as another one.
func removeLeftIdentity(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, leftFile)); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return trust.Forget(dir)
}

// Close hands the lead over if this node has it, and stops everything. The
// store's last snapshot stays readable.
func (c *Cluster) Close() error {
	if c.Store() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timing.HandOver)
		c.transferLead(ctx, false)
		c.leaveGossip(ctx)
		cancel()
	}
	return c.close()
}

// leaveGossip announces that this node stops: the others need not detect it,
// and accept it at another address as soon as it returns.
func (c *Cluster) leaveGossip(ctx context.Context) {
	if g := c.gossiping(); g != nil {
		if err := g.Leave(ctx); err != nil {
			c.log.Debug("cannot announce to gossip that this node stops", "error", err)
		}
	}
}

// close stops everything: it cancels the loops first, since they use all the
// rest, then closes the connections, so that Raft does not wait for a peer, and
// the store last.
func (c *Cluster) close() (err error) {
	c.closed.Do(func() {
		c.cancel()
		c.pool.Close()
		if g := c.gossiping(); g != nil {
			err = errors.Join(err, g.Close())
		}
		if c.port != nil {
			err = errors.Join(err, c.port.Close())
		}
		if c.Store() != nil {
			err = errors.Join(err, c.Store().Close())
		}
		c.work.Wait()
		if err := removeLeftIdentity(c.cfg.Dir); err != nil { // nothing writes to the folder any more; the next start retries
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
	c.work.Go(c.lead)
	c.work.Go(c.joinGossip)
	c.work.Go(c.probeWhileLeaderless)
}
