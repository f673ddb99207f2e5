package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/gossip"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/mux"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// signedAt gives a node of a cluster a certificate that was signed at that
// time.
func signedAt(t *testing.T, by *Cluster, id *trust.Identity, at time.Time) *trust.Identity {
	t.Helper()
	ca, err := by.entries.Signer(by.Store().Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	csr, err := id.Request()
	if err != nil {
		t.Fatal(err)
	}
	req, err := trust.CheckRequest(csr)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(req.Public, id.NodeID, id.Name, at)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := id.Join(by.ClusterID(), leaf, ca.Bundle(), by.Sealer())
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// TestNodesWithExpiredCertificatesReturn: no node accepts an expired
// certificate, so no leader could be elected to renew one.
func TestNodesWithExpiredCertificatesReturn(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]time.Duration{"expired": -200 * 24 * time.Hour, "of the future": 200 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := startThree(t)
			for _, m := range all {
				old := signedAt(t, m.c, m.c.Identity(), time.Now().Add(at))
				m.stop()
				if err := old.Save(m.cfg.Dir); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range all {
				m.listen("127.0.0.1")
			}
			for _, m := range all {
				m.cfg.Join = []string{all[0].addr(), all[1].addr(), all[2].addr()}
				m.start()
			}
			waitVoters(t, 3, all...)
			put(t, all[1], "x", "late")
			waitEntry(t, all[2], "x", "late")
		})
	}
}

// TestRotationSurvivesAPowerCut: the file that records how far the log
// was applied is not synced to the disk; the certificate is.
func TestRotationSurvivesAPowerCut(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	applied := filepath.Join(a.cfg.Dir, "raft", "applied")
	before, err := os.ReadFile(applied)
	if err != nil {
		t.Fatal(err)
	}
	first := a.c.Identity().CADigests()[0]
	if err := a.rotate("ca"); err != nil {
		t.Fatal(err)
	}
	rotated := func() string {
		if d := a.c.Identity().CADigests(); len(d) != 1 || d[0] == first {
			return fmt.Sprintf("%d CAs", len(d))
		}
		return ""
	}
	eventually(t, "the old CA has gone", rotated)
	first = [32]byte{}
	a.kill()
	if err := os.WriteFile(applied, before, 0o600); err != nil {
		t.Fatal(err)
	}
	a.listen("127.0.0.1")
	a.start()
	eventually(t, "the new CA is the only one", rotated)
	put(t, a, "x", "after")
	select {
	case <-a.ended:
		t.Error("the node ended")
	default:
	}
}

// TestGossipAloneStopsNoNode: anyone with the gossip key could report a copy.
func TestGossipAloneStopsNoNode(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	for _, at := range []string{a.addr(), b.addr(), "127.0.0.1:1"} {
		a.c.Directory.HandleConflict(gossip.Member{
			ID: a.c.ID(), Meta: gossip.Meta{Cluster: at, Instance: "another"}, Since: time.Now().Add(-time.Hour),
		})
	}
	if text := a.log(); strings.Contains(text, "fatal error") {
		t.Error(text)
	}
}

// TestRemovedNodeLosesItsConnections: its connections close, Raft's directory.Streams
// included.
func TestRemovedNodeLosesItsConnections(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	rest := others(all, lead)
	victim, witness := rest[0], rest[1]
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	victim.kill()
	id, err := trust.LoadIdentity(victim.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	config := trust.ClientConfig(func() *trust.Identity { return id }, "")
	conn, err := mux.Dial(ctx, witness.addr(), config, mux.Raft)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	node, err := rpc.DialConfig{TLS: config}.Dial(ctx, witness.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := rpc.Call[directory.LocateResult](ctx, node, directory.MethodLocate, &directory.LocateRequest{}); err != nil {
		t.Fatalf("a member: %v", err)
	}
	mustChange(t, "remove", func() error {
		_, err := lead.remove(ctx, &api.RemoveRequest{Node: victim.cfg.Name, Force: true})
		return err
	})
	if err := conn.SetReadDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("its stream of Raft: %v", err)
	}
	<-node.Done()
	// With the same certificate it is unauthenticated, and learns that it was removed.
	if conn, err := mux.Dial(ctx, witness.addr(), config, mux.Raft); err == nil {
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a new stream of Raft is read")
		}
	}
	again, err := rpc.DialConfig{TLS: config}.Dial(ctx, witness.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, method := range []string{
		directory.MethodLocate, leader.MethodAdmit, leader.MethodDepart, api.MethodRenew, api.MethodReport, api.MethodTokens,
	} {
		var refusal *api.Error
		if _, err := rpc.Call[api.Empty](
			ctx, again, method, api.Empty{},
		); !errors.As(err, &refusal) || refusal.Code != api.Unauthenticated {
			t.Errorf("%s by a removed node: %v", method, err)
		}
	}
	if res, err := rpc.Call[directory.AnnounceResult](
		ctx, again, api.MethodAnnounce, &directory.Announcement{ID: id.NodeID},
	); err != nil || !res.Removed || len(res.Peers) > 0 {
		t.Errorf("its announcement: %+v, %v", res, err)
	}
}

// TestUnknownNodeLearnsThatItWasRemoved: its record is kept for long but not
// for ever, and it can sign certificates for itself.
func TestUnknownNodeLearnsThatItWasRemoved(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	id, err := trust.NewIdentity("forgotten")
	if err != nil {
		t.Fatal(err)
	}
	id = signedAt(t, a.c, id, time.Now())
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	client, err := rpc.DialConfig{TLS: trust.ClientConfig(func() *trust.Identity { return id }, a.c.ID())}.Dial(ctx, a.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	res, err := rpc.Call[directory.AnnounceResult](ctx, client, api.MethodAnnounce, &directory.Announcement{
		ID: id.NodeID, Name: id.Name, Cluster: "127.0.0.1:1",
	})
	if err != nil || !res.Removed {
		t.Errorf("got %+v, %v", res, err)
	}
}

// TestAnnouncementsAreBounded: the node's record keeps all of it.
func TestAnnouncementsAreBounded(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	long := strings.Repeat("x", directory.MaxTextLen+1)
	b := newJoiner(t, "b", a.token(), a)
	b.cfg.Zone = long
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := b.open(ctx); !contains(err, "no address that others can reach") {
		t.Errorf("a newcomer: %v", err)
	}
	for _, said := range []directory.Announcement{
		{HTTP: long}, {Zone: long}, {Version: long}, {Issuer: long}, {Last: trust.Incarnation{Instance: long}},
	} {
		said.ID, said.Cluster, said.Relayed = a.c.ID(), a.addr(), true
		if _, err := sendAnnouncement(ctx, t, a, &said); !contains(err, "invalid announcement") {
			t.Errorf("%.60v: %v", said, err)
		}
	}
}

// sendAnnouncement sends an announcement to a node as that node itself.
func sendAnnouncement(ctx context.Context, t *testing.T, m *machine, said *directory.Announcement) (*directory.AnnounceResult, error) {
	t.Helper()
	client, err := m.c.Directory.Client(ctx, m.c.ID())
	if err != nil {
		t.Fatal(err)
	}
	return rpc.Call[directory.AnnounceResult](ctx, client, api.MethodAnnounce, said)
}

// TestAnIDBelongsToItsKey: otherwise the holder of a join token could get the
// certificate of an existing node.
func TestAnIDBelongsToItsKey(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	put(t, a, "x", "1")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	ask := func(key *ecdsa.PrivateKey, id, name string) error {
		t.Helper()
		csr, err := trust.NewRequest(key, id, name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.c.lead.Admit(ctx, &leader.AdmitRequest{Token: "test", Node: directory.Candidate{
			ID: id, Name: name, Cluster: "127.0.0.1:1", Gossip: "127.0.0.1:1", HTTP: "127.0.0.1:1", Version: "test", CSR: csr,
		}})
		return err
	}
	newKey := func() *ecdsa.PrivateKey {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	const id = "00000000000000000000000000000b0b"
	own := newKey()
	if err := ask(own, id, "b"); err != nil {
		t.Fatal(err)
	}
	if err := ask(own, id, "b"); err != nil {
		t.Errorf("the same node again: %v", err)
	}
	for what, err := range map[string]error{
		"of a member":     ask(newKey(), id, "b"),
		"of this node":    ask(newKey(), a.c.ID(), "a"),
		"by another name": ask(newKey(), id, "c"),
	} {
		if !leader.RefusedAs(err, api.Refused) || !contains(err, "belongs to another node") {
			t.Errorf("another key for the ID %s: %v", what, err)
		}
	}
	if err := a.c.lead.MarkDeparted(ctx, id, "test"); err != nil {
		t.Fatal(err)
	}
	if err := ask(own, id, "b"); !leader.RefusedAs(err, api.Refused) || !contains(err, "has left the cluster or was removed") {
		t.Errorf("a node that is no member any more: %v", err)
	}
}

// TestANodeIsRemovedWhileItsRecordChanges: a node's last announcement may be in
// the log already when the node is removed.
func TestANodeIsRemovedWhileItsRecordChanges(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for i := range 16 {
		r := record.Node{Format: record.Format, ID: fmt.Sprintf("%032x", i), Name: fmt.Sprintf("n%d", i), Joined: time.Now().UTC()}
		put := func(ctx context.Context, r record.Node) error {
			return a.c.entries.Commit(ctx, "test", "test", []store.Op{{Key: record.NodeKey(r.ID), Value: record.Marshal(r)}})
		}
		if err := put(ctx, r); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		changing, stop := context.WithCancel(ctx)
		go func() {
			for n := 0; changing.Err() == nil; n++ {
				// As announcements do it: never after the node has left.
				snap := a.c.Store().Snapshot()
				now, _ := record.FindNode(snap, r.ID)
				if !now.Member() {
					break
				}
				now.Version = fmt.Sprintf("1.0.%d", n)
				err := a.c.entries.Commit(ctx, "test", "test", []store.Op{record.PutNode(snap, now)})
				if err != nil && !errors.Is(err, store.ErrVersion) {
					done <- err
					return
				}
			}
			done <- nil
		}()
		err := a.c.lead.MarkDeparted(ctx, r.ID, "test")
		stop()
		if err := errors.Join(err, <-done); err != nil {
			t.Fatal(err)
		}
		if now, ok := record.FindNode(a.c.Store().Snapshot(), r.ID); !ok || now.Member() {
			t.Fatalf("after it was removed: %+v", now)
		}
	}
}
