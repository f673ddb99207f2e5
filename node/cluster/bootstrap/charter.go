package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"penstock/consensus/membership"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// N nodes of --expect begin one cluster with one configuration.
// membership.Charter describes the protocol and what a crash leaves behind;
// this file has its messages and its state on disk: founding.json binds a node
// to a charter, renounced.json bars it from charters that it has given up, and
// an identity with a cluster's ID records that it has begun.

// CharterRequest offers a charter to one of its members. It is sent only to a
// node that has proven that it knows the token.
type CharterRequest struct {
	TokenID string `json:"tokenID"`
	Proof   []byte `json:"proof"`
	// Founding is what the member writes to its disk, its certificate included.
	Founding Founding `json:"founding"`
}

// renouncedFile holds the charters that this node will never begin. It is kept
// for nodes that began one of them and were away (FormView.Renounced).
const renouncedFile = "renounced.json"

type renouncedRecord struct {
	Format   int                    `json:"format"`
	Charters []membership.Renounced `json:"charters"`
}

// ErrGivenUp means that the other nodes gave up the cluster that this node began, before
// it had agreed on anything.
var ErrGivenUp = errors.New("the other nodes abandoned the cluster that this node began; nothing had been committed, " +
	"and the data folder was reset: start the node again")

// LoadRenounced reads the charters that the folder's node has renounced.
func LoadRenounced(dir string) ([]membership.Renounced, error) {
	path := filepath.Join(dir, renouncedFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r renouncedRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != record.Format {
		return nil, fmt.Errorf("%s: %w: format %d, this build supports %d", path, store.ErrFormat, r.Format, record.Format)
	}
	return r.Charters, nil
}

// SaveRenounced records the charters that the folder's node has renounced.
func SaveRenounced(dir string, all []membership.Renounced) error {
	data, err := json.Marshal(renouncedRecord{record.Format, all})
	if err != nil {
		return err
	}
	return datadir.WriteFile(filepath.Join(dir, renouncedFile), data)
}

// restore reads the charters that earlier processes of this node renounced, and
// the one that it is bound to.
func (f *formation) restore() error {
	var err error
	if f.renounced, err = LoadRenounced(f.b.Dir); err != nil {
		return err
	}
	made, err := loadFounding(f.b.Dir)
	if err != nil || made == nil {
		return err
	}
	if made.Charter == nil || slices.ContainsFunc(f.renounced, func(r membership.Renounced) bool { return r.Same(*made.Charter) }) {
		// The earlier process was killed before it could begin alone, or
		// between the two steps of renounce.
		return datadir.RemoveFile(filepath.Join(f.b.Dir, FoundingFile))
	}
	token, err := trust.ParseToken(made.Token)
	if err != nil {
		return err
	}
	if token.ID != f.token.ID {
		return final(fmt.Errorf("%w: this node has confirmed a cluster formed with another token: "+
			"start it with that token, or with an empty data folder", ErrToken))
	}
	f.bind(made)
	return nil
}

// bind binds this node to a founding that is already on its disk.
func (f *formation) bind(made *Founding) {
	f.bound, f.boundAt, f.pledged = made, time.Now(), ""
	for _, m := range made.Members {
		if m.Cluster != f.b.Directory.Address && !slices.Contains(f.addrs, m.Cluster) && len(f.addrs) < directory.MaxPeers {
			f.addrs = append(f.addrs, m.Cluster)
		}
	}
}

// createCharter mints the cluster that this node begins with the nodes ids, and
// writes it to the disk.
func (f *formation) createCharter(ids []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bound != nil { // an offer was accepted since the decision
		return fmt.Errorf("this node has just confirmed another cluster, of %s",
			directory.ListNames(f.bound.memberNames(f.bound.Charter.Members)))
	}
	var members []directory.Candidate
	for _, id := range ids {
		m := f.views[id].view.candidate()
		if id == f.b.Directory.ID() {
			var err error
			if m, err = f.b.Directory.OwnCandidate(); err != nil {
				return err
			}
		}
		if m.ID != id {
			return fmt.Errorf("node %.40s at %s sent a certificate request for node %.40s named %.60s", id, m.Cluster, m.ID, m.Name)
		}
		members = append(members, m)
	}
	made, err := NewFounding(f.token, f.b.TrustDomain, f.b.Directory.ID(), members, f.b.Voters)
	if err != nil {
		return err
	}
	if err := made.Save(f.b.Dir); err != nil {
		return err
	}
	f.bind(made)
	return nil
}

// NewFounding mints the cluster that the node by begins with the members, sorted
// by ID, at most voters of which vote. The certificate is that of by.
func NewFounding(token trust.Token, trustDomain, by string, members []directory.Candidate, voters int) (*Founding, error) {
	made, ca, err := mint(token, trustDomain, 0) // the token exists already
	if err != nil {
		return nil, err
	}
	ring, err := trust.NewKeyring()
	if err != nil {
		return nil, err
	}
	made.Format, made.Keyring, made.Members = charterFormat, ring.Marshal(), members
	names := map[string]string{}
	var ids []string
	for _, m := range members {
		r, err := trust.CheckRequest(m.CSR)
		if err != nil {
			return nil, fmt.Errorf("invalid certificate request of node %.40s at %s: %w", m.ID, m.Cluster, err)
		}
		if r.NodeID != m.ID || r.Name != m.Name {
			return nil, fmt.Errorf("node %.40s at %s sent a certificate request for node %.40s named %.60s", m.ID, m.Cluster, r.NodeID, r.Name)
		}
		if other, taken := names[m.Name]; taken {
			return nil, fmt.Errorf("the nodes at %s and %s are both named %s: give one of them another --name", other, m.Cluster, m.Name)
		}
		names[m.Name] = m.Cluster
		ids = append(ids, m.ID)
	}
	made.Charter = &membership.Charter{
		Cluster: ca.ClusterID(), By: by, Members: ids, Voters: membership.InitialVoters(ids, voters),
	}
	made.Certificate, err = made.IssueCertificate(by)
	return made, err
}

// IssueCertificate signs a member's certificate.
func (m *Founding) IssueCertificate(id string) ([]byte, error) {
	ca, err := trust.ParseCA(m.CA)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Members, func(c directory.Candidate) bool { return c.ID == id })
	r, err := trust.CheckRequest(m.Members[i].CSR)
	if err != nil {
		return nil, err
	}
	return ca.Issue(r.Public, r.NodeID, r.Name, time.Now())
}

// offerAll offers the charter to the members ids, all at once; news: one has
// accepted it.
func (f *formation) offerAll(ctx context.Context, ids []string) (news bool) {
	ctx, cancel := context.WithTimeout(ctx, membership.ActWithin/2)
	defer cancel()
	f.mu.Lock()
	made := f.bound
	f.mu.Unlock()
	var all sync.WaitGroup
	answers := make(chan bool, len(ids))
	for _, id := range ids {
		i := slices.IndexFunc(made.Members, func(c directory.Candidate) bool { return c.ID == id })
		addrs := []string{made.Members[i].Cluster}
		f.mu.Lock()
		if a := f.views[id].view.Addr; a != "" && a != addrs[0] {
			addrs = []string{a} // it has moved since
		}
		f.mu.Unlock()
		all.Go(func() {
			err := f.offer(ctx, id, addrs[0], *made)
			if err != nil {
				f.mu.Lock()
				f.logged.Warn(f.b.Log, "a node has not confirmed the first members of the cluster yet", addrs[0], err)
				f.mu.Unlock()
			}
			answers <- err == nil
		})
	}
	all.Wait()
	close(answers)
	for ok := range answers {
		news = news || ok
	}
	return news
}

// offer offers the charter to one member. It sends the secrets only after the
// node has proven on this connection that it knows the token.
func (f *formation) offer(ctx context.Context, id, addr string, made Founding) error {
	when := time.Now()
	client, err := rpc.DialConfig{TLS: trust.JoinConfig()}.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer client.Close()
	view, proof, err := f.exchange(ctx, client, when)
	if err != nil {
		return err
	}
	if view.ID != id {
		return fmt.Errorf("node %.40s answered instead of %s", view.ID, id)
	}
	if made.Certificate, err = made.IssueCertificate(id); err != nil {
		return err
	}
	res, err := rpc.Call[FormResult](ctx, client, api.MethodCharter, &CharterRequest{TokenID: f.token.ID, Proof: proof, Founding: made})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.views[id] = peerView{res.View, when}
	return nil
}

// handleCharter accepts a charter that another node offers, or returns why not.
func (f *formation) handleCharter(ctx context.Context, req *CharterRequest) (*FormResult, error) {
	cs := rpc.TLS(ctx)
	if req.TokenID != f.token.ID || trust.Check(f.key, trust.Dialer, cs, req.Proof) != nil {
		return nil, f.otherToken()
	}
	proof, err := trust.Prove(f.key, trust.Acceptor, cs)
	if err != nil {
		return nil, err
	}
	rpc.SetAuditPrincipal(ctx, api.Principal{Name: expectName, Role: api.RoleJoin, TokenID: f.token.ID})
	if c := req.Founding.Charter; c != nil {
		rpc.Summarize(ctx, "form cluster %.40s with %s", c.Cluster, directory.ListNames(req.Founding.memberNames(c.Members)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if err := f.accept(&req.Founding, now); err != nil {
		return nil, err
	}
	return &FormResult{Proof: proof, View: f.ownView(now)}, nil
}

// accept binds this node to a charter, or returns why not. The caller holds
// f.mu.
func (f *formation) accept(made *Founding, now time.Time) error {
	if made.Charter == nil {
		return api.Errorf(api.Invalid, "the request has no charter")
	}
	if err := membership.CheckAccept(f.asPeer(now), f.peers(now), *made.Charter); err != nil {
		return api.Errorf(api.Refused, "%s rejected the charter: %v", f.b.Entries.Identity().Name, err)
	}
	if f.bound != nil {
		return nil // already bound to this charter
	}
	if f.joining {
		return api.Errorf(api.Refused, "%s rejected the charter: it is joining an existing cluster", f.b.Entries.Identity().Name)
	}
	if err := made.check(f.b.Entries.Identity()); err != nil {
		return api.Errorf(api.Invalid, "%v", err)
	}
	if err := made.Save(f.b.Dir); err != nil {
		return api.Errorf(api.Unavailable, "%s cannot save the charter: %v", f.b.Entries.Identity().Name, err)
	}
	f.bind(made)
	f.b.Log.Info("confirmed the first members of the cluster", "cluster", made.Charter.Cluster,
		"members", made.memberNames(made.Charter.Members), "voters", made.memberNames(made.Charter.Voters))
	f.notify()
	return nil
}

// check verifies a founding that another node made.
func (m *Founding) check(own *trust.Identity) error {
	ca, err := trust.ParseCA(m.CA)
	if err != nil {
		return err
	}
	if m.Format != charterFormat || ca.ClusterID() != m.Charter.Cluster || len(m.Members) != len(m.Charter.Members) {
		return errors.New("the charter does not match its CA or its members")
	}
	for i, n := range m.Members {
		r, err := trust.CheckRequest(n.CSR)
		if err != nil || r.NodeID != n.ID || r.Name != n.Name || n.ID != m.Charter.Members[i] || !n.Reachable() {
			return fmt.Errorf("member %.40s has an invalid address or certificate request", n.ID)
		}
	}
	if token, err := trust.ParseToken(m.Token); err != nil || token.Kind != trust.Expect {
		return errors.New("the charter has no --expect token")
	}
	_, err = m.Identity(own)
	return err
}

// Identity returns a member's identity in the cluster of a charter; own is the
// one that it has had so far.
func (m *Founding) Identity(own *trust.Identity) (*trust.Identity, error) {
	ca, err := trust.ParseCA(m.CA)
	if err != nil {
		return nil, err
	}
	ring, err := trust.ParseKeyring(m.Keyring)
	if err != nil {
		return nil, err
	}
	return own.Join(m.Charter.Cluster, m.Certificate, ca.Bundle(), ring)
}

// memberNames returns the names of members by their IDs.
func (m *Founding) memberNames(ids []string) (names []string) {
	for _, n := range m.Members {
		if slices.Contains(ids, n.ID) {
			names = append(names, n.Name)
		}
	}
	return names
}

// renounce records on the disk that this node will never begin a charter, and
// then removes the secrets.
func (f *formation) renounce(c membership.Charter) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.renounced) >= membership.MaxRenounced {
		return fmt.Errorf("this node has given up %d attempts to form a cluster, the limit: "+
			"start it with an empty data folder", len(f.renounced))
	}
	next := append(slices.Clone(f.renounced), membership.Renounce(f.b.Directory.ID(), c))
	if err := SaveRenounced(f.b.Dir, next); err != nil {
		return err
	}
	f.renounced, f.pledged = next, ""
	if f.bound != nil && f.bound.Charter.Same(c) {
		f.bound = nil
		return datadir.RemoveFile(filepath.Join(f.b.Dir, FoundingFile))
	}
	return nil
}

// updateRenounced records what other nodes report about charters that this node
// has renounced.
func (f *formation) updateRenounced() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next, news := membership.MergeRenounced(f.renounced, f.peers(time.Now()))
	if !news {
		return nil
	}
	if err := SaveRenounced(f.b.Dir, next); err != nil {
		return err
	}
	f.renounced = next
	return nil
}

// begin begins the cluster that all members have accepted. Once the identity is
// on the disk, the node is in that cluster.
func (f *formation) begin(ctx context.Context) error {
	f.mu.Lock()
	made := f.bound
	f.mu.Unlock()
	if !f.b.Entries.Identity().Joined() {
		joined, err := made.Identity(f.b.Entries.Identity())
		if err != nil {
			return err
		}
		if err := joined.Save(f.b.Dir); err != nil {
			return err
		}
		f.b.SetIdentity(joined)
	}
	f.mu.Lock()
	f.formed = f.b.Entries.Identity().ClusterID
	f.mu.Unlock()
	var peers []directory.Peer
	for _, m := range made.Members {
		if m.ID != f.b.Directory.ID() {
			p := directory.Peer{ID: m.ID, Name: m.Name, Cluster: m.Cluster, Gossip: m.Gossip}
			peers = append(peers, p)
			f.b.Directory.Book.AddReported(p)
		}
	}
	if err := f.b.Directory.Book.Remember(peers); err != nil {
		return err
	}
	f.b.Log.Info("starting the cluster", "cluster", f.b.Entries.Identity().ClusterID, "voters", made.memberNames(made.Charter.Voters))
	return f.b.finish(ctx, made, f)
}

// Resume finishes a founding that was cut short: of this node alone, or of a
// cluster that an earlier process of it began with others and that had not agreed
// on anything yet. It reports whether there was one.
func (b *Bootstrap) Resume(ctx context.Context) (resumed bool, err error) {
	made, err := loadFounding(b.Dir)
	switch {
	case err != nil || made == nil:
		return false, err
	case made.Charter == nil:
		return true, b.finish(ctx, made, nil)
	}
	token, err := trust.ParseToken(made.Token)
	if err != nil {
		return true, err
	}
	f := newFormation(b, token)
	f.bind(made)
	f.formed = b.Entries.Identity().ClusterID
	defer f.serve()()
	return true, f.begin(ctx)
}

// abandoned reports whether the other nodes gave up the cluster that this node
// has begun.
func (f *formation) abandoned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return membership.CharterDead(*f.bound.Charter, f.peers(time.Now()))
}

// resetFolder makes the folder new again: it removes the identity first, then
// what the node had begun. If the process is killed between the two, the next
// start finishes it (RemoveBegun).
func (b *Bootstrap) resetFolder() error {
	if err := b.Entries.Replica().Close(); err != nil {
		return err
	}
	if err := trust.Forget(b.Dir); err != nil {
		return err
	}
	return RemoveBegun(b.Dir)
}

// RemoveBegun removes what a node without an identity had begun with others.
// The founding file, which says that there is something to remove, goes last.
func RemoveBegun(dir string) error {
	if made, err := loadFounding(dir); err != nil || made == nil || made.Charter == nil {
		return err
	}
	return removeState(dir, FoundingFile)
}

// StartOver empties the folder of a node that is no longer a member. The mark that it is
// one goes last, so that a process that is killed before starts over again.
func StartOver(dir string) error {
	if err := trust.Forget(dir); err != nil {
		return err
	}
	return removeState(dir, FoundingFile, datadir.LeftFile)
}

// removeState removes all that a node keeps in its folder beside its identity, and then
// the files last.
func removeState(dir string, last ...string) error {
	if err := os.RemoveAll(filepath.Join(dir, datadir.RaftDir)); err != nil {
		return err
	}
	for _, name := range append([]string{datadir.LogFile, directory.PeersFile, renouncedFile}, last...) {
		if err := datadir.RemoveFile(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
