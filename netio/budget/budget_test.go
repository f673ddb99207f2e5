package budget

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// client is an Owner that notes its eviction.
type client struct {
	Holder
	evicted int
}

func (c *client) Evict() { c.evicted++ }

func from(source, listener, tenant string) *Party {
	return &Party{Source: Source(netip.MustParseAddr(source)), Listener: listener, Tenant: tenant}
}

// crowd has clients of one party hold n each.
func crowd(t *testing.T, b *Budget, c Class, p *Party, clients int, n int64) (all []*client) {
	t.Helper()
	for range clients {
		one := new(client)
		if ok, _ := b.Take(&one.Holder, c, one, p, n, MayWait); !ok {
			t.Fatalf("no room for client %d of %v", len(all), p)
		}
		all = append(all, one)
	}
	return all
}

func evictions(all []*client) (n int) {
	for _, c := range all {
		n += c.evicted
	}
	return n
}

func TestTheHeaviestSourceGivesWayToOneUnderItsShare(t *testing.T) {
	b := New(Config{Limit: 100})
	heavy := crowd(t, b, Early, from("127.0.0.9", "a", ""), 10, 10)
	var small client
	if ok, _ := b.Take(&small.Holder, Early, &small, from("127.0.0.10", "a", ""), 5, MayWait); ok {
		t.Error("granted before there was room")
	}
	if heavy[0].evicted != 1 || evictions(heavy) != 1 {
		t.Errorf("%d of the heavy ones were evicted, the oldest %d times", evictions(heavy), heavy[0].evicted)
	}
	if ok, _ := b.Take(&small.Holder, Early, &small, from("127.0.0.10", "a", ""), 5, MayWait); ok || evictions(heavy) != 1 {
		t.Errorf("granted %v, %d evicted while the first is about to go", ok, evictions(heavy))
	}
	if !b.Give(&heavy[0].Holder, 10) {
		t.Error("no waiter was notified of free memory")
	}
	if ok, _ := b.Take(&small.Holder, Early, &small, from("127.0.0.10", "a", ""), 5, MayWait); !ok {
		t.Error("no room after the eviction")
	}
	if got := b.Evictions()["a"]; got != 1 {
		t.Errorf("%d evictions counted", got)
	}
}

// Many that hold the same wait for one another, though what each holds is a little
// more than its share.
func TestEqualsDoNotEvictOneAnother(t *testing.T) {
	b := New(Config{Limit: 1000})
	var all []*client
	for i := range 20 {
		c := new(client)
		b.Take(&c.Holder, Early, c, from(fmt.Sprintf("10.0.0.%d", i), "l", ""), 51, Must)
		all = append(all, c)
	}
	for i, n := range []int64{40, 26} {
		var more client
		b.Take(&more.Holder, Early, &more, from(fmt.Sprintf("10.0.1.%d", i), "l", ""), n, MayWait)
	}
	if n := evictions(all); n != 0 {
		t.Errorf("%d evicted", n)
	}
	var small client
	if b.Take(&small.Holder, Early, &small, from("10.0.2.1", "l", ""), 20, MayWait); evictions(all) == 0 {
		t.Error("no client was evicted for a small one")
	}
}

func TestWhoIsOverItsShareWaits(t *testing.T) {
	b := New(Config{Limit: 100})
	heavy := crowd(t, b, Early, from("127.0.0.9", "a", ""), 9, 10)
	light := crowd(t, b, Early, from("127.0.0.10", "a", ""), 1, 10)
	var more client
	if ok, full := b.Take(&more.Holder, Early, &more, from("127.0.0.9", "a", ""), 10, MayWait); ok || !full {
		t.Errorf("granted %v, full %v", ok, full)
	}
	if n := evictions(heavy) + evictions(light); n != 0 {
		t.Errorf("%d evicted for one that is over its share", n)
	}
	if b.Used() != 100 || len(b.tiers[Early].parties) != 5 {
		t.Errorf("%d used by %d parties", b.Used(), len(b.tiers[Early].parties))
	}
}

// Behind a balancer all clients have one address: then listeners decide, and
// behind one listener tenants.
func TestListenersAndTenantsHaveShares(t *testing.T) {
	for name, p := range map[string]*Party{
		"listener": from("127.0.0.9", "quiet", "t"), "tenant": from("127.0.0.9", "busy", "quiet"),
	} {
		b := New(Config{Limit: 100})
		busy := crowd(t, b, Bulk, from("127.0.0.9", "busy", "t"), 10, 10)
		var small client
		b.Take(&small.Holder, Bulk, &small, p, 10, MayWait)
		if busy[0].evicted != 1 || evictions(busy) != 1 {
			t.Errorf("%s: %d evicted", name, evictions(busy))
		}
	}
}

// Sources of one connection each, as one IPv6 customer has, hold everything: none
// has more than its share, and the oldest give way all the same.
func TestWhatIsStaleGivesWayWhereSourcesAreMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Limit: 1000, Stale: time.Second})
		var all []*client
		for i := range 10 {
			all = append(all, crowd(t, b, Early, from(fmt.Sprintf("2001:db8:0:%x::1", i), "l", ""), 1, 100)...)
		}
		p := from("192.0.2.1", "l", "")
		var small client
		ask := func() { b.Take(&small.Holder, Early, &small, p, 60, MayWait) }
		if ask(); evictions(all) != 0 || !b.Crowded(p, 100) {
			t.Error("evicted at once")
		}
		<-time.After(time.Second)
		if b.Crowded(p, 100) || !b.Crowded(p, 101) {
			t.Error("crowded is wrong about stale entries")
		}
		if ask(); evictions(all) != 1 || all[0].evicted != 1 {
			t.Errorf("%d were evicted", evictions(all))
		}
		var large client
		if b.Take(&large.Holder, Early, &large, from("192.0.2.2", "l", ""), 101, MayWait); evictions(all) != 1 {
			t.Error("a heavier source had a lighter one evicted")
		}
	})
}

// A client that holds much must not have the small ones of a busy tenant evicted.
func TestTheVictimIsNeverOfALighterSource(t *testing.T) {
	b := New(Config{Limit: 100})
	var busy []*client
	for i := range 6 {
		busy = append(busy, crowd(t, b, Bulk, from(fmt.Sprintf("10.0.0.%d", i+1), "l", "busy"), 1, 10)...)
	}
	crowd(t, b, Bulk, from("127.0.0.9", "l", "other"), 1, 20)
	var more client
	b.Take(&more.Holder, Bulk, &more, from("127.0.0.9", "l", "other"), 25, MayWait)
	if n := evictions(busy); n != 0 {
		t.Errorf("%d evicted", n)
	}
}

func TestTheReserveIsForWhatIsEarly(t *testing.T) {
	b := New(Config{Limit: 100, Reserve: 25})
	crowd(t, b, Bulk, from("127.0.0.9", "l", ""), 5, 15)
	var more client
	if ok, _ := b.Take(&more.Holder, Bulk, &more, from("127.0.0.9", "l", ""), 1, MayWait); ok {
		t.Error("bulk has got some of the reserve")
	}
	crowd(t, b, Early, from("127.0.0.9", "l", ""), 5, 5)
}

// What Early has borrowed goes back to a party that has less than its share of
// Bulk.
func TestEarlyGivesBackWhatItBorrowed(t *testing.T) {
	b := New(Config{Limit: 100, Reserve: 25})
	hellos := crowd(t, b, Early, from("127.0.0.9", "l", ""), 10, 10)
	var frame client
	b.Take(&frame.Holder, Bulk, &frame, from("127.0.0.10", "l", ""), 30, MayWait)
	if n := evictions(hellos); n != 3 {
		t.Fatalf("%d evicted", n)
	}
	for _, h := range hellos[:3] {
		b.Give(&h.Holder, 10)
	}
	if ok, _ := b.Take(&frame.Holder, Bulk, &frame, from("127.0.0.10", "l", ""), 30, MayWait); !ok {
		t.Error("no room")
	}
}

func TestBulkIsSafeForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Limit: 80, Grace: time.Second})
		heavy := crowd(t, b, Bulk, from("127.0.0.9", "l", ""), 7, 10)
		var small client
		ask := func() { b.Take(&small.Holder, Bulk, &small, from("127.0.0.10", "l", ""), 20, MayWait) }
		if ask(); evictions(heavy) != 0 {
			t.Error("evicted at once")
		}
		<-time.After(time.Second)
		if ask(); heavy[0].evicted != 1 {
			t.Error("not evicted after the grace")
		}
	})
}

// The last eighth is for those under their share: else whoever holds most would
// take each byte that is given back before those who wait for it.
func TestTheLastEighthIsForSmallParties(t *testing.T) {
	b := New(Config{Limit: 80})
	crowd(t, b, Bulk, from("127.0.0.10", "l", ""), 1, 1)
	heavy := crowd(t, b, Bulk, from("127.0.0.9", "l", ""), 6, 11)
	var more client
	if ok, _ := b.Take(&more.Holder, Bulk, &more, from("127.0.0.9", "l", ""), 5, MayWait); ok {
		t.Error("the heaviest got some of the last eighth")
	}
	if ok, _ := b.Take(&more.Holder, Bulk, &more, from("127.0.0.11", "l", ""), 10, MayWait); !ok || evictions(heavy) != 0 {
		t.Error("a small one did not")
	}
}

// idler is a client with an idle time.
type idler struct {
	client
	rank int
	idle time.Duration
}

func (i *idler) Idle() (int, time.Duration) { return i.rank, i.idle }

func TestWhoIsIdleLongestGoesFirst(t *testing.T) {
	b := New(Config{Limit: 4})
	all := []*idler{{rank: 0, idle: time.Hour}, {rank: 1, idle: time.Second}, {rank: 1, idle: time.Minute}, {rank: 0}}
	for _, i := range all {
		b.Take(&i.Holder, Bulk, i, from("127.0.0.9", "l", ""), 1, MayWait)
	}
	var c client
	b.Take(&c.Holder, Bulk, &c, from("127.0.0.10", "l", ""), 1, MayWait)
	for n, i := range all {
		if want := n == 2; (i.evicted == 1) != want {
			t.Errorf("%d: evicted %d times", n, i.evicted)
		}
	}
}

func TestAnIPv6CustomerIsOneSource(t *testing.T) {
	if a, b := from("2001:db8::1", "", "").Source, from("2001:db8::ffff:2%eth0", "", "").Source; a != b {
		t.Errorf("%v, %v", a, b)
	}
	if a := from("::ffff:10.0.0.1", "", "").Source; a != netip.MustParseAddr("10.0.0.1") {
		t.Error(a)
	}
}

// Whatever is taken, given back and evicted: the sums are right, the limits hold,
// and nothing is left at the end.
func TestSumsHold(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	b := New(Config{Limit: 1000, Reserve: 250})
	all := make([]*client, 60)
	for i := range all {
		all[i] = new(client)
	}
	for range 20000 {
		c := all[rng.IntN(len(all))]
		if b.Evicted(&c.Holder) || c.n > 0 && rng.IntN(3) == 0 {
			b.Give(&c.Holder, 1+rng.Int64N(max(c.n, 1)))
		} else {
			p := from(fmt.Sprintf("10.0.0.%d", rng.IntN(9)), fmt.Sprint(rng.IntN(3)), fmt.Sprint(rng.IntN(3)))
			b.Take(&c.Holder, Class(rng.IntN(2)), c, p, 1+rng.Int64N(60), MayWait)
		}
		var sum, parties int64
		for _, c := range all {
			sum += c.n
		}
		for class := range b.tiers {
			for _, p := range b.tiers[class].heaps[bySource] {
				parties += p.used
			}
			parties += b.tiers[class].leaving
		}
		if sum != b.Used() || parties != sum || sum > 1000 || b.tiers[Bulk].used > 750 {
			t.Fatalf("clients hold %d, parties %d, used %d, bulk %d", sum, parties, b.Used(), b.tiers[Bulk].used)
		}
	}
	for _, c := range all {
		b.Give(&c.Holder, c.n)
	}
	for class := range b.tiers {
		if n := len(b.tiers[class].parties) + len(b.tiers[class].heaps[0]); n != 0 || b.tiers[class].leaving != 0 || b.Used() != 0 {
			t.Errorf("%d parties left, %d leaving", n, b.tiers[class].leaving)
		}
	}
}

// What one connection costs, with as many others.
func BenchmarkTakeAndGive(bench *testing.B) {
	for _, others := range []int{0, 100, 10000} {
		bench.Run(fmt.Sprint(others), func(bench *testing.B) {
			b := New(Config{Limit: 1 << 40})
			for i := range others {
				c := new(client)
				b.Take(&c.Holder, Early, c, &Party{Source: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Listener: "l"}, 600, MayWait)
			}
			var c client
			p := from("127.0.0.9", "l", "")
			bench.ReportAllocs()
			for bench.Loop() {
				b.Take(&c.Holder, Early, &c, p, 600, Must)
				b.Give(&c.Holder, 600)
			}
		})
	}
}
