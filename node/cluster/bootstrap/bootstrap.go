// Package bootstrap brings a node that is in no cluster yet into one: it founds a
// cluster (bootstrap.go), forms one with the other nodes of --expect (expect.go,
// charter.go), or joins one (join.go). After a crash at any point the same flags
// resume where the first start ended; the files in the data folder say where
// that was.
package bootstrap

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"penstock/consensus/membership"
	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/cluster/rotation"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// Config has what a Bootstrap needs of its node.
type Config struct {
	Entries   record.Store
	Directory *directory.Directory
	Dir       string // the data folder
	// Expect, Join, Token, TokenTTL, TrustDomain and Voters are those of the node's configuration.
	Expect   int
	Join     []string
	Token    string
	TokenTTL time.Duration
	// TrustDomain is the SPIFFE trust domain of a cluster that is founded or formed, and
	// must be that of one that is joined; "": the cluster's ID, or any.
	TrustDomain string
	Voters      int
	// Retry is the first pause between attempts to join, and the pause between
	// rounds of --expect.
	Retry time.Duration
	// NewIdentity: this start found no identity in the data folder. Opened is
	// when it began.
	NewIdentity bool
	Opened      time.Time

	// SetIdentity replaces the node's identity.
	SetIdentity func(*trust.Identity)
	// OpenStore opens the store of the cluster that the identity names.
	OpenStore func() error
	// Serve has a server answer other nodes; nil: none.
	Serve func(*rpc.Server)
	// AnnounceTo announces this node to the node with that ID.
	AnnounceTo func(ctx context.Context, id string) error

	Waits func(Waiting)
	Audit func(rpc.Event)
	Log   *slog.Logger
}

// Bootstrap is a node on its way into a cluster. One goroutine calls its methods.
type Bootstrap struct {
	Config
	// JoinCommand is the command line, token included, with which other nodes
	// join; "" unless this start founded the cluster.
	JoinCommand string
}

// Errors that end the start of a node.
var (
	// ErrRefused: the cluster does not admit this node, for example because a
	// node of the same name is up.
	ErrRefused = errors.New("the cluster refused this node")
	// ErrForeign: the token, the address or the folder is of another cluster.
	ErrForeign = errors.New("cluster mismatch")
	// ErrToken: the token is not valid, or no longer valid.
	ErrToken = errors.New("token refused")
	// ErrExpect: the nodes that are to form a cluster disagree on --expect, or
	// this node is bound to form another one.
	ErrExpect = errors.New("--expect mismatch")
	// ErrTrustDomain: the cluster has another trust domain than --trust-domain says.
	ErrTrustDomain = errors.New("--trust-domain mismatch")
	// ErrRemoved: the cluster has removed this node.
	ErrRemoved = errors.New("the cluster has removed this node")
)

// ErrRemovedFrom is ErrRemoved with advice for the operator.
var ErrRemovedFrom = fmt.Errorf("%w: to add this machine again, start it with an empty data folder and join", ErrRemoved)

// CheckTrustDomain returns an error if the cluster that id belongs to has another trust
// domain than wanted, the node's --trust-domain; "" wants none.
func CheckTrustDomain(id *trust.Identity, wanted string) error {
	if own := id.TrustDomain(); wanted != "" && own != wanted {
		return fmt.Errorf("%w: --trust-domain %s, but cluster %s has the trust domain %s, which cannot be changed: "+
			"leave the flag out or give that name; for another name form a new cluster with an empty data folder",
			ErrTrustDomain, wanted, id.ClusterID, own)
	}
	return nil
}

// FoundingFile holds the secrets of a cluster from when they are minted until
// its store has them.
const FoundingFile = "founding.json"

// charterFormat is the format of a founding with a charter: a build without
// support for charters must not begin that cluster alone.
const charterFormat = 2

// Founding is a cluster that is being founded. Without a charter no other
// node has heard of it.
type Founding struct {
	Format int    `json:"format"`
	CA     []byte `json:"ca"` // trust.CA.Marshal
	Gossip []byte `json:"gossip"`
	// Token is the text of the first token that nodes join with.
	Token string `json:"token"`

	// The rest is set if N nodes of --expect begin the cluster together.

	Keyring []byte `json:"keyring,omitempty"` // trust.Keyring.Marshal
	// Certificate is this node's own, DER.
	Certificate []byte                `json:"certificate,omitempty"`
	Charter     *membership.Charter   `json:"charter,omitempty"`
	Members     []directory.Candidate `json:"members,omitempty"` // by ID
}

// Save writes the founding to the data folder.
func (m *Founding) Save(dir string) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return datadir.WriteFile(filepath.Join(dir, FoundingFile), data)
}

// expectName is the name of the token of --expect.
const expectName = "expect"

// DefaultTokenTTL is how long the first token is valid unless Config says otherwise.
const DefaultTokenTTL = 24 * time.Hour

// Found founds a cluster of this node alone. Others join with the token of
// --expect if there is one, else with a token that is minted.
//
// N nodes that found a cluster together use a charter (charter.go).
//
// First the secrets are written to FoundingFile, then the identity, then the
// log begins, then one batch holds all first entries, then the file is removed.
// A node that is killed between two steps resumes: without an identity it mints
// everything anew; with one, the file says what to finish.
func (b *Bootstrap) Found(ctx context.Context, expect trust.Token) error {
	if err := b.checkUnbound(); err != nil {
		return err
	}
	f, ca, err := mint(expect, b.TrustDomain, b.TokenTTL)
	if err != nil {
		return err
	}
	if err := f.Save(b.Dir); err != nil {
		return err
	}
	joined, err := certify(b.Entries.Identity(), ca, time.Now())
	if err != nil {
		return err
	}
	if err := joined.Save(b.Dir); err != nil {
		return err
	}
	b.SetIdentity(joined)
	return b.finish(ctx, f, nil)
}

// checkUnbound returns an error if this node has confirmed a charter: it must
// not found another cluster.
func (b *Bootstrap) checkUnbound() error {
	made, err := loadFounding(b.Dir)
	if err != nil || made == nil || made.Charter == nil {
		return err
	}
	return fmt.Errorf("%w: this node has confirmed a cluster with %s: start it with --expect as before, or with an empty data folder",
		ErrExpect, directory.ListNames(made.memberNames(made.Charter.Members)))
}

// mint makes a cluster's secrets. Without a token of --expect it also makes a
// join token, valid for ttl. The trust domain may be "".
func mint(expect trust.Token, trustDomain string, ttl time.Duration) (*Founding, *trust.CA, error) {
	now := time.Now()
	clusterID := trust.NewClusterID()
	ca, err := trust.NewCA(clusterID, trustDomain, now)
	if err != nil {
		return nil, nil, err
	}
	f := &Founding{Format: record.Format, Gossip: trust.NewGossipKey(), Token: expect.Reveal()}
	if f.CA, err = ca.Marshal(); err != nil {
		return nil, nil, err
	}
	if expect.Kind == "" {
		t, _, err := trust.Mint(trust.Join, string(api.RoleJoin), "first", "init", ttl, clusterID, ca.Digest(), now)
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

// loadFounding reads the founding that is to be finished; nil if there is
// none.
func loadFounding(dir string) (*Founding, error) {
	path := filepath.Join(dir, FoundingFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is no error
	}
	if err != nil {
		return nil, err
	}
	var f Founding
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Format != record.Format && (f.Format != charterFormat || f.Charter == nil) {
		return nil, fmt.Errorf("%s: %w: format %d, this build supports %d", path, store.ErrFormat, f.Format, charterFormat)
	}
	return &f, nil
}

// finish completes a founding: it waits until a majority of the voters has
// agreed on the cluster's first entries. forming is nil if this node founds it
// alone.
func (b *Bootstrap) finish(ctx context.Context, f *Founding, forming *formation) error {
	if err := b.OpenStore(); err != nil {
		return err
	}
	voters := f.voters()
	votes := len(voters) == 0 || slices.ContainsFunc(voters, func(s replica.Server) bool { return s.ID == b.Directory.ID() })
	if votes {
		if err := b.Entries.Replica().Bootstrap(voters...); err != nil && !errors.Is(err, replica.ErrState) {
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
	if ca.ClusterID() != b.Entries.Identity().ClusterID {
		return fmt.Errorf("%s: %w: it belongs to cluster %s, the data folder to %s",
			FoundingFile, ErrForeign, ca.ClusterID(), b.Entries.Identity().ClusterID)
	}
	if err := b.awaitFirst(ctx, f, ca, token, forming); err != nil {
		return err
	}
	b.Directory.SetFirstKeys([][]byte{f.Gossip})
	if token.Kind == trust.Join {
		b.JoinCommand = fmt.Sprintf("penstock start --data-dir DIR --join %s --token %s", b.Directory.Address, f.Token)
	}
	if err := b.Directory.OpenGossip(); err != nil {
		return err
	}
	return datadir.RemoveFile(filepath.Join(b.Dir, FoundingFile))
}

// voters returns the voters of the first configuration; none: this node alone.
func (m *Founding) voters() (list []replica.Server) {
	for _, n := range m.Members {
		if slices.Contains(m.Charter.Voters, n.ID) {
			list = append(list, replica.Server{ID: n.ID, Addr: n.Cluster})
		}
	}
	return list
}

// awaitFirst waits until the first entries of the cluster are committed. The
// leader proposes them.
func (b *Bootstrap) awaitFirst(ctx context.Context, f *Founding, ca *trust.CA, token trust.Token, forming *formation) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	agreed := make(chan struct{})
	go func() {
		for snap := b.Entries.Snapshot(); ; {
			if _, ok := snap.Get(record.KeyCluster); ok {
				close(agreed)
				return
			}
			var err error
			if snap, err = b.Entries.Replica().Wait(ctx, snap.Index()); err != nil {
				return
			}
		}
	}()
	rounds := forming.pollPeers(ctx)
	forming.reportWaiting()
	for {
		changes := b.Entries.Replica().Changes()
		if b.Entries.Replica().Leadership().Ready {
			err := b.proposeFirst(ctx, f, ca, token)
			if err != nil && !errors.Is(err, store.ErrNotLeader) && !errors.Is(err, store.ErrUnknown) {
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
				return final(errors.Join(ErrGivenUp, b.resetFolder()))
			}
			if datadir.IsMarkedLeft(b.Dir) { // a member answered an announcement with Removed
				return final(ErrRemovedFrom)
			}
		case <-ctx.Done():
			return fmt.Errorf("the new cluster did not agree on its first entries in time: %w", ctx.Err())
		case <-b.Entries.Replica().Failed():
			return b.Entries.Replica().Err()
		}
	}
}

// proposeFirst proposes the first entries unless they exist. Two leaders may do
// so; the entries that are committed first stand.
func (b *Bootstrap) proposeFirst(ctx context.Context, f *Founding, ca *trust.CA, token trust.Token) error {
	if _, ok := b.Entries.Snapshot().Get(record.KeyCluster); ok {
		return nil
	}
	ops, err := b.firstEntries(f, ca, token)
	if err != nil {
		return err
	}
	if err = b.Entries.Commit(ctx, b.Entries.Identity().Name, "init", ops); errors.Is(err, store.ErrVersion) {
		return nil
	}
	return err
}

// firstEntries returns the entries that a cluster begins with.
func (b *Bootstrap) firstEntries(f *Founding, ca *trust.CA, token trust.Token) ([]store.Op, error) {
	now := time.Now().UTC()
	ring := b.Entries.Sealer()
	var none uint64
	cluster := record.Cluster{Format: record.Format, ID: ca.ClusterID(), Created: now, CAs: ca.Bundle(), Expect: len(f.Members)}
	ops := []store.Op{{Key: record.KeyCluster, Value: record.Marshal(cluster), IfVersion: &none}}
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
		name, by = expectName, b.Entries.Identity().Name
	}
	r, err := token.Record(string(api.RoleJoin), name, by, b.TokenTTL, now)
	if err != nil {
		return nil, err
	}
	tokenValue, err := r.Marshal(ring)
	if err != nil {
		return nil, err
	}
	id := b.Entries.Identity()
	key := id.KeyDigest()
	own := b.Directory.Announcement(0).ApplyTo(record.Node{
		Format: record.Format, ID: id.NodeID, Name: id.Name, Joined: now, Key: hex.EncodeToString(key[:]),
	})
	for _, m := range f.Members {
		if m.ID == b.Directory.ID() {
			continue
		}
		csr, err := trust.CheckRequest(m.CSR)
		if err != nil {
			return nil, err
		}
		r := m.AsMember(now, csr, ca)
		ops = append(ops, store.Op{Key: record.NodeKey(r.ID), Value: record.Marshal(r)})
	}
	return append(ops,
		store.Op{Key: record.KeyCA, Value: caValue},
		store.Op{Key: record.KeyGossip, Value: gossipValue},
		store.Op{Key: record.KeyTickets, Value: tickets},
		store.Op{Key: record.TokenKey(r.ID), Value: tokenValue},
		store.Op{Key: record.NodeKey(b.Directory.ID()), Value: record.Marshal(own)},
	), nil
}
