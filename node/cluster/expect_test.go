package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/record"
	"penstock/node/trust"
)

func TestOneNodeFoundsAndTwoJoin(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	for _, m := range all {
		if m.c.ClusterID() != all[0].c.ClusterID() {
			t.Fatalf("%s is of another cluster", m.cfg.Name)
		}
		put(t, m, m.cfg.Name, "written at "+m.cfg.Name)
	}
	for _, m := range all {
		for _, o := range all {
			waitEntry(t, m, o.cfg.Name, "written at "+o.cfg.Name)
		}
		eventually(t, "the founder's ticket keys on "+m.cfg.Name, func() string {
			own, founders := m.ticketKeys(), all[0].ticketKeys()
			if len(own) == 0 || len(founders) == 0 || own[0] != founders[0] {
				return "it has other ones"
			}
			return ""
		})
	}
	for _, m := range all[1:] {
		if m.c.JoinCommand() != "" {
			t.Errorf("%s shows a token that it did not make", m.cfg.Name)
		}
	}
	if _, err := os.Stat(filepath.Join(all[0].cfg.Dir, bootstrap.FoundingFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the secrets of the founding are still there: %v", err)
	}
}

// expectingMachines returns machines that form a cluster together.
func expectingMachines(t *testing.T, names ...string) []*machine {
	t.Helper()
	token := trust.NewExpectToken().Reveal()
	var all []*machine
	var addrs []string
	for _, n := range names {
		m := newMachine(t, n)
		m.cfg.Expect, m.cfg.Token = len(names), token
		all = append(all, m)
		addrs = append(addrs, m.addr())
	}
	for _, m := range all {
		m.cfg.Join = addrs
	}
	return all
}

// startAll starts machines concurrently.
func startAll(t *testing.T, all []*machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	done := make(chan error, len(all))
	for _, m := range all {
		go func() {
			err := m.open(ctx)
			if err != nil {
				err = fmt.Errorf("%s: %w", m.cfg.Name, err)
			}
			done <- err
		}()
	}
	for range all {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func TestExpectedNodesFormOneCluster(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b", "c")
	startAll(t, all)
	waitVoters(t, 3, all...)
	for _, m := range all[1:] {
		if m.c.ClusterID() != all[0].c.ClusterID() {
			t.Fatal("two clusters")
		}
	}
}

// TestJoinListsNeedOnlyOverlap: two nodes that both know a third one find each
// other, and so do two nodes of which only one knows the other.
func TestJoinListsNeedOnlyOverlap(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b", "c")
	middle := all[1].addr()
	for _, m := range all {
		m.cfg.Join = []string{middle}
	}
	startAll(t, all)
	waitVoters(t, 3, all...)
}

func TestExpectedNodesStartInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			all := expectingMachines(t, "a", "b", "c")
			ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
			defer cancel()
			done := make(chan error, len(all))
			for i, k := range order {
				m := all[k]
				go func() { done <- m.open(ctx) }()
				if i < len(order)-1 {
					eventually(t, m.cfg.Name+" waits for the others", func() string {
						if !strings.Contains(m.log(), "waiting for the other nodes") {
							return m.log()
						}
						return ""
					})
				}
			}
			for range all {
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			waitVoters(t, 3, all...)
		})
	}
}

func TestInterruptedJoinIsFinished(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	m := newJoiner(t, "b", a.token(), a)
	// The leader has admitted the node, which was killed before it got the answer.
	token, err := trust.ParseToken(m.cfg.Token)
	if err != nil {
		t.Fatal(err)
	}
	first := unopened(t, m)
	csr, err := first.Identity().Request()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = first.bootstrap.AskToJoin(context.Background(), a.addr(), token, csr); err != nil {
		t.Fatal(err)
	}
	m.start()
	if m.c.ID() != first.ID() {
		t.Error("it came as another node")
	}
	put(t, a, "x", "1")
	waitEntry(t, m, "x", "1")
	if n := len(record.Nodes(a.c.Store().Snapshot())); n != 2 {
		t.Errorf("%d records", n)
	}
}

func TestLateExpectNodeJoins(t *testing.T) {
	t.Parallel()
	for last := range 3 {
		t.Run(fmt.Sprint(last), func(t *testing.T) {
			t.Parallel()
			all := expectingMachines(t, "a", "b", "c")
			late := newMachine(t, "late")
			late.cfg.Token, late.cfg.Expect, late.cfg.Join = all[0].cfg.Token, 3, []string{all[last].addr()}
			startAll(t, all)
			late.start()
			if late.c.ClusterID() != all[0].c.ClusterID() {
				t.Fatal("two clusters")
			}
		})
	}
}

func TestDifferentExpectNumbersAreReported(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b")
	all[1].cfg.Expect = 5
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	got := make(chan error, 2)
	for _, m := range all {
		go func() { got <- m.open(ctx) }()
	}
	for range all {
		err := <-got
		if !errors.Is(err, bootstrap.ErrExpect) || !contains(err, "--expect 2") || !contains(err, "--expect 5") {
			t.Errorf("got %v, want both numbers", err)
		}
	}
}

func TestNodesWithDifferentTokensFormNoCluster(t *testing.T) {
	t.Parallel()
	all := expectingMachines(t, "a", "b")
	all[1].cfg.Token = trust.NewExpectToken().Reveal()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	done := make(chan error, 2)
	for _, m := range all {
		go func() { done <- m.open(ctx) }()
	}
	// One of the two is refused, and stops; then the other has no node to query.
	if err := <-done; !errors.Is(err, bootstrap.ErrToken) || !contains(err, "another token") {
		t.Errorf("got %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, bootstrap.ErrToken) && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFormingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	m := expectingMachines(t, "a", "b")[0]
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if err := m.open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestInterruptedBootstrapIsFinished(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"secrets", "identity", "log", "entries"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "a")
			m.cfg.Init = true
			cutFounding(t, m, after)
			m.listen("127.0.0.1")
			m.start()
			put(t, m, "x", "1")
			b := newJoiner(t, "b", m.token(), m).start()
			waitEntry(t, b, "x", "1")
		})
	}
}

// cutFounding founds a cluster and puts the folder into its state after a step.
func cutFounding(t *testing.T, m *machine, after string) {
	t.Helper()
	m.start()
	f := bootstrap.Founding{Format: record.Format, Token: m.token()}
	secret, _, _, err := record.Unseal[record.CASecret](m.c.Sealer(), m.c.Store().Snapshot(), record.KeyCA)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := m.c.Directory.GossipKeys()
	if err != nil {
		t.Fatal(err)
	}
	f.CA, f.Gossip = secret.CA, keys[0]
	m.kill()
	data, err := json.Marshal(f)
	if err == nil {
		err = datadir.WriteFile(filepath.Join(m.cfg.Dir, bootstrap.FoundingFile), data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if after == "secrets" {
		if err := trust.Forget(m.cfg.Dir); err != nil {
			t.Fatal(err)
		}
	}
	if after == "secrets" || after == "identity" {
		if err := errors.Join(
			os.RemoveAll(filepath.Join(m.cfg.Dir, datadir.RaftDir)), os.Remove(filepath.Join(m.cfg.Dir, datadir.LogFile)),
		); err != nil {
			t.Fatal(err)
		}
	}
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func TestInvalidTokensCannotJoin(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	ctx := context.Background()
	create := func(role api.Role, ttl time.Duration) *api.TokenCreated {
		t.Helper()
		made, err := a.c.Tokens.Create(ctx, &api.TokenCreateRequest{Name: fmt.Sprint("t", role, ttl), Role: role, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	expired := create(api.RoleJoin, time.Nanosecond).Token
	revoked := create(api.RoleJoin, time.Hour)
	if _, err := a.c.Tokens.Revoke(ctx, &api.TokenRevokeRequest{Token: revoked.ID}); err != nil {
		t.Fatal(err)
	}
	foreign := startSingle(t, "z")
	other, err := foreign.c.Tokens.Create(ctx, &api.TokenCreateRequest{Name: "t", Role: api.RoleJoin})
	if err != nil {
		t.Fatal(err)
	}
	guessed, err := trust.ParseToken(create(api.RoleJoin, time.Hour).Token)
	if err != nil {
		t.Fatal(err)
	}
	guessed.Secret = trust.NewExpectToken().Secret
	for name, c := range map[string]struct {
		token string
		want  error
		says  string
	}{
		"guessed": {guessed.Reveal(), bootstrap.ErrToken, "unknown token"},
		"expired": {expired, bootstrap.ErrToken, "expired"},
		"revoked": {revoked.Token, bootstrap.ErrToken, "revoked"},
		"foreign": {other.Token, bootstrap.ErrForeign, foreign.c.ClusterID()},
		"admin's": {create(api.RoleAdmin, time.Hour).Token, bootstrap.ErrToken, "role join"},
		"unknown": {trust.NewExpectToken().Reveal(), bootstrap.ErrToken, "unknown token"},
		"no":      {"pst1.nonsense", trust.ErrToken, "mistyped"},
	} {
		m := newJoiner(t, "b", c.token, a)
		if err := m.refused(c.want); !contains(err, c.says) {
			t.Errorf("%s: %v does not say %q", name, err, c.says)
		}
	}
	if n := len(a.c.Directory.Members()); n != 1 {
		t.Errorf("%d members", n)
	}
}

func TestNewFolderWithoutFlagsIsRefused(t *testing.T) {
	t.Parallel()
	err := newMachine(t, "a").refused(ErrNew)
	if !contains(err, "--init") || !contains(err, "--join") {
		t.Errorf("%v does not say what to do", err)
	}
}

func TestAFolderDoesNotStartWithATokenOfAnotherCluster(t *testing.T) {
	t.Parallel()
	a, z := startSingle(t, "a"), startSingle(t, "z")
	a.stop()
	a.listen("127.0.0.1")
	a.cfg.Token, a.cfg.Join = z.token(), []string{z.addr()}
	err := a.refused(bootstrap.ErrForeign)
	if !contains(err, z.c.ClusterID()) {
		t.Errorf("%v does not name the other cluster", err)
	}
}
