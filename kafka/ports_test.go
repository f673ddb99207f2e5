package kafka

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"penstock/internal/testkit"
	"penstock/netio"
)

// Where this node has no local port for a broker the connection ends with that
// reason, and status says what it was.
func TestNoLocalPortIsNotABrokerFailure(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	s.apply(discovered(k.ListenAddrs()[0]))
	s.looked(1)
	v := s.virtual("t1")
	next := func(err error) netio.Reason {
		b, ok := v.Broker("0")
		if !ok {
			t.Fatal("there is no broker 0")
		}
		p := &Connection{
			proxy: s.proxy, state: v.State(), stats: s.proxy.clusters.of(v.State()), broker: b.Name(), listener: "one",
			version: &clusterVersion{virtual: v}, lookup: &brokerLookup{broker: b},
		}
		if _, why := p.Next(nil, nil); why != netio.OK {
			t.Fatal(why)
		}
		_, why := p.Next(nil, fmt.Errorf("connect: %w", err))
		return why
	}
	if why := next(syscall.EADDRNOTAVAIL); why != netio.LimitPorts {
		t.Errorf("the connection ended with %s", why)
	}
	if got := s.proxy.Status()[0].Brokers[1].Err; !strings.Contains(got, "no local port is left") {
		t.Errorf("status says %q", got)
	}
}

// Connections count where they lead, and those that fail do not count for longer.
func TestLocalPortsTowardsBrokersAreCounted(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	s.apply(oneBroker(k.ListenAddrs()[0], ""))
	at := s.listen(nil, "one")["one"]
	a, b := dial(t, at), dial(t, at)
	a.metadata("none")
	b.metadata("none")
	has := func(want map[netip.AddrPort]int64) func() bool {
		return func() bool { return maps.Equal(s.proxy.Ports()["t1"], want) }
	}
	broker := netip.MustParseAddrPort(k.ListenAddrs()[0])
	testkit.WaitFor(t, "both are counted", has(map[netip.AddrPort]int64{broker: 2}))
	a.Close()
	testkit.WaitFor(t, "one is counted", has(map[netip.AddrPort]int64{broker: 1}))
	b.Close()
	testkit.WaitFor(t, "no connection is counted", has(nil))
	s.apply(oneBroker(testkit.FreeAddress(t), ""))
	refused(t, at)
	testkit.WaitFor(t, "the connection to fail", func() bool { return s.ends(netio.ConnectRefused) == 1 })
	if !has(nil)() {
		t.Errorf("after the failure there are %v", s.proxy.Ports())
	}
}
