package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
)

func TestMembersSeeEachOther(t *testing.T) {
	t.Parallel()
	all := group(t, "a", "b", "c")
	for _, n := range all {
		var ids []string
		for _, m := range n.Members() {
			ids = append(ids, m.ID)
			if m.Name != "name of "+m.ID || m.Since.IsZero() || m.Addr == "" {
				t.Errorf("%s sees %+v", n.id, m)
			}
		}
		if !reflect.DeepEqual(ids, []string{"a", "b", "c"}) {
			t.Errorf("%s sees %v", n.id, ids)
		}
	}
	changed := all[2].Changed()
	meta := all[0].config.Meta
	meta.Zone = "z"
	if err := all[0].SetMeta(meta); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, "the announcement of a change of meta data", changed)
	testkit.WaitFor(t, "the zone is seen", func() bool { return all[2].see("a").Zone == "z" })
}

func TestFactsSpread(t *testing.T) {
	t.Parallel()
	all := group(t, "a", "b", "c", "d")
	for _, size := range []int{1, 900, maxFacts} {
		for i, n := range all {
			if err := n.SetFacts(bytes.Repeat([]byte{byte('a' + i)}, size), false); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range all {
			for i, o := range all {
				want := bytes.Repeat([]byte{byte('a' + i)}, size)
				testkit.WaitFor(t, fmt.Sprintf("%s has the %d bytes of %s", n.id, size, o.id), func() bool {
					return bytes.Equal(n.see(o.id).Facts, want)
				})
			}
		}
	}
	if err := all[0].SetFacts(make([]byte, maxFacts+1), false); !errors.Is(err, ErrTooLarge) {
		t.Errorf("facts beyond the bound: %v", err)
	}
	// A later member gets them with its first push/pull.
	late := open(t, "late")
	late.mustJoin(t, all[3])
	testkit.WaitFor(t, "the late member has the facts", func() bool { return len(late.see("b").Facts) == maxFacts })
}

// TestFactsForEveryoneArriveAtOnce: facts with everyone set reach all members
// without packets. Here members do not gossip or probe, and push/pull only on
// join.
func TestFactsForEveryoneArriveAtOnce(t *testing.T) {
	t.Parallel()
	mute := func(c *Config) {
		c.timing.gossip, c.timing.pushPull, c.timing.probe, c.timing.heal = time.Hour, time.Hour, time.Hour, time.Hour
	}
	var all []*node
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		n := open(t, id, mute)
		for _, o := range all {
			n.mustJoin(t, o)
		}
		all = append(all, n)
	}
	teller := all[5]
	for _, text := range []string{"serving", "draining", "serving again"} {
		if err := teller.SetFacts([]byte(text), true); err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			testkit.WaitFor(t, n.id+" has heard "+text, func() bool { return string(n.see(teller.id).Facts) == text })
		}
	}
}

// A node's record may arrive before memberlist reports the node.
func TestFactsOfUnknownNodeAreKept(t *testing.T) {
	b := newMemberTable(Member{ID: "self", State: Alive}, record{ID: "self"})
	for i := range 3 * maxStrays {
		b.mergeRecord(record{ID: fmt.Sprint("nobody", i), Version: 1, Facts: []byte("x")})
	}
	if n := len(b.strays); n != maxStrays {
		t.Errorf("%d are remembered, the bound is %d", n, maxStrays)
	}
	b.mergeRecord(record{ID: "x", Instance: "i", Version: 2, Facts: []byte("2")})
	b.mergeRecord(record{ID: "x", Instance: "i", Version: 1, Facts: []byte("1")})
	if n := len(b.list()); n != 1 {
		t.Errorf("%d members: a node known only from facts is counted", n)
	}
	b.setAlive("x", "127.0.0.1:1", Meta{Instance: "i"})
	if m := b.list()[1]; string(m.Facts) != "2" {
		t.Errorf("%+v", m)
	}
	b.setDead("x")
	b.mergeRecord(record{ID: "x", Instance: "i", Version: 3, Facts: []byte("3")})
	b.setAlive("x", "127.0.0.1:1", Meta{Instance: "i"})
	if m := b.list()[1]; string(m.Facts) != "3" || len(b.strays) >= maxStrays {
		t.Errorf("%+v, %d strays", m, len(b.strays))
	}
}

// The facts of a node that restarts with its clock set back are accepted.
func TestFactsOfARestartedNodeAreNewer(t *testing.T) {
	t.Parallel()
	all := group(t, "a", "b")
	b := all[1]
	b.members.mu.Lock()
	b.members.entries["b"].record.Version = 1 << 60
	b.members.mu.Unlock()
	if err := b.SetFacts([]byte("before"), false); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "a has the facts", func() bool { return string(all[0].see("b").Facts) == "before" })
	b.Close()
	again := open(t, "b", bindTo(b.Addr()))
	if err := again.SetFacts([]byte("after"), false); err != nil {
		t.Fatal(err)
	}
	again.mustJoin(t, all[0])
	testkit.WaitFor(t, "a has the new facts", func() bool { return string(all[0].see("b").Facts) == "after" })
}

// A node falsely considered dead shows its facts once it is back, including
// those received meanwhile, without sending them again.
func TestFactsSurviveAFalseAlarm(t *testing.T) {
	b := newMemberTable(Member{ID: "self", State: Alive}, record{ID: "self"})
	b.setAlive("x", "127.0.0.1:1", Meta{Instance: "i"})
	b.mergeRecord(record{ID: "x", Instance: "i", Version: 1, Facts: []byte("1")})
	b.setDead("x")
	if m := b.list()[1]; m.Facts != nil || m.State != Dead {
		t.Errorf("a dead member: %+v", m)
	}
	b.mergeRecord(record{ID: "x", Instance: "i", Version: 2, Facts: []byte("2")})
	if n := len(b.records(maxState)); n != 1 {
		t.Error("facts of dead members are sent")
	}
	b.setAlive("x", "127.0.0.1:1", Meta{Instance: "i"})
	if m := b.list()[1]; string(m.Facts) != "2" || m.State != Alive {
		t.Errorf("alive again: %+v", m)
	}
	b.setAlive("x", "127.0.0.1:1", Meta{Instance: "j"})
	if m := b.list()[1]; m.Facts != nil {
		t.Errorf("facts of the process before: %+v", m)
	}
}

func TestDeadAndLeftMembers(t *testing.T) {
	t.Parallel()
	all := group(t, "a", "b", "c")
	if err := all[1].SetFacts([]byte("load"), false); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "a has the facts", func() bool { return string(all[0].see("b").Facts) == "load" })
	if err := all[2].Leave(timeoutContext(t)); err != nil {
		t.Fatal(err)
	}
	for _, n := range all[:2] {
		testkit.WaitFor(t, n.id+" sees that c left", n.sees("c", Left))
	}
	all[2].Close()
	testkit.WaitFor(t, "a sees b", all[0].sees("b", Alive)) // a busy machine may have taken it for dead meanwhile
	before := time.Now()
	all[1].Close()
	testkit.WaitFor(t, "a sees that b is dead", all[0].sees("b", Dead))
	if m := all[0].see("b"); m.Facts != nil || m.Since.Before(before) {
		t.Errorf("a dead member: %+v", m)
	}
	for name, err := range map[string]error{
		"SetFacts": all[1].SetFacts(nil, false), "SetMeta": all[1].SetMeta(Meta{}),
		"Leave": all[1].Leave(timeoutContext(t)), "Close": all[1].Close(),
	} {
		if (name == "Close") != (err == nil) || err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
}

func TestRestartAtAnotherAddressIsFollowed(t *testing.T) {
	t.Parallel()
	all := group(t, "a", "b", "c")
	all[2].Close()
	told := make(chan Member, 1)
	again := open(t, "c", bindTo("127.0.0.9:0"), func(c *Config) { c.Conflict = func(m Member) { told <- m } })
	again.mustJoin(t, all[0])
	for _, n := range all[:2] {
		testkit.WaitFor(t, n.id+" sees c at its new address", func() bool {
			m := n.see("c")
			return m.State == Alive && m.Addr == again.Addr()
		})
	}
	select {
	case m := <-told:
		t.Errorf("stale gossip about itself is reported as a conflict: %+v", m)
	default:
	}
}

func TestCopiedDataFolderIsNoticed(t *testing.T) {
	t.Parallel()
	told := make(chan Member, 4)
	original := open(t, "a", func(c *Config) { c.Conflict = func(m Member) { told <- m } })
	other := open(t, "b")
	other.mustJoin(t, original)
	heard := make(chan Member, 4)
	copied := open(t, "a", bindTo("127.0.0.2:0"), func(c *Config) { c.Conflict = func(m Member) { heard <- m } })
	copied.mustJoin(t, other) // not to the original, which must learn of it anyway
	for who, c := range map[string]chan Member{"the original": told, "the copy": heard} {
		select {
		case m := <-c:
			younger := m.Since.After(original.opened.Add(-time.Millisecond))
			if m.ID != "a" || (who == "the original") != (m.Addr == copied.Addr()) || who == "the original" && !younger {
				t.Errorf("%s: conflict reported with %+v", who, m)
			}
		case <-time.After(testkit.Patience):
			t.Errorf("%s: no conflict reported", who)
		}
	}
}

// A node that reaches itself by another of its addresses is no conflict.
func TestOwnClaimIsNoConflict(t *testing.T) {
	t.Parallel()
	told := make(chan Member, 4)
	n := open(t, "a", func(c *Config) { c.Conflict = func(m Member) { told <- m } })
	n.queueConflict(conflictSign{claim: claim{ID: "a", Addr: "127.0.0.1:1", Meta: n.config.Meta}})
	n.queueConflict(conflictSign{claim: claim{ID: "other", Addr: "127.0.0.1:1", Meta: Meta{Instance: "x"}}})
	// Handled after the others, by the same goroutine.
	n.queueConflict(conflictSign{claim: claim{ID: "a", Addr: "127.0.0.1:2", Meta: Meta{Instance: "y"}}})
	if m := testkit.Receive(t, "the report of a conflict with the other process", told); m.Addr != "127.0.0.1:2" {
		t.Errorf("conflict reported with %+v", m)
	}
}

func TestClustersStayApart(t *testing.T) {
	t.Parallel()
	ours := open(t, "a", keyed(key(1)))
	for what, stranger := range map[string]*node{
		"label": open(t, "b", keyed(key(1)), label("other")), "key": open(t, "b", keyed(key(2))), "no key": open(t, "b"),
	} {
		if n, err := stranger.Join(t.Context(), []string{ours.Addr()}); n != 0 || err == nil {
			t.Errorf("another %s: joined, %v", what, err)
		}
		if n, err := ours.Join(t.Context(), []string{stranger.Addr()}); n != 0 || err == nil {
			t.Errorf("towards another %s: joined, %v", what, err)
		}
		if len(ours.Members()) != 1 || len(stranger.Members()) != 1 {
			t.Errorf("another %s: %v and %v", what, ours.Members(), stranger.Members())
		}
	}
}

func TestKeysRotateWhileTrafficRuns(t *testing.T) {
	t.Parallel()
	nodes := []*node{open(t, "a", keyed(key(1))), open(t, "b", keyed(key(1))), open(t, "c", keyed(key(1)))}
	nodes[1].mustJoin(t, nodes[0])
	nodes[2].mustJoin(t, nodes[0])
	count := 0
	for _, keys := range [][][]byte{{key(1), key(2)}, {key(2), key(1)}, {key(2)}, {key(2), key(3), key(4)}, {key(4), key(2)}, {key(4)}} {
		for _, n := range nodes {
			if err := n.SetKeys(keys); err != nil {
				t.Fatal(err)
			}
			count++
			text := fmt.Sprint(count)
			if err := n.SetFacts([]byte(text), false); err != nil {
				t.Fatal(err)
			}
			for _, o := range nodes {
				testkit.WaitFor(t, o.id+" hears "+n.id+" while keys change", func() bool { return string(o.see(n.id).Facts) == text })
			}
		}
	}
	if got := nodes[0].keyring.GetKeys(); len(got) != 1 || !bytes.Equal(got[0], key(4)) {
		t.Errorf("%d keys are left", len(got))
	}
	late := open(t, "late", keyed(key(1)))
	if n, _ := late.Join(t.Context(), []string{nodes[0].Addr()}); n != 0 {
		t.Error("a removed key still decrypts")
	}
	if err := nodes[0].SetKeys([][]byte{[]byte("short")}); !errors.Is(err, ErrConfig) {
		t.Errorf("a key of 5 bytes: %v", err)
	}
}

func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	all := group(t, "a", "b", "c", "d")
	left, right := all[:2], all[2:]
	turn := func(cut bool) {
		for _, l := range left {
			for _, r := range right {
				l.cut.setCut(r.Addr(), cut)
				r.cut.setCut(l.Addr(), cut)
			}
		}
	}
	turn(true)
	for _, l := range left {
		for _, r := range right {
			testkit.WaitFor(t, l.id+" loses "+r.id, l.sees(r.id, Dead))
			testkit.WaitFor(t, r.id+" loses "+l.id, r.sees(l.id, Dead))
		}
	}
	// Wait until memberlist has dropped them.
	testkit.WaitFor(t, "memberlist forgets the dead", func() bool { return all[0].list.NumMembers() == 2 && forgotten(all[0], "c") })
	turn(false)
	for _, n := range all {
		for _, o := range all {
			testkit.WaitFor(t, n.id+" finds "+o.id+" again", n.sees(o.id, Alive))
		}
	}
}

// forgotten reports whether memberlist no longer contacts a node by itself.
func forgotten(n *node, id string) bool {
	return n.see(id).State == Dead && time.Since(n.see(id).Since) > 2*fastTiming.reclaim
}

func TestFlappingNode(t *testing.T) {
	t.Parallel()
	all := group(t, "a", "b")
	addr := ""
	for i := range 12 {
		n := open(t, "flap", bindTo(addr), func(c *Config) {
			if addr == "" {
				c.Bind = "127.0.0.7:0"
			}
		})
		addr = n.Addr()
		n.mustJoin(t, all[i%2])
		n.Close()
	}
	if n := len(all[0].Members()); n != 3 {
		t.Errorf("%d members", n)
	}
	stays := open(t, "flap", bindTo(addr))
	stays.mustJoin(t, all[0])
	for _, n := range all {
		testkit.WaitFor(t, "the node is seen once it stays up", func() bool {
			m := n.see("flap")
			return m.State == Alive && m.Instance == stays.config.Meta.Instance
		})
	}
}

func TestInvalidConfigIsRejected(t *testing.T) {
	good := Config{ID: "a", Bind: "127.0.0.1:0", Label: "c"}
	for what, change := range map[string]func(*Config){
		"no ID": func(c *Config) { c.ID = "" }, "no label": func(c *Config) { c.Label = "" },
		"bind": func(c *Config) { c.Bind = "localhost:1" }, "advertise": func(c *Config) { c.Advertise = "0.0.0.0:1" },
		"key": func(c *Config) { c.Keys = [][]byte{{1}} }, "meta": func(c *Config) { c.Meta.Name = "a\nb" },
		"foreign address": func(c *Config) { c.Bind = "192.0.2.1:0" },
	} {
		c := good
		change(&c)
		if g, err := Open(c); err == nil {
			g.Close()
			t.Errorf("%s: accepted", what)
		} else if what != "foreign address" && !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	long := good
	long.Meta.Name = strings.Repeat("x", maxMeta)
	if _, err := Open(long); !errors.Is(err, ErrTooLarge) {
		t.Errorf("meta data beyond the bound: %v", err)
	}
	n := open(t, "a", func(c *Config) { c.Advertise = "127.0.0.1:0" })
	if err := n.SetMeta(long.Meta); !errors.Is(err, ErrTooLarge) {
		t.Errorf("SetMeta beyond the bound: %v", err)
	}
	if n.Addr() != fmt.Sprintf("127.0.0.1:%d", n.transport.port) {
		t.Errorf("advertised: %s", n.Addr())
	}
}
