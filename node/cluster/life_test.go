package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/trust"
)

func TestAllNodesMayReturnAtOtherAddresses(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	put(t, all[1], "x", "before")
	for _, m := range all {
		m.kill()
	}
	var addrs []string
	for i, m := range all {
		m.listen(fmt.Sprintf("127.0.1.%d", i+1))
		m.cfg.Init, m.cfg.Token = false, ""
		addrs = append(addrs, m.addr())
	}
	for _, m := range all {
		m.cfg.Join = addrs
		m.start()
		waitEntry(t, m, "x", "before") // before there is a leader
	}
	waitVoters(t, 3, all...)
	put(t, all[2], "x", "after")
	for _, m := range all {
		waitEntry(t, m, "x", "after")
	}
	eventually(t, "records have the new addresses", func() string {
		for _, r := range record.Nodes(all[0].c.Store().Snapshot()) {
			if !strings.HasPrefix(r.Cluster, "127.0.1.") {
				return r.Name + " is at " + r.Cluster
			}
		}
		return ""
	})
}

func TestMovedNodeIsFound(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	moved := others(all, waitLeader(t, all...))[0]
	moved.kill()
	moved.listen("127.0.2.1")
	moved.cfg.Join, moved.cfg.Token = nil, "" // it remembers its peers
	moved.start()
	put(t, all[0], "x", "1")
	waitEntry(t, moved, "x", "1")
}

func TestNewLeaderAfterTheLeaderDies(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	rest := others(all, lead)
	lead.kill()
	for i, m := range rest {
		put(t, m, fmt.Sprint(i), "without "+lead.cfg.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for _, m := range rest {
		index, err := m.c.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.c.entries.WaitIndex(ctx, index); err != nil {
			t.Fatal(err)
		}
		waitEntry(t, m, "1", "without "+lead.cfg.Name)
	}
	lead.listen("127.0.0.1")
	lead.cfg.Init = false
	lead.start()
	waitEntry(t, lead, "1", "without "+lead.cfg.Name)
}

// TestStoppingLeaderHandsOver: the next leader need not wait for an election by
// time. A message that is lost on a busy machine makes it one, so a few attempts
// are allowed.
func TestStoppingLeaderHandsOver(t *testing.T) {
	t.Parallel()
	const attempts = 3
	all := startThreeWith(t, func(_ int, m *machine) {
		m.cfg.Timing.Heartbeat, m.cfg.Timing.Election, m.cfg.Timing.HandOver = waitLimit/10, waitLimit/10, waitLimit
	})
	byTime := func() (n int) {
		for _, m := range all {
			n += strings.Count(m.log(), "heartbeat timeout reached, starting election")
		}
		return n
	}
	for range attempts {
		before, lead := byTime(), waitLeader(t, all...)
		lead.stop()
		put(t, waitLeader(t, others(all, lead)...), "x", "1")
		if byTime() == before {
			return
		}
		lead.listen("127.0.0.1")
		lead.cfg.Init = false
		lead.start()
		waitVoters(t, 3, all...)
	}
	t.Errorf("the next leader was elected by time, %d times of %d", attempts, attempts)
}

func TestWritesAreForwardedWhileLeadersChange(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	done := make(chan error, 2)
	ctx, cancel := context.WithCancel(context.Background())
	written, doubtful := make([]atomic.Int64, 2), make([][]string, 2)
	for w := range 2 {
		go func() {
			m := all[w]
			for ctx.Err() == nil {
				if err := tryPut(m, fmt.Sprint(w), fmt.Sprint(written[w].Load())); err != nil {
					if isUnknown(err) { // it may be written again, and may still act, after later writes
						doubtful[w] = append(doubtful[w], fmt.Sprint(written[w].Load()))
						continue
					}
					if leader.RefusedAs(err, api.NoLeader) { // a busy machine had no leader for long; the write has not acted
						continue
					}
					done <- fmt.Errorf("%s: %w", m.cfg.Name, err)
					return
				}
				written[w].Add(1)
			}
			done <- nil
		}()
	}
	for range 4 {
		lead := waitLeader(t, all...)
		eventually(t, "another leads", func() string {
			if now := waitLeader(t, all...); now != lead {
				return ""
			}
			return fmt.Sprintf("%s leads: %v", lead.cfg.Name, lead.transfer())
		})
	}
	eventually(t, "both to have written", func() string {
		if len(done) > 0 { // a writer has failed
			return ""
		}
		for w := range written {
			if written[w].Load() == 0 {
				return fmt.Sprintf("%s has not", all[w].cfg.Name)
			}
		}
		return ""
	})
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for w := range written {
		n := written[w].Load()
		may := append(doubtful[w], fmt.Sprint(n-1))
		eventually(t, "what was written last to be at all", func() string {
			var at []string
			for _, m := range all {
				e, _ := m.c.Store().Snapshot().Get(store.Key{Kind: "Thing", Name: fmt.Sprint(w)})
				at = append(at, string(e.Value))
			}
			if len(slices.Compact(slices.Clone(at))) > 1 || !slices.Contains(may, at[0]) {
				return fmt.Sprintf("they have %q, want one of %q", at, may)
			}
			return ""
		})
	}
}

func TestNodeWithoutAMajorityServesAndSaysWhy(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	put(t, all[0], "x", "1")
	for _, m := range all {
		waitEntry(t, m, "x", "1")
	}
	for _, m := range all {
		m.kill()
	}
	alone := all[1]
	alone.listen("127.0.0.1")
	alone.start()
	waitEntry(t, alone, "x", "1")
	// How long a voter has been silent is shown once it was probed.
	if why := alone.c.Directory.Alone(); !regexp.MustCompile(`1 of 3 voters.*unreachable: a( \(for .*\))?, c`).MatchString(why) {
		t.Errorf("it says %q", why)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := forward[api.Empty](ctx, alone.c, "test.put", &api.Document{Kind: "Thing", Name: "x"})
	var refusal *api.Error
	if !errors.As(err, &refusal) || refusal.Code != api.NoLeader || !strings.Contains(refusal.Message, "1 of 3 voters") {
		t.Errorf("a write: %v", err)
	}
}

func TestClustersNeverMerge(t *testing.T) {
	t.Parallel()
	a, z := startSingle(t, "a"), startSingle(t, "z")
	b := newJoiner(t, "b", a.token(), a).start()
	// b has addresses of the other cluster's nodes among those of its own.
	b.kill()
	b.listen("127.0.0.1")
	b.cfg.Token, b.cfg.Join = "", []string{z.addr(), a.addr()}
	b.start()
	b.c.Directory.Book.AddReported(directory.Peer{ID: z.c.ID(), Name: "z", Cluster: z.addr(), Gossip: z.c.Directory.GossipAddress()})
	put(t, a, "x", "of a")
	put(t, z, "x", "of z")
	waitEntry(t, b, "x", "of a")
	for _, m := range []*machine{a, b, z} {
		for _, o := range m.c.Directory.Members() {
			if foreign := (m == z) != (o.Name == "z"); foreign {
				t.Errorf("%s has %s among its members", m.cfg.Name, o.Name)
			}
		}
	}
}

func TestAWipedNodeComesBackAsANewOne(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	wiped := others(all, lead)[0]
	was := wiped.c.ID()
	var token *api.TokenCreated
	mustChange(t, "a token", func() (err error) {
		token, err = lead.c.Tokens.Create(context.Background(), &api.TokenCreateRequest{Role: api.RoleJoin})
		return err
	})
	twin := newJoiner(t, wiped.cfg.Name, token.Token, lead)
	if err := twin.refused(bootstrap.ErrRefused); !contains(err, "is up at "+wiped.addr()) || !contains(err, "choose another --name") {
		t.Errorf("a name that is up: %v", err)
	}
	wiped.kill()
	again := newJoiner(t, wiped.cfg.Name, token.Token, lead).start()
	if again.c.ID() == was {
		t.Fatal("it has its old ID")
	}
	all = append(others(all, wiped), again)
	waitVoters(t, 3, all...)
	if r, ok := record.FindNode(lead.c.Store().Snapshot(), was); !ok || r.Member() {
		t.Errorf("the old node is a member: %+v", r)
	}
	eventually(t, "the old node to go from Raft's configuration", func() string {
		servers, _ := lead.c.Store().Servers()
		for _, s := range servers {
			if s.ID == was {
				return "it is there"
			}
		}
		return ""
	})
}

func TestACopyOfADataFolderDoesNotStart(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	original := all[1]
	eventually(t, "it remembers peers", func() string {
		if len(original.c.Directory.Book.All()) < 2 {
			return fmt.Sprint(original.c.Directory.Book.All())
		}
		return ""
	})
	thief := newMachine(t, original.cfg.Name)
	copyIdentity(t, original.cfg.Dir, thief.cfg.Dir)
	eventually(t, "it is refused", func() string {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		err := thief.open(ctx)
		if err == nil { // it was too busy to find the original in time, and the cluster refuses it
			thief.endsWith(directory.ErrCopied)
			thief.kill()
			thief.listen("127.0.0.1")
			return "it has started"
		}
		if !errors.Is(err, directory.ErrCopied) || !contains(err, original.addr()) {
			t.Errorf("%v does not say that and where the other runs", err)
		}
		return ""
	})
	// A copy without peers starts, and then the cluster refuses it.
	if err := os.Remove(filepath.Join(thief.cfg.Dir, directory.PeersFile)); err != nil {
		t.Fatal(err)
	}
	thief = &machine{t: t, cfg: thief.cfg}
	thief.listen("127.0.0.1")
	thief.cfg.Join = []string{all[0].addr()}
	t.Cleanup(thief.kill)
	thief.start()
	thief.endsWith(directory.ErrCopied)
	select {
	case <-original.ended:
		t.Error("the original had to end")
	default:
	}
}

// TestANodeThatIsUpAndSilentIsNotReplaced: a folder that was started elsewhere
// is a copy while the node is up, however slowly that node answers; once the
// node is down, it has moved.
func TestANodeThatIsUpAndSilentIsNotReplaced(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	there := others(all, lead)[0]
	elsewhere := there.c.announcement()
	elsewhere.Cluster = "127.0.0.1:1"
	elsewhere.Last = trust.Incarnation{Starts: elsewhere.Last.Starts + 1, Instance: "another"}
	old := func() record.Node {
		r, _ := record.FindNode(lead.c.Store().Snapshot(), there.c.ID())
		return r
	}
	eventually(t, "the leader to know where it is", func() string {
		if r := old(); r.Last.Instance == "" || !lead.c.Directory.GossipEntries()[r.ID].IsUpAt(r.Cluster) {
			return fmt.Sprint(r, lead.c.Directory.GossipEntries()[r.ID])
		}
		return ""
	})
	r := old()
	noTime, cancel := context.WithCancel(context.Background())
	cancel()
	if at, err := lead.c.lead.DetectCopy(noTime, r, elsewhere); !leader.RefusedAs(err, api.Busy) {
		t.Errorf("it is up and does not answer: %q, %v", at, err)
	}
	there.kill()
	eventually(t, "it may be elsewhere", func() string {
		at, err := lead.c.lead.DetectCopy(context.Background(), r, elsewhere)
		if at != "" || err != nil {
			return fmt.Sprint(at, err)
		}
		return ""
	})
}

// copyIdentity copies the files at the top of a data folder.
func copyIdentity(t *testing.T, from, to string) {
	t.Helper()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.IsDir() || f.Name() == datadir.LogFile { // the log is not copied
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, f.Name()), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestANodeLeaves(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...) // the hardest case
	rest := others(all, lead)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := leave(ctx, lead); err != nil {
		t.Fatal(err)
	}
	lead.clear()
	lead.listen("127.0.0.1")
	if err := lead.refused(ErrLeft); !contains(err, "empty") {
		t.Errorf("%v does not say what to do", err)
	}
	for _, name := range []string{"node.key", "cluster.key", "node.crt"} {
		if _, err := os.Stat(filepath.Join(lead.cfg.Dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s stays in the folder: %v", name, err)
		}
	}
	for _, m := range rest {
		eventually(t, "it is no member any more", func() string {
			if list := m.c.Directory.Members(); len(list) != 2 {
				return fmt.Sprintf("%+v", list)
			}
			return ""
		})
	}
	put(t, rest[0], "x", "without")
	waitEntry(t, rest[1], "x", "without")
}

func TestTheOnlyNodeDoesNotLeave(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	if err := a.c.Leave(context.Background()); !contains(err, "only voter") {
		t.Fatalf("got %v", err)
	}
	put(t, a, "x", "1")
}

func TestRemovingANode(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	victim := others(all, lead)[0]
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	ask := func(force bool) error {
		_, err := victim.remove(ctx, &api.RemoveRequest{Node: victim.cfg.Name, Force: force})
		return err
	}
	err := ask(false)
	for leader.RefusedAs(err, api.NoLeader) && ctx.Err() == nil { // the machine was too busy to reach the leader
		err = ask(false)
	}
	if !contains(err, "is up at") || !contains(err, "--force") {
		t.Fatalf("a node that is up: %v", err)
	}
	mustChange(t, "remove", func() error { return ask(true) })
	victim.endsWith(ErrRemoved)
	victim.kill()
	victim.listen("127.0.0.1")
	victim.refused(ErrLeft)
	put(t, lead, "x", "1")
}

func TestNodeRemovedWhileDownLearnsOfIt(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	victim := others(all, lead)[0]
	victim.kill()
	mustChange(t, "remove", func() error {
		_, err := lead.remove(context.Background(), &api.RemoveRequest{Node: victim.cfg.Name, Force: true})
		return err
	})
	victim.listen("127.0.0.1")
	victim.start()
	victim.endsWith(ErrRemoved)
	put(t, lead, "x", "1")
	if e, ok := victim.c.Store().Snapshot().Get(store.Key{Kind: "Thing", Name: "x"}); ok {
		t.Errorf("it has what was written after it was removed: %q", e.Value)
	}
}

func TestQuorumIsCheckedBeforeANodeLeaves(t *testing.T) {
	type member = directory.Member
	const lead, voter, nonVoter = directory.RoleLeader, directory.RoleVoter, directory.RoleNonVoter
	up := func(name, role string) member {
		return member{ID: name, Name: name, Role: role, State: directory.StateUp}
	}
	down := func(name, role string) member {
		return member{ID: name, Name: name, Role: role, State: directory.StateUnreachable}
	}
	for name, c := range map[string]struct {
		members []member
		says    string // "": nothing against it
	}{
		"the dead one of three":         {[]member{up("a", lead), up("b", voter), down("x", voter)}, ""},
		"a live one of three, one dead": {[]member{up("a", lead), up("x", voter), down("c", voter)}, "unreachable: c;"},
		"the only one":                  {[]member{up("x", lead)}, "only voter"},
		"the only voter beside others":  {[]member{up("x", lead), up("n", nonVoter)}, "only voter"},
		"one that does not vote":        {[]member{up("a", lead), down("b", voter), up("x", nonVoter)}, ""},
		"a live one of five, two dead": {[]member{
			up("a", lead), up("b", voter), up("x", voter), down("d", voter), down("e", voter),
		}, "unreachable: d, e;"},
		"a dead one of five, two dead": {[]member{
			up("a", lead), up("b", voter), up("c", voter), down("d", voter), down("x", voter),
		}, ""},
		"one of two that are up":           {[]member{up("a", lead), up("x", voter)}, ""},
		"the dead one of two":              {[]member{up("a", lead), down("x", voter)}, ""},
		"a live one of two, the rest dead": {[]member{down("a", voter), up("x", lead)}, "unreachable: a;"},
	} {
		err := leader.QuorumWithout(c.members, "x")
		if (err != nil) != (c.says != "") || c.says != "" && !contains(err, c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

func TestSecretsRotate(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	a := all[0]
	ca := a.c.id.Load().CADigests()[0]
	keys, err := a.c.Directory.GossipKeys()
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"gossip", "ca"} {
		mustChange(t, "rotate "+what, func() error { return all[1].rotate(what) })
	}
	for _, m := range all {
		eventually(t, "new secrets on "+m.cfg.Name, func() string {
			now, err := m.c.Directory.GossipKeys()
			if err != nil || len(now) != 1 || string(now[0]) == string(keys[0]) {
				return fmt.Sprintf("%d gossip keys, error %v", len(now), err)
			}
			if d := m.c.id.Load().CADigests(); len(d) != 1 || d[0] == ca || m.c.id.Load().NeedsRenewal(time.Now()) {
				return fmt.Sprintf("%d CAs, of which the first is new: %v", len(d), d[0] != ca)
			}
			return ""
		})
		put(t, m, m.cfg.Name, "after")
	}
	// The nodes find each other with the new secrets.
	m := others(all, waitLeader(t, all...))[0]
	m.kill()
	m.listen("127.0.0.1")
	m.start()
	waitVoters(t, 3, all...)
}

func TestUnknownFormatStopsTheNode(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	eventually(t, "b has the log", func() string {
		if len(b.c.Directory.Members()) < 2 {
			return "it does not"
		}
		return ""
	})
	ops := []store.Op{{Key: record.NodeKey("x"), Value: []byte(`{"format":99}`)}}
	if err := a.c.entries.Commit(context.Background(), "test", "from the future", ops); err != nil {
		t.Fatal(err)
	}
	a.endsWith(store.ErrFormat)
	b.endsWith(store.ErrFormat)
}

func TestVotersAreBounded(t *testing.T) {
	t.Parallel()
	a := newMachine(t, "a")
	a.cfg.Init, a.cfg.Voters = true, 3
	a.start()
	all := []*machine{a}
	for _, name := range []string{"b", "c", "d", "e"} {
		m := newJoiner(t, name, a.token(), a)
		m.cfg.Voters = 3
		all = append(all, m.start())
	}
	waitVoters(t, 3, all...)
	put(t, all[4], "x", "1")
	for _, m := range all {
		waitEntry(t, m, "x", "1")
		eventually(t, "five members on "+m.cfg.Name, func() string {
			if n := len(m.c.Directory.Members()); n != 5 {
				return fmt.Sprint(n)
			}
			return ""
		})
	}
}
