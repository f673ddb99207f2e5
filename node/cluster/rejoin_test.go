package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/node/cluster/datadir"
)

// TestFormerMemberRejoinsAsANewNode: in the folder of a node that has left or was
// removed, a node with Rejoin starts over, under the same name.
func TestFormerMemberRejoinsAsANewNode(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	put(t, lead, "x", "before")
	rest := others(all, lead)
	token := all[0].token()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for how, m := range map[string]*machine{"left": rest[0], "removed": rest[1]} {
		id := m.c.ID()
		if how == "left" {
			if err := leave(ctx, m); err != nil {
				t.Fatal(err)
			}
		} else {
			removeNode(t, lead, m, all...)
			m.endsWith(ErrRemoved)
		}
		m.kill()
		m.listen("127.0.0.1")
		m.cfg.Init, m.cfg.Join, m.cfg.Token = false, []string{lead.addr()}, token
		_ = m.refused(ErrLeft) // without Rejoin
		m.listen("127.0.0.1")
		m.cfg.Rejoin = true
		m.start()
		if m.c.ID() == id {
			t.Fatalf("%s: the node comes back under the ID of the former member", how)
		}
		if _, err := os.Stat(filepath.Join(m.cfg.Dir, datadir.LeftFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the folder is still marked as left: %v", how, err)
		}
		waitEntry(t, m, "x", "before")
		waitVoters(t, 3, all...)
		// Another start finds nothing to start over from.
		id = m.c.ID()
		m.kill()
		m.listen("127.0.0.1")
		m.start()
		if m.c.ID() != id {
			t.Errorf("%s: the member starts over as well", how)
		}
		waitVoters(t, 3, all...)
	}
}

// TestFirstTokenLivesAsLongAsConfigured: nodes join with the token of --expect for
// TokenTTL.
func TestFirstTokenLivesAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b", "c")
	for _, m := range all {
		m.cfg.TokenTTL = 1000 * time.Hour
	}
	startAll(t, all)
	list := all[0].c.Tokens.List()
	if len(list) != 1 || list[0].Expires.Sub(list[0].Created) != 1000*time.Hour {
		t.Errorf("tokens %v", list)
	}
}

// TestExpectWithATokenOfAClusterJoinsIt: the settings of all nodes stay the same when the
// token that formed the cluster was replaced.
func TestExpectWithATokenOfAClusterJoinsIt(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	late := newMachine(t, "late")
	late.cfg.Token, late.cfg.Expect, late.cfg.Join = a.token(), 3, []string{late.addr(), a.addr()}
	late.start()
	if late.c.ClusterID() != a.c.ClusterID() {
		t.Fatal("two clusters")
	}
}
