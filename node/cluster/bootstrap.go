package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"penstock/consensus"
	"penstock/consensus/membership"
	"penstock/node/api"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/cluster/rotation"
	"penstock/node/trust"
)

// foundingFile holds the secrets of a cluster from when they are minted until
// its store has them.
const foundingFile = "founding.json"

// charterFormat is the format of a founding with a charter: a build without
// support for charters must not begin that cluster alone.
const charterFormat = 2

// bootstrapping is a cluster that is being founded. Without a charter no other
// node has heard of it.
type bootstrapping struct {
	Format int    `json:"format"`
	CA     []byte `json:"ca"` // trust.CA.Marshal
	Gossip []byte `json:"gossip"`
	// Token is the text of the first token that nodes join with.
	Token string `json:"token"`

	// The rest is set if N nodes of --expect begin the cluster together.

	Keyring []byte `json:"keyring,omitempty"` // trust.Keyring.Marshal
	// Certificate is this node's own, DER.
	Certificate []byte              `json:"certificate,omitempty"`
	Charter     *membership.Charter `json:"charter,omitempty"`
	Members     []Candidate         `json:"members,omitempty"` // by ID
}

// save writes the founding to the data folder.
func (m *bootstrapping) save(dir string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return datadir.WriteFile(filepath.Join(dir, foundingFile), data)
}

// expectName is the name of the token of --expect.
const expectName = "expect"

// firstTTL is how long the first token is valid.
const firstTTL = 24 * time.Hour

// bootstrap founds a cluster of this node alone. Others join with the token of
// --expect if there is one, else with a token that is minted.
//
// N nodes that found a cluster together use a charter (charter.go).
//
// First the secrets are written to foundingFile, then the identity, then the
// log begins, then one batch holds all first entries, then the file is removed.
// A node that is killed between two steps resumes: without an identity it mints
// everything anew; with one, the file says what to finish.
func (c *Cluster) bootstrap(ctx context.Context, expect trust.Token) error {
	if err := c.checkUnbound(); err != nil {
		return err
	}
	f, ca, err := c.mint(expect)
	if err != nil {
		return err
	}
	if err := f.save(c.cfg.Dir); err != nil {
		return err
	}
	joined, err := certify(c.id.Load(), ca, time.Now())
	if err != nil {
		return err
	}
	if err := joined.Save(c.cfg.Dir); err != nil {
		return err
	}
	c.id.Store(joined)
	return c.finish(ctx, f, nil)
}

// checkUnbound returns an error if this node has confirmed a charter: it must
// not found another cluster.
func (c *Cluster) checkUnbound() error {
	made, err := loadBootstrapping(c.cfg.Dir)
	if err != nil || made == nil || made.Charter == nil {
		return err
	}
	return fmt.Errorf("%w: this node has confirmed a cluster with %s: start it with --expect as before, or with an empty data folder",
		ErrExpect, directory.ListNames(made.memberNames(made.Charter.Members)))
}

// mint makes a cluster's secrets. Without a token of --expect it also makes a
// join token.
func (c *Cluster) mint(expect trust.Token) (*bootstrapping, *trust.CA, error) {
	now := time.Now()
	clusterID := trust.NewClusterID()
	ca, err := trust.NewCA(clusterID, now)
	if err != nil {
		return nil, nil, err
	}
	f := &bootstrapping{Format: record.Format, Gossip: trust.NewGossipKey(), Token: expect.Reveal()}
	if f.CA, err = ca.Marshal(); err != nil {
		return nil, nil, err
	}
	if expect.Kind == "" {
		t, _, err := trust.Mint(trust.Join, string(api.RoleJoin), "first", "init", firstTTL, clusterID, ca.Digest(), now)
		if err != nil {
			return nil, nil, err
		}
		f.Token = t.Reveal()
	}
	return f, ca, nil
}

// certify issues the certificate of a cluster's first node, and returns the
// node's identity in that cluster.
func certify(id *trust.Identity, ca *trust.CA, now time.Time) (*trust.Identity, error) {
	csr, err := id.Request()
	if err != nil {
		return nil, err
	}
	r, err := trust.CheckRequest(csr)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(r.Public, r.NodeID, r.Name, now)
	if err != nil {
		return nil, err
	}
	ring, err := trust.NewKeyring()
	if err != nil {
		return nil, err
	}
	return id.Join(ca.ClusterID(), leaf, ca.Bundle(), ring)
}

// loadBootstrapping reads the founding that is to be finished; nil if there is
// none.
func loadBootstrapping(dir string) (*bootstrapping, error) {
	path := filepath.Join(dir, foundingFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is no error
	}
	if err != nil {
		return nil, err
	}
	var f bootstrapping
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Format != record.Format && (f.Format != charterFormat || f.Charter == nil) {
		return nil, fmt.Errorf("%s: %w: format %d, this build supports %d", path, consensus.ErrFormat, f.Format, charterFormat)
	}
	return &f, nil
}

// finish completes a founding: it waits until a majority of the voters has
// agreed on the cluster's first entries. forming is nil if this node founds it
// alone.
func (c *Cluster) finish(ctx context.Context, f *bootstrapping, forming *formation) error {
	if err := c.openStore(); err != nil {
		return err
	}
	voters := f.voters()
	votes := len(voters) == 0 || slices.ContainsFunc(voters, func(s consensus.Server) bool { return s.ID == c.ID() })
	if votes {
		if err := c.Store().Bootstrap(voters...); err != nil && !errors.Is(err, consensus.ErrState) {
			return err
		}
	}
	ca, err := trust.ParseCA(f.CA)
	if err != nil {
		return err
	}
	token, err := trust.ParseToken(f.Token)
	if err != nil {
		return err
	}
	if ca.ClusterID() != c.ClusterID() {
		return fmt.Errorf("%s: %w: it belongs to cluster %s, the data folder to %s", foundingFile, ErrForeign, ca.ClusterID(), c.ClusterID())
	}
	if err := c.awaitFirst(ctx, f, ca, token, forming); err != nil {
		return err
	}
	c.Directory.SetFirstKeys([][]byte{f.Gossip})
	if token.Kind == trust.Join {
		c.mu.Lock()
		c.join = fmt.Sprintf("penstock start --data-dir DIR --join %s --token %s", c.Directory.Address, f.Token)
		c.mu.Unlock()
	}
	if err := c.Directory.OpenGossip(); err != nil {
		return err
	}
	return datadir.RemoveFile(filepath.Join(c.cfg.Dir, foundingFile))
}

// voters returns the voters of the first configuration; none: this node alone.
func (m *bootstrapping) voters() (list []consensus.Server) {
	for _, n := range m.Members {
		if slices.Contains(m.Charter.Voters, n.ID) {
			list = append(list, consensus.Server{ID: n.ID, Addr: n.Cluster})
		}
	}
	return list
}

// awaitFirst waits until the first entries of the cluster are committed. The
// leader proposes them.
func (c *Cluster) awaitFirst(ctx context.Context, f *bootstrapping, ca *trust.CA, token trust.Token, forming *formation) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	agreed := make(chan struct{})
	go func() {
		for snap := c.Store().Snapshot(); ; {
			if _, ok := snap.Get(record.KeyCluster); ok {
				close(agreed)
				return
			}
			var err error
			if snap, err = c.Store().Wait(ctx, snap.Index()); err != nil {
				return
			}
		}
	}()
	rounds := forming.pollPeers(ctx)
	forming.reportWaiting()
	for {
		changes := c.Store().Changes()
		if c.Store().Leadership().Ready {
			err := c.proposeFirst(ctx, f, ca, token)
			if err != nil && !errors.Is(err, consensus.ErrNotLeader) && !errors.Is(err, consensus.ErrUnknown) {
				return fmt.Errorf("cannot commit the first entries of the cluster: %w", err)
			}
		}
		select {
		case <-agreed:
			return nil
		case <-changes:
		case <-rounds:
			forming.reportWaiting()
			if forming.abandoned() {
				return final(errors.Join(ErrGivenUp, c.resetFolder()))
			}
			if datadir.IsMarkedLeft(c.cfg.Dir) { // a member answered an announcement with Removed
				return final(errRemovedFrom)
			}
		case <-ctx.Done():
			return fmt.Errorf("the new cluster did not agree on its first entries in time: %w", ctx.Err())
		case <-c.Store().Failed():
			return c.Store().Err()
		}
	}
}

// proposeFirst proposes the first entries unless they exist. Two leaders may do
// so; the entries that are committed first stand.
func (c *Cluster) proposeFirst(ctx context.Context, f *bootstrapping, ca *trust.CA, token trust.Token) error {
	if _, ok := c.Store().Snapshot().Get(record.KeyCluster); ok {
		return nil
	}
	ops, err := c.firstEntries(f, ca, token)
	if err != nil {
		return err
	}
	if err = c.entries.Commit(ctx, c.Name(), "init", ops); errors.Is(err, consensus.ErrVersion) {
		return nil
	}
	return err
}

// firstEntries returns the entries that a cluster begins with.
func (c *Cluster) firstEntries(f *bootstrapping, ca *trust.CA, token trust.Token) ([]consensus.Op, error) {
	now := time.Now().UTC()
	ring := c.Sealer()
	var none uint64
	cluster := record.Cluster{Format: record.Format, ID: ca.ClusterID(), Created: now, CAs: ca.Bundle(), Expect: len(f.Members)}
	ops := []consensus.Op{{Key: record.KeyCluster, Value: record.Marshal(cluster), IfVersion: &none}}
	caValue, err := record.Seal(ring, record.KeyCA, record.CASecret{Format: record.Format, CA: f.CA})
	if err != nil {
		return nil, err
	}
	gossipValue, err := record.Seal(ring, record.KeyGossip, record.GossipSecret{Format: record.Format, Keys: [][]byte{f.Gossip}})
	if err != nil {
		return nil, err
	}
	tickets, err := record.Seal(ring, record.KeyTickets, rotation.NextTickets(record.TicketSecret{}))
	if err != nil {
		return nil, err
	}
	name, by := "first", "init"
	if token.Kind != trust.Join { // made in advance and given to all nodes
		name, by = expectName, c.Name()
	}
	r, err := token.Record(string(api.RoleJoin), name, by, firstTTL, now)
	if err != nil {
		return nil, err
	}
	tokenValue, err := r.Marshal(ring)
	if err != nil {
		return nil, err
	}
	own := c.announcement().applyTo(record.Node{Format: record.Format, ID: c.ID(), Name: c.Name(), Joined: now, Key: c.keyDigest()})
	for _, m := range f.Members {
		if m.ID == c.ID() {
			continue
		}
		csr, err := trust.CheckRequest(m.CSR)
		if err != nil {
			return nil, err
		}
		r := m.asMember(now, csr, ca)
		ops = append(ops, consensus.Op{Key: record.NodeKey(r.ID), Value: record.Marshal(r)})
	}
	return append(ops,
		consensus.Op{Key: record.KeyCA, Value: caValue},
		consensus.Op{Key: record.KeyGossip, Value: gossipValue},
		consensus.Op{Key: record.KeyTickets, Value: tickets},
		consensus.Op{Key: record.TokenKey(r.ID), Value: tokenValue},
		consensus.Op{Key: record.NodeKey(c.ID()), Value: record.Marshal(own)},
	), nil
}
