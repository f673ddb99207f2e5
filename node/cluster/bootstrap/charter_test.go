package bootstrap

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"penstock/consensus/membership"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/trust"
)

// TestBoundNodeCreatesNoOtherCharter: an offer is accepted between the
// decision to draw up a charter and the drawing.
func TestBoundNodeCreatesNoOtherCharter(t *testing.T) {
	t.Parallel()
	f, ids := withFormation(t)
	if err := f.createCharter(ids); err != nil {
		t.Fatal(err)
	}
	first := f.bound
	if err := f.createCharter(ids); err == nil || f.bound != first {
		t.Errorf("it was bound to %s, and is to %s: %v", first.Charter.Cluster, f.bound.Charter.Cluster, err)
	}
	if made, err := loadFounding(f.b.Dir); err != nil || !made.Charter.Same(*first.Charter) {
		t.Errorf("on its disk is another cluster: %v", err)
	}
}

// TestJoiningNodeAcceptsNoCharter: an offer comes while the node joins an
// existing cluster.
func TestJoiningNodeAcceptsNoCharter(t *testing.T) {
	t.Parallel()
	f, ids := withFormation(t)
	if err := f.createCharter(ids); err != nil {
		t.Fatal(err)
	}
	made, own := f.bound, f.b.Directory.ID()
	other := newFormation(f.b, f.token) // the same node, before it was bound
	other.views = f.views
	if err := os.Remove(filepath.Join(f.b.Dir, FoundingFile)); err != nil {
		t.Fatal(err)
	}
	other.views["0"] = peerView{when: time.Now(), view: FormView{ID: "0", Addr: "127.0.0.1:1", Formed: true, Cluster: "another"}}
	if d, _, _ := other.nextAction(); d.Action != membership.FormJoin {
		t.Fatalf("it does %+v", d)
	}
	if err := other.accept(charterFor(t, made, own), time.Now()); err == nil {
		t.Error("it confirms a cluster while it joins another one")
	}
	delete(other.views, "0")
	other.nextAction()
	if err := other.accept(charterFor(t, made, own), time.Now()); err != nil {
		t.Errorf("it does not join any more: %v", err)
	}
}

// withFormation returns a node's state with the views of three nodes, and their
// IDs, sorted.
func withFormation(t *testing.T) (first *formation, ids []string) {
	t.Helper()
	views := map[string]peerView{}
	for _, name := range []string{"a", "b", "c"} {
		var config net.ListenConfig
		ln, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		id, err := trust.NewIdentity(name)
		if err != nil {
			t.Fatal(err)
		}
		log, dir := slog.New(slog.DiscardHandler), t.TempDir()
		entries := record.Store{Identity: func() *trust.Identity { return id }}
		d := directory.New(t.Context(), directory.Config{
			Entries: entries, Dir: dir, Listener: ln, Address: ln.Addr().String(), Gossip: "127.0.0.1:0", Version: "test", Log: log,
		})
		t.Cleanup(func() { _ = d.Close() })
		own, err := d.OwnCandidate()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id.NodeID)
		views[id.NodeID] = peerView{
			when: time.Now(),
			view: FormView{ID: id.NodeID, Name: name, Addr: d.Address, Expect: 3, Node: &own},
		}
		if first == nil {
			first = newFormation(&Bootstrap{Config: Config{
				Entries: entries, Directory: d, Dir: dir, Expect: 3, Voters: 5, Log: log,
			}}, trust.NewExpectToken())
			first.views = views
		}
	}
	slices.Sort(ids)
	return first, ids
}

// charterFor returns a charter as one of its members receives it.
func charterFor(t *testing.T, made *Founding, id string) *Founding {
	t.Helper()
	own := *made
	var err error
	if own.Certificate, err = made.IssueCertificate(id); err != nil {
		t.Fatal(err)
	}
	return &own
}

// TestOnlyPermanentRefusalsEndAJoin: a node that was put off tries again.
func TestOnlyPermanentRefusalsEndAJoin(t *testing.T) {
	for code, ends := range map[api.Code]bool{
		api.Unavailable: false, api.NoLeader: false, api.Unauthenticated: true, api.Refused: true, api.Invalid: true,
	} {
		if err := refusedJoin("a", api.Errorf(code, "no")); errors.Is(err, errFinal) != ends {
			t.Errorf("%s: it ends: %t, want %t", code, !ends, ends)
		}
	}
}
