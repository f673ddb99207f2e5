package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/consensus/membership"
	"penstock/consensus/replica"
	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// TestExpectedNodesAllVoteFromTheFirstEntry: all three nodes vote
// from the first entry on, and most of their disks hold that entry. So
// whichever node is killed as soon as any node is in the cluster, nothing is
// lost.
func TestExpectedNodesAllVoteFromTheFirstEntry(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b", "c")
	var opening sync.WaitGroup
	defer opening.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	opened := make(chan *machine, len(all))
	failed := make(chan error, len(all))
	for _, m := range all {
		opening.Go(func() {
			if err := m.open(ctx); err != nil {
				failed <- fmt.Errorf("%s: %w", m.cfg.Name, err)
				return
			}
			opened <- m
		})
	}
	var up []*machine // those that are in the cluster; the others may not be read yet
	more := func() {
		select {
		case m := <-opened:
			up = append(up, m)
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(testTiming.Tick):
		}
	}
	for len(up) == 0 {
		more()
	}
	m := up[0]
	list, index := m.c.Store().Servers()
	if len(list) != 3 || index != 1 || slices.ContainsFunc(list, func(s replica.Server) bool { return !s.Voter }) {
		t.Errorf("%s: the configuration of entry %d is %+v, want three voters in the first entry", m.cfg.Name, index, list)
	}
	if n := len(record.Nodes(m.c.Store().Snapshot())); n != 3 {
		t.Errorf("%s: the first entries name %d members, want 3", m.cfg.Name, n)
	}
	put(t, m, "x", "1")
	var lead *machine
	for lead == nil {
		for _, o := range up {
			if _, _, self := o.c.Leader(); self {
				lead = o
			}
		}
		if lead == nil {
			more()
		}
	}
	lead.kill()
	for len(up) < len(all) {
		more()
	}
	for _, o := range others(all, lead) {
		waitEntry(t, o, "x", "1")
	}
	put(t, others(all, lead)[0], "y", "2")
}

// TestNothingIsCommittedBeforeAMajorityHasBegun: three nodes have accepted a
// charter and one has begun. It waits for the others until Open's context ends.
func TestNothingIsCommittedBeforeAMajorityHasBegun(t *testing.T) {
	t.Parallel()
	all, made := withAcceptedCharter(t)
	a := all[0]
	saveBegun(t, a, made)
	const waits = "forming a cluster: waiting for 2 of its 3 voters to agree on its first entries; unreachable: "
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var told []string
	a.cfg.Waits = func(w bootstrap.Waiting) {
		told = append(told, w.Why)
		if strings.HasPrefix(w.Why, waits) {
			time.AfterFunc(time.Second, cancel) // it goes on waiting
		}
	}
	if err := a.open(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("one voter of three does not wait for the others: %v; it says: %q", err, told)
	}
	// With the others the cluster begins at once, whichever of them has begun.
	for _, m := range all {
		m.relisten()
	}
	startAll(t, all)
	waitVoters(t, 3, all...)
	for _, m := range all {
		if m.c.ClusterID() != made.Charter.Cluster {
			t.Errorf("%s is in %s, not in the cluster that was drawn up", m.cfg.Name, m.c.ClusterID())
		}
		if _, err := os.Stat(filepath.Join(m.cfg.Dir, bootstrap.FoundingFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the secrets of the founding are still there: %v", m.cfg.Name, err)
		}
	}
}

// TestClusterBeginsWithoutALostMember: all have accepted, and one of
// them never comes back.
func TestClusterBeginsWithoutALostMember(t *testing.T) {
	t.Parallel()
	for gone := range 3 {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			t.Parallel()
			all, made := withAcceptedCharter(t)
			left := others(all, all[gone])
			if gone > 0 {
				// The others cannot find out whether the lost node had
				// accepted, so one of them must have begun.
				saveBegun(t, left[0], made)
			}
			startAll(t, left)
			put(t, left[0], "x", "1")
			waitEntry(t, left[1], "x", "1")
		})
	}
}

// TestFounderRemovedBeforeItBeganLearnsOfIt: a node confirmed the cluster,
// was away while the others began it, and was removed meanwhile.
func TestFounderRemovedBeforeItBeganLearnsOfIt(t *testing.T) {
	t.Parallel()
	all, made := withAcceptedCharter(t)
	away, left := all[2], all[:2]
	saveBegun(t, left[0], made)
	startAll(t, left)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	eventually(t, "it to be removed", func() string { // not before the two that are left have probed each other
		_, err := left[0].remove(ctx, &api.RemoveRequest{Node: away.cfg.Name})
		if err != nil && !leader.RefusedAs(err, api.NotFound) {
			return err.Error()
		}
		return ""
	})
	// The leader's last messages may reach the removed node before it has
	// queried another one: then it begins, and stops as soon as it learns of
	// its removal.
	switch err := away.open(ctx); {
	case err == nil:
		away.endsWith(ErrRemoved)
		away.kill()
	case !errors.Is(err, ErrRemoved):
		t.Fatalf("%v, want %v", err, ErrRemoved)
	}
	away.relisten()
	away.refused(ErrLeft)
	put(t, left[0], "x", "1")
	waitEntry(t, left[1], "x", "1")
}

// TestJoinWaitsUntilTheClusterHasBegun: a voter has begun, and
// cannot admit nodes before the others have.
func TestJoinWaitsUntilTheClusterHasBegun(t *testing.T) {
	t.Parallel()
	all, made := withAcceptedCharter(t)
	saveBegun(t, all[0], made)
	late := newMachine(t, "late")
	late.cfg.Expect, late.cfg.Token, late.cfg.Join = 3, all[0].cfg.Token, []string{all[0].addr()}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	done := make(chan error, 2)
	for _, m := range []*machine{all[0], late} {
		go func() { done <- m.open(ctx) }()
	}
	eventually(t, "it has asked", func() string {
		if len(done) > 0 || strings.Contains(late.log(), "cannot join yet") {
			return ""
		}
		return late.log()
	})
	startAll(t, all[1:])
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if late.c.ClusterID() != made.Charter.Cluster {
		t.Errorf("it is in %s", late.c.ClusterID())
	}
}

// TestRequestToANodeThatHasNotBegunIsRetried: a node may already lead in Raft
// when another one has begun and passes a request on to it.
func TestRequestToANodeThatHasNotBegunIsRetried(t *testing.T) {
	t.Parallel()
	all, made := withAcceptedCharter(t)
	saveBegun(t, all[0], made)
	saveBegun(t, all[1], made)
	id, err := trust.LoadIdentity(all[1].cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	config := trust.ClientConfig(func() *trust.Identity { return id }, "")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- all[0].open(ctx) }() // alone it cannot begin
	eventually(t, "it to put another node off", func() string {
		client, err := rpc.DialConfig{TLS: config}.Dial(ctx, all[0].addr())
		if err != nil {
			return err.Error()
		}
		defer client.Close()
		_, err = rpc.Call[api.Empty](ctx, client, "test.put", &api.Document{})
		if !leader.SafeToResend(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestANodeIsBoundToOneCluster: a node that has accepted a charter does not
// found another cluster.
func TestANodeIsBoundToOneCluster(t *testing.T) {
	t.Parallel()
	all, _ := withAcceptedCharter(t)
	a := all[0]
	a.cfg.Init, a.cfg.Expect, a.cfg.Token, a.cfg.Join = true, 0, "", nil
	if err := a.refused(bootstrap.ErrExpect); !contains(err, "has confirmed a cluster with") {
		t.Errorf("%v does not say what to do", err)
	}
	b := all[1]
	b.cfg.Token = trust.NewExpectToken().Reveal()
	b.refused(bootstrap.ErrToken)
}

// TestNodeOfAnAbandonedClusterStartsOver: one node began alone; the others
// have renounced the charter and formed another cluster.
func TestNodeOfAnAbandonedClusterStartsOver(t *testing.T) {
	t.Parallel()
	all, made := withAcceptedCharter(t)
	a := all[0]
	saveBegun(t, a, made)
	old := made.Charter.Cluster
	for _, m := range all[1:] {
		r := membership.Renounce(readID(t, m), *made.Charter)
		if err := errors.Join(
			bootstrap.SaveRenounced(m.cfg.Dir, []membership.Renounced{r}), datadir.RemoveFile(filepath.Join(m.cfg.Dir, bootstrap.FoundingFile)),
		); err != nil {
			t.Fatal(err)
		}
	}
	d := newMachine(t, "d")
	d.cfg.Expect, d.cfg.Token, d.cfg.Join = 3, a.cfg.Token, all[1].cfg.Join
	startAll(t, []*machine{all[1], all[2], d})
	a.refused(bootstrap.ErrGivenUp)
	a.relisten()
	a.start()
	waitVoters(t, 3, all[1], all[2], d)
	if a.c.ClusterID() == old || a.c.ClusterID() != d.c.ClusterID() {
		t.Errorf("it is in %s", a.c.ClusterID())
	}
}

// TestFolderResetResumesAfterACrash: resetFolder had removed the
// identity, but not yet what the node had begun.
func TestFolderResetResumesAfterACrash(t *testing.T) {
	t.Parallel()
	all, made := withAcceptedCharter(t)
	a := all[0]
	saveBegun(t, a, made)
	raft := filepath.Join(a.cfg.Dir, datadir.RaftDir)
	if err := errors.Join(os.Mkdir(raft, 0o700), os.WriteFile(filepath.Join(raft, "raft.db"), []byte("old"), 0o600),
		datadir.MarkLogBegun(a.cfg.Dir), trust.Forget(a.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if id, fresh, err := openIdentity(a.cfg); err != nil || !fresh || slices.Contains(made.Charter.Members, id.NodeID) {
		t.Fatalf("%v, %t, %v", id, fresh, err)
	}
	for _, name := range []string{bootstrap.FoundingFile, datadir.RaftDir, datadir.LogFile} {
		if _, err := os.Stat(filepath.Join(a.cfg.Dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the new node has the old one's %s: %v", name, err)
		}
	}
}

// TestTwoExpectedNodesBothVote: no change rests on one disk.
func TestTwoExpectedNodesBothVote(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b")
	startAll(t, all)
	waitVoters(t, 2, all...)
	put(t, all[0], "x", "1")
	for _, m := range all {
		if _, index := m.c.Store().Servers(); index != 1 {
			t.Errorf("%s: the servers have changed since they began: entry %d", m.cfg.Name, index)
		}
	}
}

// TestNodesWithTheSameNameFormNoCluster: names are unique in a cluster.
func TestNodesWithTheSameNameFormNoCluster(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "a")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	done := make(chan error, 2)
	for _, m := range all {
		go func() { done <- m.open(ctx) }()
	}
	eventually(t, "one says so", func() string {
		for _, m := range all {
			if contains(errors.New(m.log()), "both named a") {
				return ""
			}
		}
		return all[0].log()
	})
	cancel()
	for range all {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func readID(t *testing.T, m *machine) string {
	t.Helper()
	id, err := trust.LoadIdentity(m.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return id.NodeID
}

// relisten reopens the machine's address after its node has stopped.
func (m *machine) relisten() {
	m.t.Helper()
	m.cfg.Listener.Close()
	m.cfg.Listener = testkit.ListenOn(m.t, "tcp", m.addr())
}

// withAcceptedCharter returns three machines that do not run, whose nodes have
// accepted a charter of the first one and not begun it.
func withAcceptedCharter(t *testing.T) ([]*machine, *bootstrap.Founding) {
	t.Helper()
	all := expectingMachines(t, "a", "b", "c")
	token, err := trust.ParseToken(all[0].cfg.Token)
	if err != nil {
		t.Fatal(err)
	}
	var members []directory.Candidate
	dirs := map[string]string{} // by node ID
	for _, m := range all {
		c := unopened(t, m)
		own, err := c.Directory.OwnCandidate()
		if err != nil {
			t.Fatal(err)
		}
		members, dirs[own.ID] = append(members, own), m.cfg.Dir
	}
	by := members[0].ID
	slices.SortFunc(members, func(a, b directory.Candidate) int { return strings.Compare(a.ID, b.ID) })
	made, err := bootstrap.NewFounding(token, "", by, members, 5)
	if err != nil {
		t.Fatal(err)
	}
	for id, dir := range dirs {
		if err := charterFor(t, made, id).Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	return all, made
}

// unopened returns the node of a machine without starting it.
func unopened(t *testing.T, m *machine) *Cluster {
	t.Helper()
	cfg := m.cfg.withDefaults()
	cfg.Log = slog.New(slog.NewTextHandler(m, nil))
	id, _, err := openIdentity(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(cfg, id, true)
	t.Cleanup(c.Directory.Pool.Close)
	return c
}

// charterFor returns a charter as one of its members receives it.
func charterFor(t *testing.T, made *bootstrap.Founding, id string) *bootstrap.Founding {
	t.Helper()
	own := *made
	var err error
	if own.Certificate, err = made.IssueCertificate(id); err != nil {
		t.Fatal(err)
	}
	return &own
}

// saveBegun puts a machine into the state of a node that is in the cluster and
// was killed before it had a log.
func saveBegun(t *testing.T, m *machine, made *bootstrap.Founding) {
	t.Helper()
	c := unopened(t, m)
	joined, err := charterFor(t, made, c.ID()).Identity(c.Identity())
	if err == nil {
		err = joined.Save(m.cfg.Dir)
	}
	if err != nil {
		t.Fatal(err)
	}
}
