package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/node/trust"
)

// foundingFile holds the secrets of a cluster from when they are minted until
// they stand in its store.
const foundingFile = "founding.json"

// founding is a cluster that is being founded: nobody else has heard of it.
type founding struct {
	Format int    `json:"format"`
	CA     []byte `json:"ca"` // trust.CA.Marshal
	Gossip []byte `json:"gossip"`
	// Token is the text of the first token that nodes join with.
	Token string `json:"token"`
}

// firstTTL is how long the first token can be joined with.
const firstTTL = 24 * time.Hour

// found founds a cluster of this node alone. With a token of --expect, others
// join with that one; else a token is made.
//
// First the secrets are written where only this node finds them, then the
// identity, then the log begins, then all of it is one batch, then the file
// goes. A node that is killed between two of these goes on from the last: as
// long as the identity does not stand, everything is minted anew; afterwards
// the file says that there is something to finish.
func (c *Cluster) found(ctx context.Context, expect trust.Token) error {
	now := time.Now()
	id := c.id.Load()
	clusterID := trust.NewClusterID()
	ca, err := trust.NewCA(clusterID, now)
	if err != nil {
		return err
	}
	f := &founding{Format: recordFormat, Gossip: trust.NewGossipKey()}
	if f.CA, err = ca.Marshal(); err != nil {
		return err
	}
	f.Token = expect.Reveal()
	if expect.Kind == "" {
		t, _, err := trust.Mint(trust.Join, string(admin.RoleJoin), "first", "init", firstTTL, clusterID, ca.Digest(), now)
		if err != nil {
			return err
		}
		f.Token = t.Reveal()
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(c.cfg.Dir, foundingFile), data); err != nil {
		return err
	}
	joined, err := certify(id, ca, now)
	if err != nil {
		return err
	}
	if err := joined.Save(c.cfg.Dir); err != nil {
		return err
	}
	c.id.Store(joined)
	return c.finish(ctx, f)
}

// certify makes a node the first of its cluster.
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

// loadFounding reads what is to be finished; nil: nothing.
func loadFounding(dir string) (*founding, error) {
	path := filepath.Join(dir, foundingFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is no error
	}
	if err != nil {
		return nil, err
	}
	var f founding
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Format != recordFormat {
		return nil, fmt.Errorf("%s: %w: it has format %d, this build knows %d", path, consensus.ErrFormat, f.Format, recordFormat)
	}
	return &f, nil
}

// finish brings a cluster that is being founded to its end.
func (c *Cluster) finish(ctx context.Context, f *founding) error {
	if err := c.openStore(); err != nil {
		return err
	}
	if err := c.Store().Bootstrap(); err != nil && !errors.Is(err, consensus.ErrState) {
		return err
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
		return fmt.Errorf("%s: %w: it is of cluster %s, the folder of %s", foundingFile, ErrForeign, ca.ClusterID(), c.ClusterID())
	}
	if err := c.waitLead(ctx); err != nil {
		return fmt.Errorf("the new cluster has no leader: %w", err)
	}
	if _, ok := c.Store().View().Get(keyCluster); !ok {
		ops, err := c.firstEntries(f, ca, token)
		if err != nil {
			return err
		}
		if err := c.commit(ctx, c.Name(), "init", ops); err != nil {
			return fmt.Errorf("the first entries of the cluster: %w", err)
		}
	}
	c.mu.Lock()
	c.keys = [][]byte{f.Gossip}
	if token.Kind == trust.Join {
		c.join = fmt.Sprintf("penstock start --data-dir DIR --join %s --token %s", c.Address(), f.Token)
	}
	c.mu.Unlock()
	if err := c.openGossip(); err != nil {
		return err
	}
	return removeFile(filepath.Join(c.cfg.Dir, foundingFile))
}

// firstEntries are what a cluster begins with.
func (c *Cluster) firstEntries(f *founding, ca *trust.CA, token trust.Token) ([]consensus.Op, error) {
	now := time.Now().UTC()
	ring := c.Sealer()
	var none uint64
	cluster := clusterRecord{Format: recordFormat, ID: ca.ClusterID(), Created: now, CAs: ca.Bundle()}
	ops := []consensus.Op{{Key: keyCluster, Value: marshal(cluster), IfVersion: &none}}
	caValue, err := seal(ring, keyCA, caSecret{Format: recordFormat, CA: f.CA})
	if err != nil {
		return nil, err
	}
	gossipValue, err := seal(ring, keyGossip, gossipSecret{Format: recordFormat, Keys: [][]byte{f.Gossip}})
	if err != nil {
		return nil, err
	}
	tickets, err := seal(ring, keyTickets, nextTickets(ticketSecret{}))
	if err != nil {
		return nil, err
	}
	name, by := "first", "init"
	if token.Kind != trust.Join { // made without a node, and given to all
		name, by = "expect", c.Name()
	}
	r, err := token.Record(string(admin.RoleJoin), name, by, firstTTL, now)
	if err != nil {
		return nil, err
	}
	tokenValue, err := r.Marshal(ring)
	if err != nil {
		return nil, err
	}
	own := c.announcement().onto(Record{Format: recordFormat, ID: c.ID(), Name: c.Name(), Joined: now, Key: c.keyDigest()})
	return append(ops,
		consensus.Op{Key: keyCA, Value: caValue},
		consensus.Op{Key: keyGossip, Value: gossipValue},
		consensus.Op{Key: keyTickets, Value: tickets},
		consensus.Op{Key: keyToken(r.ID), Value: tokenValue},
		consensus.Op{Key: keyNode(c.ID()), Value: marshal(own)},
	), nil
}
