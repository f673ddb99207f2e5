package federation

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"penstock/consensus/store"
	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/trust"
	"penstock/routing/resource"
)

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// elapse lets a time of the bubble pass, and waits until all work in it is done.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// publisher is an endpoint without a network: what each fetch gets.
type publisher struct {
	mu     sync.Mutex
	bundle *resource.Bundle
	err    error
	at     []time.Time // of the fetches
}

func (p *publisher) fetch(context.Context, *resource.TrustBundle, func(string) *trust.Bundle) (*resource.Bundle, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = append(p.at, time.Now())
	return p.bundle, p.err
}

func (p *publisher) set(b *resource.Bundle, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bundle, p.err = b, err
}

// count returns how many fetches there were.
func (p *publisher) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

// bundle makes a bundle; sequence 0: none.
func bundle(ca *certs.CA, sequence uint64, hint time.Duration) *resource.Bundle {
	authorities, err := resource.ParseCertificates(ca.PEM)
	if err != nil {
		panic(err)
	}
	b := &resource.Bundle{Authorities: authorities, RefreshHint: hint}
	if sequence > 0 {
		b.Sequence = &sequence
	}
	return b
}

// keeper is a node of a cluster.
type keeper struct {
	*Manager
	bundles *trust.Bundles
	log     *testkit.Log
	stop    func()
}

// start starts a node on a store. It leads if lead is true.
func start(t *testing.T, st Store, p *publisher, lead bool, specs map[string]*resource.TrustBundle) *keeper {
	t.Helper()
	k := &keeper{bundles: trust.NewBundles(), log: &testkit.Log{}}
	k.Manager = New(Config{
		Store: st, Bundles: k.bundles, TrustDomain: "ours.example", Log: slog.New(slog.NewTextHandler(k.log, nil)),
		Leads: func() bool { return lead },
		Await: func(context.Context, uint64) error { return nil },
		Fetch: p.fetch,
	})
	k.put(specs)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	k.stop = func() { cancel(); <-done }
	t.Cleanup(k.stop)
	return k
}

// put applies TrustBundles; nil deletes one.
func (k *keeper) put(specs map[string]*resource.TrustBundle) {
	var changes []resource.Change
	for name, spec := range specs {
		ch := resource.Change{Object: resource.Object{Key: resource.Key{Kind: resource.KindTrustBundle, Name: name}}, Delete: spec == nil}
		if spec != nil {
			ch.Spec = spec
		}
		changes = append(changes, ch)
	}
	k.Apply(changes)
}

// holds reports whether the bundle in force under a name has the authority of a CA.
func (k *keeper) holds(name string, ca *certs.CA) bool {
	set, _ := k.bundles.Current()
	b := set.Get(name)
	return b != nil && b.Has(bundle(ca, 0, 0).Authorities[0])
}

func endpoint() *resource.TrustBundle {
	return &resource.TrustBundle{
		TrustDomain: "partner.example", Endpoint: &resource.BundleEndpoint{URL: "https://partner.example", Profile: resource.ProfileWeb},
	}
}

// A bundle is fetched when the publisher wants that, give or take a tenth.
func TestBundleIsFetchedAsOftenAsItHints(t *testing.T) {
	ca := certs.NewCA("partner")
	for what, c := range map[string]struct{ hint, want time.Duration }{
		"by default": {0, defaultRefresh}, "as hinted": {20 * time.Minute, 20 * time.Minute},
		"not too often": {time.Second, minRefresh}, "not too seldom": {365 * 24 * time.Hour, maxRefresh},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &publisher{bundle: bundle(ca, 1, c.hint)}
			k := start(t, store.NewMemory(store.Limits{}), p, true, map[string]*resource.TrustBundle{"partner": endpoint()})
			elapse(3*c.want + c.want/2)
			if len(p.at) != 4 || !k.holds("partner", ca) {
				t.Fatalf("%s: fetched at %v, held %v", what, p.at, k.holds("partner", ca))
			}
			for i := range p.at[1:] {
				if d := p.at[i+1].Sub(p.at[i]); d < c.want*8/10 || d > c.want*12/10 {
					t.Errorf("%s: the time between two fetches is %v, want about %v", what, d, c.want)
				}
			}
			k.stop()
		})
	}
}

// What cannot be fetched or used changes nothing, is told, and is tried again.
func TestLastGoodBundleStaysInUse(t *testing.T) {
	first, second, third := certs.NewCA("first"), certs.NewCA("second"), certs.NewCA("third")
	synctest.Test(t, func(t *testing.T) {
		p := &publisher{err: errors.New("connection refused")}
		k := start(t, store.NewMemory(store.Limits{}), p, true, map[string]*resource.TrustBundle{"partner": endpoint()})
		// Without a bundle it is tried soon.
		elapse(4 * time.Second)
		if got := k.Unusable(time.Now()); len(got) != 1 || !strings.Contains(got[0], "not fetched yet") {
			t.Errorf("%q", got)
		}
		if got := k.Faults(); len(got) != 1 || !strings.Contains(got[0], "connection refused") {
			t.Errorf("%q", got)
		}
		elapse(26 * time.Second)
		if n := p.count(); n < 3 || n > 5 {
			t.Errorf("%d fetches in 30 s", n)
		}
		p.set(bundle(first, 7, 0), nil)
		elapse(time.Minute)
		if !k.holds("partner", first) || len(k.Faults())+len(k.Unusable(time.Now())) > 0 {
			t.Fatalf("%q %q", k.Faults(), k.Unusable(time.Now()))
		}
		// With one the next time is as usual.
		p.set(nil, errors.New("no route\nto host"))
		n := p.count()
		elapse(3 * defaultRefresh)
		if d := p.count() - n; d < 2 || d > 4 || !k.holds("partner", first) || len(k.Unusable(time.Now())) > 0 {
			t.Errorf("%d fetches, %q", d, k.Unusable(time.Now()))
		}
		if got := k.log.String(); strings.Count(got, "no route to host") != 1 || !strings.Contains(got, "stays in use") {
			t.Errorf("the log has %s", got)
		}
		// A publisher that goes back is not followed, one that goes on is.
		p.set(bundle(second, 6, 0), nil)
		elapse(2 * defaultRefresh)
		if got := k.Faults(); !k.holds("partner", first) || len(got) != 1 || !strings.Contains(got[0], "earlier spiffe_sequence") {
			t.Errorf("%q", got)
		}
		p.set(bundle(third, 8, 0), nil)
		elapse(2 * defaultRefresh)
		if !k.holds("partner", third) || k.holds("partner", first) || len(k.Faults()) > 0 {
			t.Errorf("%q", k.Faults())
		}
		// A bundle without authorities is followed: the publisher has withdrawn them.
		n9 := uint64(9)
		p.set(&resource.Bundle{Sequence: &n9}, nil)
		elapse(2 * defaultRefresh)
		if got := k.Unusable(time.Now()); k.holds("partner", third) || len(got) != 1 || !strings.Contains(got[0], "no authority") {
			t.Errorf("%q", got)
		}
		if got := k.Fetches(); got[FetchCount{"partner", "ok"}] == 0 || got[FetchCount{"partner", "failed"}] == 0 {
			t.Errorf("%v", got)
		}
		k.stop()
	})
}

// Nodes that do not lead use what the leader stored, and so does the next leader,
// which does not begin with nothing.
func TestFetchedBundleIsThereForAllNodes(t *testing.T) {
	ca := certs.NewCA("partner")
	synctest.Test(t, func(t *testing.T) {
		st, specs := store.NewMemory(store.Limits{}), map[string]*resource.TrustBundle{"partner": endpoint()}
		p, silent := &publisher{bundle: bundle(ca, 1, 0)}, &publisher{err: errors.New("unreachable")}
		leader, other := start(t, st, p, true, specs), start(t, st, silent, false, specs)
		elapse(5 * time.Second)
		if !leader.holds("partner", ca) || !other.holds("partner", ca) || silent.count() > 0 {
			t.Fatalf("leader %v, other %v, which fetched %d times", leader.holds("partner", ca), other.holds("partner", ca), silent.count())
		}
		index := st.Snapshot().Index()
		elapse(time.Hour)
		if st.Snapshot().Index() != index {
			t.Error("a bundle that did not change was stored again")
		}
		leader.stop()
		next := start(t, st, silent, true, specs)
		if !next.holds("partner", ca) {
			t.Error("the bundle is not there at the start of another leader")
		}
		elapse(5 * time.Second)
		if !next.holds("partner", ca) || len(next.Faults()) != 1 {
			t.Errorf("%q", next.Faults())
		}
		other.stop()
		next.stop()
	})
}

// What was fetched belongs to a trust domain and a first bundle.
func TestFetchedBundleIsGivenUpWithWhatItBelongsTo(t *testing.T) {
	fetched, given := certs.NewCA("fetched"), certs.NewCA("given")
	synctest.Test(t, func(t *testing.T) {
		st, p := store.NewMemory(store.Limits{}), &publisher{bundle: bundle(fetched, 5, 0)}
		k := start(t, st, p, true, map[string]*resource.TrustBundle{"partner": endpoint()})
		change := func(what string, spec *resource.TrustBundle, fetchedStays bool) {
			t.Helper()
			p.set(bundle(fetched, 5, 0), nil)
			k.put(map[string]*resource.TrustBundle{"partner": endpoint()})
			elapse(2 * time.Second)
			if !k.holds("partner", fetched) {
				t.Fatalf("%s: not fetched", what)
			}
			p.set(nil, errors.New("unreachable"))
			k.put(map[string]*resource.TrustBundle{"partner": spec})
			elapse(2 * time.Second)
			if got := k.holds("partner", fetched); got != fetchedStays {
				t.Errorf("%s: what was fetched is in force: %v", what, got)
			}
		}
		moved, renamed, replaced, fixed := endpoint(), endpoint(), endpoint(), endpoint()
		moved.Endpoint = &resource.BundleEndpoint{URL: "https://elsewhere.example", Profile: resource.ProfileWeb}
		renamed.TrustDomain = "another.example"
		replaced.Bundle = given.PEM
		fixed.Bundle, fixed.Endpoint = given.PEM, nil
		change("another URL", moved, true)
		change("another trust domain", renamed, false)
		change("another first bundle", replaced, false)
		if !k.holds("partner", given) {
			t.Error("the first bundle is not in force")
		}
		// The user overrides the sequence: a bundle with a lower one is taken then.
		p.set(bundle(fetched, 1, 0), nil)
		elapse(2 * defaultRefresh)
		if !k.holds("partner", fetched) {
			t.Error("a bundle after another first one is not followed")
		}
		change("no endpoint", fixed, false)
		change("deleted", nil, false)
		if entries(st) != 0 {
			t.Errorf("%d entries are left", entries(st))
		}
		if set, _ := k.bundles.Current(); len(set.Names()) > 0 {
			t.Errorf("in force: %q", set.Names())
		}
		k.stop()
	})
}

func entries(st Store) (n int) {
	for range st.Snapshot().Kind(kind) {
		n++
	}
	return n
}

// A bundle for the cluster's own trust domain is never in force, and an entry of a
// later version changes nothing.
func TestWhatCannotBeInForceIsNot(t *testing.T) {
	ca := certs.NewCA("partner")
	synctest.Test(t, func(t *testing.T) {
		st, p := store.NewMemory(store.Limits{}), &publisher{bundle: bundle(ca, 1, 0)}
		own := endpoint()
		own.TrustDomain, own.Bundle = "ours.example", ca.PEM
		k := start(t, st, p, true, map[string]*resource.TrustBundle{"own": own, "partner": endpoint()})
		elapse(2 * time.Second)
		if k.holds("own", ca) || len(k.Unusable(time.Now())) != 1 {
			t.Errorf("%q", k.Unusable(time.Now()))
		}
		if err := k.commit(t.Context(), "test", store.Op{Key: store.Key{Kind: kind, Name: "partner"}, Value: []byte(`{"format": 2}`)}); err != nil {
			t.Fatal(err)
		}
		if !k.holds("partner", ca) || !strings.Contains(k.log.String(), "format 2") {
			t.Errorf("the log has %s", k.log)
		}
		k.stop()
	})
}
