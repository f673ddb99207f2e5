package discover_test

import (
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/kafka/discover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake starts a cluster in this process.
func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// watch follows a cluster; its updates come in the channel.
func watch(t *testing.T, cfg discover.Config) (*discover.Watch, chan []discover.Broker) {
	t.Helper()
	updates := make(chan []discover.Broker, 100)
	cfg.Update = func(b []discover.Broker) { updates <- b }
	w, err := discover.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w, updates
}

// next waits for an update that has so many brokers.
func next(t *testing.T, updates chan []discover.Broker, n int) []discover.Broker {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case b := <-updates:
			if len(b) == n {
				return b
			}
		case <-late:
			t.Fatalf("no update with %d brokers within 20s", n)
		}
	}
}

func addresses(brokers []discover.Broker) []string {
	var list []string
	for _, b := range brokers {
		list = append(list, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	slices.Sort(list)
	return list
}

func TestAllBrokersAreDiscoveredFromOne(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3))
	w, updates := watch(t, discover.Config{Name: "big", Bootstrap: c.ListenAddrs()[:1]})
	got := next(t, updates, 3)
	want := slices.Sorted(slices.Values(c.ListenAddrs()))
	if !slices.Equal(addresses(got), want) {
		t.Errorf("brokers %v, want %v", addresses(got), want)
	}
	if s := w.Status(); s.Err != nil || s.At.IsZero() || len(s.Brokers) != 3 {
		t.Errorf("status %+v", s)
	}
}

func TestRefreshFindsANewBroker(t *testing.T) {
	c := fake(t, kfake.NumBrokers(2))
	w, updates := watch(t, discover.Config{Name: "big", Bootstrap: c.ListenAddrs(), Interval: time.Hour})
	next(t, updates, 2)
	id, _, err := c.AddNode(-1, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Refresh()
	got := next(t, updates, 3)
	if !slices.ContainsFunc(got, func(b discover.Broker) bool { return b.NodeID == id }) {
		t.Errorf("node %d is not among %v", id, got)
	}
}

func TestFailedDiscoveryKeepsKnownBrokers(t *testing.T) {
	c := fake(t, kfake.NumBrokers(1))
	w, updates := watch(t, discover.Config{Name: "big", Bootstrap: c.ListenAddrs(), Interval: 50 * time.Millisecond})
	next(t, updates, 1)
	c.Close()
	testkit.WaitFor(t, "a lookup fails after the end of the cluster", func() bool {
		w.Refresh()
		return w.Status().Err != nil
	})
	if s := w.Status(); len(s.Brokers) != 1 {
		t.Errorf("%d brokers known, want the 1 from before", len(s.Brokers))
	}
	select {
	case b := <-updates:
		t.Errorf("update %v after the cluster's end", b)
	default:
	}
}

func TestDiscoveryAuthenticates(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		c := fake(t, kfake.NumBrokers(2), kfake.EnableSASL(), kfake.Superuser(mechanism, "proxy", "s3cret"))
		_, updates := watch(t, discover.Config{
			Name: "big", Bootstrap: c.ListenAddrs(), SASL: &discover.SASL{Mechanism: mechanism, Username: "proxy", Password: "s3cret"},
		})
		next(t, updates, 2)
	}
}

func TestUnknownMechanismIsRefused(t *testing.T) {
	_, err := discover.Start(discover.Config{Bootstrap: []string{"127.0.0.1:1"}, SASL: &discover.SASL{Mechanism: "GSSAPI"}})
	if err == nil {
		t.Fatal("started with an unknown mechanism")
	}
}
